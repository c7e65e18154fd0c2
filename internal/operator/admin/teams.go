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
