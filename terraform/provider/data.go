package provider

import (
	"context"
	"errors"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
)

// source describes a data source.
type source struct {
	name, about string
	attributes  map[string]schema.Attribute
	read        func(ctx context.Context, c *client, config values) (values, error)
}

// data is a data source.
type data struct {
	source
	c *client
}

// Metadata names it.
func (d *data) Metadata(_ context.Context, req datasource.MetadataRequest, resp *datasource.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_" + d.name
}

// Schema describes its attributes.
func (d *data) Schema(_ context.Context, _ datasource.SchemaRequest, resp *datasource.SchemaResponse) {
	resp.Schema = schema.Schema{Description: d.about, Attributes: d.attributes}
}

// Configure gets what the provider made.
func (d *data) Configure(_ context.Context, req datasource.ConfigureRequest, _ *datasource.ConfigureResponse) {
	d.c, _ = req.ProviderData.(*client)
}

// Read asks the server.
func (d *data) Read(ctx context.Context, req datasource.ReadRequest, resp *datasource.ReadResponse) {
	config, ok := readInto(&resp.Diagnostics, req.Config.Raw)
	if !ok {
		return
	}
	got, err := d.read(ctx, d.c, config)
	if err == nil && got == nil {
		err = errors.New("not found")
	}
	if err != nil {
		resp.Diagnostics.AddError("Read "+d.name, err.Error())
		return
	}
	t := req.Config.Schema.Type().TerraformType(ctx)
	answered := fromJSON(got, t).(values)
	for name, v := range config {
		if v != nil {
			answered[name] = v
		}
	}
	resp.State.Raw = write(answered, t)
}

func shownText(doc string) schema.StringAttribute {
	return schema.StringAttribute{Computed: true, Description: doc}
}

func either(doc string) schema.StringAttribute {
	return schema.StringAttribute{Optional: true, Computed: true, Description: doc}
}

func sources() []source {
	return []source{{
		name:  "site",
		about: "A site that exists, by its id or its slug.",
		attributes: map[string]schema.Attribute{
			"id":         either("The site's id. Either it or slug must be set."),
			"slug":       either("The site's name in addresses."),
			"name":       shownText("Display name."),
			"type":       shownText("static or wordpress."),
			"url":        shownText("The site's address."),
			"status":     shownText("pending, provisioning, active, error or stopped."),
			"runtime":    shownText("How it is served: static, node, php or wordpress."),
			"repository": shownText("The Git repository."),
			"branch":     shownText("The production branch."),
			"created_at": shownText("When it was created."),
		},
		read: func(ctx context.Context, c *client, config values) (values, error) {
			id := text(config["id"])
			if slug := text(config["slug"]); (id == "") == (slug == "") {
				return nil, errors.New("set either id or slug")
			} else if id == "" {
				id = slug
			}
			got, err := findSite(ctx, c, id)
			return flat(got), err
		},
	}}
}
