package provider

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/ephemeral"
	"github.com/hashicorp/terraform-plugin-framework/ephemeral/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"
)

// keyTime is a key's lifetime in case a run is interrupted. A completed run revokes its key.
const keyTime = time.Hour

// apiKey is a key created for a run and revoked at its end.
type apiKey struct{ c *client }

// Metadata implements ephemeral.EphemeralResource.
func (k *apiKey) Metadata(_ context.Context, req ephemeral.MetadataRequest, resp *ephemeral.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_api_key"
}

// Schema implements ephemeral.EphemeralResource.
func (k *apiKey) Schema(_ context.Context, _ ephemeral.SchemaRequest, resp *ephemeral.SchemaResponse) {
	resp.Schema = schema.Schema{
		Description: "An API key that exists while Terraform runs, and an hour at most. It is in no state and in no plan.",
		Attributes: map[string]schema.Attribute{
			"name":   schema.StringAttribute{Required: true, Description: "1 to 100 characters."},
			"scopes": schema.SetAttribute{Required: true, ElementType: types.StringType, Description: "Scopes of the key, of those that the provider's own has."},
			"sites":  schema.SetAttribute{Optional: true, ElementType: types.StringType, Description: "Ids of the sites it is restricted to. Default: all."},
			"key":    schema.StringAttribute{Computed: true, Sensitive: true, Description: "The key."},
		},
	}
}

// Configure receives the provider's client.
func (k *apiKey) Configure(_ context.Context, req ephemeral.ConfigureRequest, _ *ephemeral.ConfigureResponse) {
	k.c, _ = req.ProviderData.(*client)
}

// Open creates the key.
func (k *apiKey) Open(ctx context.Context, req ephemeral.OpenRequest, resp *ephemeral.OpenResponse) {
	config, ok := readInto(&resp.Diagnostics, req.Config.Raw)
	if !ok {
		return
	}
	body := values{"expiresAt": time.Now().Add(keyTime).UTC().Format(time.RFC3339)}
	for _, name := range []string{"name", "scopes", "sites"} {
		if config[name] != nil {
			body[name] = config[name]
		}
	}
	got, err := k.c.change(ctx, http.MethodPost, "/keys", body)
	if err != nil {
		resp.Diagnostics.AddError("Create API key", err.Error())
		return
	}
	id, err := json.Marshal(text(got["id"]))
	if err != nil {
		resp.Diagnostics.AddError("Create API key", err.Error())
		return
	}
	resp.Diagnostics.Append(resp.Private.SetKey(ctx, "id", id)...)
	config["key"] = got["key"]
	resp.Result.Raw = write(config, req.Config.Schema.Type().TerraformType(ctx))
}

// Close revokes the key.
func (k *apiKey) Close(ctx context.Context, req ephemeral.CloseRequest, resp *ephemeral.CloseResponse) {
	var id string
	kept, said := req.Private.GetKey(ctx, "id")
	resp.Diagnostics.Append(said...)
	if err := json.Unmarshal(kept, &id); err != nil {
		resp.Diagnostics.AddError("Revoke API key", err.Error())
		return
	}
	if _, err := k.c.change(ctx, http.MethodDelete, "/keys/"+escape(id), nil); err != nil && !missing(err) {
		resp.Diagnostics.AddError("Revoke API key", err.Error())
	}
}

// wordpressLogin is a one-time link to sign in to WordPress, valid for minutes. It needs no revocation.
type wordpressLogin struct{ c *client }

// Metadata implements ephemeral.EphemeralResource.
func (l *wordpressLogin) Metadata(_ context.Context, req ephemeral.MetadataRequest, resp *ephemeral.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_wordpress_login"
}

// Schema implements ephemeral.EphemeralResource.
func (l *wordpressLogin) Schema(_ context.Context, _ ephemeral.SchemaRequest, resp *ephemeral.SchemaResponse) {
	resp.Schema = schema.Schema{
		Description: "A link that logs in to a WordPress site once, for five minutes. It is in no state and in no plan.",
		Attributes: map[string]schema.Attribute{
			"site_id": schema.StringAttribute{Required: true, Description: "Id of the site."},
			"url":     schema.StringAttribute{Computed: true, Sensitive: true, Description: "The link."},
		},
	}
}

// Configure receives the provider's client.
func (l *wordpressLogin) Configure(_ context.Context, req ephemeral.ConfigureRequest, _ *ephemeral.ConfigureResponse) {
	l.c, _ = req.ProviderData.(*client)
}

// Open creates the link.
func (l *wordpressLogin) Open(ctx context.Context, req ephemeral.OpenRequest, resp *ephemeral.OpenResponse) {
	config, ok := readInto(&resp.Diagnostics, req.Config.Raw)
	if !ok {
		return
	}
	got, err := l.c.change(ctx, http.MethodPost, "/sites/"+escape(text(config["site_id"]))+"/wordpress/login", nil)
	if err != nil {
		resp.Diagnostics.AddError("Log in to WordPress", err.Error())
		return
	}
	config["url"] = got["url"]
	resp.Result.Raw = write(config, req.Config.Schema.Type().TerraformType(ctx))
}
