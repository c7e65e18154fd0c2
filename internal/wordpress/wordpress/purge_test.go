package wordpress

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"slipway/internal/platform/id"

	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
	"slipway/internal/platform/wait"
	"slipway/internal/program/volume"
	"slipway/internal/wordpress/guard"
)

// When one node purges pages, they must be stale on another node as well, and pages made since then must stay fresh.
func TestPurgeReachesOtherNodes(t *testing.T) {
	t.Parallel()
	url := dbtest.URL(t)
	here := dbtest.Open(t, url)
	if here.Single() { // SQLite has no other node
		return
	}
	// The database's clock, by which purges are recorded, is far behind the clocks of the nodes. One of the nodes has
	// measured the difference wrongly by a second.
	behind := func(by string) {
		err := here.Admin(t.Context(), `CREATE OR REPLACE FUNCTION clock_timestamp() RETURNS timestamptz LANGUAGE sql
			AS $$SELECT pg_catalog.clock_timestamp() - interval '`+by+`'$$`)
		if err != nil {
			t.Fatal(err)
		}
	}
	behind("1 hour")
	url += map[bool]string{true: "&", false: "?"}[strings.Contains(url, "?")] + "search_path=public,pg_catalog"
	there := dbtest.Open(t, url)
	here = dbtest.Open(t, url)
	for d, by := range map[*db.DB]string{here: "1 hour", there: "1 hour 1 second"} {
		behind(by)
		if ahead, err := d.Sync(t.Context()); err != nil || ahead < 50*time.Minute {
			t.Fatalf("this machine's clock is %s ahead, %v", ahead, err)
		}
	}
	cleared := make(chan string, 100)
	a := New(Config{DB: here})
	b := New(Config{DB: there, Host: host(func(site string) {
		time.Sleep(50 * time.Millisecond) // the purge takes a moment, in which visitors come
		fill(a.cache, request("/"), "made of what the object cache still had")
		cleared <- site
	})})
	err := here.Admin(
		t.Context(),
		`INSERT INTO wordpress_sites (site_id, owner_id, secret, title, admin_email, admin_user, locale, database_id, installed, xmlrpc, debug, maintenance, memory_mib, upload_mib, execution_seconds, next_cron, created_at)
		VALUES ('site', 'own', '', '', '', '', '', '', '', FALSE, FALSE, FALSE, 1, 1, 1, 0, 0)`,
	)
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	defer end()
	var done sync.WaitGroup
	done.Go(func() { a.followPurges(ctx) })
	done.Go(func() { b.followPurges(ctx) })
	fill(b.cache, request("/"), "old")
	err = here.Write(t.Context(), func(tx *db.Tx) error { return a.purgeTx(t.Context(), tx, "site", []string{"/"}) })
	if err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "the other node has lost the page", func() bool {
		p, _ := b.cache.Lookup("site", request("/"))
		return p == nil
	})
	if len(cleared) > 0 {
		t.Error("a page that has changed clears the object cache")
	}
	var at db.Time
	err = here.QueryRow(t.Context(), `SELECT purged_at FROM wordpress_sites`).Scan(&at)
	if err != nil || time.Since(at.Time()) < 50*time.Minute {
		t.Errorf("purged at %s, by this machine's clock; %v", at, err)
	}

	// The program and its object cache are on the other node.
	for range 2 {
		a.purgeAll(t.Context(), "site")
		if site := <-cleared; site != "site" {
			t.Errorf("the object cache of %q was cleared", site)
		}
		wait.Until(t, "the page that was made of the old values is stale", func() bool {
			p, _ := a.cache.Lookup("site", request("/"))
			return p == nil
		})
	}
	end()
	done.Wait()
	if len(cleared) > 0 {
		t.Errorf("the object cache was cleared %d times more", len(cleared))
	}
}

// Once a command of a site has ended, the site's pages must be stale. For a site that is not WordPress nothing may be
// recorded.
func TestChangedByCommands(t *testing.T) {
	t.Parallel()
	w := New(Config{DB: dbtest.New(t)})
	err := w.c.DB.Admin(
		t.Context(),
		`INSERT INTO wordpress_sites (site_id, owner_id, secret, title, admin_email, admin_user, locale, database_id, installed, xmlrpc, debug, maintenance, memory_mib, upload_mib, execution_seconds, next_cron, created_at)
		VALUES ('site', 'own', '', '', '', '', '', '', '', FALSE, FALSE, FALSE, 1, 1, 1, 0, 0)`,
	)
	if err != nil {
		t.Fatal(err)
	}
	fill(w.cache, request("/"), "old")
	asked := time.Now()
	w.Changed("other")
	if w.cache.Fresh("site", "blog.test", "/") == nil || !w.cache.ChangedBy("other", asked).After(asked) {
		t.Error("a command of an application purges pages")
	}
	w.Changed("site")
	if w.cache.Fresh("site", "blog.test", "/") != nil {
		t.Error("the page is fresh after a command of its site")
	}
}

