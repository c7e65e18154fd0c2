//go:build browser

package dashboard

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/cdproto/webauthn"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"slipway/internal/account"
	"slipway/internal/db"
	"slipway/internal/deploy"
	"slipway/internal/site"
)

// tab is one tab of a real Chromium (Debian's package, or SLIPWAY_CHROMIUM).
type tab struct {
	t   testing.TB
	ctx context.Context
	url string
}

func (w *world) tab() *tab {
	w.t.Helper()
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.Flag("disable-dev-shm-usage", true), chromedp.Flag("hide-scrollbars", true))
	if p := os.Getenv("SLIPWAY_CHROMIUM"); p != "" {
		opts = append(opts, chromedp.ExecPath(p))
	}
	alloc, stop := chromedp.NewExecAllocator(context.Background(), opts...)
	ctx, stop2 := chromedp.NewContext(alloc)
	ctx, stop3 := context.WithTimeout(ctx, 90*time.Second)
	w.t.Cleanup(func() { stop3(); stop2(); stop() })
	tb := &tab{w.t, ctx, w.srv.URL}
	chromedp.ListenTarget(ctx, func(ev any) {
		switch ev := ev.(type) {
		case *runtime.EventExceptionThrown:
			w.t.Errorf("script error: %s", ev.ExceptionDetails.Error())
		case *log.EventEntryAdded:
			if ev.Entry.Source == log.SourceSecurity || strings.Contains(ev.Entry.Text, "Content Security Policy") {
				w.t.Errorf("browser: %s", ev.Entry.Text)
			}
		}
	})
	return tb
}

func (b *tab) run(actions ...chromedp.Action) {
	b.t.Helper()
	if err := chromedp.Run(b.ctx, actions...); err != nil {
		b.t.Fatal(err)
	}
}

func (b *tab) goTo(path string) {
	b.t.Helper()
	b.run(chromedp.Navigate(b.url+path), chromedp.WaitReady("#main"))
}

// sees waits until the page shows it.
func (b *tab) sees(selector string) {
	b.t.Helper()
	wait, stop := context.WithTimeout(b.ctx, 10*time.Second)
	defer stop()
	if err := chromedp.Run(wait, chromedp.WaitReady(selector)); err != nil {
		var html string
		chromedp.Run(b.ctx, chromedp.OuterHTML("main", &html))
		b.t.Fatalf("%s does not appear: %v\n%.2000s", selector, err, html)
	}
}

// keys types into whatever has the focus.
func (b *tab) keys(texts ...string) {
	b.t.Helper()
	for _, text := range texts {
		b.run(chromedp.KeyEvent(text))
	}
}

// goesTo checks which page is open.
func (b *tab) goesTo(path string) {
	b.t.Helper()
	var at string
	b.run(chromedp.Location(&at))
	if at != b.url+path {
		b.t.Fatalf("at %s, want %s", at, path)
	}
}

func (b *tab) signIn(email string) {
	b.t.Helper()
	b.goTo("/sign-in")
	b.run(chromedp.SendKeys("#f-email", email), chromedp.SendKeys("#f-password", password+kb.Enter), chromedp.WaitReady(`[data-test="who"]`))
}

// look keeps pictures of the page for people, where SLIPWAY_SHOTS names a folder: light,
// dark, and on a phone.
func (b *tab) look(name string) {
	b.t.Helper()
	dir := os.Getenv("SLIPWAY_SHOTS")
	if dir == "" {
		return
	}
	for _, v := range []struct {
		suffix, scheme string
		width          int64
	}{{"light", "light", 1280}, {"dark", "dark", 1280}, {"phone", "light", 390}, {"phone-dark", "dark", 390}} {
		var png []byte
		b.run(emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: v.scheme}}),
			chromedp.EmulateViewport(v.width, 860, chromedp.EmulateScale(2)),
			chromedp.WaitReady("#main"), chromedp.FullScreenshot(&png, 100))
		if err := os.WriteFile(filepath.Join(dir, name+"-"+v.suffix+".png"), png, 0o644); err != nil {
			b.t.Fatal(err)
		}
	}
	b.run(chromedp.EmulateViewport(1280, 860), emulation.SetEmulatedMedia())
}

