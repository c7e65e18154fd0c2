// Package provider owns what Terraform and OpenTofu can do with a Slipway installation: the resources, what is read of
// them, and how a plan compares them.
//
// Each resource is described by its schema, whose names are those of the REST interface in snake case, and by a few
// functions that say where it is found; object.go makes the rest of that. Secrets are write-only: they are in no state
// and in no plan. Attributes that a configuration doesn't have are not managed.
package provider

import (
	"context"
	"os"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/ephemeral"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/provider"
	"github.com/hashicorp/terraform-plugin-framework/provider/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"
)

// Address is what configurations name as the provider's source. Its top-level domain is reserved for private use, so
// nobody else can serve a provider by this name: it comes from an installation or a folder, or not at all.
const Address = "slipway.internal/slipway/slipway"

// New returns how the provider is made, for a server of the plugin protocol.
func New(version string) func() provider.Provider {
	return func() provider.Provider { return &slipway{version: version} }
}

type slipway struct{ version string }

// Metadata names the provider.
func (p *slipway) Metadata(_ context.Context, _ provider.MetadataRequest, resp *provider.MetadataResponse) {
	resp.TypeName, resp.Version = "slipway", p.version
}

// Schema describes the provider block.
func (p *slipway) Schema(_ context.Context, _ provider.SchemaRequest, resp *provider.SchemaResponse) {
	resp.Schema = schema.Schema{
		Description: "Manages sites of a Slipway installation.",
		Attributes: map[string]schema.Attribute{
			"server": schema.StringAttribute{
				Optional: true, Description: "The installation's address, such as https://slipway.example. Default: SLIPWAY_SERVER.",
			},
			"token": schema.StringAttribute{
				Optional: true, Sensitive: true, Description: "An API key. Default: SLIPWAY_TOKEN. It is stored nowhere.",
			},
			"ca_file": schema.StringAttribute{
				Optional: true, Description: "A PEM file of certificate authorities to trust beside the system's.",
			},
		},
	}
}

// Configure reads the provider block and the environment. It connects to nothing yet.
func (p *slipway) Configure(ctx context.Context, req provider.ConfigureRequest, resp *provider.ConfigureResponse) {
	var given struct {
		Server types.String `tfsdk:"server"`
		Token  types.String `tfsdk:"token"`
		CAFile types.String `tfsdk:"ca_file"`
	}
	resp.Diagnostics.Append(req.Config.Get(ctx, &given)...)
	if resp.Diagnostics.HasError() {
		return
	}
	or := func(attribute string, v types.String, variable string) string {
		switch {
		case v.IsUnknown():
			resp.Diagnostics.AddAttributeError(path.Root(attribute), "Unknown "+attribute,
				"The provider needs it while it plans: give a value that doesn't depend on a resource, or set "+variable+".")
		case v.ValueString() != "":
			return v.ValueString()
		case os.Getenv(variable) == "" && !resp.Diagnostics.HasError():
			resp.Diagnostics.AddAttributeError(path.Root(attribute), "No "+attribute, "Set it in the provider block, or set "+variable+".")
		}
		return os.Getenv(variable)
	}
	server, token := or("server", given.Server, "SLIPWAY_SERVER"), or("token", given.Token, "SLIPWAY_TOKEN")
	if resp.Diagnostics.HasError() {
		return
	}
	c, err := newClient(server, token, given.CAFile.ValueString())
	if err != nil {
		resp.Diagnostics.AddError("Invalid provider settings", err.Error())
		return
	}
	resp.ResourceData, resp.DataSourceData, resp.EphemeralResourceData = c, c, c
}

// Resources lists what can be managed.
func (p *slipway) Resources(context.Context) (made []func() resource.Resource) {
	for _, k := range kinds() {
		made = append(made, func() resource.Resource { return &object{kind: k} })
	}
	return made
}

// EphemeralResources lists what exists while Terraform runs.
func (p *slipway) EphemeralResources(context.Context) []func() ephemeral.EphemeralResource {
	return []func() ephemeral.EphemeralResource{
		func() ephemeral.EphemeralResource { return &apiKey{} },
		func() ephemeral.EphemeralResource { return &wordpressLogin{} },
	}
}

// DataSources lists what can be read.
func (p *slipway) DataSources(context.Context) (made []func() datasource.DataSource) {
	for _, s := range sources() {
		made = append(made, func() datasource.DataSource { return &data{source: s} })
	}
	return made
}
