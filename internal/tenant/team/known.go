package team

import (
	"context"
	"fmt"

	"slipway/internal/platform/db"
	"slipway/internal/platform/id"
	"slipway/internal/tenant/account"
)

// Known is a credential of a team that goes on working when a member leaves who knows it: it should be rotated.
type Known struct {
	Kind     string // service_key, deploy_hook, git_hook or webhook
	Name     string // of a webhook its host; empty for a Git hook
	Site     id.Site
	SiteName string // empty where it concerns no single site
}

// maxKnown caps how many are named.
const maxKnown = 100

// ServiceKeys returns the names of service keys among what a member knew.
func ServiceKeys(list []Known) []string {
	names := []string{}
	for _, k := range list {
		if k.Kind == "service_key" {
			names = append(names, k.Name)
		}
	}
	return names
}

// knownTx returns at most maxKnown credentials that a member can read by their role, service keys apart: hooks of the sites on which they
// are developers, and the team's webhooks.
func (s *Teams) knownTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, m Member) ([]Known, error) {
	all := m.Role.AtLeast(account.RoleDeveloper)
	rows, err := tx.Query(ctx, `
		SELECT kind, name, site_id, site FROM known_secrets WHERE owner_id = $1 AND ($2 OR site_id IN (
			SELECT site_id FROM site_members WHERE owner_id = $1 AND user_id = $3 AND role IN ($4, $5)))
		ORDER BY kind, site, name LIMIT $6`, owner, all, m.User, account.RoleManager, account.RoleDeveloper, maxKnown)
	list, err := db.Collect(rows, err, func(r db.Scanner) (k Known, err error) { return k, r.Scan(&k.Kind, &k.Name, &k.Site, &k.SiteName) })
	if err != nil {
		return nil, fmt.Errorf("list what a member knows: %w", err)
	}
	return list, nil
}
