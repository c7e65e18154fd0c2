package wordpress

import (
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"slipway/internal/backup/backup"
	"slipway/internal/backup/repository"
	"slipway/internal/build/rules"
	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/seal"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
)

// owned returns a live WordPress site of the owner "own". change completes the configuration.
func owned(t *testing.T, change ...func(*Config)) (*WordPress, *db.DB) {
	t.Helper()
	d := dbtest.New(t)
	key, err := seal.Load(filepath.Join(t.TempDir(), "key"))
	if err != nil {
		t.Fatal(err)
	}
	c := Config{DB: d, Seal: key, Sites: site.New(site.Config{DB: d, Domain: "sites.test"})}
	for _, f := range change {
		f(&c)
	}
	w := New(c)
	for _, query := range []string{
		`INSERT INTO sites (id, owner_id, name, slug, type, runtime, status, status_reason, repository, branch, framework, build, credential,
		needs_redeploy, live_deployment, live_release, live_version, created_at, updated_at, deleted_at)
		VALUES ('site', 'own', 'Blog', 'blog', 'wordpress', 'wordpress', 'active', '', '', '', '', '{}', '', FALSE, 'dep', 'rel', 1, 0, 0, 0)`,
		`INSERT INTO deployments (id, site_id, owner_id, label, status, cause, branch, title, clear_cache, commit_hash, commit_message, commit_author,
		framework, plan, release, runtime, rollback_of, error, stages, attempt, cancel, created_at, started_at, completed_at)
		VALUES ('dep', 'site', 'own', '', 'success', 'api', '', '', FALSE, '', '', '', '', '', '', '', '', '', '', 0, '', 0, 0, 0)`,
	} {
		if err := d.Admin(t.Context(), query); err != nil {
			t.Fatal(err)
		}
	}
	s := site.Site{ID: "site", Owner: "own", Name: "Blog", Type: site.WordPress}
	if err := d.Write(t.Context(), func(tx *db.Tx) error { return w.CreateTx(t.Context(), tx, s, Settings{}, "ada@example.test") }); err != nil {
		t.Fatal(err)
	}
	return w, d
}

