// Package accounts owns the operations of the caller's own account: limits, API keys, OAuth apps and their grants, and
// linked accounts.
package accounts

import (
	"slipway/internal/tenant/limits"
	"slipway/internal/tenant/sso"
	"slipway/internal/tenant/team"
	"slipway/internal/web/api/contract"
)

// Config holds the services that these operations call.
type Config struct {
	Limits *limits.Limits
	SSO    *sso.SSO // Optional: nil means that there are no sign-in providers.
	Teams  *team.Teams
}

// API implements the operations of accounts.
type API struct {
	*contract.API
	Config
}

// Register registers the operations of accounts.
func Register(core *contract.API, c Config) {
	a := &API{core, c}
	a.accountRoutes()
	a.usersRoutes()
	a.oauthRoutes()
	a.identityRoutes()
}
