package admin

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"slipway/internal/operator/installation"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/notify"
	"slipway/internal/tenant/site"
	"slipway/internal/tenant/team"
	"slipway/internal/tenant/webhook"
)

// The command line exports a user's data and erases a user, whose name then isn't in the audit log any more.
func TestEraseUserOnTheCommandLine(t *testing.T) {
	t.Parallel()
	s := installation.Store{DataDir: t.TempDir()}
	var out bytes.Buffer
	for _, n := range []NewUser{
		{Email: "root@example.test", Password: "correct horse battery", Admin: true}, {Email: "ada@example.test", Password: "correct horse battery"},
	} {
		must(t, CreateUser(t.Context(), s, n, &out))
	}
	out.Reset()
	must(t, ExportUser(t.Context(), s, "ada@example.test", &out))
	var x team.Export
	must(t, json.Unmarshal(out.Bytes(), &x))
	if x.Email != "ada@example.test" || x.Role != "user" || len(x.AuditLog) == 0 || x.AuditLog[0].Action != "user.created" {
		t.Errorf("exported: %s", out.String())
	}
	must(t, DeleteUser(t.Context(), s, Deletion{Email: "ada@example.test", Yes: true, Erase: true}, &out))
	must(t, withAccounts(t.Context(), s, func(_ *db.DB, a *account.Accounts) error {
		list, err := a.Audit(t.Context(), audit.Filter{Limit: 50})
		var actions []string
		for _, e := range list {
			actions = append(actions, e.Action)
			if strings.Contains(e.Detail, "ada@") {
				t.Errorf("the log still has %+v", e)
			}
		}
		if got := strings.Join(actions, " "); got != "user.erased user.exported user.created user.created" {
			t.Errorf("the log has %s", got)
		}
		return err
	}))
}

