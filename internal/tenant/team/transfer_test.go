package team_test

import (
	"context"
	"testing"

	"slipway/internal/platform/db"
	"slipway/internal/platform/wait"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/connection"
	"slipway/internal/tenant/limits"
	"slipway/internal/tenant/notify"
	"slipway/internal/tenant/oauth"
	"slipway/internal/tenant/site"
	"slipway/internal/tenant/team"
)

// nothing implements the other parts of a transfer without doing anything.
type nothing struct{}

func (nothing) RotateHookTx(context.Context, *db.Tx, account.OwnerID, site.ID) (hook, workflows bool, err error) {
	return false, false, nil
}

func (nothing) StopPollingTx(context.Context, *db.Tx, site.ID) (polled bool, err error) {
	return false, nil
}

// If an admin transfers a team's site while an owner removes that admin, and the removal commits first, the site stays,
// although the request was allowed when it arrived.
func TestNoTransferAfterTheRemoval(t *testing.T) {
	t.Parallel()
	w := newWorld(t, limits.Settings{})
	w.teams.Connect(nothing{}, team.Ties{
		Accounts: w.users, Webhooks: w.hooks, Connections: connection.New(connection.Config{DB: w.db}), Notify: notify.New(notify.Config{DB: w.db}),
		OAuth: oauth.New(oauth.Config{DB: w.db, Accounts: w.users, Limits: limits.New(limits.Settings{})}),
	}, team.NamedPart{Name: "sites", Part: w.sites})
	ada, ben := w.user("ada@example.test"), w.user("ben@example.test")
	of := w.team(ada)
	w.join(of, ada, ben, account.RoleAdmin)
	var shop site.Site
	w.must(func(ctx context.Context, tx *db.Tx) (err error) {
		shop, err = w.sites.CreateTx(ctx, tx, of.Owner, site.NewSite{Name: "Shop", Type: "static", Repository: "git.test/acme/site"})
		return err
	})
	took := make(chan error, 1)
	w.must(func(ctx context.Context, tx *db.Tx) error {
		if _, _, err := w.teams.RemoveTx(ctx, tx, w.caller(ada, of), ben.ID); err != nil {
			return err
		}
		from, err := w.users.CallerFor(ctx, w.db, ben, of.Owner) // the removal isn't committed, so others still see a member
		if err != nil {
			return err
		}
		go func() {
			took <- w.write(func(ctx context.Context, tx *db.Tx) error {
				to := ben.Caller()
				_, err := w.teams.HandOverTx(ctx, tx, shop.ID, from.Actor(here), to.Actor(here), team.NameOf(to), true)
				return err
			})
		}()
		if w.db.Single() {
			return nil // this transaction must end before the transfer begins
		}
		wait.Until(t, "the transfer waits for the removal", func() (waits bool) {
			err := w.db.QueryRow(ctx, `
				SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')`).Scan(&waits)
			if err != nil {
				t.Error(err)
			}
			return waits || err != nil
		})
		return nil
	})
	if err := <-took; code(err) != "not_a_member" {
		t.Errorf("a transfer by a removed admin: %v", err)
	}
	if got, err := w.sites.Get(t.Context(), of.Owner, shop.ID); err != nil || got.ID != shop.ID {
		t.Errorf("the team's site: %v, %v", got.ID, err)
	}
	w.join(of, ada, ben, account.RoleAdmin)
	from, to := w.caller(ben, of), ben.Caller()
	w.must(func(ctx context.Context, tx *db.Tx) error {
		_, err := w.teams.HandOverTx(ctx, tx, shop.ID, from.Actor(here), to.Actor(here), team.NameOf(to), true)
		return err
	})
	if got, err := w.sites.Get(t.Context(), ben.Owner, shop.ID); err != nil || got.ID != shop.ID {
		t.Errorf("the site of a member again: %v, %v", got.ID, err)
	}
}
