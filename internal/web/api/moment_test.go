package api_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/limits"
	"slipway/internal/tenant/oauth"
)

// changes are requests that create one resource of each kind on a site.
func changes(site string) map[string]func(w *world, key string) answer {
	return map[string]func(w *world, key string) answer{
		"webhook": func(w *world, key string) answer {
			return w.api("POST", "/webhooks", key, m{"url": "https://hooks.example.test/x", "events": []string{"site.updated"}})
		},
		"deploy hook": func(w *world, key string) answer { return w.api("POST", "/sites/"+site+"/hooks", key, m{"name": "x"}) },
		"channel": func(w *world, key string) answer {
			return w.api("POST", "/notifications", key, m{"kind": "slack", "target": "https://hooks.slack.test/x"})
		},
		"polling": func(w *world, key string) answer {
			return w.api("PATCH", "/sites/"+site+"/git", key, m{"pollMinutes": 5})
		},
		"repository": func(w *world, key string) answer {
			return w.api("PATCH", "/sites/"+site, key, m{"repository": "git.test/eve/site"})
		},
		"site": func(w *world, key string) answer {
			return w.api("POST", "/sites", key, m{"name": "x", "type": "static", "source": "upload"})
		},
		"key": func(w *world, key string) answer {
			return w.api("POST", "/keys", key, m{"name": "x", "scopes": []string{"sites:read"}})
		},
		"variable": func(w *world, key string) answer {
			return w.api("POST", "/sites/"+site+"/env", key, m{"key": "A", "value": "b"})
		},
		"deployment": func(w *world, key string) answer { return w.api("POST", "/sites/"+site+"/deploy", key, m{}) },
	}
}

// If a key or an app is revoked between a request's authentication and its change, nothing changes.
func TestRevokedBeforeItsChange(t *testing.T) {
	t.Parallel()
	var armed atomic.Pointer[func(context.Context) error]
	w := newWorld(t)
	u, key := w.user("ada@example.test")
	site := w.site(key, "one")
	w.settle()
	w.db.Guard(func(ctx context.Context) error {
		if revoke := armed.Swap(nil); revoke != nil {
			return (*revoke)(db.Unguarded(ctx))
		}
		return nil
	})
	for what, change := range changes(site) {
		grant, token := w.grant(u, account.SitesWrite, account.DeploymentsWrite, account.WebhooksWrite, account.EnvWrite)
		secret := w.key(u, account.NewKey{})
		keys, err := w.c.Accounts.ListKeys(t.Context(), w.caller(u))
		if err != nil {
			t.Fatal(err)
		}
		if what == "key" { // apps can't create keys
			token = ""
		}
		for who, x := range map[string]struct {
			secret string
			revoke func(context.Context, *db.Tx) error
		}{
			"an app": {token, func(ctx context.Context, tx *db.Tx) error {
				_, err := w.c.OAuth.RevokeGrantTx(ctx, tx, w.caller(u), oauth.GrantID(grant))
				return err
			}},
			"a key": {secret, func(ctx context.Context, tx *db.Tx) error {
				return w.c.Accounts.RevokeKeyTx(ctx, tx, w.caller(u), keys[0].ID)
			}},
		} {
			if x.secret == "" {
				continue
			}
			logged := w.count(`SELECT count(*) FROM audit`)
			revoke := func(ctx context.Context) error {
				return w.db.Write(ctx, func(tx *db.Tx) error { return x.revoke(ctx, tx) })
			}
			armed.Store(&revoke)
			if a := change(w, x.secret); a.status != 401 {
				t.Errorf("%s, %s: %s", what, who, a)
			}
			if armed.Load() != nil {
				t.Fatalf("%s, %s: nothing was written", what, who)
			}
			if now := w.count(`SELECT count(*) FROM audit`); now != logged {
				t.Errorf("%s, %s: the log has %d entries more", what, who, now-logged)
			}
		}
		if a := change(w, key); a.status >= 300 {
			t.Errorf("%s: a key that wasn't revoked: %s", what, a)
		}
	}
}

// Revoking an app's access waits for the app's running transaction and removes what that transaction created.
func TestRevokedDuringItsChange(t *testing.T) {
	t.Parallel()
	var armed atomic.Pointer[func()]
	w := newWorldOn(t, func(t testing.TB, with ...func(*db.Config)) *db.DB {
		return dbtest.New(t, append(with, func(c *db.Config) {
			count := c.Seen
			c.Seen = func(q string) {
				count(q)
				if strings.Contains(q, "INSERT INTO oauth_made") {
					if f := armed.Swap(nil); f != nil {
						(*f)()
					}
				}
			}
		})...)
	}, limits.Settings{})
	u, key := w.user("ada@example.test")
	site := w.site(key, "one")
	w.settle()
	made := func() string {
		return fmt.Sprint(w.count(`SELECT count(*) FROM webhooks WHERE deleted_at = 0`), w.count(`SELECT count(*) FROM deploy_hooks`),
			w.count(`SELECT count(*) FROM notify_channels`), w.count(`SELECT count(*) FROM git_settings WHERE poll_minutes > 0`),
			w.count(`SELECT count(*) FROM oauth_made`))
	}
	before := made()
	for _, what := range []string{"webhook", "deploy hook", "channel", "polling", "repository"} {
		grant, token := w.grant(u, account.SitesWrite, account.DeploymentsWrite, account.WebhooksWrite)
		revoked := make(chan error, 1)
		revoke := func() {
			go func() {
				revoked <- w.db.Write(t.Context(), func(tx *db.Tx) error {
					_, err := w.c.OAuth.RevokeGrantTx(t.Context(), tx, w.caller(u), oauth.GrantID(grant))
					return err
				})
			}()
			if w.db.Single() { // SQLite's single writer
				return
			}
			const waits = `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`
			for end := time.Now().Add(30 * time.Second); w.count(waits) == 0; {
				if len(revoked) > 0 || time.Now().After(end) {
					t.Errorf("%s: the revocation doesn't wait", what)
					return
				}
			}
		}
		armed.Store(&revoke)
		if a := changes(site)[what](w, token); a.status >= 300 {
			t.Errorf("%s: %s", what, a)
		}
		if armed.Load() != nil {
			t.Fatalf("%s: it isn't remembered that the app made it", what)
		}
		if err := <-revoked; err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if got := made(); got != before {
			t.Errorf("%s: there are %s webhooks, hooks, channels, polled sites and things of apps, want %s", what, got, before)
		}
	}
}
