//go:build browser

package dashboard

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/webauthn"
	"github.com/chromedp/chromedp"

	chromium "slipway/e2e/browser"
	"slipway/internal/deploy/deployment"
	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
	"slipway/internal/web/dashboard/operator"
)

// window opens the dashboard in a real Chromium. e2e/browser tests a user's whole path with the real program; these
// tests cover states that would take days to reach.
func (w *world) window(name, url string) *chromium.Window {
	w.t.Helper()
	return chromium.Share(w.t, name).Window(url)
}

func signIn(b *chromium.Window, email string) {
	b.Go("/sign-in")
	b.Type("#f-email", email)
	b.Type("#f-password", password)
	b.Press("@submit")
}

// fill gives a user sites in every state.
func (w *world) fill(email string, n int) {
	w.t.Helper()
	u := w.users[email]
	ctx := w.t.Context()
	names := []string{
		"Harbor Journal", "Acme Docs", "Nordlicht Shop", "status page", "Tidewater Studio",
		"<script>alert(1)</script>", "Überseekontor", "Portfolio 2026", "changelog",
	}
	for i := range n {
		s := w.site(u, fmt.Sprintf("%s%s", names[i%len(names)], map[bool]string{true: fmt.Sprint(" ", i/len(names)+1)}[i >= len(names)]))
		id := deployment.ID(db.NewID("dep"))
		status := []deployment.Status{
			deployment.Success, deployment.Success, deployment.Building, deployment.Failed, deployment.Success,
			deployment.Pending,
		}[i%6]
		message := []string{
			"Rewrite the landing page and shorten the intro", "Fix typo", "Bump astro to 6.2",
			"Add <b>bold</b> search to every page of the handbook", "feat: dark mode", "",
		}[i%6]
		err := w.db.Write(ctx, func(tx *db.Tx) error {
			if _, err := tx.Exec(
				ctx,
				`INSERT INTO deployments (id, site_id, owner_id, label, status, cause, branch, title, clear_cache, commit_hash, commit_message, commit_author,
				framework, plan, release, runtime, rollback_of, error, stages, attempt, cancel, created_at, started_at, completed_at)
				VALUES ($1,$2,$3,$4,$5,'push','main','',FALSE,'a3f91c27d0e1','`+strings.ReplaceAll(
					message,
					"'",
					"''",
				)+`','Ada','astro','','','static','','','[]',1,'',$6,$6,$7)`,
				id,
				s.ID,
				u.ID,
				id[len(id)-12:],
				status,
				db.Now().Add(-time.Duration(i*i*37+2)*time.Minute),
				db.Now(),
			); err != nil {
				return err
			}
			switch status {
			case deployment.Success:
				_, err := w.dash.Sites.ActivateTx(ctx, tx, s.ID, id, "rel", "static")
				return err
			case deployment.Failed:
				if err := w.dash.Sites.ProvisioningTx(ctx, tx, s); err != nil {
					return err
				}
				return w.dash.Sites.FailTx(ctx, tx, s.ID, "The build command ended with exit code 1: npm run build")
			case deployment.Building:
				return w.dash.Sites.ProvisioningTx(ctx, tx, s)
			}
			return nil
		})
		if err != nil {
			w.t.Fatal(err)
		}
		if i%6 == 4 {
			err := w.db.Write(ctx, func(tx *db.Tx) error { _, err := w.dash.Sites.StopTx(ctx, tx, u.Owner, s.ID); return err })
			if err != nil {
				w.t.Fatal(err)
			}
		}
	}
}

