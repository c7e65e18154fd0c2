//go:build linux

package main

import (
	"context"
	"errors"
	"strings"

	"slipway/internal/operator/admin"
	"slipway/internal/operator/flags"
	"slipway/internal/tenant/sso"
)

type ssoCommand struct {
	Add    ssoAdd    `cmd:"" help:"Let people sign in with a provider. The client secret is read from standard input."`
	List   ssoList   `cmd:"" help:"List sign-in providers and how many users are linked."`
	Remove ssoRemove `cmd:"" help:"Remove a sign-in provider and sign out everybody who signed in with it."`
	Test   ssoTest   `cmd:"" help:"Check that the issuer of a sign-in provider can be reached and is set up right."`
}

// ssoWay holds the server's settings for reaching issuers and for redirects back.
type ssoWay struct {
	BaseURL  string   `name:"base-url" help:"Base URL of the dashboard." default:"http://127.0.0.1:8080" placeholder:"URL"`
	Allow    []string `name:"outbound-allow" help:"Private network (CIDR) that issuers may be in, as for slipway serve. Repeatable." placeholder:"CIDR"`
	Outbound string   `name:"outbound-ca-file" help:"Additional root certificates to trust, as for slipway serve." type:"path" placeholder:"FILE"`
}

func (w ssoWay) way() admin.SSOWay {
	return admin.SSOWay{BaseURL: w.BaseURL, Allow: w.Allow, CAFile: w.Outbound}
}

type ssoAdd struct {
	flags.Data
	ssoWay
	Kind     string   `help:"google, microsoft, gitlab, github, or oidc for any other issuer." required:"" placeholder:"KIND"`
	ID       string   `name:"id" help:"Id of the provider, a part of the redirect URI. Default: the kind." placeholder:"ID"`
	Name     string   `help:"Name on the sign-in page." placeholder:"NAME"`
	Issuer   string   `help:"Issuer URL; of gitlab and github where it isn't the public one." placeholder:"URL"`
	Tenant   string   `help:"Directory (tenant) ID of Microsoft." placeholder:"ID"`
	ClientID string   `name:"client-id" help:"Client ID." required:"" placeholder:"ID"`
	Domains  []string `name:"sign-up-domains" help:"Email domains whose users get an account at their first sign-in; * for every one." placeholder:"DOMAIN"`
}

// Run adds the provider, also while the server runs.
func (a ssoAdd) Run(ctx context.Context) error {
	secret, err := readLine("Client secret (it shows as you type): ")
	if err != nil {
		return err
	}
	if secret == "" {
		return errors.New("the client secret is missing: write it to standard input")
	}
	return admin.AddSSO(ctx, a.Store(), a.way(), sso.NewProvider{
		ID: sso.ProviderID(a.ID), Kind: sso.Kind(strings.ToLower(a.Kind)), Name: a.Name, Issuer: a.Issuer, Tenant: strings.ToLower(a.Tenant),
		ClientID: a.ClientID, Secret: sso.Secret(secret), Domains: a.Domains,
	}, stdout)
}

type ssoList struct {
	flags.Data
	ssoWay
}

// Run lists the providers, also while the server runs.
func (l ssoList) Run(ctx context.Context) error {
	return admin.ListSSO(ctx, l.Store(), l.way(), stdout)
}

type ssoRemove struct {
	flags.Data
	ssoWay
	ID string `name:"id" help:"Id of the provider." required:"" placeholder:"ID"`
}

// Run removes the provider, also while the server runs.
func (r ssoRemove) Run(ctx context.Context) error {
	return admin.RemoveSSO(ctx, r.Store(), r.way(), sso.ProviderID(r.ID), stdout)
}

type ssoTest struct {
	flags.Data
	ssoWay
	ID string `name:"id" help:"Id of the provider." required:"" placeholder:"ID"`
}

// Run queries the issuer.
func (t ssoTest) Run(ctx context.Context) error {
	return admin.TestSSO(ctx, t.Store(), t.way(), sso.ProviderID(t.ID), stdout)
}
