// Package account owns a user's pages: signing in, profile, keys, sessions, connected Git accounts, notifications,
// webhooks and the audit log. The operator's audit log is the same page for all users.
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

// Config holds the services used by these pages.
type Config struct {
	Sites       *site.Sites
	Deployments *deploy.Deployments
	Domains     *domain.Domains
	Connections *connection.Connections
	Notify      *notify.Notifications
	Webhooks    *webhook.Webhooks
	Teams       *team.Teams
	Usage       *usage.Usage
	OAuth       *oauth.Server   // Optional: without it, apps can't be authorized.
	SSO         *sso.SSO        // Optional: without it, external accounts can't be linked.
	Members     *member.Members // Optional: without it, members can't open protected addresses.
	SignUp      bool            // whether people can create accounts
	Plans       bool            // whether new users choose a plan next

	Confirmations *confirmation.Confirmations // of agents' calls
}

// Pages serves a user's pages.
type Pages struct {
	*shell.Shell
	Config
}

func New(s *shell.Shell, c Config) *Pages { return &Pages{s, c} }