// The pages of a user with many sites, and of the operator of a busy installation, render correctly.
func TestBrowser(t *testing.T) {
	t.Parallel()
	w := newWorld(t, demo)
	const ada = "ada@example.test"
	u := w.user(ada, true)
	w.fill(ada, 30)
	b := w.window("dashboard", w.srv.URL)
	b.Go("/forgot")
	b.Look("forgot")
	signIn(b, ada)
	tagged := []string{"marketing", "client a"}
	list, _, err := w.dash.Sites.List(t.Context(), u.Owner, site.Filter{Page: 1, Limit: 3})
	must(t, err)
	for _, s := range list {
		must(t, w.db.Write(t.Context(), func(tx *db.Tx) error {
			_, err := w.dash.Sites.UpdateTx(t.Context(), tx, u.Owner, s.ID, site.Patch{Tags: &tagged})
			return err
		}))
	}
	star := "@favorite-" + string(list[2].ID)
	b.Go("/?view=list&tag=marketing")
	b.Until("the starred site is first already", `document.querySelectorAll('[data-test^="card-"]').length === 3`)
	b.Click(star)
	b.Until("the star is not lit", `document.querySelector('[data-test="favorite-`+string(list[2].ID)+`"]').ariaPressed === 'true'`)
	b.Until("it doesn't come first by itself", `document.querySelector('[data-test^="card-"]').dataset.test === 'card-`+string(list[2].ID)+`'`)
	b.Look("home-tag")
	b.Go("/")
	b.Look("home")

	// The home page updates without a reload.
	s := w.site(u, "Just made")
	b.Go("/")
	b.Sees("@card-" + string(s.ID) + " @status-pending")
	w.activate(s)
	b.Sees("@card-" + string(s.ID) + " @status-active")

	if _, _, err := w.dash.Accounts.CreateKey(t.Context(), u.ID, account.NewKey{
		Name:   "CI",
		Scopes: account.Scopes{account.All},
	}); err != nil {
		t.Fatal(err)
	}
	eve := w.user("eve@example.test", false)
	w.site(eve, "Eve's site")
	for _, p := range [][2]string{
		{"/account/keys", "keys"},
		{"/account/audit?what=session.started", "audit-narrowed"},
		{"/operator", "operator"},
		{"/operator/users", "operator-users"},
		{"/operator/sites", "operator-sites"},
		{"/operator/audit", "operator-audit"},
	} {
		b.Go(p[0])
		b.Look(p[1])
	}
	b.Go("/operator/users/" + string(eve.ID))
	b.Look("operator-user")
	b.Click("@open-suspend")
	b.Sees("@do-suspend")
	b.Look("operator-suspend")
	b.Type("#f-why", "unpaid since May")
	b.Press("@do-suspend")
	b.Sees("@suspended")
	b.Look("operator-suspended")
	b.Go("/operator/audit?user=" + string(eve.ID))
	b.Look("operator-audit-narrowed")
}

// A passkey is registered and used in Chromium.
func TestBrowserPasskey(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.user("ada@example.test", false)
	b := w.window("passkey", strings.Replace(w.srv.URL, "127.0.0.1", "localhost", 1)) // passkeys need a host name
	b.Run(webauthn.Enable(), chromedp.ActionFunc(func(ctx context.Context) error {
		_, err := webauthn.AddVirtualAuthenticator(&webauthn.VirtualAuthenticatorOptions{
			Protocol:                    webauthn.AuthenticatorProtocolCtap2,
			Transport:                   webauthn.AuthenticatorTransportInternal,
			HasResidentKey:              true,
			HasUserVerification:         true,
			IsUserVerified:              true,
			AutomaticPresenceSimulation: true,
		}).Do(ctx)
		return err
	}))
	signIn(b, "ada@example.test")
	b.Go("/account/security")
	b.Type("#f-passkey", "My laptop")
	b.Press("@add-passkey")
	b.Sees("@passkey-*")
	b.Look("security")
	b.Click("details.menu summary")
	b.Press("@sign-out")
	b.Sees("@passkey")
	b.Look("sign-in")
	b.Press("@passkey")
	b.Click("details.menu summary")
	b.Sees("@who")
	if n := w.logged("session.started"); n != 2 {
		t.Errorf("%d sessions began, want 2", n)
	}
}

// demo fills the operator's pages with data of every kind.
func demo(c *Config) {
	c.Installation = shown{func() ([]operator.Queue, error) {
		return []operator.Queue{
			{Name: "deploy", Workers: 4, Running: 2, Waiting: 3, Oldest: db.Now().Add(-40 * time.Second)},
			{Name: "default", Workers: 4, Later: 12, GivenUp: 1},
		}, nil
	}, func() (operator.Disk, error) {
		return operator.Disk{
			Path: "/var/lib/slipway",
			Size: 80 << 30,
			Free: 31 << 30,
			Parts: []operator.DiskPart{
				{Name: "Releases", Size: 12 << 30},
				{Name: "Build caches", Size: 9 << 30},
				{Name: "Database", Size: 180 << 20},
			},
		}, nil
	}, func() ([]operator.Finding, error) {
		return []operator.Finding{
			{Name: "data directory", OK: true, Required: true, Text: "/var/lib/slipway can be written; 31744 MiB are free"},
			{Name: "git", OK: true, Required: true, Text: "git version 2.47.3"},
			{Name: "builds: cgroups", OK: false, Required: false, Text: "memory and CPU of builds can't be bounded: run as root or delegate a cgroup"},
		}, nil
	}}
}

// A push shows what it would replace with nothing selected, and does nothing until the target site's name is typed.
func TestBrowserPush(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const ada = "ada@example.test"
	w.user(ada, false)
	u := w.as(ada)
	staging, shop := u.wordpress(t, "Shop staging"), u.wordpress(t, "Shop")
	b := w.window("push", w.srv.URL)
	signIn(b, ada)
	b.Go(staging + "/wordpress/push?to=" + strings.TrimPrefix(shop, "/sites/"))
	b.Look("push")
	b.Until("something is ticked unasked", `document.querySelectorAll('main input:checked').length === 0`)
	b.Click("@push-database")
	b.Type("#f-confirm", "Shop staging")
	b.Expect(http.StatusUnprocessableEntity)
	b.Press("@do-push")
	b.Sees("@wrong-confirm", "nothing was pushed")
}
