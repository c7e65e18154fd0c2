package dashboard

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/web/dashboard/shell"
)

// A live page's stream ends with what allowed it: the session, ended here or elsewhere, the user's account, or an
// operator's role.
func TestLivePagesEndWithTheirSession(t *testing.T) {
	t.Parallel()
	write := func(t *testing.T, w *world, do func(tx *db.Tx) error) {
		t.Helper()
		must(t, w.db.Write(t.Context(), do))
	}
	for name, end := range map[string]func(t *testing.T, w *world, u account.User, b *browser){
		"signed out": func(_ *testing.T, _ *world, _ account.User, b *browser) { b.post("/sign-out") },
		"ended elsewhere": func(t *testing.T, w *world, u account.User, _ *browser) {
			write(t, w, func(tx *db.Tx) error {
				_, err := w.dash.Accounts.EndSessionsTx(t.Context(), tx, u.ID, "")
				return err
			})
		},
		"another password": func(t *testing.T, w *world, u account.User, _ *browser) {
			must(t, w.dash.Accounts.SetPassword(t.Context(), u.ID, "another good passphrase 17"))
		},
		"suspended": func(t *testing.T, w *world, u account.User, _ *browser) {
			write(t, w, func(tx *db.Tx) error {
				_, err := w.dash.Accounts.SuspendTx(t.Context(), tx, audit.Actor{User: w.users["op@example.test"].ID}, u.ID, "")
				return err
			})
		},
		"no operator any more": func(t *testing.T, w *world, u account.User, _ *browser) {
			write(t, w, func(tx *db.Tx) error {
				_, err := w.dash.Accounts.SetRoleTx(t.Context(), tx, u.ID, false)
				return err
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.user("op@example.test", true)
			u := w.user("ada@example.test", true)
			b := w.as("ada@example.test")
			th := w.things()
			client := *b.client
			client.Timeout = 0
			var open []*http.Response
			for _, rt := range w.dash.routes {
				if !strings.HasPrefix(
					rt.Path,
					"/live/",
				) && !strings.HasSuffix(rt.Path, "/follow") || name == "no operator any more" && rt.Access != shell.Operator {
					continue
				}
				path := th.fill(rt.Path)
				r, err := http.NewRequestWithContext(t.Context(), "GET", w.srv.URL+path, nil)
				must(t, err)
				r.Header.Set("Accept", "text/event-stream")
				a, err := client.Do(r)
				must(t, err)
				t.Cleanup(func() { a.Body.Close() })
				if a.StatusCode == 404 && strings.Contains(path, "/wordpress/") { // the site isn't a WordPress
					continue
				}
				if a.StatusCode != 200 || a.Header.Get("Content-Type") != "text/event-stream" {
					t.Fatalf("%s: %s %s", path, a.Status, a.Header.Get("Content-Type"))
				}
				if _, err := io.ReadFull(a.Body, make([]byte, 10)); err != nil {
					t.Fatal(path, err)
				}
				open = append(open, a)
			}
			if len(open) == 0 {
				t.Fatal("no live page")
			}
			end(t, w, u, b)
			over := make(chan string)
			for _, a := range open {
				go func() { // ends with the stream
					io.Copy(io.Discard, a.Body)
					over <- a.Request.URL.Path
				}()
			}
			deadline := time.After(time.Minute)
			for range open {
				select {
				case <-over:
				case <-deadline:
					t.Fatal("a live page's stream doesn't end")
				}
			}
		})
	}
}
