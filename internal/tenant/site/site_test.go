package site_test

import (
	"context"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"slipway/internal/platform/id"

	"slipway/internal/git/fetch"
	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/seal"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
	"slipway/internal/tenant/webhook"
)

const (
	anna = account.OwnerID("usr_anna")
	ben  = account.OwnerID("usr_ben")
)

type world struct {
	*site.Sites
	db *db.DB
}

func open(t *testing.T, with ...func(*site.Config)) world {
	t.Helper()
	d := dbtest.New(t)
	sealer, err := seal.Load(filepath.Join(t.TempDir(), "key"))
	if err != nil {
		t.Fatal(err)
	}
	c := site.Config{DB: d, Hooks: webhook.New(webhook.Config{DB: d, Seal: sealer}), Seal: sealer, Domain: "sites.test", Port: 8443}
	for _, change := range with {
		change(&c)
	}
	return world{site.New(c), d}
}

// write runs fn in a transaction and fails the test on an error.
func (r world) write(t *testing.T, fn func(tx *db.Tx) error) {
	t.Helper()
	if err := r.db.Write(t.Context(), fn); err != nil {
		t.Fatal(err)
	}
}

func (r world) create(t *testing.T, owner account.OwnerID, name string) site.Site {
	t.Helper()
	s, err := r.Create(t.Context(), owner, site.NewSite{Name: name, Type: "static", Repository: "git.test/acme/site", Branch: "main"})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (r world) activate(t *testing.T, of site.ID, deployment id.Deployment) (live bool) {
	t.Helper()
	r.write(t, func(tx *db.Tx) error {
		was, err := r.ActivateTx(t.Context(), tx, of, deployment, id.Release("release-"+string(deployment)), "static")
		live = was != nil
		return err
	})
	return live
}

func (r world) count(t *testing.T, q string, args ...any) (n int) {
	t.Helper()
	if err := r.db.QueryRow(t.Context(), q, args...).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestCreateIsPendingAndProvisioned(t *testing.T) {
	t.Parallel()
	r := open(t)
	s := r.create(t, anna, "My First Site!")
	if s.Status != site.Pending || s.Slug != "my-first-site" || !strings.HasPrefix(string(s.ID), "site_") || s.Runtime != "static" {
		t.Fatalf("got %+v", s)
	}
	if got := r.URL(s.Slug); got != "https://my-first-site.sites.test:8443" {
		t.Errorf("URL %s", got)
	}
	if got := r.DeploymentURL("abc", s.Slug); got != "https://abc--my-first-site.sites.test:8443" {
		t.Errorf("deployment URL %s", got)
	}
	if n := r.count(t, `SELECT count(*) FROM jobs WHERE kind = 'site.provision'`); n != 1 {
		t.Errorf("%d jobs to provision it, want 1", n)
	}
	got, err := r.Get(t.Context(), anna, s.ID)
	if err != nil || got.Name != "My First Site!" || got.Repository != "git.test/acme/site" || got.UpdatedAt != got.CreatedAt {
		t.Fatalf("got %+v, %v", got, err)
	}
}

func TestCreateRefuses(t *testing.T) {
	t.Parallel()
	r := open(t)
	ok := site.NewSite{Name: "x", Type: "static", Repository: "git.test/a/b"}
	for name, change := range map[string]func(*site.NewSite){
		"no name":             func(n *site.NewSite) { n.Name = "" },
		"blank name":          func(n *site.NewSite) { n.Name = " \t" },
		"101 characters":      func(n *site.NewSite) { n.Name = strings.Repeat("ä", 101) },
		"control character":   func(n *site.NewSite) { n.Name = "a\x1b[31mb" },
		"bidi override":       func(n *site.NewSite) { n.Name = "a\u202eb" },
		"type upper case":     func(n *site.NewSite) { n.Type = "STATIC" },
		"no type":             func(n *site.NewSite) { n.Type = "" },
		"no repository":       func(n *site.NewSite) { n.Repository = "" },
		"file repository":     func(n *site.NewSite) { n.Repository = "file:///etc" },
		"option branch":       func(n *site.NewSite) { n.Branch = "--upload-pack=touch /tmp/x" },
		"output outside":      func(n *site.NewSite) { out := "../../etc"; n.Build.Output = &out },
		"absolute root":       func(n *site.NewSite) { out := "/etc"; n.Build.Root = &out },
		"credential of lines": func(n *site.NewSite) { n.Credential = &fetch.Credential{Token: "a\r\nX: y"} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := ok
			change(&n)
			if _, err := r.Create(t.Context(), anna, n); !fault.Is(err, fault.Invalid) {
				t.Fatalf("got %v, want an Invalid fault", err)
			}
		})
	}
	t.Cleanup(func() {
		var n int
		r.db.QueryRow(context.Background(), `SELECT count(*) FROM sites`).Scan(&n)
		if n != 0 {
			t.Errorf("%d sites came to be", n)
		}
	})
	_, err := r.Create(t.Context(), anna, site.NewSite{Name: "x", Type: "drupal", Repository: "git.test/a/b"})
	f := fault.As(err)
	if f == nil || f.Received != "drupal" || !strings.Contains(
		f.Details,
		"static or wordpress",
	) || !strings.Contains(f.Message, "site type") {
		t.Fatalf("got %+v", f)
	}
}

func TestWordPressNeedsNoRepository(t *testing.T) {
	t.Parallel()
	r := open(t)
	s, err := r.Create(t.Context(), anna, site.NewSite{Name: "Blog", Type: "wordpress"})
	if err != nil || s.Type != site.WordPress || s.Repository != "" {
		t.Fatalf("got %+v, %v", s, err)
	}
	none, themes := "", "git.test/acme/themes"
	for _, repository := range []string{none, themes, none} {
		var got site.Site
		if err := r.db.Write(t.Context(), func(tx *db.Tx) (err error) {
			got, err = r.UpdateTx(t.Context(), tx, anna, s.ID, site.Patch{Repository: &repository})
			return err
		}); err != nil || got.Repository != repository || got.Branch != "" {
			t.Fatalf("repository %q: got %+v, %v", repository, got, err)
		}
	}
}

func TestSlug(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"My First Site!":          "my-first-site",
		"  --Ärger & Söhne-- ":    "aerger-and-soehne",
		"Žluťoučký kůň":           "zlutoucky-kun",
		"Привет мир":              "privet-mir",
		"日本":                      "ri-ben",
		"हिन्दी साइट":             "hindii-saaitt",
		"ভারত":                    "bhaart",
		"ქართული":                 "kartuli",
		"العربية":                 "lrby",
		"a--b":                    "a-b",
		"Ⅷ ﬁne":                   "viii-fine",
		"x'$(id)'":                "x-id",
		strings.Repeat("ab-", 40): strings.TrimRight(strings.Repeat("ab-", 16), "-"),
	} {
		if got := site.Slug(name); got != want {
			t.Errorf("Slug(%q) = %q, want %q", name, got, want)
		}
	}
}

