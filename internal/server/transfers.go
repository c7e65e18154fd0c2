package server

import (
	"context"
	"fmt"

	"slipway/internal/build/build"
	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
	"slipway/internal/tenant/team"
)

// connectTransfers says what moves with a site that is transferred.
func (h *node) connectTransfers(builds *build.Builds) {
	h.teams.Connect(
		h.git, ties{h},
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

// ties ends what ties a site to its owner before.
type ties struct{ h *node }

// CutTx is team.Ties'.
func (t ties) CutTx(ctx context.Context, tx *db.Tx, id site.ID, from account.OwnerID) (cut []string, err error) {
	use, err := t.h.connections.UseOf(ctx, tx, id)
	if err != nil {
		return nil, err
	}
	if use.Connection != "" {
		cut = append(cut, "the connected Git account stays with the sender: connect one, or add a credential, to deploy from a "+
			"private repository")
	}
	keys, err := t.h.accounts.ForgetSiteTx(ctx, tx, from, id)
	if err != nil {
		return nil, err
	}
	if keys > 0 {
		cut = append(cut, fmt.Sprintf("%d API keys of the sender that are restricted to sites lose this one", keys))
	}
	for _, forget := range []func() error{
		func() error { return t.h.connections.ForgetTx(ctx, tx, id) },
		func() error { return t.h.webhooks.ForgetSiteTx(ctx, tx, id) },
		func() error { return t.h.notify.ForgetTx(ctx, tx, id) },
	} {
		if err := forget(); err != nil {
			return nil, err
		}
	}
	return append(cut, "webhooks and notifications of the sender no longer cover this site"), nil
}

// EndGrantsTx is team.Ties'.
func (t ties) EndGrantsTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, user account.UserID) error {
	if user == "" {
		if err := t.h.sso.ForgetTeamTx(ctx, tx, owner); err != nil {
			return err
		}
		return t.h.oauth.CloseOwnerTx(ctx, tx, owner)
	}
	return t.h.oauth.EndMemberTx(ctx, tx, owner, user)
}