// fill gives a user sites in every state.
func (w *world) fill(email string, n int) {
	w.t.Helper()
	u := w.users[email]
	ctx := w.t.Context()
	names := []string{"Harbor Journal", "Acme Docs", "Nordlicht Shop", "status page", "Tidewater Studio", "<script>alert(1)</script>", "Überseekontor", "Portfolio 2026", "changelog"}
	for i := range n {
		s := w.site(u, fmt.Sprintf("%s%s", names[i%len(names)], map[bool]string{true: fmt.Sprint(" ", i/len(names)+1)}[i >= len(names)]))
		id := db.NewID("dep")
		status := []deploy.Status{deploy.Success, deploy.Success, deploy.Building, deploy.Failed, deploy.Success, deploy.Pending}[i%6]
		message := []string{"Rewrite the landing page and shorten the intro", "Fix typo", "Bump astro to 6.2", "Add <b>bold</b> search to every page of the handbook", "feat: dark mode", ""}[i%6]
		err := w.db.Write(ctx, func(tx *db.Tx) error {
			if _, err := tx.Exec(ctx, `INSERT INTO deployments (id, site_id, owner_id, label, status, cause, branch, title, clear_cache, commit_hash, commit_message, commit_author,
				framework, plan, release, runtime, rollback_of, error, stages, attempt, cancel, created_at, started_at, completed_at)
				VALUES ($1,$2,$3,$4,$5,'push','main','',FALSE,'a3f91c27d0e1','`+strings.ReplaceAll(message, "'", "''")+`','Ada','astro','','','static','','','[]',1,'',$6,$6,$7)`,
				id, s.ID, u.ID, id[len(id)-12:], status, db.Now().Add(-time.Duration(i*i*37+2)*time.Minute), db.Now()); err != nil {
				return err
			}
			switch status {
			case deploy.Success:
				_, err := w.dash.Sites.ActivateTx(ctx, tx, s.ID, id, "rel", "static")
				return err
			case deploy.Failed:
				if err := w.dash.Sites.ProvisioningTx(ctx, tx, s.ID); err != nil {
					return err
				}
				return w.dash.Sites.FailTx(ctx, tx, s.ID, "The build command ended with exit code 1: npm run build")
			case deploy.Building:
				return w.dash.Sites.ProvisioningTx(ctx, tx, s.ID)
			}
			return nil
		})
		if err != nil {
			w.t.Fatal(err)
		}
		if i%6 == 4 {
			err := w.db.Write(ctx, func(tx *db.Tx) error { _, err := w.dash.Sites.StopTx(ctx, tx, u.ID, s.ID); return err })
			if err != nil {
				w.t.Fatal(err)
			}
		}
	}
}