// A slug is a DNS label of at most 48 letters, digits and single inner hyphens, and is its own slug.
func FuzzSlug(f *testing.F) {
	for _, s := range []string{"", "a", "--", "Ä", "\xff", "İ", "ǅ", strings.Repeat("ﷺ", 100)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		s := site.Slug(name)
		if s == "" || len(s) > 48 || strings.Trim(
			s,
			"abcdefghijklmnopqrstuvwxyz0123456789-",
		) != "" || s[0] == '-' || s[len(s)-1] == '-' || strings.Contains(s, "--") {
			t.Fatalf("Slug(%q) = %q", name, s)
		}
		if again := site.Slug(s); again != s {
			t.Fatalf("Slug(%q) = %q", s, again)
		}
	})
}

func TestTakenAndReservedNamesGetASuffix(t *testing.T) {
	t.Parallel()
	r := open(t)
	first := r.create(t, anna, "blog")
	for _, name := range []string{"blog", "www", "API"} {
		s := r.create(t, ben, name)
		if s.Slug == strings.ToLower(name) || !strings.HasPrefix(s.Slug, strings.ToLower(name)+"-") || len(s.Slug) != len(name)+5 {
			t.Errorf("%s became %s, want a suffix of four characters", name, s.Slug)
		}
	}
	r.write(t, func(tx *db.Tx) error { return r.DeleteTx(t.Context(), tx, anna, first.ID) })
	if s := r.create(t, ben, "blog"); s.Slug == "blog" {
		t.Error("a stranger inherited a deleted site's name")
	}
	if s := r.create(t, anna, "blog"); s.Slug != "blog" {
		t.Errorf("its owner got %s, want the name back", s.Slug)
	}
}

