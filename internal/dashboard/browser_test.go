//go:build browser

package dashboard

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"slipway/internal/db"
	"slipway/internal/deploy"
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
			chromedp.FullScreenshot(&png, 100))
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

func TestLook(t *testing.T) {
	w := newWorld(t, func(c *Config) {
		c.Queues = func(context.Context) ([]Queue, error) {
			return []Queue{{"deploy", 4, 2, 3, 0, 0, db.Now().Add(-40 * time.Second)}, {"default", 4, 0, 0, 12, 1, 0}}, nil
		}
		c.Disk = func(context.Context) (Disk, error) {
			return Disk{"/var/lib/slipway", 80 << 30, 31 << 30, []DiskPart{{"Releases", 12 << 30}, {"Build caches", 9 << 30}, {"Database", 180 << 20}}}, nil
		}
		c.Doctor = func(context.Context) ([]Finding, error) {
			return []Finding{{"data directory", true, true, "/var/lib/slipway can be written; 31744 MiB are free"}, {"git", true, true, "git version 2.47.3"}, {"builds: cgroups", false, false, "memory and CPU of builds can't be bounded: run as root or delegate a cgroup"}}, nil
		}
	})
	b := w.tab()
	b.goTo("/sign-in")
	b.look("sign-in-empty")
	w.user("ada@example.test", true)
	b.signIn("ada@example.test")
	b.look("home-empty")
	w.fill("ada@example.test", 30)
	w.as("ada@example.test")
	b.goTo("/")
	b.look("home")
	for _, p := range []string{"/account", "/account/security", "/account/second-factor", "/account/sessions", "/account/keys", "/account/keys/new", "/account/audit", "/operator", "/operator/users", "/operator/sites", "/nowhere"} {
		b.goTo(p)
		b.look(strings.ReplaceAll(p[1:], "/", "-"))
	}
}
