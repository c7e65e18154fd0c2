// Package configure owns the pages on which an owner sets up a site: domains, environment, redirects and access, Git
// and deploy hooks, databases, backups and settings. It also restores deleted sites. Package wordpress has the pages
// for WordPress.
package configure

import (
	"slipway/internal/deploy/pushes"
	"slipway/internal/deploy/ruletest"
	"slipway/internal/edge/certs"
	"slipway/internal/tenant/oauth"
	"slipway/internal/tenant/team"
	"slipway/internal/web/dashboard/sites"
)

// Config holds the services that these pages use besides those of package sites.
type Config struct {
	Certificates certs.Addresses // of sites' own host names
	Rules        *ruletest.Rules
	Git          *pushes.Pushes
	Teams        *team.Teams
	OAuth        *oauth.Server // notified of rotated hooks and of settings that people take over from apps. Optional.
	APIURL       string        // of deploy hooks
}

// Pages serves these pages below the site's header.
type Pages struct {
	*sites.Pages
	Config
}

func New(s *sites.Pages, c Config) *Pages { return &Pages{s, c} }
