package admin

import (
	"context"
	"fmt"
	"io"

	"slipway/internal/operator/installation"
	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/limits"
	"slipway/internal/tenant/team"
)

// SetTeamOwner makes a user an owner of a team, for a team whose owners can't be reached.
func SetTeamOwner(ctx context.Context, s installation.Store, name, email string, out io.Writer) error {
	return withAccounts(ctx, s, func(d *db.DB, accounts *account.Accounts) error {
		u, err := accounts.UserByEmail(ctx, email)
		if err != nil {
			return err
		}
		teams := team.New(team.Config{DB: d, Accounts: accounts, Limits: limits.New(limits.Settings{}), Log: quiet()})
		var t team.Team
		if err := d.Write(ctx, func(tx *db.Tx) (err error) {
			if t, err = teams.AppointTx(ctx, tx, name, u.ID); err != nil {
				return err
			}
			by := audit.Actor{Owner: t.Owner, Via: "the command line"}
			return accounts.AuditTx(ctx, tx, by, audit.Event{
				Action: "member.role_changed", Subject: string(u.ID), About: u.ID, Detail: u.Email + " to owner, by the operator",
			})
		}); err != nil {
			return err
		}
		fmt.Fprintf(out, "User %s is an owner of the team %s\n", u.Email, t.Slug)
		return nil
	})
}

// FreeTeam makes single sign-on optional in a team whose members can't come in any more.
func FreeTeam(ctx context.Context, s installation.Store, name string, out io.Writer) error {
	return withAccounts(ctx, s, func(d *db.DB, accounts *account.Accounts) error {
		teams := team.New(team.Config{DB: d, Accounts: accounts, Limits: limits.New(limits.Settings{}), Log: quiet()})
		var t team.Team
		if err := d.Write(ctx, func(tx *db.Tx) (err error) {
			if t, err = teams.FreeTx(ctx, tx, name); err != nil {
				return err
			}
			return accounts.AuditTx(ctx, tx, audit.Actor{Owner: t.Owner, Via: "the command line"}, audit.Event{
				Action: "team.updated", Subject: string(t.ID), Detail: "single sign-on optional, by the operator",
			})
		}); err != nil {
			return err
		}
		fmt.Fprintf(out, "Single sign-on is optional in the team %s\n", t.Slug)
		return nil
	})
}