// The whole way in a real browser: first start, sign-in, a key made and used, revoked.
func TestBrowser(t *testing.T) {
	w := newWorld(t, demo)
	token, err := w.dash.Accounts.NewSetupLink(t.Context(), "", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	b := w.tab()
	b.goTo("/sign-in")
	b.look("sign-in-empty")
	b.goTo("/setup/" + token)
	b.look("setup")
	// By keyboard alone: the field has the focus, Tab leads on, Enter sends.
	b.keys("ada@example.test", kb.Tab, "short pw", kb.Enter)
	b.goesTo("/setup/" + token)
	b.run(chromedp.SetAttributeValue("#f-password", "minlength", "0"), chromedp.Focus("#f-password"))
	b.keys(kb.Enter) // the browser's own check is out of the way: the server says what is wrong
	b.sees(`[data-test="wrong-password"]`)
	b.keys(password, kb.Enter) // what is wrong has the focus
	b.sees(`[data-test="flash"]`)
	b.look("home-empty")
	u, err := w.dash.Accounts.UserByEmail(t.Context(), "ada@example.test")
	if err != nil {
		t.Fatal(err)
	}
	w.users[u.Email] = u
	w.fill(u.Email, 30)
	b.goTo("/")
	b.look("home")

	b.goTo("/account/keys/new")
	b.keys("CI of acme/site")
	b.run(chromedp.Click(`input[value="sites:read"]`), chromedp.Click(`[data-test="submit"]`))
	b.sees(`[data-test="value"]`)
	var secret string
	b.run(chromedp.Text(`[data-test="value"]`, &secret))
	if _, err := w.dash.Accounts.Authenticate(t.Context(), secret, netip.MustParseAddr("127.0.0.1")); err != nil {
		t.Fatalf("the key %q: %v", secret, err)
	}
	b.look("key-made")
	b.goTo("/account/keys")
	b.look("account-keys")
	b.run(chromedp.Click(`[data-test^="open-revoke-"]`))
	b.sees("dialog:popover-open")
	b.look("dialog")
	b.run(chromedp.Click(`dialog:popover-open [data-test^="do-revoke-"]`))
	b.sees(`[data-test="empty"]`)
	if _, err := w.dash.Accounts.Authenticate(t.Context(), secret, netip.MustParseAddr("127.0.0.1")); err == nil {
		t.Error("a revoked key works")
	}

	// The home page follows what happens, without a reload.
	s := w.site(u, "Just made")
	b.goTo("/")
	b.sees(`[data-test="card-` + string(s.ID) + `"] [data-test="status-pending"]`)
	w.activate(s)
	b.sees(`[data-test="card-` + string(s.ID) + `"] [data-test="status-active"]`)

	// Colours: the switch works at once and is remembered.
	b.run(chromedp.Click(`details.menu summary`))
	b.look("menu")
	b.run(chromedp.Click(`.menu-panel button[value="dark"]`))
	b.sees(`html[data-theme="dark"]`)
	for try := 0; ; try++ { // the answer to the script's request sets the cookie
		b.goTo("/account")
		var theme string
		b.run(chromedp.AttributeValue("html", "data-theme", &theme, nil))
		if theme == "dark" {
			break
		}
		if try == 20 {
			t.Fatal("the colours are forgotten")
		}
	}
	b.run(chromedp.Click(`details.menu summary`), chromedp.Click(`.menu-panel button[value="system"]`))
	b.sees(`html[data-theme="system"]`)

	for _, p := range pagesToLookAt {
		b.goTo(p)
		b.look(strings.ReplaceAll(p[1:], "/", "-"))
	}
	b.goTo("/account/security")
	b.run(chromedp.Click(`details.menu summary`), chromedp.Click(`[data-test="sign-out"]`))
	b.sees(`[data-test="submit"]`)
	b.look("sign-in")
}

var pagesToLookAt = []string{"/account", "/account/security", "/account/second-factor", "/account/sessions", "/account/keys/new", "/account/audit",
	"/operator", "/operator/users", "/operator/sites", "/operator/audit", "/nowhere"}

// A passkey of Chromium's own, made and used.
func TestBrowserPasskey(t *testing.T) {
	w := newWorld(t)
	w.user("ada@example.test", false)
	b := w.tab()
	b.url = strings.Replace(b.url, "127.0.0.1", "localhost", 1) // passkeys need a name
	b.run(webauthn.Enable(), chromedp.ActionFunc(func(ctx context.Context) error {
		_, err := webauthn.AddVirtualAuthenticator(&webauthn.VirtualAuthenticatorOptions{Protocol: webauthn.AuthenticatorProtocolCtap2, Transport: webauthn.AuthenticatorTransportInternal,
			HasResidentKey: true, HasUserVerification: true, IsUserVerified: true, AutomaticPresenceSimulation: true}).Do(ctx)
		return err
	}))
	b.signIn("ada@example.test")
	b.goTo("/account/security")
	b.run(chromedp.WaitVisible("#f-passkey"), chromedp.SendKeys("#f-passkey", "My laptop"+kb.Enter))
	b.sees(`[data-test^="passkey-"]`)
	b.look("security-passkey")
	b.run(chromedp.Click(`details.menu summary`), chromedp.Click(`[data-test="sign-out"]`))
	b.run(chromedp.WaitVisible(`[data-test="passkey"]`))
	b.look("sign-in-passkey")
	b.run(chromedp.Click(`[data-test="passkey"]`))
	b.sees(`[data-test="who"]`)
	if n := w.logged("session.started"); n != 2 {
		t.Errorf("%d sessions began, want 2", n)
	}
}

// axeVersion is the axe-core that npm installs for the test, unless SLIPWAY_AXE names an
// axe.min.js.
const axeVersion = "4.14.1"

func axeFile(t *testing.T) string {
	t.Helper()
	if file := os.Getenv("SLIPWAY_AXE"); file != "" {
		return file
	}
	dir := t.TempDir()
	out, err := exec.CommandContext(t.Context(), "npm", "install", "--prefix", dir, "--no-audit", "--no-fund", "--ignore-scripts", "axe-core@"+axeVersion).CombinedOutput()
	if err != nil {
		t.Fatalf("npm install axe-core: %v\n%s", err, out)
	}
	return filepath.Join(dir, "node_modules", "axe-core", "axe.min.js")
}

// axe-core finds nothing worse than minor on any page, in either scheme.
func TestBrowserAxe(t *testing.T) {
	file := axeFile(t)
	axe, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, demo)
	b := w.tab()
	check := func(path string) {
		t.Helper()
		b.goTo(path)
		for _, scheme := range []string{"light", "dark"} {
			var found []string
			b.run(emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}),
				chromedp.Evaluate(string(axe), nil),
				chromedp.Evaluate(`axe.run(document, {runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}).then(r => r.violations.filter(v => ["moderate", "serious", "critical"].includes(v.impact)).map(v => v.impact + " " + v.id + ": " + v.nodes.map(n => n.html.slice(0, 160) + " " + (n.any[0] || {message: ""}).message).slice(0, 3).join(" | ")))`,
					&found, func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }))
			for _, f := range found {
				t.Errorf("%s (%s): %s", path, scheme, f)
			}
		}
	}
	check("/sign-in")
	check("/forgot")
	w.user("ada@example.test", true)
	w.fill("ada@example.test", 9)
	if _, _, err := w.dash.Accounts.CreateKey(t.Context(), w.users["ada@example.test"].ID, account.NewKey{Name: "CI", Scopes: account.Scopes{account.All}}); err != nil {
		t.Fatal(err)
	}
	b.signIn("ada@example.test")
	list, _, err := w.dash.Sites.List(t.Context(), w.users["ada@example.test"].ID, site.Filter{Status: site.Active, Page: 1, Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	w.portray(list[0])
	w.visited(list[0], 500, 24*time.Hour)
	at := "/sites/" + string(list[0].ID)
	for _, p := range append([]string{"/", at, at + "/traffic", "/?q=nothing", "/account/keys", "/account/audit?what=session.started"}, pagesToLookAt...) {
		check(p)
	}
	eve := w.user("eve@example.test", false)
	w.site(eve, "Eve's site")
	check("/operator/users/" + string(eve.ID))
	b.run(chromedp.Click(`[data-test="open-suspend"]`), chromedp.WaitVisible(`[data-test="do-suspend"]`))
	b.look("operator-suspend")
	b.run(chromedp.SendKeys("#f-why", "unpaid since May"), chromedp.Click(`[data-test="do-suspend"]`))
	b.sees(`[data-test="suspended"]`)
	check("/operator/users/" + string(eve.ID))
	b.look("operator-user")
	check("/operator/audit?user=" + string(eve.ID))
	b.look("operator-audit-narrowed")
}

// demo shows everything that the operator's pages can.
func demo(c *Config) {
	c.Queues = func(context.Context) ([]Queue, error) {
		return []Queue{{"deploy", 4, 2, 3, 0, 0, db.Now().Add(-40 * time.Second)}, {"default", 4, 0, 0, 12, 1, 0}}, nil
	}
	c.Disk = func(context.Context) (Disk, error) {
		return Disk{"/var/lib/slipway", 80 << 30, 31 << 30, []DiskPart{{"Releases", 12 << 30}, {"Build caches", 9 << 30}, {"Database", 180 << 20}}}, nil
	}
	c.Doctor = func(context.Context) ([]Finding, error) {
		return []Finding{{"data directory", true, true, "/var/lib/slipway can be written; 31744 MiB are free"}, {"git", true, true, "git version 2.47.3"}, {"builds: cgroups", false, false, "memory and CPU of builds can't be bounded: run as root or delegate a cgroup"}}, nil
	}
}
