package admin

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"

	"slipway/internal/operator/installation"
	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/oauth"
)

// ListApps prints every OAuth app of the installation.
func ListApps(ctx context.Context, s installation.Store, out io.Writer) error {
	return withAccounts(ctx, s, func(d *db.DB, accounts *account.Accounts) error {
		list, err := oauth.New(oauth.Config{DB: d, Accounts: accounts}).AllApps(ctx)
		if err != nil {
			return err
		}
		w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "CLIENT ID\tNAME\tGRANTS\tSTATE")
		for _, a := range list {
			state := "enabled"
			if a.Disabled {
				state = "disabled"
			}
			fmt.Fprintf(w, "%s\t%s\t%d\t%s\n", a.ID, a.Name, a.Grants, state)
		}
		return w.Flush()
	})
}

// SetAppDisabled ends an OAuth app everywhere, or lets people authorize it again.
func SetAppDisabled(ctx context.Context, s installation.Store, id string, disabled bool, out io.Writer) error {
	action, done := "app.enabled", "enabled"
	if disabled {
		action, done = "app.disabled", "disabled"
	}
	return withAccounts(ctx, s, func(d *db.DB, accounts *account.Accounts) error {
		server := oauth.New(oauth.Config{DB: d, Accounts: accounts})
		if err := d.Write(ctx, func(tx *db.Tx) error {
			if err := server.SetDisabledTx(ctx, tx, oauth.AppID(id), disabled); err != nil {
				return err
			}
			return accounts.AuditTx(ctx, tx, audit.Actor{Via: "the command line"}, audit.Event{Action: action, Subject: id})
		}); err != nil {
			return err
		}
		fmt.Fprintf(out, "App %s is %s\n", id, done)
		return nil
	})
}
