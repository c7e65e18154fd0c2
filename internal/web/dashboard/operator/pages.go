// Package operator owns the pages of the operator: the state of the installation, users, all
// sites and Git apps.
package operator

import (
	"time"

	"slipway/internal/tenant/connection"
	"slipway/internal/tenant/oauth"
	"slipway/internal/tenant/site"
	"slipway/internal/tenant/webhook"
	"slipway/internal/web/dashboard/shell"
)

// Config names the services that these pages show.
type Config struct {
	Sites        *site.Sites
	Connections  *connection.Connections
	Webhooks     *webhook.Webhooks
	OAuth        *oauth.Server // Optional: without it there are no apps.
	Installation Installation  // Optional: without it the pages leave it out.
	SignUp       bool          // whether people may create accounts
}

// Pages serves the operator's pages.
type Pages struct {
	*shell.Shell
	Config
	disk   cached[Disk]
	doctor cached[[]Finding]
}

// New returns the operator's pages.
func New(s *shell.Shell, c Config) *Pages {
	p := &Pages{Shell: s, Config: c}
	if i := c.Installation; i != nil {
		p.disk.load, p.disk.good = i.Disk, time.Minute
		p.doctor.load, p.doctor.good = i.Doctor, time.Minute
	}
	return p
}
