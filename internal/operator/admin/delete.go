package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"slipway/internal/deploy/pushes"
	"slipway/internal/operator/installation"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/seal"
	"slipway/internal/platform/text"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/connection"
	"slipway/internal/tenant/limits"
	"slipway/internal/tenant/notify"
	"slipway/internal/tenant/oauth"
	"slipway/internal/tenant/site"
	"slipway/internal/tenant/team"
	"slipway/internal/tenant/webhook"
)

// Deletion holds the settings of `slipway user delete`.
type Deletion struct {
	Email string
	Sites int  // how many sites the operator knows that the user has
	Yes   bool // false: say what would be deleted, and refuse
	Erase bool // also take the user's email and IP addresses out of the audit log
}

// DeleteUser deletes a user with everything of their personal account. The server's jobs delete the files of their sites.
func DeleteUser(ctx context.Context, s installation.Store, n Deletion, out io.Writer) error {
	d, sealer, err := s.Open(ctx, nil)
	if err != nil {
		return err
	}
	defer d.Close()
	accounts := account.New(account.Config{DB: d, Log: quiet()})
	u, err := accounts.UserByEmail(ctx, n.Email)
	if err != nil {
		return fault.Sentence(err)
	}
	teams := whole(d, sealer, accounts)
	sites, err := teams.SitesOf(ctx, u.Owner)
	if err != nil {
		return fault.Sentence(err)
	}
	if !n.Yes {
		with, add := "", ""
		if len(sites) > 0 {
			with, add = ", with "+text.Count(len(sites), "site"), fmt.Sprintf("--sites %d ", len(sites))
		}
		return fmt.Errorf("this deletes %s and everything of their personal account%s. Add %s--yes to continue", u.Email, with, add)
	}
	by := audit.Actor{Via: "the command line"}
	if err := d.Write(ctx, func(tx *db.Tx) error {
		did, err := teams.DeleteUserTx(ctx, tx, by, u, sites, team.UserDeletion{Sites: n.Sites, Confirm: u.Email, Erase: n.Erase})
		if err != nil {
			return err
		}
		return accounts.AuditTx(ctx, tx, by, did)
	}); err != nil {
		return fault.Sentence(err)
	}
	fmt.Fprintf(out, "User %s deleted\n", u.Email)
	return nil
}

// ExportUser prints what the installation stores about a user, as JSON.
func ExportUser(ctx context.Context, s installation.Store, email string, out io.Writer) error {
	d, sealer, err := s.Open(ctx, nil)
	if err != nil {
		return err
	}
	defer d.Close()
	accounts := account.New(account.Config{DB: d, Log: quiet()})
	u, err := accounts.UserByEmail(ctx, email)
	if err != nil {
		return fault.Sentence(err)
	}
	x, err := whole(d, sealer, accounts).Export(ctx, u)
	if err != nil {
		return fault.Sentence(err)
	}
	if err := d.Write(ctx, func(tx *db.Tx) error {
		return accounts.AuditTx(ctx, tx, commandLine, audit.Event{Action: "user.exported", Subject: string(u.ID), About: u.ID, Detail: u.Email})
	}); err != nil {
		return err
	}
	text := json.NewEncoder(out)
	text.SetIndent("", "  ")
	return text.Encode(x)
}

// whole returns Teams with every service that a deletion needs. They call no other server: the jobs of slipway serve do.
func whole(d *db.DB, sealer *seal.Sealer, accounts *account.Accounts) *team.Teams {
	most := limits.New(limits.Settings{})
	hooks := webhook.New(webhook.Config{DB: d, Seal: sealer, Log: quiet()})
	sites := site.New(site.Config{DB: d, Limits: most, Hooks: hooks, Seal: sealer})
	channels := notify.New(notify.Config{DB: d, Seal: sealer, Log: quiet()})
	apps := oauth.New(oauth.Config{DB: d, Accounts: accounts, Hooks: hooks, Seal: sealer, Log: quiet()})
	git := pushes.New(pushes.Config{DB: d, Sites: sites, Seal: sealer, Log: quiet()})
	apps.Connect(oauth.Removers{
		Webhooks: hooks, DeployHooks: sites, Channels: channels, Polling: git, Repositories: pushes.ChosenByApp{Pushes: git},
	})
	teams := team.New(team.Config{DB: d, Accounts: accounts, Limits: most, Sites: sites, Hooks: hooks, Log: quiet()})
	teams.Connect(git, team.Ties{
		Accounts: accounts, Connections: connection.New(connection.Config{DB: d, Seal: sealer, Log: quiet()}), Webhooks: hooks,
		Notify: channels, OAuth: apps,
	})
	return teams
}
