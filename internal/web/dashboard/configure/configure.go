// Package configure owns the pages on which the owner of a site sets it up: domains,
// environment, redirects and access, Git and deploy hooks, databases, backups and settings, and
// brings deleted sites back. Those of a WordPress are in package wordpress beside it.
package configure

import (
	"slipway/internal/deploy/pushes"
	"slipway/internal/deploy/ruletest"
	"slipway/internal/edge/certs"
	"slipway/internal/tenant/oauth"
	"slipway/internal/tenant/team"
	"slipway/internal/web/dashboard/sites"
)

// Config names the services that these pages show besides those of package sites.
type Config struct {
	Certificates certs.Addresses // of sites' own addresses
	Rules        *ruletest.Rules
	Git          *pushes.Pushes
	Teams        *team.Teams
	OAuth        *oauth.Server // told of hooks that are rotated and of settings that people take over from apps. Optional.
	APIURL       string        // where deploy hooks are reached
}

// Pages serves these pages, with the header of those of sites.
type Pages struct {
	*sites.Pages
	Config
}

// New returns the pages.
func New(s *sites.Pages, c Config) *Pages { return &Pages{s, c} }
