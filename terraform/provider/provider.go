// Package provider owns the Terraform and OpenTofu provider: its resources, data sources, and the comparison of plans.
//
// Each resource is described by its schema, whose names are the REST API's in snake case, and by a few functions with
// its paths; object.go derives the rest. Secrets are write-only and never in a state or plan. Attributes missing in a
// configuration aren't managed.
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

// Address is the provider's source in configurations. Its top-level domain is reserved for private use, so that the
// provider can only come from an installation or a local folder.
const Address = "slipway.internal/slipway/slipway"

// New returns the provider's factory for a plugin server.
func New(version string) func() provider.Provider {
	return func() provider.Provider { return &slipway{version: version} }
}

type slipway struct{ version string }

// Metadata implements provider.Provider.
func (p *slipway) Metadata(_ context.Context, _ provider.MetadataRequest, resp *provider.MetadataResponse) {
	resp.TypeName, resp.Version = "slipway", p.version
}

// Schema implements provider.Provider.
func (p *slipway) Schema(_ context.Context, _ provider.SchemaRequest, resp *provider.SchemaResponse) {
	resp.Schema = schema.Schema{
		Description: "Manages sites of a Slipway installation.",
		Attributes: map[string]schema.Attribute{
			"server": schema.StringAttribute{
				Optional: true, Description: "The installation's address, such as https://slipway.example. Default: SLIPWAY_SERVER.",
			},
			"token": schema.StringAttribute{
				Optional: true, Sensitive: true, Description: "An API key. Default: SLIPWAY_TOKEN. It isn't stored.",
			},
			"ca_file": schema.StringAttribute{
				Optional: true, Description: "A PEM file of certificate authorities to trust in addition to the system's.",
			},
		},
	}
}

// Configure reads the provider block and the environment without connecting.
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

// Resources implements provider.Provider.
func (p *slipway) Resources(context.Context) (made []func() resource.Resource) {
	for _, k := range kinds() {
		made = append(made, func() resource.Resource { return &object{kind: k} })
	}
	return made
}

// EphemeralResources implements provider.ProviderWithEphemeralResources.
func (p *slipway) EphemeralResources(context.Context) []func() ephemeral.EphemeralResource {
	return []func() ephemeral.EphemeralResource{
		func() ephemeral.EphemeralResource { return &apiKey{} },
		func() ephemeral.EphemeralResource { return &wordpressLogin{} },
	}
}

// DataSources implements provider.Provider.
func (p *slipway) DataSources(context.Context) (made []func() datasource.DataSource) {
	for _, s := range sources() {
		made = append(made, func() datasource.DataSource { return &data{source: s} })
	}
	return made
}
