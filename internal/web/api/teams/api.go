// Package teams owns the operations of teams: members, invitations, sign-in providers and the audit
// log.
package teams

import (
	"slipway/internal/tenant/sso"
	"slipway/internal/tenant/team"
	"slipway/internal/web/api/contract"
)

// Config holds the services that these operations call.
type Config struct {
	SSO   *sso.SSO // Optional: nil means that there are no sign-in providers.
	Teams *team.Teams
}

// API implements the operations of teams.
type API struct {
	*contract.API
	Config
}

// Register registers the operations of teams.
func Register(core *contract.API, c Config) {
	a := &API{core, c}
	a.teamRoutes()
	a.teamSSORoutes()
}
