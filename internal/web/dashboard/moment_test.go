package dashboard

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"slipway/internal/platform/db"
)

// If a session ends between a form's authentication and its change, nothing changes.
func TestSessionEndedBeforeItsChange(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ada := w.user("ada@example.test", false)
	s := w.site(ada, "blog")
	var armed atomic.Bool
	w.db.Guard(func(ctx context.Context) error {
		if !armed.Swap(false) {
			return nil
		}
		ctx = db.Unguarded(ctx)
		return w.db.Write(ctx, func(tx *db.Tx) error {
			_, err := w.dash.Accounts.EndSessionsTx(ctx, tx, ada.ID, "")
			return err
		})
	})
	entries := func() (n int) {
		if err := w.db.QueryRow(t.Context(), `SELECT count(*) FROM audit`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	for what, form := range map[string][]string{
		"a deploy hook": {"/sites/" + string(s.ID) + "/hooks", "name", "x"},
		"a variable":    {"/sites/" + string(s.ID) + "/env", "key", "A", "value", "b", "scope", "all", "target", "runtime"},
		"a webhook":     {"/webhooks/new", "url", "https://hooks.example.test/x", "events", "site.updated"},
		"a team":        {"/teams/new", "name", "Acme", "slug", "acme"},
	} {
		b := w.as("ada@example.test")
		logged := entries()
		armed.Store(true)
		p := b.post(form[0], form[1:]...)
		if armed.Load() {
			t.Fatalf("%s: nothing was written: %.200s", what, p)
		}
		if n := entries(); n != logged || p.status == http.StatusSeeOther && !strings.HasPrefix(p.header.Get("Location"), "/sign-in") {
			t.Errorf("%s was made by a session that had ended: %d more in the log, %.200s", what, n-logged, p)
		}
		if p := w.as("ada@example.test").post(form[0], form[1:]...); p.status >= 400 {
			t.Errorf("%s by a session that still works: %.200s", what, p)
		}
	}
}