// Visitors must get root files at once. A set that has a file which cannot be served or a rule which cannot be obeyed
// must be refused as a whole.
func TestRootFiles(t *testing.T) {
	t.Parallel()
	w, d := owned(t)
	set := func(owner account.OwnerID, files ...RootFile) (changed bool, err error) {
		err = d.Write(t.Context(), func(tx *db.Tx) error {
			changed, err = w.SetRootFilesTx(t.Context(), tx, owner, "site", files)
			return err
		})
		return changed, err
	}
	good := []RootFile{
		{".well-known/security.txt", "Contact: ada"}, {"_headers", "/*\n  X-Frame-Options: DENY\n"}, {"_redirects", "/old /new 301\n"}, {"ads.txt", "none"},
	}
	if s, err := w.Guards.Rules(t.Context(), "dep"); err != nil || s != nil {
		t.Fatalf("rules before: %v %v", s, err)
	}
	if changed, err := set("own", good...); err != nil || !changed {
		t.Fatalf("%v %v", changed, err)
	}
	if changed, err := set("own", good...); err != nil || changed {
		t.Errorf("again: %v %v", changed, err)
	}
	served := func() (rules, files int) {
		t.Helper()
		s, err := (guarded{w}).Served(t.Context(), "dep")
		if err != nil {
			t.Fatal(err)
		}
		if s.Rules != nil {
			rules = len(s.Rules.Rules().Redirects) + len(s.Rules.Rules().Headers)
		}
		return rules, len(s.Root)
	}
	if tree, err := w.Guards.Rules(t.Context(), "dep"); err != nil || tree == nil {
		t.Errorf("the guard knows of no rules: %v", err)
	}
	if rules, files := served(); rules != 2 || files != 2 {
		t.Errorf("%d rules and %d files are served", rules, files)
	}
	get := func(path string) string {
		t.Helper()
		e, err := w.Acquire(t.Context(), "dep")
		if err != nil {
			t.Fatal(err)
		}
		rec := httptest.NewRecorder()
		e.Serve(rec, request(path))
		return rec.Body.String()
	}
	if text := get("/ads.txt"); text != "none" {
		t.Errorf("ads.txt is %q", text)
	}
	// Requests must not read root files from the database, where they may be 256 KiB per site.
	if err := d.Admin(t.Context(), `UPDATE wordpress_sites SET root_files = '{"ads.txt": "read"}'`); err != nil {
		t.Fatal(err)
	}
	if text := get("/ads.txt"); text != "none" {
		t.Errorf("ads.txt is %q without being set: it is read for each request", text)
	}
	if changed, err := set("own", good...); err != nil || !changed {
		t.Fatalf("%v %v", changed, err)
	}
	for name, files := range map[string][]RootFile{
		"PHP":               {{"x.php", "<?php"}},
		"PHP in well-known": {{".well-known/x.php", "<?php"}},
		"WordPress's":       {{"wp-config.txt", "x"}},
		"the front page":    {{"index.html", "x"}},
		"hidden":            {{".env", "x"}},
		"in a folder":       {{"a/ads.txt", "x"}},
		"upwards":           {{".well-known/../../x.txt", "x"}},
		"no name":           {{"", "x"}},
		"twice":             {{"ads.txt", "x"}, {"ads.txt", "y"}},
		"no text":           {{"ads.txt", "\xff"}},
		"large":             {{"ads.txt", strings.Repeat("x", maxRootFile+1)}},
		"many":              make([]RootFile, maxRootFiles+1),
		"bad rules":         {{"_redirects", "/old /new 999\n"}},
	} {
		if _, err := set("own", files...); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := set("other", good...); !fault.Is(err, fault.NotFound) {
		t.Errorf("another owner: %v", err)
	}
	one := func(path string, content *string) error {
		return d.Write(t.Context(), func(tx *db.Tx) error {
			_, err := w.SetRootFileTx(t.Context(), tx, "own", "site", path, content)
			return err
		})
	}
	text := "User-agent: *"
	for path, content := range map[string]*string{"robots.txt": &text, "_headers": nil, "_redirects": nil} {
		if err := one(path, content); err != nil {
			t.Fatal(err)
		}
	}
	if got := get("/robots.txt"); got != text {
		t.Errorf("robots.txt is %q", got)
	}
	list, err := w.RootFiles(t.Context(), "own", "site")
	if want := []RootFile{good[0], good[3], {"robots.txt", text}}; err != nil || !slices.Equal(list, want) {
		t.Errorf("left: %v %v", list, err)
	}
	if n, files := served(); n != 0 || files != 3 || rules.IsFile("ads.txt") {
		t.Errorf("%d rules and %d files are left", n, files)
	}
	if tree, err := w.Guards.Rules(t.Context(), "dep"); err != nil || tree != nil {
		t.Errorf("rules that are deleted: %v %v", tree, err)
	}
}

// What an owner excludes from the page cache must be checked, stored, and known to the guard, and the program must not
// be restarted for it.
func TestPageCacheSettings(t *testing.T) {
	t.Parallel()
	w, d := owned(t)
	patch := func(p PageCachePatch) (changed bool, err error) {
		err = d.Write(t.Context(), func(tx *db.Tx) error {
			changed, err = w.UpdateTx(t.Context(), tx, "own", "site", Patch{PageCache: p})
			return err
		})
		return changed, err
	}
	of := func(values ...string) *[]string { return &values }
	if changed, err := patch(PageCachePatch{Cookies: of("currency"), Paths: of("/shop/*", "/prices/"), Query: of("ref", "ref")}); err != nil || !changed {
		t.Fatalf("%v %v", changed, err)
	}
	if changed, err := patch(PageCachePatch{Query: of("ref")}); err != nil || changed {
		t.Errorf("again: %v %v", changed, err)
	}
	if _, err := patch(PageCachePatch{Cookies: of()}); err != nil {
		t.Fatal(err)
	}
	s, err := (guarded{w}).Served(t.Context(), "dep")
	if p := s.Pages; err != nil || len(p.Cookies) != 0 || !slices.Equal(p.Paths, []string{"/prices/", "/shop/*"}) || !slices.Equal(p.Query, []string{"ref"}) {
		t.Errorf("the guard knows %+v, %v", p, err)
	}
	if x, err := w.get(t.Context(), d, "site"); err != nil || x.Revision != 0 {
		t.Errorf("revision %d, %v", x.Revision, err)
	}
	for name, p := range map[string]PageCachePatch{
		"a cookie with a space": {Cookies: of("a b")},
		"every cookie":          {Cookies: of("")},
		"a path without /":      {Paths: of("shop")},
		"a query in a path":     {Paths: of("/a?b")},
		"a star inside":         {Paths: of("/a*/b")},
		"a long path":           {Paths: of("/" + strings.Repeat("a", 200))},
		"a name with &":         {Query: of("a&b")},
		"many":                  {Query: of(strings.Split(strings.Repeat("a ", maxPageCache+1), " ")...)},
	} {
		if _, err := patch(p); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Where backups are possible, a new WordPress must be backed up every day, and seven daily backups must be kept.
func TestNewSitesAreBackedUp(t *testing.T) {
	t.Parallel()
	for _, to := range []*repository.Repository{nil, repository.New(repository.Config{})} {
		w, d := owned(t, func(c *Config) {
			c.Backups = backup.New(backup.Config{DB: c.DB, Sites: c.Sites, Repository: to})
		})
		got, err := w.c.Backups.ScheduleOf(t.Context(), d, "site")
		want := "off"
		if to != nil {
			want = "daily"
		}
		if err != nil || got.Every != want || got.Keep.Daily != 7 {
			t.Errorf("the schedule is %+v, %v, want %s", got, err, want)
		}
	}
}
