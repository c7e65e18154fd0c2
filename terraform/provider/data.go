package provider

import (
	"context"
	"errors"
	"net/url"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"
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

// Metadata implements datasource.DataSource.
func (d *data) Metadata(_ context.Context, req datasource.MetadataRequest, resp *datasource.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_" + d.name
}

// Schema implements datasource.DataSource.
func (d *data) Schema(_ context.Context, _ datasource.SchemaRequest, resp *datasource.SchemaResponse) {
	resp.Schema = schema.Schema{Description: d.about, Attributes: d.attributes}
}

// Configure receives the provider's client.
func (d *data) Configure(_ context.Context, req datasource.ConfigureRequest, _ *datasource.ConfigureResponse) {
	d.c, _ = req.ProviderData.(*client)
}

// Read implements datasource.DataSource.
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

// siteAttributes returns the attributes of a site.
func siteAttributes(id, slug schema.StringAttribute) map[string]schema.Attribute {
	return map[string]schema.Attribute{
		"id":         id,
		"slug":       slug,
		"name":       shownText("Display name."),
		"type":       shownText("static or wordpress."),
		"url":        shownText("The site's address."),
		"status":     shownText("pending, provisioning, active, error or stopped."),
		"runtime":    shownText("How it is served: static, node, php or wordpress."),
		"repository": shownText("The Git repository."),
		"branch":     shownText("The production branch."),
		"created_at": shownText("When it was created."),
	}
}

func shownRecords(doc string) schema.ListNestedAttribute {
	return schema.ListNestedAttribute{Computed: true, Description: doc, NestedObject: schema.NestedAttributeObject{
		Attributes: map[string]schema.Attribute{
			"type":  shownText("TXT, CNAME, A or AAAA."),
			"name":  shownText("The record's full name."),
			"value": shownText("The value that it must have."),
		},
	}}
}

func optionalText(doc string) schema.StringAttribute {
	return schema.StringAttribute{Optional: true, Description: doc}
}

func sources() []source {
	return []source{
		{
			name:       "site",
			about:      "An existing site, by its ID or slug.",
			attributes: siteAttributes(either("The site's id. Either it or slug must be set."), either("The site's name in addresses.")),
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
		},
		{
			name:  "sites",
			about: "The existing sites, newest first.",
			attributes: map[string]schema.Attribute{
				"type":   optionalText("Only sites of this type."),
				"status": optionalText("Only sites in this status."),
				"tag":    optionalText("Only sites with this tag."),
				"search": optionalText("Only sites with this text in their name, subdomain, domains, repository or tags."),
				"sites": schema.ListNestedAttribute{Computed: true, Description: "The sites.", NestedObject: schema.NestedAttributeObject{
					Attributes: siteAttributes(shownText("The site's id."), shownText("The site's name in addresses.")),
				}},
			},
			read: func(ctx context.Context, c *client, config values) (values, error) {
				query := url.Values{}
				for _, name := range []string{"type", "status", "tag", "search"} {
					if v := text(config[name]); v != "" {
						query.Set(name, v)
					}
				}
				all, err := c.list(ctx, "/sites?"+query.Encode())
				sites := make([]any, len(all))
				for i := range all {
					sites[i] = flat(all[i])
				}
				return values{"sites": sites}, err
			},
		},
		{
			name:  "domain",
			about: "An existing domain, by its name.",
			attributes: map[string]schema.Attribute{
				"name":          schema.StringAttribute{Required: true, Description: "The domain's name."},
				"id":            shownText("The domain's id."),
				"site_id":       shownText("The site."),
				"redirect_to":   shownText("Host that visitors are redirected to."),
				"primary":       schema.BoolAttribute{Computed: true, Description: "Whether it is the site's primary domain."},
				"status":        shownText("pending, active or failed."),
				"status_reason": shownText("Why it is not active, or will stop being active."),
				"ssl_status":    shownText("pending, active, failed or expired."),
				"verification":  shownRecords("Records that prove ownership."),
				"dns":           shownRecords("Records that send traffic to Slipway."),
			},
			read: func(ctx context.Context, c *client, config values) (values, error) {
				return c.find(ctx, "/domains", text(config["name"]), "name")
			},
		},
		{
			name:  "deployment",
			about: "A deployment, by its id.",
			attributes: map[string]schema.Attribute{
				"id":          schema.StringAttribute{Required: true, Description: "The deployment's id."},
				"site_id":     shownText("The site."),
				"status":      shownText("pending, building, deploying, success, failed or canceled."),
				"target":      shownText("production or preview."),
				"branch":      shownText("The branch."),
				"commit_hash": shownText("The commit."),
				"url":         shownText("The immutable address of this deployment."),
				"created_at":  shownText("When it was triggered."),
			},
			read: func(ctx context.Context, c *client, config values) (values, error) {
				return c.get(ctx, "/deployments/"+escape(text(config["id"])))
			},
		},
		{
			name:  "account",
			about: "The user whose API key the provider has.",
			attributes: map[string]schema.Attribute{
				"id": shownText("The user's id."), "email": shownText("The user's email address."),
			},
			read: func(ctx context.Context, c *client, _ values) (values, error) { return c.get(ctx, "/account") },
		},
		{
			name:  "webhook_events",
			about: "The events that webhooks can be sent.",
			attributes: map[string]schema.Attribute{
				"names": schema.ListAttribute{Computed: true, ElementType: types.StringType, Description: "Their names."},
			},
			read: func(ctx context.Context, c *client, _ values) (values, error) {
				all, err := c.list(ctx, "/webhooks/events")
				names := make([]any, len(all))
				for i := range all {
					names[i] = all[i]["name"]
				}
				return values{"names": names}, err
			},
		},
	}
}
