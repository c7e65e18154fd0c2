package server

import (
	"slipway/internal/build/build"
	"slipway/internal/tenant/team"
)

// connectTransfers says what moves with a site that is transferred.
func (h *node) connectTransfers(builds *build.Builds) {
	h.teams.Connect(
		h.git, team.Ties{
			Accounts: h.accounts, Connections: h.connections, Webhooks: h.webhooks, Notify: h.notify, OAuth: h.oauth, SSO: h.sso,
		},
		team.NamedPart{Name: "deployments", Part: h.deployments}, // first: it refuses while one runs
		team.NamedPart{Name: "uploads", Part: h.uploads},
		team.NamedPart{Name: "backups", Part: h.backups},
		team.NamedPart{Name: "sites", Part: h.sites},
		team.NamedPart{Name: "domains", Part: h.domains},
		team.NamedPart{Name: "databases", Part: h.databases},
		team.NamedPart{Name: "WordPress installations", Part: h.wordpress},
		team.NamedPart{Name: "workers and scheduled commands", Part: h.apps},
		team.NamedPart{Name: "build caches", Part: builds},
	)
}