// The command line deletes a user, the user's sites, and what apps created with the user's access to a team. The number
// of sites must be confirmed, and the last owner of a team and the last operator can't be deleted, as in the dashboard.
func TestDeleteUserOnTheCommandLine(t *testing.T) {
	t.Parallel()
	s := installation.Store{DataDir: t.TempDir()}
	ctx := t.Context()
	var out bytes.Buffer
	for _, n := range []NewUser{
		{Email: "root@example.test", Password: "correct horse battery", Admin: true},
		{Email: "ada@example.test", Password: "correct horse battery"},
		{Email: "eve@example.test", Password: "correct horse battery"},
	} {
		must(t, CreateUser(ctx, s, n, &out))
	}
	d, sealer, err := s.Open(ctx, nil)
	must(t, err)
	defer d.Close()
	accounts := account.New(account.Config{DB: d})
	ada, err := accounts.UserByEmail(ctx, "ada@example.test")
	must(t, err)
	eve, err := accounts.UserByEmail(ctx, "eve@example.test")
	must(t, err)
	hooks := webhook.New(webhook.Config{DB: d, Seal: sealer})
	sites := site.New(site.Config{DB: d, Seal: sealer, Hooks: hooks})
	channels := notify.New(notify.Config{DB: d, Seal: sealer, Base: "http://x"})
	teams := whole(d, sealer, accounts)

	// In Eve's team an app acts for Ada. What the app created ends with Ada's account.
	made := map[string]string{}
	var acme team.Team
	must(t, d.Write(ctx, func(tx *db.Tx) error {
		if acme, err = teams.CreateTx(ctx, tx, eve, team.NewTeam{Name: "Acme"}); err != nil {
			return err
		}
		if _, err := sites.CreateTx(ctx, tx, ada.Owner, site.NewSite{Name: "Blog", Type: "static", Repository: "git.test/ada/blog"}); err != nil {
			return err
		}
		shop, err := sites.CreateTx(ctx, tx, acme.Owner, site.NewSite{Name: "Shop", Type: "static", Repository: "git.test/acme/shop"})
		if err != nil {
			return err
		}
		hook, err := hooks.CreateTx(ctx, tx, acme.Owner, webhook.NewWebhook{URL: "https://app.test/hook", Events: []string{"site.created"}})
		if err != nil {
			return err
		}
		channel, err := channels.CreateTx(ctx, tx, acme.Owner, notify.NewChannel{
			Kind: "slack", Name: "App", URL: "https://hooks.slack.com/services/T/B/x", Events: notify.Events,
		})
		made["webhook"], made["channel"], made["polling"] = string(hook.ID), string(channel.ID), string(shop.ID)
		return err
	}))
	must(t, d.Admin(ctx, `INSERT INTO oauth_apps (id, owner_id, name, website, redirect_uris, confidential, secret, secret_hint, old_secret,
		old_secret_until, disabled_at, fresh_until, created_at) VALUES ('app_1', '`+string(ada.Owner)+`', 'App', '', '', FALSE, '', '', '', 0, 0, 0, 1)`))
	must(t, d.Admin(ctx, `INSERT INTO oauth_grants (id, app_id, user_id, owner_id, scopes, sites, expires_at, created_at, used_at, used_addr)
		VALUES ('grt_1', 'app_1', '`+string(ada.ID)+`', '`+string(acme.Owner)+`', '*', '', 9000000000000, 1, 0, '')`))
	for kind, id := range made {
		must(t, d.Admin(ctx, `INSERT INTO oauth_made (kind, id, owner_id, grant_id) VALUES ('`+kind+`', '`+id+`', '`+string(acme.Owner)+`', 'grt_1')`))
	}

	said := func(n Deletion) string {
		out.Reset()
		if err := DeleteUser(ctx, s, n, &out); err != nil {
			return err.Error()
		}
		return out.String()
	}
	for _, x := range []struct {
		n    Deletion
		want string
	}{
		{Deletion{Email: "nobody@example.test", Yes: true}, "User not found"},
		{Deletion{Email: "Ada@example.test"}, "this deletes ada@example.test and everything of their personal account, with 1 site. " +
			"Add --sites 1 --yes to continue"},
		{Deletion{Email: "ada@example.test", Sites: 1}, "this deletes ada@example.test"},
		{Deletion{Email: "ada@example.test", Yes: true}, "ada@example.test now has 1 site: nothing was deleted"},
		{Deletion{Email: "ada@example.test", Sites: 2, Yes: true}, "ada@example.test now has 1 site: nothing was deleted"},
		{Deletion{Email: "root@example.test", Yes: true}, "This is the only operator"},
		{Deletion{Email: "eve@example.test", Yes: true}, "This user is the last owner of a team"},
	} {
		if got := said(x.n); !strings.HasPrefix(got, x.want) {
			t.Errorf("%+v says %q, want %q", x.n, got, x.want)
		}
	}
	for _, email := range []string{"root@example.test", "ada@example.test", "eve@example.test"} {
		if _, err := accounts.UserByEmail(ctx, email); err != nil {
			t.Errorf("%s is gone: %v", email, err)
		}
	}

	if got := said(Deletion{Email: "Ada@example.test", Sites: 1, Yes: true}); got != "User ada@example.test deleted\n" {
		t.Errorf("it says %q", got)
	}
	if _, err := accounts.User(ctx, ada.ID); !fault.Is(err, fault.NotFound) {
		t.Errorf("she is still there: %v", err)
	}
	for what, q := range map[string]string{
		"sites":    `SELECT count(*) FROM open_sites WHERE owner_id = '` + string(ada.Owner) + `'`,
		"apps":     `SELECT count(*) FROM oauth_apps WHERE owner_id <> ''`,
		"grants":   `SELECT count(*) FROM oauth_grants`,
		"made":     `SELECT count(*) FROM oauth_made`,
		"webhooks": `SELECT count(*) FROM webhooks WHERE deleted_at = 0`,
		"channels": `SELECT count(*) FROM notify_channels`,
	} {
		var n int
		if err := d.QueryRow(ctx, q).Scan(&n); err != nil || n != 0 {
			t.Errorf("%d %s are left, %v", n, what, err)
		}
	}
	var jobs int
	if err := d.QueryRow(ctx, `SELECT count(*) FROM jobs WHERE kind = 'site.purge'`).Scan(&jobs); err != nil || jobs != 1 {
		t.Errorf("%d jobs purge her site, %v", jobs, err)
	}
	log, err := accounts.Audit(ctx, audit.Filter{Action: "user.deleted"})
	if err != nil || len(log) != 1 || log[0].Via != "the command line" || log[0].User != "" || log[0].Detail != "ada@example.test, with 1 site" {
		t.Errorf("the log has %+v, %v", log, err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
