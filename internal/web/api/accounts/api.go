// Package accounts owns the operations of the caller's own account: limits, API keys, OAuth apps
// and what they were granted, and linked accounts.
package accounts

import (
	"slipway/internal/tenant/limits"
	"slipway/internal/tenant/sso"
	"slipway/internal/tenant/team"
	"slipway/internal/web/api/contract"
)

// Config names the services that these operations call.
type Config struct {
	Limits *limits.Limits
	SSO    *sso.SSO // Optional: without it there are no sign-in providers.
	Teams  *team.Teams
}

// API answers the operations of accounts.
type API struct {
	*contract.API
	Config
}

// Register lists the operations of accounts.
func Register(core *contract.API, c Config) {
	a := &API{core, c}
	a.accountRoutes()
	a.usersRoutes()
	a.oauthRoutes()
	a.identityRoutes()
}
