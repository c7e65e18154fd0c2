package wordpress

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"slipway/internal/db"
	"slipway/internal/dbtest"
)

// What one node purges is stale on another, and what was made since then is not.
func TestPurgeReachesOtherNodes(t *testing.T) {
	t.Parallel()
	url := dbtest.URL(t)
	here := dbtest.Open(t, url)
	if here.Single() { // SQLite: there is no other node
		return
	}
	there := dbtest.Open(t, url)
	a, b := New(Config{DB: here}), New(Config{DB: there})
	err := here.Admin(t.Context(), `INSERT INTO wordpress_sites (site_id, owner_id, secret, title, admin_email, admin_user, locale, database_id, installed, xmlrpc, debug, maintenance, memory_mib, upload_mib, execution_seconds, next_cron, created_at)
		VALUES ('site', 'own', '', '', '', '', '', '', '', FALSE, FALSE, FALSE, 1, 1, 1, 0, 0)`)
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	defer end()
	done := make(chan struct{})
	go func() { defer close(done); b.followPurges(ctx) }()
	fill(b.cache, request("/"), "old")
	time.Sleep(2 * time.Millisecond) // database times are milliseconds
	err = here.Write(t.Context(), func(tx *db.Tx) error { return a.purgeTx(t.Context(), tx, "site", []string{"/"}) })
	if err != nil {
		t.Fatal(err)
	}
	for stop := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		if p, _ := b.cache.lookup("site", request("/")); p == nil {
			break // it is to be made anew
		}
		if time.Now().After(stop) {
			t.Fatal("the other node still has the page")
		}
	}
	end()
	<-done
}

// A purge of elsewhere concerns what was made before it alone.
func TestPurgeOlder(t *testing.T) {
	t.Parallel()
	c := newCache()
	fill(c, request("/"), "old")
	c.purgeOlder("site", time.Now().Add(-time.Minute))
	if p, how := c.lookup("site", request("/")); p == nil || how != "HIT" {
		t.Errorf("an older purge: %q", how)
	}
	c.purgeOlder("site", time.Now().Add(time.Millisecond))
	if p, _ := c.lookup("site", request("/")); p != nil {
		t.Error("a newer purge left the page fresh")
	}
}

// Whatever an answer of one site says, it purges and stores pages of that site alone.
func TestAnswersConcernTheirSite(t *testing.T) {
	t.Parallel()
	w := New(Config{DB: dbtest.New(t)})
	fill(w.cache, request("/"), "mine") // of "site"
	g := w.Guard("hostile", false, nil)
	g.got = &Program{Transport: server(func(*http.Request) (*http.Response, error) {
		h := http.Header{"Content-Type": {"text/html"}, "X-Slipway-Purge": {"* / site site*"}, "X-Slipway-Cache": {"page"}, "X-Slipway-Cron": {"1"}}
		return &http.Response{StatusCode: 200, Header: h, Body: io.NopCloser(strings.NewReader("theirs"))}, nil
	})}
	resp, err := g.RoundTrip(request("/"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(resp.Body); err != nil {
		t.Fatal(err)
	}
	if p, how := w.cache.lookup("site", request("/")); p == nil || how != "HIT" || string(p.body) != "mine" {
		t.Errorf("the other site's page is %q", how)
	}
	if p, _ := w.cache.lookup("hostile", request("/")); p == nil || string(p.body) != "theirs" {
		t.Error("its own page is not stored")
	}
}
