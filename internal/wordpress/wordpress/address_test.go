package wordpress

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
	"slipway/internal/platform/seal"
	"slipway/internal/tenant/domain"
	"slipway/internal/tenant/operation"
	"slipway/internal/tenant/site"
	"slipway/internal/wordpress/guard"
)

// After a change of the primary domain, the site's program restarts, and its content is rewritten from all previous
// addresses. Requests to former hosts are redirected.
func TestPrimaryDomain(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	key, err := seal.Load(filepath.Join(t.TempDir(), "key"))
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var replaced [][2]string
	home, broken := "https://blog.sites.test", false
	w := New(Config{
		DB: d, Seal: key, Sites: site.New(site.Config{DB: d, Domain: "sites.test"}), Domains: domain.New(domain.Config{DB: d}),
		Operations: operation.New(operation.Config{DB: d}),
		Programs: tasks(func(r *http.Request) (*http.Response, error) {
			mu.Lock()
			defer mu.Unlock()
			answer := `{"done": true, "place": {"rows": 1, "replacements": 2, "tables": {}, "skipped": []}, "progress": 1}`
			switch r.URL.Path {
			case "/home.php":
				answer = `{"home": "` + home + `"}`
			case "/replace.php":
				if broken {
					answer = `{"error": "a plugin ended the request"}`
					break
				}
				var in struct {
					Pairs     [][2]string
					Addresses bool
				}
				if err := json.NewDecoder(r.Body).Decode(&in); err != nil || !in.Addresses {
					t.Errorf("addresses are replaced as texts: %v %v", in, err)
				}
				replaced = in.Pairs
			default:
				answer = `{}`
			}
			return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader(answer))}, nil
		}),
	})
	must := func(query string) {
		t.Helper()
		if err := d.Admin(t.Context(), query); err != nil {
			t.Fatal(err)
		}
	}
	s := site.Site{ID: "site", Owner: "own", Name: "Blog", Type: site.WordPress}
	must(`INSERT INTO sites (id, owner_id, name, slug, type, runtime, status, status_reason, repository, branch, framework, build, credential,
		needs_redeploy, live_deployment, live_release, live_version, created_at, updated_at, deleted_at)
		VALUES ('site', 'own', 'Blog', 'blog', 'wordpress', 'wordpress', 'active', '', '', '', '', '{}', '', FALSE, 'dep', 'rel', 1, 0, 0, 0)`)
	must(`INSERT INTO deployments (id, site_id, owner_id, label, status, cause, branch, title, clear_cache, commit_hash, commit_message, commit_author, framework,
		plan, release, runtime, rollback_of, error, stages, attempt, cancel, created_at, started_at, completed_at)
		VALUES ('dep', 'site', 'own', '', 'success', 'api', '', '', FALSE, '', '', '', '', '', '', '', '', '', '', 0, '', 0, 0, 0)`)
	err = d.Write(t.Context(), func(tx *db.Tx) error { return w.CreateTx(t.Context(), tx, s, Settings{}, "ada@example.test") })
	if err != nil {
		t.Fatal(err)
	}
	must(`UPDATE wordpress_sites SET installed = '6.1'`)
	for _, name := range []string{"first.test", "second.test"} {
		must(`INSERT INTO domains (id, owner_id, site_id, name, zone, status, reason, is_primary, redirect_to, proof, findings, checks, tries, pending_at,
			ssl_status, cert_issuer, cert_error, created_at, updated_at)
			VALUES ('` + name + `', 'own', 'site', '` + name + `', '` + name + `', 'pending', '', FALSE, '', '', '{}', 0, 0, 0, 'pending', '', '', 0, 0)`)
	}
	// follow runs the readdressing and returns the queued work.
	follow := func() []Work {
		t.Helper()
		for range 2 {
			if err := w.readdress(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		rows, err := d.Query(t.Context(), `SELECT args FROM jobs WHERE kind = 'wordpress.work' ORDER BY id`)
		list, err := db.Collect(rows, err, func(s db.Scanner) (x Work, err error) {
			var args string
			if err = s.Scan(&args); err == nil {
				err = json.Unmarshal([]byte(args), &x)
			}
			return x, err
		})
		if err != nil {
			t.Fatal(err)
		}
		must(`DELETE FROM jobs`)
		return list
	}
	revision := func() (n int64) {
		t.Helper()
		x, err := w.get(t.Context(), d, "site")
		if err != nil {
			t.Fatal(err)
		}
		return x.Revision
	}
	leads := func(host, to string) {
		t.Helper()
		w.Forget()
		served, err := guarded{w}.Served(t.Context(), "dep")
		if err != nil {
			t.Fatal(err)
		}
		if got := to != "" && slices.Contains(served.Former, host) && served.Address == to; got != (to != "") || to == "" &&
			slices.Contains(served.Former, host) && served.Address != "" {
			t.Errorf("%s: %+v, want it to lead to %q", host, served, to)
		}
	}

	if list := follow(); len(list) != 0 || revision() != 0 {
		t.Fatalf("without a domain: %+v", list)
	}
	leads("blog.sites.test", "")
	must(`UPDATE domains SET is_primary = TRUE WHERE name = 'first.test'`)
	if list := follow(); len(list) != 0 || revision() != 0 {
		t.Fatalf("a domain that is not active: %+v", list)
	}

	fill(w.cache, request("/"), "with the old links")
	must(`UPDATE domains SET status = 'active'`)
	list := follow()
	if len(list) != 1 || list[0].What != kindAddress || revision() != 1 {
		t.Fatalf("a primary domain: %+v, revision %d", list, revision())
	}
	w.shows(t, "with a primary domain")
	leads("blog.sites.test", "https://first.test")
	leads("first.test", "")

	// It waits for the program with the new address, because the previous one would write the old address.
	if err := w.work(t.Context(), list[0], 1); err == nil || replaced != nil {
		t.Errorf("the work did not wait for the program: %v, %v", err, replaced)
	}
	home = "https://first.test"
	fill(w.cache, request("/"), "with the old links")
	if err := w.work(t.Context(), list[0], 1); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(replaced, [2]string{"https://blog.sites.test", "https://first.test"}) {
		t.Errorf("replaced: %v", replaced)
	}
	w.shows(t, "rewritten")
	if again := follow(); len(again) != 0 {
		t.Errorf("once more: %+v", again)
	}

	// Another domain, while another operation is running: the program changes immediately, the content later.
	var other operation.Operation
	err = d.Write(t.Context(), func(tx *db.Tx) (err error) {
		other, err = w.beginTx(t.Context(), tx, "own", "site", Work{What: kindUpdate})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	must(`DELETE FROM jobs`)
	must(`UPDATE domains SET is_primary = (name = 'second.test')`)
	if list := follow(); len(list) != 0 || revision() != 2 {
		t.Fatalf("beside another operation: %+v, revision %d", list, revision())
	}
	leads("first.test", "https://second.test")
	if err := d.Write(t.Context(), func(tx *db.Tx) error { return w.c.Operations.EndTx(t.Context(), tx, other.ID, "", "", nil) }); err != nil {
		t.Fatal(err)
	}
	if list = follow(); len(list) != 1 {
		t.Fatalf("after it: %+v", list)
	}
	home = "https://second.test"
	if err := w.work(t.Context(), list[0], 1); err != nil {
		t.Fatal(err)
	}
	for _, old := range []string{"https://blog.sites.test", "https://first.test"} {
		if !slices.Contains(replaced, [2]string{old, "https://second.test"}) {
			t.Errorf("%s is not replaced: %v", old, replaced)
		}
	}

	// Without a domain the site has its own address again, and content from before this feature isn't changed.
	must(`DELETE FROM domains`)
	if list = follow(); len(list) != 1 || revision() != 3 {
		t.Fatalf("without one: %+v", list)
	}
	leads("second.test", "")

	// Rewriting that failed or was interrupted starts again after a pause that grows with each attempt.
	began := db.Now()
	waits := func(want time.Duration) {
		t.Helper()
		var at db.Time
		if err := d.QueryRow(t.Context(), `SELECT readdress_at FROM wordpress_sites`).Scan(&at); err != nil {
			t.Fatal(err)
		}
		if got := at.Sub(began); want == 0 && at != 0 || want > 0 && (got < want-time.Second || got > want+5*time.Minute) {
			t.Errorf("the next attempt comes after %v, want %v", got, want)
		}
	}
	args, err := json.Marshal(list[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := w.givenUp(t.Context(), args, nil); err != nil {
		t.Fatal(err)
	}
	for n, fails := range []bool{true, true, true, true, true, true, true, true, true, false} {
		if now := follow(); len(now) != 0 {
			t.Errorf("a rewriting that failed begins at once: %+v", now)
		}
		waits(min(10*time.Minute<<n, 24*time.Hour))
		must(`UPDATE wordpress_sites SET readdress_at = 0`)
		again := follow()
		if len(again) != 1 || !slices.Equal(again[0].Hosts, list[0].Hosts) {
			t.Fatalf("a rewriting that failed begins again: %+v, want the hosts of %+v", again, list[0])
		}
		home, list, broken = "https://blog.sites.test", again, fails
		if err := w.work(t.Context(), list[0], 1); err != nil {
			t.Fatal(err)
		}
	}
	waits(0)
	if err := d.Write(t.Context(), func(tx *db.Tx) error { return w.readdressLaterTx(t.Context(), tx, list[0]) }); err != nil {
		t.Fatal(err)
	}
	waits(10 * time.Minute) // after a success
	must(`UPDATE wordpress_sites SET host = '-', content_host = '-'`)
	if list := follow(); len(list) != 0 || revision() != 3 {
		t.Errorf("a site of an earlier version: %+v", list)
	}
}

// A former host redirects to the same page on the primary domain. Requests that would lose data by a redirect are
// answered.
func TestFormerHosts(t *testing.T) {
	t.Parallel()
	w := New(Config{DB: dbtest.New(t)})
	served := guard.Served{Site: "site", Owner: "owner", Address: "https://shop.test", Former: []string{"blog.test"}}
	for _, tt := range []struct{ method, host, path, to string }{
		{"GET", "blog.test", "/a/?b=c&d", "https://shop.test/a/?b=c&d"},
		{"HEAD", "Blog.test:8443", "/", "https://shop.test/"},
		{"GET", "blog.test", "/wp-content/uploads/a.png", "https://shop.test/wp-content/uploads/a.png"},
		{"GET", "shop.test", "/", ""},
		{"GET", "other.test", "/", ""},
		{"POST", "blog.test", "/wp-json/wp/v2/posts", ""},
	} {
		fill(w.cache, request(tt.path), "cached")
		r, rec := request(tt.path), httptest.NewRecorder()
		r.Method, r.Host = tt.method, tt.host
		w.Endpoint(served, "site").Serve(rec, r)
		if got := rec.Header().Get("Location"); got != tt.to || tt.to != "" && rec.Code != http.StatusMovedPermanently {
			t.Errorf("%s %s%s: %d to %q, want %q", tt.method, tt.host, tt.path, rec.Code, got, tt.to)
		}
	}
}
