package wordpress

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"slipway/internal/platform/id"

	"slipway/internal/edge/endpoint"
	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/operation"
	"slipway/internal/tenant/site"
)

// flushed returns a WordPress whose site "site" gets a visitor each time its object cache is cleared, the latest moment
// at which a page with old data may be cached.
func flushed(t *testing.T, c Config) (_ *WordPress, cleared *[]string) {
	t.Helper()
	cleared = new([]string)
	var w *WordPress
	c.DB = dbtest.New(t)
	c.Sites = site.New(site.Config{DB: c.DB, Domain: "sites.test"})
	c.Operations = operation.New(operation.Config{DB: c.DB})
	c.Host = host(func(id string) {
		*cleared = append(*cleared, id)
		fill(w.cache, request("/"), "from the old objects")
	})
	w = New(c)
	fill(w.cache, request("/"), "from before")
	return w, cleared
}

// host is a Host whose sites have no files.
type host func(site string)

// FetchStorage implements Host.
func (h host) FetchStorage(context.Context, site.ID) (io.Closer, error) {
	return io.NopCloser(nil), nil
}

// KeepStorage implements Host.
func (h host) KeepStorage(context.Context, site.ID) error { return nil }

// MakeStorage implements Host.
func (h host) MakeStorage(context.Context, site.ID, string) (string, error) { return "", nil }

// StorageFolders implements Host.
func (h host) StorageFolders(site.ID) (map[string]string, error) { return nil, nil }

// StorageDir implements Host.
func (h host) StorageDir(site.ID) (string, bool) { return "", false }

// Hold implements Host.
func (h host) Hold(site.ID) (release func()) { return func() {} }

// StorageSize implements Host.
func (host) StorageSize(context.Context, site.ID) (int64, error) { return 0, nil }

// ClearRedis implements Host.
func (h host) ClearRedis(site site.ID) bool { h(string(site)); return true }

func (w *WordPress) shows(t *testing.T, what string) {
	t.Helper()
	if p := w.cache.Fresh("site", "blog.test", "/"); p != nil {
		t.Errorf("%s: visitors see the page %s", what, shown(p))
	}
}

// tasks implements Programs with programs that run Slipway's scripts.
type tasks server

// Acquire implements Programs.
func (t tasks) Acquire(context.Context, id.Deployment) (*endpoint.Endpoint, error) {
	return &endpoint.Endpoint{Tasks: server(t), Release: func() {}}, nil
}

// Awake implements Programs.
func (t tasks) Awake(deployment id.Deployment) (*endpoint.Endpoint, bool) {
	e, err := t.Acquire(context.Background(), deployment)
	return e, err == nil
}

// Note implements Programs.
func (t tasks) Note(site.ID, string) {}

// Renew implements Programs.
func (t tasks) Renew(site.ID) {}

func (t tasks) Quiet(site.ID, time.Duration) (release func()) { return func() {} }

// FatalErrors implements Programs.
func (t tasks) FatalErrors(context.Context, site.ID, db.Time) []string { return nil }

// After a search and replace, neither the object cache nor a cached page has the old text, even with a visitor at each
// moment in between.
func TestReplaceEmptiesCaches(t *testing.T) {
	t.Parallel()
	answer := `{"done": true, "place": {"rows": 1, "replacements": 2, "tables": {}, "skipped": []}, "progress": 1}`
	w, cleared := flushed(t, Config{Programs: tasks(func(*http.Request) (*http.Response, error) {
		return &http.Response{
			StatusCode: 200,
			Header:     http.Header{"X-Slipway-Purge": {"*"}},
			Body:       io.NopCloser(strings.NewReader(answer)),
		}, nil
	})})
	r := &run{WordPress: w}
	if _, err := r.replaceAll(t.Context(), site.Site{
		ID:   "site",
		Slug: "blog",
	}, pairs{List: [][2]string{{"a", "b"}}}, true, 0); err != nil || len(*cleared) != 0 {
		t.Fatalf("a dry run: %v, %d cleared", err, len(*cleared))
	}
	found, err := r.replaceAll(t.Context(), site.Site{ID: "site", Slug: "blog"}, pairs{List: [][2]string{{"a", "b"}}}, false, 0)
	if err != nil || found.Replacements != 2 {
		t.Fatalf("%v %v", found, err)
	}
	if len(*cleared) != 1 || (*cleared)[0] != "site" {
		t.Errorf("the object caches of %q were emptied", *cleared)
	}
	w.shows(t, "after a replacement")
}

// An operation that failed after a change, and whose changes couldn't be undone, clears the caches. One that changed
// nothing doesn't.
func TestFailuresEmptyCaches(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		step    step
		what    string
		message string
		cleared string
	}{
		"while it changes":   {step{At: atChange}, kindReplace, "", "site"},
		"while it checks":    {step{At: atCheck}, kindUpdate, "", "site"},
		"not taken back":     {step{At: atBack}, kindUpdate, "", "site"},
		"a clone":            {step{At: atChange, Target: "site_clone"}, kindClone, "", "site_clone"},
		"before it changes":  {step{}, kindReplace, "", ""},
		"a dry run":          {step{At: atFill}, kindReplace, "", ""},
		"a success says it ": {step{At: atChange}, kindReplace, "Done", ""},
	} {
		for _, givenUp := range []bool{false, true} {
			if givenUp && tt.message != "" {
				continue
			}
			w, cleared := flushed(t, Config{})
			x := Work{Owner: "own", Site: "site", What: tt.what}
			err := w.c.DB.Write(t.Context(), func(tx *db.Tx) error {
				o, err := w.c.Operations.OpenTx(t.Context(), tx, account.OwnerID("own"), operation.NewOperation{
					Kind: tt.what,
					Site: "site",
				})
				x.Operation = o.ID
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			r := &run{WordPress: w, x: x, step: tt.step}
			if givenUp {
				if err := r.to(t.Context(), tt.step.At, 0.5, "Working"); err != nil {
					t.Fatal(err)
				}
				args, _ := json.Marshal(x)
				err = w.givenUp(t.Context(), args, errors.New("the server stopped each time"))
			} else {
				failure := "The server has no room"
				if tt.message != "" {
					failure = ""
				}
				err = r.end(t.Context(), tt.message, failure, nil)
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(*cleared, " "); got != tt.cleared {
				t.Errorf("%s, given up %v: the object caches of %q were emptied, want %q", name, givenUp, got, tt.cleared)
			}
			if tt.cleared == "site" {
				w.shows(t, name)
			}
		}
	}
}

// NoRedis implements Host.
func (host) NoRedis() string { return "" }

// A node that runs no programs must not say that the programs of other nodes have no object cache. Where no node can
// run it, none is offered.
func TestObjectCacheElsewhere(t *testing.T) {
	for _, x := range []struct {
		config  Config
		offered bool
	}{{Config{}, false}, {Config{Apart: true}, true}, {Config{Host: host(nil)}, true}} {
		if why := (&WordPress{c: x.config}).NoObjectCache(); (why == "") != x.offered {
			t.Errorf("%+v: %q", x.config, why)
		}
	}
}
