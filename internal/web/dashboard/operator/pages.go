// Package operator owns the operator's pages: the state of the installation, users, all sites, and Git apps.
package operator

import (
	"time"

	"slipway/internal/tenant/connection"
	"slipway/internal/tenant/oauth"
	"slipway/internal/tenant/site"
	"slipway/internal/tenant/webhook"
	"slipway/internal/web/dashboard/shell"
)

// Config holds the services used by these pages.
type Config struct {
	Sites        *site.Sites
	Connections  *connection.Connections
	Webhooks     *webhook.Webhooks
	OAuth        *oauth.Server // Optional: without it, apps don't exist.
	Installation Installation  // Optional: without it, the pages omit it.
	SignUp       bool          // whether people can create accounts
}

// Pages serves the operator's pages.
type Pages struct {
	*shell.Shell
	Config
	disk   cached[Disk]
	doctor cached[[]Finding]
}

func New(s *shell.Shell, c Config) *Pages {
	p := &Pages{Shell: s, Config: c}
	if i := c.Installation; i != nil {
		p.disk.load, p.disk.good = i.Disk, time.Minute
		p.doctor.load, p.doctor.good = i.Doctor, time.Minute
	}
	return p
}
