// Package account owns the pages of a user: signing in, profile, keys, sessions, connected
// Git accounts, notifications, webhooks and the audit log. The operator's audit log is the same
// page about everybody.
package account

import (
	"slipway/internal/deploy/deploy"
	"slipway/internal/tenant/confirmation"
	"slipway/internal/tenant/connection"
	"slipway/internal/tenant/domain"
	"slipway/internal/tenant/member"
	"slipway/internal/tenant/notify"
	"slipway/internal/tenant/oauth"
	"slipway/internal/tenant/site"
	"slipway/internal/tenant/sso"
	"slipway/internal/tenant/team"
	"slipway/internal/tenant/usage"
	"slipway/internal/tenant/webhook"
	"slipway/internal/web/dashboard/shell"
)

// Config names the services that these pages show.
type Config struct {
	Sites       *site.Sites
	Deployments *deploy.Deployments
	Domains     *domain.Domains
	Connections *connection.Connections
	Notify      *notify.Notifications
	Webhooks    *webhook.Webhooks
	Teams       *team.Teams
	Usage       *usage.Usage
	OAuth       *oauth.Server   // Optional: without it apps are not authorized.
	SSO         *sso.SSO        // Optional: without it there are no accounts elsewhere.
	Members     *member.Members // Optional: without it nobody goes on to a protected address.
	SignUp      bool            // whether people may create accounts
	Plans       bool            // whether they choose a plan next

	Confirmations *confirmation.Confirmations // of agents' calls
}

// Pages serves the pages of a user.
type Pages struct {
	*shell.Shell
	Config
}

// New returns the pages of a user.
func New(s *shell.Shell, c Config) *Pages { return &Pages{s, c} }