// Archives of imports must be where every node finds them if the nodes share storage. An archive that only one node has
// must stay on that node.
func TestImportsOfAllNodes(t *testing.T) {
	t.Parallel()
	own, all := t.TempDir(), t.TempDir()
	w := New(Config{Dir: own, Volume: volume.New(volume.Config{Dir: all, Mark: "mark"})})
	for want, x := range map[string]Import{
		all + "/.slipway-imports/import-1":   {File: "import-1"},
		all + "/.slipway-imports/fetched-op": {From: "sealed"},
		own + "/imports/import-1":            {File: "import-1", Node: "node"},
	} {
		if got := w.archive(Work{Operation: "op", Import: &x}); got != want {
			t.Errorf("%+v is %s, want %s", x, got, want)
		}
	}
	alone := New(Config{Dir: own, Volume: volume.New(volume.Config{Dir: all})})
	if got, want := alone.archive(Work{Import: &Import{File: "import-1"}}), own+"/imports/import-1"; got != want {
		t.Errorf("without storage that nodes share: %s, want %s", got, want)
	}
}

// Whatever headers a site's answer has, it must purge and store pages of that site only.
func TestAnswersConcernTheirSite(t *testing.T) {
	t.Parallel()
	w := New(Config{DB: dbtest.New(t)})
	fill(w.cache, request("/"), "mine") // the page belongs to "site"
	g := through(w, "hostile", "hostile", func(*http.Request) (*http.Response, error) {
		h := http.Header{
			"Content-Type":    {"text/html"},
			"X-Slipway-Purge": {"* / site site*"},
			"X-Slipway-Cache": {"page"},
			"X-Slipway-Cron":  {"1"},
		}
		return &http.Response{StatusCode: 200, Header: h, Body: io.NopCloser(strings.NewReader("theirs"))}, nil
	})
	resp, err := g.RoundTrip(request("/"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(resp.Body); err != nil {
		t.Fatal(err)
	}
	if p, how := w.cache.Lookup("site", request("/")); p == nil || how != "HIT" || shown(p) != "mine" {
		t.Errorf("the other site's page is %q", how)
	}
	if p, _ := w.cache.Lookup("hostile", request("/")); p == nil || shown(p) != "theirs" {
		t.Error("its own page is not stored")
	}
}

// A page that was requested before a purge must not be fresh after it, however late its answer comes, because the
// program read the content before the change.
func TestPurgeWhileAPageIsMade(t *testing.T) {
	t.Parallel()
	w := New(Config{DB: dbtest.New(t)})
	page := func(purges string, meanwhile func()) {
		t.Helper()
		g := through(w, "site", "site", func(*http.Request) (*http.Response, error) {
			time.Sleep(time.Microsecond) // so that the two times differ
			meanwhile()
			h := http.Header{"Content-Type": {"text/html"}, "X-Slipway-Cache": {"page"}}
			if purges != "" {
				h.Set("X-Slipway-Purge", purges)
			}
			return &http.Response{StatusCode: 200, Header: h, Body: io.NopCloser(strings.NewReader("<p>"))}, nil
		})
		resp, err := g.RoundTrip(request("/"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(resp.Body); err != nil {
			t.Fatal(err)
		}
	}
	purge := func() { w.purgeAll(t.Context(), "site") }
	for name, tt := range map[string]struct {
		purges    string
		meanwhile func()
		fresh     bool
	}{
		"quiet":                    {"", func() {}, true},
		"its own change":           {"*", func() {}, true},
		"another's change":         {"", purge, false},
		"another's and its own":    {"*", purge, false},
		"a newer page is there":    {"", func() { page("", func() {}) }, true},
		"a newer page was changed": {"", func() { page("", func() {}); purge() }, false},
	} {
		page(tt.purges, tt.meanwhile)
		if p := w.cache.Fresh("site", "blog.test", "/"); (p != nil) != tt.fresh {
			t.Errorf("%s: the page is fresh: %v, want %v", name, p != nil, tt.fresh)
		}
	}
}

// Each deployment of a site must have its own pages, because its themes and plugins differ. A change of the site's
// content must make the pages of all its deployments stale.
func TestPagesOfDeployments(t *testing.T) {
	t.Parallel()
	w := New(Config{DB: dbtest.New(t)})
	page := func(deployment id.Deployment, text string) {
		t.Helper()
		g := through(w, "site", deployment, func(*http.Request) (*http.Response, error) {
			h := http.Header{"Content-Type": {"text/html"}, "X-Slipway-Cache": {"page"}}
			return &http.Response{StatusCode: 200, Header: h, Body: io.NopCloser(strings.NewReader(text))}, nil
		})
		resp, err := g.RoundTrip(request("/"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(resp.Body); err != nil {
			t.Fatal(err)
		}
	}
	shows := func(deployment id.Deployment, want string) {
		t.Helper()
		got := ""
		rec := httptest.NewRecorder()
		if w.Endpoint(guard.Served{Site: "site", Owner: "owner"}, deployment).Serve(rec, request("/")) {
			got = rec.Body.String()
		}
		if got != want {
			t.Errorf("%s shows %q, want %q", deployment, got, want)
		}
	}
	page("first", "the old theme")
	shows("first", "the old theme")
	shows("second", "")
	page("second", "the new theme")
	shows("second", "the new theme")
	shows("first", "the old theme")
	w.purge(t.Context(), "site", []string{"/"})
	shows("first", "")
	shows("second", "")
}
