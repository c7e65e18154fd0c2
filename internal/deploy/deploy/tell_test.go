package deploy

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/job"
	"slipway/internal/platform/seal"
	"slipway/internal/tenant/connection"
	"slipway/internal/tenant/notify"
)

// A notification is sent when a deployment fails and when the next one succeeds, but not for later successful ones.
func TestTell(t *testing.T) {
	t.Parallel()
	type message struct {
		Embeds []struct{ Title, Description, URL string }
	}
	got := make(chan message, 10)
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var m message
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&m); err != nil {
			t.Error(err)
		}
		got <- m
	}))
	t.Cleanup(srv.Close)
	sealer, err := seal.Load(filepath.Join(t.TempDir(), "key"))
	ok(t, err)
	var people *notify.Notifications
	w := newWorld(t, func(c *Config) {
		people = notify.New(notify.Config{DB: c.DB, Seal: sealer, Out: srv.Client(), Base: "https://slipway.test"})
		c.Notify, c.Connections = people, connection.New(connection.Config{DB: c.DB, Seal: sealer, Out: srv.Client()})
	})
	jobs := job.New(job.Config{
		DB:     w.db,
		Log:    slog.New(slog.DiscardHandler),
		Queues: map[string]int{notify.QueueName: 1},
		Poll:   10 * time.Millisecond,
		Drain:  time.Second,
	})
	people.Work(jobs)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- jobs.Run(ctx) }()
	t.Cleanup(func() { stop(); ok(t, <-done) })
	ok(t, w.db.Write(t.Context(), func(tx *db.Tx) error {
		_, err := people.CreateTx(t.Context(), tx, anna, notify.NewChannel{Kind: notify.Discord, URL: srv.URL + "/discord"})
		return err
	}))
	next := func() string {
		t.Helper()
		select {
		case m := <-got:
			e := m.Embeds[0]
			return e.Title + "|" + e.Description + "|" + e.URL
		case <-time.After(time.Minute):
			t.Fatal("nothing is told")
			return ""
		}
	}
	w.commit("shop", map[string]string{"index.html": "1"})
	s := w.live(w.site("https://git.test/acme/shop").ID)
	fail := Trigger{Commit: strings.Repeat("0", 40)} // an unknown commit
	deploy := func(trigger Trigger) string {
		return "https://slipway.test/sites/" + string(s.ID) + "/deployments/" + string(w.ended(w.trigger(s.ID, trigger).ID).ID)
	}
	if page, m := deploy(fail), next(); !strings.HasPrefix(
		m,
		"Deployment of My site failed|Commit 000000000000 is not on the branch main of git.test/acme/shop",
	) || !strings.HasSuffix(m, "|"+page) {
		t.Errorf("told %q", m)
	}
	if page, m := deploy(Trigger{}), next(); m != "Deployment of My site works again|change|"+page {
		t.Errorf("told %q", m)
	}
	deploy(Trigger{})
	if page, m := deploy(fail), next(); !strings.HasSuffix(m, page) {
		t.Errorf("a success that follows a success was told: %q", m)
	}
}
