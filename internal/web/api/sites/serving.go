package sites

import (
	"context"
	"net/http"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/site"
	"slipway/internal/web/api/contract"
)

func (a *API) servingRoutes() {
	contract.Get(a.API, contract.Route{
		Path:    "/sites/{id}/serving",
		ID:      "getSiteServing",
		Tag:     "Sites",
		Summary: "Read a site's serving settings",
		Scope:   account.SitesRead,
		Noun:    "serving settings",
		Doc:     "Password protection, hosts that rewrites may proxy to, trailing slashes, and the contents of the access log.",
	}, a.getServing)
	contract.ChangePrepared(a.API, http.MethodPatch, contract.Route{
		Path:    "/sites/{id}/serving",
		ID:      "updateSiteServing",
		Tag:     "Sites",
		Summary: "Change a site's serving settings",
		Scope:   account.SitesWrite,
		Noun:    "serving settings",
		Doc:     "Takes effect within a second, without a deployment. Visitors who entered the old password must enter the new one.",
	}, a.hashPassword, a.updateServing)
}

type servingBody struct {
	ProxyHosts  []string `json:"proxyHosts" doc:"Hosts that rewrites with status 200 may proxy requests to. Empty: none."`
	Protection  string   `json:"protection" enum:"none,previews,all" doc:"Addresses of the site that require the password."`
	SignIn      string   `json:"signIn" enum:"none,previews,all" doc:"Addresses of the site that require a member's sign-in. If a password protects them too, either one grants access."`
	HasPassword bool     `json:"hasPassword" doc:"Whether a password is set. It is stored hashed and never shown."`

	SinglePage    string `json:"singlePage" enum:"auto,on,off" doc:"Whether 200.html or index.html is served for unknown paths without an extension. auto: from slipway.toml or the detected framework."`
	TrailingSlash string `json:"trailingSlash" enum:"auto,always,never" doc:"Trailing slashes of page URLs; others are redirected. auto: from slipway.toml or vercel.json, otherwise follows the file layout."`
	AccessLog     string `json:"accessLog" enum:"truncated,no-addresses,off" doc:"Contents of the access log: visitors' networks (24 bits of an IPv4 address, 48 of an IPv6 address), no addresses, or off. If off, pages, referrers and countries aren't counted either."`
}

func showServing(v site.Serving) servingBody {
	return servingBody{
		append([]string{}, v.ProxyHosts...),
		v.Protection,
		v.SignIn,
		v.Hash != "",
		v.SinglePage,
		v.TrailingSlash,
		v.AccessLog,
	}
}

func (a *API) getServing(ctx context.Context, c account.Caller, in *contract.ByID[site.ID]) (servingBody, error) {
	if _, err := a.Site(ctx, c, in.ID); err != nil {
		return servingBody{}, err
	}
	v, err := a.Sites.Serving(ctx, a.DB, c.Owner, in.ID)
	return showServing(v), err
}

type updateServingIn struct {
	contract.ByID[site.ID]
	Body struct {
		ProxyHosts    *[]string `json:"proxyHosts,omitempty" doc:"At most 20 host names, with a port if it isn't 443 or 80." maxItems:"20"`
		Protection    *string   `json:"protection,omitempty" enum:"none,previews,all"`
		SignIn        *string   `json:"signIn,omitempty" enum:"none,previews,all"`
		SinglePage    *string   `json:"singlePage,omitempty" enum:"auto,on,off"`
		TrailingSlash *string   `json:"trailingSlash,omitempty" enum:"auto,always,never"`
		AccessLog     *string   `json:"accessLog,omitempty" enum:"truncated,no-addresses,off"`
		Password      *string   `json:"password,omitempty" minLength:"8" maxLength:"200" writeOnly:"true" doc:"Password, 8 to 200 characters. Visitors need no username."`
	}
}

// hashPassword runs before the transaction because hashing is slow.
func (a *API) hashPassword(ctx context.Context, c account.Caller, in *updateServingIn) (string, error) {
	if in.Body.Password == nil {
		return "", nil
	}
	return a.Sites.PasswordHash(ctx, c.Owner, in.ID, *in.Body.Password)
}

func (a *API) updateServing(
	ctx context.Context,
	tx *db.Tx,
	c account.Caller,
	in *updateServingIn,
	hash string,
) (_ servingBody, did audit.Event, _ error) {
	if err := a.Allowed(ctx, tx, c, in.ID); err != nil {
		return servingBody{}, did, err
	}
	now, err := a.Sites.Serving(ctx, tx, c.Owner, in.ID)
	if err == nil {
		err = contract.CheckPatch(ctx, "serving settings", []string{
			"proxyHosts", "protection", "password", "signIn", "singlePage", "trailingSlash", "accessLog",
		}, showServing(now), nil)
	}
	if err != nil {
		return servingBody{}, did, err
	}
	b := in.Body
	v, err := a.Sites.UpdateServingTx(ctx, tx, c.Owner, in.ID, site.ServingPatch{
		ProxyHosts:    b.ProxyHosts,
		Protection:    b.Protection,
		SignIn:        b.SignIn,
		Password:      b.Password,
		SinglePage:    b.SinglePage,
		TrailingSlash: b.TrailingSlash,
		AccessLog:     b.AccessLog,
	}, hash)
	did = audit.Event{Action: "site.updated", Subject: string(in.ID), Detail: "serving"}
	return showServing(v), did, err
}