func TestConcurrentCreatesGetDifferentNames(t *testing.T) {
	t.Parallel()
	r := open(t)
	var wg sync.WaitGroup
	for range 12 {
		wg.Go(func() {
			if _, err := r.Create(t.Context(), anna, site.NewSite{Name: "same", Type: "static", Repository: "git.test/a/b"}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := r.count(t, `SELECT count(DISTINCT slug) FROM sites`); n != 12 {
		t.Errorf("%d different slugs, want 12", n)
	}
}

// The stored counts of sites equal the real counts after any change.
func TestCountsStayTrue(t *testing.T) {
	t.Parallel()
	r := open(t)
	ctx := t.Context()
	for i := range 6 {
		s := r.create(t, anna, "s")
		r.write(t, func(tx *db.Tx) error { return r.ProvisioningTx(ctx, tx, s) })
		if i%2 == 0 {
			r.activate(t, s.ID, "dep_a")
		} else {
			r.write(t, func(tx *db.Tx) error { return r.FailTx(ctx, tx, s.ID, "no") })
		}
		if i == 2 {
			r.write(t, func(tx *db.Tx) error { _, err := r.StopTx(ctx, tx, anna, s.ID); return err })
			r.activate(t, s.ID, "dep_b") // stays stopped
		}
		if i == 4 {
			r.write(t, func(tx *db.Tx) error { return r.DeleteTx(ctx, tx, anna, s.ID) })
		}
	}
	for _, status := range site.Statuses {
		real := r.count(t, `SELECT count(*) FROM sites WHERE deleted_at = 0 AND status = $1`, status)
		kept := r.count(t, `SELECT COALESCE(SUM(n), 0) FROM site_counts WHERE status = $1`, status)
		if real != kept {
			t.Errorf("%s: %d sites, counted as %d", status, real, kept)
		}
	}
}

func TestForeignSitesAreNotFound(t *testing.T) {
	t.Parallel()
	r := open(t)
	ctx := t.Context()
	s := r.create(t, anna, "hers")
	key := site.HookID("")
	r.write(t, func(tx *db.Tx) error {
		h, err := r.CreateHookTx(ctx, tx, anna, s.ID, site.NewHook{Name: "ci"})
		key = h.ID
		return err
	})
	for name, do := range map[string]func(tx *db.Tx) error{
		"get":        func(tx *db.Tx) error { _, err := r.GetTx(ctx, tx, ben, s.ID); return err },
		"update":     func(tx *db.Tx) error { _, err := r.UpdateTx(ctx, tx, ben, s.ID, site.Patch{}); return err },
		"stop":       func(tx *db.Tx) error { _, err := r.StopTx(ctx, tx, ben, s.ID); return err },
		"delete":     func(tx *db.Tx) error { return r.DeleteTx(ctx, tx, ben, s.ID) },
		"set env":    func(tx *db.Tx) error { _, err := r.SetEnvTx(ctx, tx, ben, s.ID, []site.NewVar{{Key: "A"}}); return err },
		"delete env": func(tx *db.Tx) error { return r.DeleteEnvTx(ctx, tx, ben, s.ID, "A") },
		"create hook": func(tx *db.Tx) error {
			_, err := r.CreateHookTx(ctx, tx, ben, s.ID, site.NewHook{Name: "x"})
			return err
		},
		"rotate hook": func(tx *db.Tx) error {
			_, err := r.UpdateHookTx(ctx, tx, ben, key, site.PatchHook{Rotate: true})
			return err
		},
		"delete hook": func(tx *db.Tx) error { return r.DeleteHookTx(ctx, tx, ben, key) },
	} {
		if err := r.db.Write(ctx, do); !fault.Is(err, fault.NotFound) {
			t.Errorf("%s: got %v, want NotFound", name, err)
		}
	}
	if _, err := r.Env(ctx, ben, s.ID); !fault.Is(err, fault.NotFound) {
		t.Errorf("env: got %v, want NotFound", err)
	}
	if _, err := r.Hooks(ctx, ben, s.ID); !fault.Is(err, fault.NotFound) {
		t.Errorf("hooks: got %v, want NotFound", err)
	}
}

func TestStatusMovesOnlyAsDrawn(t *testing.T) {
	t.Parallel()
	r := open(t)
	ctx := t.Context()
	s := r.create(t, anna, "x")
	stop := func(tx *db.Tx) error { _, err := r.StopTx(ctx, tx, anna, s.ID); return err }
	start := func(tx *db.Tx) error { _, err := r.StartTx(ctx, tx, anna, s.ID); return err }
	if err := r.db.Write(ctx, stop); !fault.Is(err, fault.Conflict) {
		t.Fatalf("stopping a pending site: %v, want Conflict", err)
	}
	if err := r.db.Write(ctx, start); !fault.Is(err, fault.Conflict) {
		t.Fatalf("starting a pending site: %v, want Conflict", err)
	}
	r.write(t, func(tx *db.Tx) error { return r.ProvisioningTx(ctx, tx, s) })
	r.write(t, func(tx *db.Tx) error { return r.FailTx(ctx, tx, s.ID, "no such repository") })
	if got, _ := r.Get(ctx, anna, s.ID); got.Status != site.Failed || got.StatusReason != "no such repository" {
		t.Fatalf("got %s, %q", got.Status, got.StatusReason)
	}
	r.activate(t, s.ID, "dep_1")
	r.write(t, func(tx *db.Tx) error { return r.FailTx(ctx, tx, s.ID, "a later one failed") })
	if got, _ := r.Get(ctx, anna, s.ID); got.Status != site.Active || got.StatusReason != "" {
		t.Fatalf("a later failure left the site %s, %q", got.Status, got.StatusReason)
	}
	r.write(t, stop)
	r.write(t, stop) // stopping again is no error
	r.write(t, start)
}

// The live view changes with every change that the edge must know of, and its version only increases.
func TestLiveViewFollows(t *testing.T) {
	t.Parallel()
	r := open(t)
	ctx := t.Context()
	s := r.create(t, anna, "x")
	var last int64
	see := func(want, release string) {
		t.Helper()
		var state, rel string
		var version int64
		if err := r.db.QueryRow(ctx, `SELECT state, release, version FROM live WHERE host_label = $1`, s.Slug).Scan(
			&state,
			&rel,
			&version,
		); err != nil {
			t.Fatal(err)
		}
		if state != want || rel != release || version <= last {
			t.Fatalf("state %s release %q version %d after %d; want %s %q and more", state, rel, version, last, want, release)
		}
		last = version
	}
	see("empty", "")
	r.write(t, func(tx *db.Tx) error { return r.ProvisioningTx(ctx, tx, s) })
	r.write(t, func(tx *db.Tx) error { return r.FailTx(ctx, tx, s.ID, "no") })
	see("error", "")
	r.activate(t, s.ID, "dep_2")
	see("live", "release-dep_2")
	if r.activate(t, s.ID, "dep_1") {
		t.Fatal("an older deployment displaced a newer one")
	}
	if r.activate(t, s.ID, "dep_2") {
		t.Fatal("the same deployment went live twice")
	}
	r.write(t, func(tx *db.Tx) error { _, err := r.StopTx(ctx, tx, anna, s.ID); return err })
	see("stopped", "release-dep_2")
	r.write(t, func(tx *db.Tx) error { return r.DeleteTx(ctx, tx, anna, s.ID) })
	see("deleted", "release-dep_2")
	if r.activate(t, s.ID, "dep_3") {
		t.Fatal("a deleted site went live")
	}
	if _, err := r.Get(ctx, anna, s.ID); !fault.Is(err, fault.NotFound) {
		t.Fatalf("a deleted site is there: %v", err)
	}
}

// A site's credential is bound to its repository's host and is deleted when the host changes, so that one host's token
// is never sent to another.
func TestCredentialEndsWithItsHost(t *testing.T) {
	t.Parallel()
	r := open(t)
	s, err := r.Create(t.Context(), anna, site.NewSite{
		Name:       "x",
		Type:       "static",
		Repository: "git.test/a/b",
		Credential: &fetch.Credential{Token: "tok"},
	})
	if err != nil {
		t.Fatal(err)
	}
	patch := func(repository string, c *fetch.Credential) (out site.Site) {
		t.Helper()
		r.write(t, func(tx *db.Tx) (err error) {
			out, err = r.UpdateTx(t.Context(), tx, anna, s.ID, site.Patch{Repository: &repository, Credential: c})
			return err
		})
		return out
	}
	stored := func() fetch.Credential {
		t.Helper()
		now, err := r.ByID(t.Context(), r.db, s.ID)
		if err != nil {
			t.Fatal(err)
		}
		c, err := r.CredentialOf(t.Context(), now)
		if err != nil {
			t.Fatal(err)
		}
		if c == nil {
			return fetch.Credential{}
		}
		return *c
	}
	if got := patch("git@git.test:a/other", nil); !got.Credential || stored() != (fetch.Credential{Token: "tok", Host: "git.test"}) {
		t.Fatalf("on the same host: %+v", stored())
	}
	for _, to := range []string{"evil.test/a/b", "git.test:8443/a/b"} {
		if got := patch(to, nil); got.Credential || stored() != (fetch.Credential{}) {
			t.Errorf("at %s it is still stored", to)
		}
		if got := patch("git.test/a/b", nil); got.Credential || stored() != (fetch.Credential{}) {
			t.Error("it came back with the host")
		}
		patch("git.test/a/b", &fetch.Credential{Token: "tok"})
	}
	if got := patch("new.test/a/b", &fetch.Credential{
		Token: "new",
	}); !got.Credential || stored() != (fetch.Credential{Token: "new", Host: "new.test"}) {
		t.Errorf("sent together: %+v", stored())
	}
}
