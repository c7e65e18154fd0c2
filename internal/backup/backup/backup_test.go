package backup

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/klauspost/compress/zstd"

	"slipway/internal/backup/repository"
	"slipway/internal/backup/snapshot"
	"slipway/internal/build/release"
	"slipway/internal/build/rules"
	"slipway/internal/deploy/deploy"
	"slipway/internal/deploy/deployment"
	"slipway/internal/git/fetch"
	"slipway/internal/platform/blob"
	"slipway/internal/platform/blob/s3test"
	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
	"slipway/internal/platform/egress"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/gc"
	"slipway/internal/platform/job"
	"slipway/internal/platform/seal"
	"slipway/internal/platform/wait"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/operation"
	"slipway/internal/tenant/site"
	"slipway/internal/tenant/webhook"
)

const anna = account.OwnerID("usr_anna")

// world is the backup service with real services and its own database.
type world struct {
	*Backups
	t       *testing.T
	db      *db.DB
	sites   *site.Sites
	deploys *deploy.Deployments
	rel     *release.Releases
	blobs   *blob.Store
	gc      *gc.Collector
	seal    *seal.Sealer
	dir     string // parent of all directories
	place   string // the repository's directory
	storage map[site.ID][]snapshot.Folder
	held    int // 1 per pause of a site's writes, plus 1000 once it ends
}

func newWorld(t *testing.T, change ...func(*Config)) *world {
	t.Helper()
	dir := t.TempDir()
	w := &world{t: t, db: dbtest.New(t), dir: dir, place: filepath.Join(dir, "backups"), storage: map[site.ID][]snapshot.Folder{}}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	var err error
	w.seal, err = seal.Load(filepath.Join(dir, "key"))
	ok(t, err)
	out, err := egress.New(egress.Config{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	ok(t, err)
	repos := filepath.Join(dir, "repos")
	ok(t, os.MkdirAll(repos, 0o755))
	src, err := fetch.New(fetch.Config{
		Dir:    filepath.Join(dir, "source"),
		Egress: out,
		Hosts:  map[string]string{"git.test": "file://" + repos},
	})
	ok(t, err)
	w.blobs, err = blob.Open(filepath.Join(dir, "blobs"), blob.Options{Deletions: gc.NewRecord(w.db)})
	ok(t, err)
	w.rel = release.New(release.Config{Blobs: w.blobs})
	w.gc = gc.New(gc.Config{DB: w.db, Blobs: w.blobs, Log: log, Grace: time.Hour})
	hooks := webhook.New(webhook.Config{DB: w.db, Seal: w.seal})
	w.sites = site.New(site.Config{DB: w.db, Hooks: hooks, Seal: w.seal, Domain: "sites.test"})
	ops := operation.New(operation.Config{DB: w.db})
	w.deploys = deploy.New(deploy.Config{
		DB: w.db, Sites: w.sites, Hooks: hooks, Source: src, Releases: w.rel, Log: log,
	})
	w.gc.Register("deployments", w.deploys.Roots)
	at, err := blob.Dir(w.place)
	ok(t, err)
	c := Config{
		DB: w.db, Sites: w.sites, Deployments: w.deploys, Hooks: hooks, Operations: ops, Blobs: w.blobs,
		Repository: repository.New(repository.Config{Backend: at, Seal: w.seal}), Scratch: dir, Log: log,
		Storage: &stored{
			list: func(id site.ID) ([]snapshot.Folder, error) { return w.storage[id], nil },
			hold: func(site.ID) func() { w.held++; return func() { w.held += 1000 } },
		},
	}
	for _, f := range change {
		f(&c)
	}
	w.Backups = New(c)
	w.deploys.ConnectParts(nil, w.Backups)
	w.start()
	return w
}

// start runs the workers and returns a function that stops them.
func (w *world) start() (stop func()) {
	jobs := job.New(job.Config{
		DB:     w.db,
		Log:    slog.New(slog.NewTextHandler(w.t.Output(), nil)),
		Queues: map[string]int{"default": 2, deploy.QueueName: 2, QueueName: 2, VerifyQueue: 2},
		Poll:   20 * time.Millisecond,
		Drain:  time.Millisecond,
	})
	w.Work(jobs)
	w.deploys.Work(jobs)
	w.sites.Work(jobs)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); jobs.Run(ctx) }()
	stop = sync.OnceFunc(func() { cancel(); <-done })
	w.t.Cleanup(stop)
	return stop
}

// keyIn and placeIn return the key and the directory of newWorld's repository.
func keyIn(t *testing.T, dir string) *seal.Sealer {
	t.Helper()
	key, err := seal.Load(filepath.Join(dir, "key"))
	ok(t, err)
	return key
}

func placeIn(t *testing.T, dir string) blob.Backend {
	t.Helper()
	at, err := blob.Dir(filepath.Join(dir, "backups"))
	ok(t, err)
	t.Cleanup(at.Close)
	return at
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (w *world) until(what string, cond func() bool) {
	w.t.Helper()
	wait.Until(w.t, what, cond)
}

func (w *world) commit(name string, files map[string]string) {
	w.t.Helper()
	dir := filepath.Join(w.dir, "repos", "acme", name)
	ok(w.t, os.MkdirAll(dir, 0o755))
	for p, text := range files {
		ok(w.t, os.MkdirAll(filepath.Dir(filepath.Join(dir, p)), 0o755))
		ok(w.t, os.WriteFile(filepath.Join(dir, p), []byte(text), 0o644))
	}
	for _, args := range [][]string{{"init", "-q"}, {"add", "-A"}, {"commit", "-q", "-m", "change"}} {
		cmd := exec.Command("git", append([]string{
			"-C", dir, "-c", "user.name=T", "-c", "user.email=t@example.test", "-c", "init.defaultBranch=main",
		}, args...)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			w.t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
}

// site creates a live site.
func (w *world) site(name string, files map[string]string) site.Site {
	w.t.Helper()
	w.commit(name, files)
	s, err := w.sites.Create(w.t.Context(), anna, site.NewSite{Name: name, Type: "static", Repository: "git.test/acme/" + name})
	ok(w.t, err)
	return w.live(s.ID)
}

func (w *world) live(id site.ID) (s site.Site) {
	w.t.Helper()
	w.until("the site is active", func() bool {
		var err error
		s, err = w.sites.Get(w.t.Context(), anna, id)
		ok(w.t, err)
		return s.Status == site.Active
	})
	return s
}

// page returns what a site serves at a path.
func (w *world) page(id site.ID, path string) string {
	w.t.Helper()
	s, err := w.sites.Get(w.t.Context(), anna, id)
	ok(w.t, err)
	tree, err := w.rel.Load(w.t.Context(), s.LiveRelease)
	ok(w.t, err)
	a := tree.Resolve(rules.Request{Path: path})
	if a.Kind != release.Found {
		return ""
	}
	b, err := w.rel.Read(w.t.Context(), a.File, 1<<20)
	ok(w.t, err)
	return string(b)
}

func (w *world) backUp(id site.ID, n NewBackup) Backup {
	w.t.Helper()
	n.Type = Manual
	var b Backup
	ok(w.t, w.db.Write(w.t.Context(), func(tx *db.Tx) (err error) {
		b, err = w.CreateTx(w.t.Context(), tx, anna, id, n)
		return err
	}))
	return w.ended(b.ID)
}

// ended waits until a backup is verified or has failed, and returns it.
func (w *world) ended(id ID) (b Backup) {
	w.t.Helper()
	w.until("the backup has ended", func() bool {
		var err error
		b, err = w.Get(w.t.Context(), anna, id)
		ok(w.t, err)
		return b.Status == Failed || b.VerifiedAt != 0 || b.Status == Completed && b.Error != ""
	})
	return b
}

func (w *world) restoreTo(id ID, to RestoreTo) (operation.Operation, map[string]string) {
	w.t.Helper()
	p, err := w.PlanRestore(w.t.Context(), anna, id, to)
	ok(w.t, err)
	var o operation.Operation
	ok(w.t, w.db.Write(w.t.Context(), func(tx *db.Tx) (err error) {
		o, err = w.RestoreTx(w.t.Context(), tx, anna, p)
		return err
	}))
	return w.operation(o.ID)
}

func (w *world) operation(id operation.ID) (o operation.Operation, result map[string]string) {
	w.t.Helper()
	w.until("the operation has ended", func() bool {
		var err error
		o, err = w.c.Operations.Get(w.t.Context(), anna, id)
		ok(w.t, err)
		return o.CompletedAt != 0
	})
	if o.Result != nil {
		var all map[string]any
		ok(w.t, json.Unmarshal(o.Result, &all))
		result = map[string]string{}
		for name, value := range all {
			if text, is := value.(string); is {
				result[name] = text
			}
		}
	}
	return o, result
}

func (w *world) env(id site.ID, vars ...site.NewVar) {
	w.t.Helper()
	ok(w.t, w.db.Write(w.t.Context(), func(tx *db.Tx) error {
		_, err := w.sites.SetEnvTx(w.t.Context(), tx, anna, id, vars)
		return err
	}))
}

// variables returns the variables of a site's build and program.
func (w *world) variables(id site.ID) string {
	w.t.Helper()
	e, err := w.sites.Export(w.t.Context(), id)
	ok(w.t, err)
	var list []string
	for _, v := range e.Env {
		list = append(list, fmt.Sprintf("%s=%s secret=%t %v %s", v.Key, v.Value, v.Secret, v.Target, v.Branch))
	}
	return strings.Join(list, "\n")
}

func (w *world) folder(id site.ID, files map[string]string) string {
	w.t.Helper()
	dir := filepath.Join(w.t.TempDir(), "uploads")
	for p, text := range files {
		ok(w.t, os.MkdirAll(filepath.Dir(filepath.Join(dir, p)), 0o755))
		ok(w.t, os.WriteFile(filepath.Join(dir, p), []byte(text), 0o640))
	}
	w.storage[id] = []snapshot.Folder{{Name: "uploads", Dir: dir}}
	return dir
}

func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	got := map[string]string{}
	ok(t, filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := os.ReadFile(p)
		name, _ := filepath.Rel(dir, p)
		got[name] = string(b)
		return err
	}))
	return got
}

// objects returns the names of the repository's objects.
func (w *world) objects() (names []string) {
	w.t.Helper()
	for e, err := range placeIn(w.t, w.dir).List(w.t.Context()) {
		ok(w.t, err)
		names = append(names, e.Name)
	}
	return names
}

// A restore and another change of a whole site exclude each other, unless one is part of the other.
func TestRestoresKeepApart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.site("blog", map[string]string{"index.html": "first"})
	b := w.backUp(s.ID, NewBackup{})
	plan, err := w.PlanRestore(t.Context(), anna, b.ID, RestoreTo{})
	ok(t, err)
	change := operation.NewOperation{Kind: "test.change", Site: s.ID, Unique: ChangeKey(s.ID), Apart: RestoreKey(s.ID)}
	err = w.db.Write(t.Context(), func(tx *db.Tx) error {
		if _, err := w.RestoreTx(t.Context(), tx, anna, plan); err != nil {
			t.Error(err)
		}
		_, err := w.c.Operations.OpenTx(t.Context(), tx, anna, change)
		return err
	})
	if f := fault.As(err); f == nil || f.Code != "operation_running" {
		t.Errorf("a change beside a restore: %v", err)
	}
	ok(t, w.db.Write(t.Context(), func(tx *db.Tx) error { _, err := w.c.Operations.OpenTx(t.Context(), tx, anna, change); return err }))
	err = w.db.Write(t.Context(), func(tx *db.Tx) error { _, err := w.RestoreTx(t.Context(), tx, anna, plan); return err })
	if f := fault.As(err); f == nil || f.Code != "operation_running" {
		t.Errorf("a restore beside a change: %v", err)
	}
	if o, _ := w.restoreTo(b.ID, RestoreTo{Part: true}); o.Status != operation.Success {
		t.Errorf("a restore that is a part of the change: %+v", o)
	}
}

// A restore brings back pages, settings, variables and stored files after all of them have changed. Restoring the
// backup that it took first undoes it.
func TestRestoreAndUndo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.site("blog", map[string]string{"index.html": "first", "a/b.txt": strings.Repeat("long ", 9000)})
	w.env(s.ID, site.NewVar{Key: "TOKEN", Value: "s3cr3t-value", Secret: true}, site.NewVar{Key: "COLOR", Value: "red"},
		site.NewVar{
			Key:    "COLOR",
			Value:  "green",
			Target: []string{"runtime", "preview"},
			Branch: "feat/*",
		}, site.NewVar{Key: "COLOR", Value: "black", Target: []string{"runtime", "preview"}, Branch: "fix/*"})
	dir := w.folder(s.ID, map[string]string{"cat.jpg": "meow", "2026/dog.jpg": "woof"})
	first := w.variables(s.ID)
	b := w.backUp(s.ID, NewBackup{Note: "before the party"})
	if b.Status != Completed || b.VerifiedAt == 0 || b.Size == 0 || b.Checksum == "" || b.Note != "before the party" || w.held != 1001 {
		t.Fatalf("backup: %+v, writes held %d times", b, w.held)
	}

	w.commit("blog", map[string]string{"index.html": "second"})
	_, err := w.deploys.Trigger(t.Context(), anna, s.ID, deploy.Trigger{Cause: deployment.ByAPI})
	ok(t, err)
	w.until("the second version is live", func() bool { return w.page(s.ID, "/") == "second" })
	w.env(s.ID, site.NewVar{Key: "COLOR", Value: "blue"}, site.NewVar{Key: "NEW", Value: "1"})
	ok(t, os.WriteFile(filepath.Join(dir, "cat.jpg"), []byte("purr"), 0o640))
	ok(t, os.RemoveAll(filepath.Join(dir, "2026")))
	ok(t, os.WriteFile(filepath.Join(dir, "virus.php"), []byte("<?php"), 0o640))
	second := w.variables(s.ID)

	o, result := w.restoreTo(b.ID, RestoreTo{})
	if o.Status != operation.Success || site.ID(result["siteId"]) != s.ID || result["backupId"] == "" || result["deploymentId"] == "" {
		t.Fatalf("restore: %+v, %s", o, o.Result)
	}
	if got := w.page(s.ID, "/"); got != "first" {
		t.Errorf("the page is %q", got)
	}
	if got := w.variables(s.ID); got != first {
		t.Errorf("variables:\n%s\nwant\n%s", got, first)
	}
	want := map[string]string{"cat.jpg": "meow", "2026/dog.jpg": "woof"}
	if got := contents(t, dir); !maps.Equal(got, want) {
		t.Errorf("storage: %q", got)
	}
	if info, err := os.Stat(filepath.Join(dir, "cat.jpg")); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	undo := w.ended(ID(result["backupId"]))
	if undo.Type != BeforeRestore || undo.ExpiresAt == 0 {
		t.Errorf("the backup before: %+v", undo)
	}
	if o, _ := w.restoreTo(undo.ID, RestoreTo{}); o.Status != operation.Success {
		t.Fatalf("undo: %+v", o)
	}
	if got := w.page(s.ID, "/"); got != "second" {
		t.Errorf("after the undo the page is %q", got)
	}
	if got := w.variables(s.ID); got != second {
		t.Errorf("after the undo, variables:\n%s\nwant\n%s", got, second)
	}
	if got := contents(t, dir); !maps.Equal(got, map[string]string{"cat.jpg": "purr", "virus.php": "<?php"}) {
		t.Errorf("after the undo, storage: %q", got)
	}
}

// The backup that a restore takes first includes files and rows written until the site's programs were paused for the
// exchange.
func TestRestoreKeepsLastWrites(t *testing.T) {
	t.Parallel()
	var d memory
	var w *world
	var s site.Site
	var write func(text string)
	w = newWorld(t, d.wire, func(c *Config) {
		holds := 0
		c.Storage.(*stored).hold = func(site.ID) func() {
			if holds++; write != nil {
				write(strconv.Itoa(holds)) // writes by the program that is about to be paused
			}
			return func() {}
		}
	})
	s = w.site("shop", map[string]string{"index.html": "hello"})
	dir := w.folder(s.ID, map[string]string{"order.txt": "none"})
	d.set(s.ID, "no orders")
	old := w.backUp(s.ID, NewBackup{})
	last := ""
	write = func(text string) {
		last = text
		ok(t, os.WriteFile(filepath.Join(dir, "order.txt"), []byte(text), 0o640))
		d.set(s.ID, "order "+text)
	}
	o, result := w.restoreTo(old.ID, RestoreTo{})
	d.becomes(w, s.ID, "no orders")
	if got := contents(t, dir)["order.txt"]; o.Status != operation.Success || got != "none" {
		t.Fatalf("the restore: %+v, %q", o, got)
	}
	write = nil
	w.ended(ID(result["backupId"]))
	if o, _ := w.restoreTo(ID(result["backupId"]), RestoreTo{}); o.Status != operation.Success {
		t.Fatalf("the undo: %+v", o)
	}
	d.becomes(w, s.ID, "order "+last)
	if got := contents(t, dir)["order.txt"]; got != last || last == "" {
		t.Errorf("the backup has the write %q, the last was %q", got, last)
	}
}

// A deleted site, of which nothing is stored any more, can be restored under another name.
func TestDeletedSiteComesBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.site("shop", map[string]string{"index.html": "open", "app.js": "let x = 1"})
	w.env(s.ID, site.NewVar{Key: "TOKEN", Value: "s3cr3t-value", Secret: true})
	manual := w.backUp(s.ID, NewBackup{})
	want := w.variables(s.ID)
	var o operation.Operation
	ok(t, w.db.Write(t.Context(), func(tx *db.Tx) (err error) {
		o, err = w.DeleteSiteTx(t.Context(), tx, anna, s.ID)
		return err
	}))
	o, result := w.operation(o.ID)
	if o.Status != operation.Success {
		t.Fatalf("deletion: %+v", o)
	}
	if _, err := w.sites.Get(t.Context(), anna, s.ID); !fault.Is(err, fault.NotFound) {
		t.Fatalf("the site is there: %v", err)
	}
	w.until("its other backups are gone", func() bool {
		_, err := w.Get(t.Context(), anna, manual.ID)
		return fault.Is(err, fault.NotFound)
	})
	old := time.Now().Add(-48 * time.Hour)
	ok(t, filepath.WalkDir(filepath.Join(w.dir, "blobs"), func(p string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			err = os.Chtimes(p, old, old)
		}
		return err
	}))
	ok(t, w.db.Admin(t.Context(), "DELETE FROM release_holds")) // as if two hours had passed
	w.until("its blobs are collected", func() bool {
		freed, err := w.gc.Collect(t.Context())
		ok(t, err)
		return freed.Files > 0
	})

	list, total, err := w.List(t.Context(), anna, Filter{Site: s.ID, Page: 1, Limit: 10})
	if err != nil || total != 1 || len(list) != 1 || list[0].ID != ID(result["backupId"]) || list[0].Type != BeforeDelete ||
		list[0].SiteName != "shop" {
		t.Fatalf("backups of the deleted site: %+v, %d, %v", list, total, err)
	}
	if _, err := w.PlanRestore(t.Context(), anna, list[0].ID, RestoreTo{}); err != nil {
		t.Fatal(err)
	}
	p, err := w.PlanRestore(t.Context(), anna, list[0].ID, RestoreTo{})
	ok(t, err)
	err = w.db.Write(t.Context(), func(tx *db.Tx) error { _, err := w.RestoreTx(t.Context(), tx, anna, p); return err })
	if f := fault.As(err); f == nil || f.Code != "site_deleted" {
		t.Errorf("restore to a deleted site: %v", err)
	}
	o, result = w.restoreTo(list[0].ID, RestoreTo{NewName: "shop again"})
	if o.Status != operation.Success {
		t.Fatalf("restore: %+v", o)
	}
	back := w.live(site.ID(result["siteId"]))
	if back.ID == s.ID || back.Name != "shop again" || back.Repository != "git.test/acme/shop" {
		t.Errorf("the site is %+v", back)
	}
	if got := w.page(back.ID, "/"); got != "open" {
		t.Errorf("the page is %q", got)
	}
	if got := w.variables(back.ID); got != want {
		t.Errorf("variables:\n%s\nwant\n%s", got, want)
	}
	// The restored site can be deployed like any other.
	w.commit("shop", map[string]string{"index.html": "closed"})
	_, err = w.deploys.Trigger(t.Context(), anna, back.ID, deploy.Trigger{Cause: deployment.ByAPI})
	ok(t, err)
	w.until("it deploys", func() bool { return w.page(back.ID, "/") == "closed" })
}

// A restore can be limited to files, to settings or to one path.
func TestRestoreInPart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.site("wiki", map[string]string{"index.html": "one"})
	w.env(s.ID, site.NewVar{Key: "A", Value: "1"})
	dir := w.folder(s.ID, map[string]string{"a/x": "x1", "a/y": "y1", "b": "b1"})
	b := w.backUp(s.ID, NewBackup{})
	w.env(s.ID, site.NewVar{Key: "A", Value: "2"})
	for _, f := range []string{"a/x", "a/y", "b"} {
		ok(t, os.WriteFile(filepath.Join(dir, f), []byte("changed"), 0o644))
	}
	ok(t, os.Symlink("/etc", filepath.Join(dir, "out")))
	if o, _ := w.restoreTo(b.ID, RestoreTo{Paths: []string{"uploads/a/"}}); o.Status != operation.Success {
		t.Fatalf("%+v", o)
	}
	if got := w.variables(s.ID); !strings.Contains(got, "A=2") {
		t.Errorf("one path restored brought variables back: %s", got)
	}
	ok(t, os.Remove(filepath.Join(dir, "out")))
	if got := contents(t, dir); !maps.Equal(got, map[string]string{"a/x": "x1", "a/y": "y1", "b": "changed"}) {
		t.Errorf("one path restored: %q", got)
	}
	if o, _ := w.restoreTo(b.ID, RestoreTo{Includes: []string{"config"}}); o.Status != operation.Success {
		t.Fatalf("%+v", o)
	}
	if got := w.variables(s.ID); !strings.Contains(got, "A=1") {
		t.Errorf("settings restored: %s", got)
	}
	if got := contents(t, dir)["b"]; got != "changed" {
		t.Errorf("settings restored brought files back: b is %q", got)
	}
	here := w.c.Storage
	w.c.Storage = nil // a node without programs
	for name, c := range map[string]struct {
		to   RestoreTo
		code string
	}{
		"includes":      {RestoreTo{Includes: []string{"mail"}}, "invalid_includes"},
		"path outside":  {RestoreTo{Paths: []string{"../etc"}}, "invalid_paths"},
		"absolute path": {RestoreTo{Paths: []string{"/etc"}}, "invalid_paths"},
		"no such path":  {RestoreTo{Paths: []string{"uploads/nothing"}}, "paths_not_found"},
		"paths and new": {RestoreTo{Paths: []string{"uploads/a"}, NewName: "x"}, "invalid_paths"},
		"stored files":  {RestoreTo{NewName: "x"}, "storage_missing"},
		"both":          {RestoreTo{Site: s.ID, NewName: "x"}, ""},
	} {
		_, err := w.PlanRestore(t.Context(), anna, b.ID, c.to)
		if f := fault.As(err); f == nil || c.code != "" && f.Code != c.code {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A restore with files to a site without that storage folder fails and changes nothing.
	other := w.site("other", map[string]string{"index.html": "mine"})
	if o, _ := w.restoreTo(b.ID, RestoreTo{
		Site: other.ID,
	}); o.Status != operation.Failed || !strings.Contains(o.Error, "storage folder") || w.page(other.ID, "/") != "mine" {
		t.Errorf("restored without its storage: %+v, the page is %q", o, w.page(other.ID, "/"))
	}
	w.c.Storage = here
	for name, owner := range map[string]account.OwnerID{"read": "usr_mallory"} {
		if _, err := w.Get(t.Context(), owner, b.ID); !fault.Is(err, fault.NotFound) {
			t.Errorf("%s by a stranger: %v", name, err)
		}
		if _, err := w.PlanRestore(t.Context(), owner, b.ID, RestoreTo{}); !fault.Is(err, fault.NotFound) {
			t.Errorf("restore by a stranger: %v", err)
		}
		if _, err := w.Open(t.Context(), owner, b.ID, NoValues); !fault.Is(err, fault.NotFound) {
			t.Errorf("download by a stranger: %v", err)
		}
	}
}

// A second backup after a small change stores little, and a sweep keeps everything that a backup uses.
func TestSecondBackupAndSweep(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.site("big", map[string]string{"index.html": "hello"})
	files := map[string]string{}
	random := rand.New(rand.NewPCG(1, 2))
	noise := func(n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(random.Uint32())
		}
		return string(b)
	}
	for i := range 400 {
		files[fmt.Sprintf("f%03d", i)] = noise(10_000)
	}
	large := noise(9 << 20)
	files["large"] = large
	dir := w.folder(s.ID, files)
	first := w.backUp(s.ID, NewBackup{})
	for i := range 4 {
		files[fmt.Sprintf("f%03d", i)] = noise(10_000)
	}
	files["large"] = large[:4<<20] + "an insertion" + large[4<<20:]
	for _, f := range []string{"f000", "f001", "f002", "f003", "large"} {
		ok(t, os.WriteFile(filepath.Join(dir, f), []byte(files[f]), 0o644))
	}
	second := w.backUp(s.ID, NewBackup{})
	t.Logf("first stored %d of %d bytes, second %d", first.Stored, first.Size, second.Stored)
	if first.Stored < 12<<20 || second.Stored > 5<<20 || second.Size < 12<<20 {
		t.Errorf("first stored %d, second %d of %d", first.Stored, second.Stored, second.Size)
	}
	before := len(w.objects())
	ok(t, w.db.Write(t.Context(), func(tx *db.Tx) error { return w.DeleteTx(t.Context(), tx, anna, first.ID) }))
	ok(t, w.Sweep(t.Context()))
	if n := len(w.objects()); n != before {
		t.Errorf("a sweep took %d objects that were young", before-n)
	}
	old := time.Now().Add(-48 * time.Hour)
	ok(t, filepath.WalkDir(w.place, func(p string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			err = os.Chtimes(p, old, old)
		}
		return err
	}))
	ok(t, w.Sweep(t.Context()))
	if n := len(w.objects()); n >= before {
		t.Errorf("a sweep left all %d objects", n)
	}
	clear(w.storage)
	dir = w.folder(s.ID, nil)
	ok(t, os.MkdirAll(dir, 0o755))
	if o, _ := w.restoreTo(second.ID, RestoreTo{}); o.Status != operation.Success {
		t.Fatalf("%+v", o)
	}
	if got := contents(t, dir); !maps.Equal(got, files) {
		t.Errorf("%d files came back, want %d as they were", len(got), len(files))
	}
	// The second backup stays complete after the first one's objects are deleted, and a third one builds on it.
	if third := w.backUp(s.ID, NewBackup{}); third.Error != "" || third.Stored > 1<<20 {
		t.Errorf("third: %+v", third)
	}
}

// Manual backups never expire, so their number per site is limited.
func TestManualBackupsAreBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.site("Shop", map[string]string{"index.html": "x"}).ID
	create := func(kind Type) error {
		return w.db.Write(t.Context(), func(tx *db.Tx) error {
			_, err := w.CreateTx(t.Context(), tx, anna, id, NewBackup{Type: kind})
			return err
		})
	}
	ok(t, create(Manual))
	ok(t, w.db.Write(t.Context(), func(tx *db.Tx) error {
		for i := range maxManual - 1 {
			_, err := tx.Exec(t.Context(), `
				INSERT INTO backups (id, owner_id, site_id, site_name, type, status, includes, note, size_bytes, stored_bytes, progress, manifest, checksum, base, then_delete, verified_at, error, created_at, completed_at, expires_at)
				SELECT id || $1, owner_id, site_id, site_name, type, 'failed', includes, note, 0, 0, 0, '', '', '', '', 0, 'x', created_at, created_at, 0 FROM backups WHERE status <> 'failed' AND type = 'manual'`, fmt.Sprint(
				"x",
				i,
			))
			if err != nil {
				return err
			}
		}
		return nil
	}))
	if err := create(Manual); fault.As(err) == nil || fault.As(err).Code != "too_many_backups" {
		t.Errorf("one more: %v", err)
	}
	ok(t, create(BeforeUpdate))
}

// Verification reports damaged and missing objects, a restore of such a backup changes nothing, and the repository
// contains no readable secret.
func TestDamage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.site("docs", map[string]string{"index.html": "readable text " + strings.Repeat("plain ", 100)})
	w.env(s.ID, site.NewVar{Key: "TOKEN", Value: "s3cr3t-value", Secret: true})
	dir := w.folder(s.ID, map[string]string{"note": "kept in storage"})
	_, err := webhook.New(webhook.Config{DB: w.db, Seal: w.seal}).Create(t.Context(), anna, webhook.NewWebhook{
		URL: "https://hooks.example.com/x", Events: []string{"backup.failed"},
	})
	ok(t, err)
	b := w.backUp(s.ID, NewBackup{})
	var objects []string
	ok(t, filepath.WalkDir(w.place, func(p string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		raw, err := os.ReadFile(p)
		for _, secret := range []string{"s3cr3t-value", "readable", "kept in storage", "TOKEN"} {
			if bytes.Contains(raw, []byte(secret)) {
				t.Errorf("%s holds %q", p, secret)
			}
		}
		if len(filepath.Base(p)) == 64 && filepath.Base(p) != repository.KeySlot {
			objects = append(objects, p)
		}
		return err
	}))
	if len(objects) != 2 {
		t.Fatalf("%d objects, want a pack and a list", len(objects))
	}
	for _, how := range []string{"changed", "cut", "missing"} {
		for _, p := range objects {
			good, err := os.ReadFile(p)
			ok(t, err)
			switch how {
			case "changed":
				bad := bytes.Clone(good)
				bad[len(bad)/2] ^= 1
				ok(t, os.WriteFile(p, bad, 0o600))
			case "cut":
				ok(t, os.WriteFile(p, good[:len(good)/2], 0o600))
			case "missing":
				ok(t, os.Remove(p))
			}
			var o operation.Operation
			ok(t, w.db.Write(t.Context(), func(tx *db.Tx) (err error) { o, err = w.VerifyTx(t.Context(), tx, anna, b.ID); return err }))
			if o, _ := w.operation(o.ID); o.Status != operation.Failed || o.Error == "" {
				t.Errorf("%s: verification says %+v", how, o)
			}
			if got, err := w.Get(t.Context(), anna, b.ID); err != nil || got.VerifiedAt != 0 || got.Error == "" {
				t.Errorf("%s: the backup says %+v, %v", how, got, err)
			}
			ok(t, os.WriteFile(filepath.Join(dir, "note"), []byte("newer"), 0o644))
			if p, err := w.PlanRestore(t.Context(), anna, b.ID, RestoreTo{}); err == nil {
				var o operation.Operation
				ok(t, w.db.Write(t.Context(), func(tx *db.Tx) (err error) { o, err = w.RestoreTx(t.Context(), tx, anna, p); return err }))
				if o, _ := w.operation(o.ID); o.Status != operation.Failed {
					t.Errorf("%s: the restore says %+v", how, o)
				}
			} else if f := fault.As(err); f == nil || f.Code != "backup_damaged" {
				t.Errorf("%s: %v", how, err)
			}
			if got := contents(t, dir)["note"]; got != "newer" {
				t.Errorf("%s: a restore that failed changed the storage: %q", how, got)
			}
			ok(t, os.WriteFile(p, good, 0o600))
		}
	}
	var o operation.Operation
	ok(t, w.db.Write(t.Context(), func(tx *db.Tx) (err error) { o, err = w.VerifyTx(t.Context(), tx, anna, b.ID); return err }))
	if o, _ := w.operation(o.ID); o.Status != operation.Success {
		t.Errorf("mended, verification says %+v", o)
	}
	var told int
	ok(t, w.db.QueryRow(t.Context(), `SELECT COUNT(*) FROM webhook_deliveries`).Scan(&told))
	if told == 0 || told > 6 {
		t.Errorf("%d events say that the backup can't be restored", told)
	}
}

// The archive can be unpacked with tar, zstd and zip and contains what the site serves and stores.
func TestArchive(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.site("arch", map[string]string{"index.html": "page", "css/a.css": "body{}"})
	w.env(s.ID, site.NewVar{Key: "TOKEN", Value: "s3cr3t-value", Secret: true}, site.NewVar{Key: "COLOR", Value: "red"})
	w.folder(s.ID, map[string]string{"cat.jpg": "meow"})
	b := w.backUp(s.ID, NewBackup{})
	read := func(values Values, zipped bool) map[string]string {
		a, err := w.Open(t.Context(), anna, b.ID, values)
		ok(t, err)
		var out bytes.Buffer
		got := map[string]string{}
		if zipped {
			ok(t, a.WriteZip(t.Context(), &out))
			z, err := zip.NewReader(bytes.NewReader(out.Bytes()), int64(out.Len()))
			ok(t, err)
			for _, f := range z.File {
				r, err := f.Open()
				ok(t, err)
				text, err := io.ReadAll(r)
				ok(t, err)
				got[f.Name] = string(text)
			}
			return got
		}
		ok(t, a.WriteTar(t.Context(), &out))
		z, err := zstd.NewReader(&out)
		ok(t, err)
		defer z.Close()
		for r := tar.NewReader(z); ; {
			h, err := r.Next()
			if errors.Is(err, io.EOF) {
				return got
			}
			ok(t, err)
			text, err := io.ReadAll(r)
			ok(t, err)
			got[h.Name] = string(text)
		}
	}
	for _, zipped := range []bool{false, true} {
		got := read(OpenValues, zipped)
		names := slices.Sorted(maps.Keys(got))
		if want := []string{
			"env.json", "files/css/a.css", "files/index.html", "manifest.json", "site.json", "storage/uploads/cat.jpg",
		}; !slices.Equal(names, want) {
			t.Errorf("zip %t: %q", zipped, names)
		}
		if got["files/index.html"] != "page" || got["storage/uploads/cat.jpg"] != "meow" {
			t.Errorf("zip %t: %q", zipped, got)
		}
		var list struct{ SHA256 map[string]string }
		ok(t, json.Unmarshal([]byte(got["manifest.json"]), &list))
		for name, text := range got {
			if name != "manifest.json" && list.SHA256[name] != checksum([]byte(text)) {
				t.Errorf("zip %t: the sum of %s is %q", zipped, name, list.SHA256[name])
			}
		}
		if strings.Contains(
			got["env.json"],
			"s3cr3t",
		) || !strings.Contains(got["env.json"], "red") || strings.Contains(got["site.json"], "s3cr3t") {
			t.Errorf("zip %t: env.json is %s", zipped, got["env.json"])
		}
	}
	if got := read(AllValues, false); !strings.Contains(got["env.json"], "s3cr3t-value") {
		t.Errorf("with secrets, env.json is %s", got["env.json"])
	}
	if got := read(NoValues, false); strings.Contains(got["env.json"], "red") || !strings.Contains(got["env.json"], "COLOR") {
		t.Errorf("without values, env.json is %s", got["env.json"])
	}
}

// memory replaces the database server: each site's database holds one text.
type memory struct {
	mu      sync.Mutex // guards what follows
	text    map[site.ID]string
	checked []string // dumps loaded for comparison
	renewed []site.ID
	scratch int   // loaded dumps not yet put or dropped
	refuse  error // error of the next load
}

func (d *memory) wire(c *Config) {
	d.text = map[site.ID]string{}
	server := &databaseServer{}
	c.Databases = server
	server.of = func(id site.ID) ([]dumped, error) {
		d.mu.Lock()
		defer d.mu.Unlock()
		text, ok := d.text[id]
		if !ok {
			return nil, nil
		}
		return []dumped{{
			Name:  "main",
			Place: 2,
			Dump:  func(_ context.Context, out io.Writer) error { _, err := io.WriteString(out, text); return err },
		}}, nil
	}
	server.load = func(_ account.OwnerID, in io.Reader, check bool) (snapshot.Loaded, error) {
		b, err := io.ReadAll(in)
		d.mu.Lock()
		defer d.mu.Unlock()
		if err = errors.Join(err, d.refuse); err != nil {
			return nil, err
		}
		if check {
			d.checked = append(d.checked, string(b))
		}
		d.scratch++
		gone := func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.scratch--
		}
		once := sync.OnceFunc(gone)
		return &scratch{
			drop: once,
			put: func(_ context.Context, tx *db.Tx, owner account.OwnerID, id site.ID, name string, place int64) error {
				if name != "main" || place != 2 || owner != anna {
					return fmt.Errorf("%s at %d for %s", name, place, owner)
				}
				tx.AfterCommit(func() { // a test waits for this with becomes
					d.mu.Lock()
					d.text[id] = string(b)
					d.mu.Unlock()
					once()
				})
				return nil
			},
			tables: func(owner account.OwnerID, id site.ID, name string, list []string) error {
				d.mu.Lock()
				defer d.mu.Unlock()
				if name != "main" || owner != anna {
					return fmt.Errorf("%s for %s", name, owner)
				}
				d.text[id] += fmt.Sprintf(" with %s of %s", list, b)
				return nil
			},
		}, nil
	}
	c.Programs = &programs{renew: func(id site.ID) error {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.renewed = append(d.renewed, id)
		return nil
	}}
}

// becomes waits until a site's database holds text and all loaded dumps are put or dropped, which happens shortly after
// the transaction commits.
func (d *memory) becomes(w *world, id site.ID, text string) {
	w.t.Helper()
	w.until(fmt.Sprintf("the database of %s holds %q", id, text), func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.text[id] == text && d.scratch == 0
	})
}

func (d *memory) set(id site.ID, text string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.text[id] = text
	if text == "" {
		delete(d.text, id)
	}
}

// Databases are dumped while writes are paused, compared during verification, and restored together with the files: to
// the same site, to a site that lost them, and to a new site.
func TestDatabases(t *testing.T) {
	t.Parallel()
	var d memory
	var w *world
	w = newWorld(t, d.wire, func(c *Config) {
		c.Storage.(*stored).make = func(id site.ID, name string) (snapshot.Folder, error) {
			f := snapshot.Folder{Name: name, Dir: filepath.Join(t.TempDir(), name)}
			w.storage[id] = append(w.storage[id], f)
			return f, os.MkdirAll(f.Dir, 0o755)
		}
	})
	s := w.site("data", map[string]string{"index.html": "hello"})
	dir := w.folder(s.ID, map[string]string{"cat.jpg": "meow"})
	d.set(s.ID, "rows v1")
	b := w.backUp(s.ID, NewBackup{})
	d.becomes(w, s.ID, "rows v1")
	if b.VerifiedAt == 0 || !slices.Equal(d.checked, []string{"rows v1"}) {
		t.Errorf("%+v: compared %q", b, d.checked)
	}
	d.set(s.ID, "rows v2")
	ok(t, os.WriteFile(filepath.Join(dir, "cat.jpg"), []byte("purr"), 0o640))

	// Restore only the database, and change nothing if loading the dump fails.
	d.refuse = &fault.Error{Kind: fault.Conflict, Message: "The database can't be loaded"}
	o, _ := w.restoreTo(b.ID, RestoreTo{})
	d.becomes(w, s.ID, "rows v2")
	if o.Status != operation.Failed || !strings.Contains(o.Error, "can't be loaded") || contents(t, dir)["cat.jpg"] != "purr" {
		t.Errorf("a load that fails: %+v, %q", o, contents(t, dir))
	}
	d.refuse = nil
	if o, _ := w.restoreTo(b.ID, RestoreTo{
		Includes: []string{"files"},
	}); o.Status != operation.Success || contents(t, dir)["cat.jpg"] != "meow" {
		t.Errorf("files alone: %+v, %q", o, contents(t, dir))
	}
	d.becomes(w, s.ID, "rows v2")
	ok(t, os.WriteFile(filepath.Join(dir, "cat.jpg"), []byte("purr"), 0o640))
	d.mu.Lock()
	d.renewed = nil
	d.mu.Unlock()
	o, result := w.restoreTo(b.ID, RestoreTo{Includes: []string{"database"}})
	d.becomes(w, s.ID, "rows v1")
	if o.Status != operation.Success || contents(t, dir)["cat.jpg"] != "purr" {
		t.Errorf("the database alone: %+v, %q", o, contents(t, dir))
	}
	w.until("the site's programs are renewed", func() bool { // after the operation has ended
		d.mu.Lock()
		defer d.mu.Unlock()
		return slices.Contains(d.renewed, s.ID)
	})
	// Undo the restore, then restore after the database was deleted.
	w.ended(ID(result["backupId"]))
	if o, _ := w.restoreTo(ID(result["backupId"]), RestoreTo{}); o.Status != operation.Success {
		t.Errorf("undone: %+v", o)
	}
	d.becomes(w, s.ID, "rows v2")
	d.set(s.ID, "")
	if o, _ := w.restoreTo(b.ID, RestoreTo{}); o.Status != operation.Success {
		t.Errorf("deleted before: %+v", o)
	}
	d.becomes(w, s.ID, "rows v1")
	o, result = w.restoreTo(b.ID, RestoreTo{NewName: "copy"})
	id := site.ID(result["siteId"])
	d.becomes(w, id, "rows v1")
	if o.Status != operation.Success || len(w.storage[id]) != 1 || contents(
		t,
		w.storage[id][0].Dir,
	)["cat.jpg"] != "meow" || w.page(id, "/") != "hello" {
		t.Errorf("a new site: %+v, %+v", o, w.storage[id])
	}
}

// A restore of tables, with or without folders, changes nothing else. The present state is backed up first.
func TestRestoreTables(t *testing.T) {
	t.Parallel()
	var d memory
	w := newWorld(t, d.wire)
	s := w.site("data", map[string]string{"index.html": "hello"})
	dir := w.folder(s.ID, map[string]string{"cat.jpg": "meow", "dog.jpg": "woof"})
	d.set(s.ID, "v1")
	b := w.backUp(s.ID, NewBackup{})
	d.set(s.ID, "v2")
	w.env(s.ID, site.NewVar{Key: "A", Value: "2"})
	for _, f := range []string{"cat.jpg", "dog.jpg"} {
		ok(t, os.WriteFile(filepath.Join(dir, f), []byte("purr"), 0o640))
	}
	o, result := w.restoreTo(b.ID, RestoreTo{Tables: []string{"posts"}})
	d.becomes(w, s.ID, "v2 with [posts] of v1")
	if o.Status != operation.Success || contents(t, dir)["cat.jpg"] != "purr" || !strings.Contains(w.variables(s.ID), "A=2") ||
		!strings.Contains(string(o.Result), `"tables":["posts"]`) {
		t.Errorf("one table: %+v, %q, %s", o, contents(t, dir), o.Result)
	}
	w.ended(ID(result["backupId"]))
	if o, _ := w.restoreTo(ID(result["backupId"]), RestoreTo{}); o.Status != operation.Success {
		t.Errorf("undone: %+v", o)
	}
	d.becomes(w, s.ID, "v2")
	o, _ = w.restoreTo(b.ID, RestoreTo{Tables: []string{"main/posts"}, Paths: []string{"uploads/cat.jpg"}})
	d.becomes(w, s.ID, "v2 with [posts] of v1")
	if got := contents(t, dir); o.Status != operation.Success || got["cat.jpg"] != "meow" || got["dog.jpg"] != "purr" {
		t.Errorf("a table and a file: %+v, %q", o, got)
	}
	// What the backup lacks changes nothing.
	d.set(s.ID, "v3")
	o, _ = w.restoreTo(b.ID, RestoreTo{Tables: []string{"nothing"}, Paths: []string{"uploads/dog.jpg"}})
	d.becomes(w, s.ID, "v3")
	if o.Status != operation.Failed || !strings.Contains(o.Error, "no such table") || contents(t, dir)["dog.jpg"] != "purr" {
		t.Errorf("a table that isn't there: %+v, %q", o, contents(t, dir))
	}
	// Versions that would restore whole databases must not take the job.
	p, err := w.PlanRestore(t.Context(), anna, b.ID, RestoreTo{Tables: []string{"posts"}})
	ok(t, err)
	var kind string
	ok(t, w.db.Write(t.Context(), func(tx *db.Tx) error {
		o, err := w.RestoreTx(t.Context(), tx, anna, p)
		if err != nil {
			return err
		}
		return tx.QueryRow(t.Context(), `SELECT kind FROM jobs WHERE uniq = $1`, restoresOf(b.ID)+string(o.ID)).Scan(&kind)
	}))
	if kind == (Restore{}).Kind() {
		t.Errorf("the job is of the kind %s", kind)
	}
	other := w.site("other", map[string]string{"index.html": "mine"})
	many := make([]string, maxTables+1)
	for i := range many {
		many[i] = fmt.Sprint("t", i)
	}
	for name, to := range map[string]RestoreTo{
		"empty":          {Tables: []string{""}},
		"control":        {Tables: []string{"a\x00b"}},
		"twice":          {Tables: []string{"posts", "posts"}},
		"too many":       {Tables: many},
		"without them":   {Tables: []string{"posts"}, Includes: []string{"files"}},
		"a new site":     {Tables: []string{"posts"}, NewName: "x"},
		"another site's": {Tables: []string{"posts"}, Site: other.ID},
	} {
		_, err := w.PlanRestore(t.Context(), anna, b.ID, to)
		if f := fault.As(err); f == nil || f.Code != "invalid_tables" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A failed dump fails the backup with its error, and the site's writes continue.
func TestDumpFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *Config) {
		c.Databases = &databaseServer{of: func(site.ID) ([]dumped, error) {
			return []dumped{{Name: "main", Dump: func(_ context.Context, out io.Writer) error {
				io.WriteString(out, "half of it")
				return &fault.Error{Kind: fault.Unavailable, Message: "The database doesn't answer"}
			}}}, nil
		}}
	})
	s := w.site("data", map[string]string{"index.html": "hello"})
	b := w.backUp(s.ID, NewBackup{})
	if b.Status != Failed || !strings.Contains(b.Error, "doesn't answer") || w.held != 1001 {
		t.Errorf("%+v, held %d", b, w.held)
	}
}

// A repository can be opened with a recipient's identity instead of the installation's key. With neither, the error
// says so.
func TestKeys(t *testing.T) {
	t.Parallel()
	id, err := age.GenerateX25519Identity()
	ok(t, err)
	dir := t.TempDir()
	at, err := blob.Dir(filepath.Join(dir, "place"))
	ok(t, err)
	mine, err := seal.Load(filepath.Join(dir, "key"))
	ok(t, err)
	other, err := seal.Load(filepath.Join(dir, "key2"))
	ok(t, err)
	r := repository.New(repository.Config{Backend: at, Seal: mine, Recipients: []age.Recipient{id.Recipient()}})
	name, _, err := r.Put(t.Context(), []byte("precious"))
	ok(t, err)
	for what, c := range map[string]struct {
		c    repository.Config
		want error
	}{
		"own key":     {repository.Config{Backend: at, Seal: mine}, nil},
		"identity":    {repository.Config{Backend: at, Identities: []age.Identity{id}}, nil},
		"another key": {repository.Config{Backend: at, Seal: other}, repository.ErrNoKey},
		"both":        {repository.Config{Backend: at, Seal: other, Identities: []age.Identity{id}}, nil},
	} {
		got, err := repository.New(c.c).Get(t.Context(), name)
		if !errors.Is(err, c.want) || err == nil && string(got) != "precious" {
			t.Errorf("%s: %q, %v", what, got, err)
		}
	}
	if again, _, err := r.Put(t.Context(), []byte("precious")); err != nil || again != name {
		t.Errorf("the same bytes are stored as %s and %s, %v", name, again, err)
	}
}

// A repository works in a bucket as in a directory.
func TestBucket(t *testing.T) {
	t.Parallel()
	server := s3test.New(t)
	at, _, err := blob.OpenBackend(server.Bucket(t), blob.Options{Cache: t.TempDir(), Opaque: true})
	ok(t, err)
	defer at.Close()
	w := newWorld(t, func(c *Config) {
		c.Repository = repository.New(repository.Config{Backend: at, Seal: keyIn(t, c.Scratch)})
	})
	s := w.site("cloud", map[string]string{"index.html": "high"})
	b := w.backUp(s.ID, NewBackup{})
	if b.Status != Completed || b.VerifiedAt == 0 {
		t.Fatalf("%+v", b)
	}
	w.commit("cloud", map[string]string{"index.html": "low"})
	_, err = w.deploys.Trigger(t.Context(), anna, s.ID, deploy.Trigger{Cause: deployment.ByAPI})
	ok(t, err)
	w.until("the second version is live", func() bool { return w.page(s.ID, "/") == "low" })
	if o, _ := w.restoreTo(b.ID, RestoreTo{}); o.Status != operation.Success || w.page(s.ID, "/") != "high" {
		t.Errorf("%+v: the page is %q", o, w.page(s.ID, "/"))
	}
}

// After small changes, writes are paused once and the files read once. After large changes the first reading is given
// up, and the backup is still consistent.
func TestOneLookOrTwo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.brief = time.Hour
	s := w.site("blog", map[string]string{"index.html": "hello"})
	dir := w.folder(s.ID, map[string]string{"a": "one", "b": "one", "sub/c": "one"})
	backUp := func(holds int) Backup {
		t.Helper()
		w.held = 0
		b := w.backUp(s.ID, NewBackup{})
		if b.Status != Completed || w.held != 1001*holds {
			t.Errorf("%+v, held %d", b, w.held)
		}
		return b
	}
	backUp(1)
	ok(t, os.WriteFile(filepath.Join(dir, "a"), []byte("two"), 0o644))
	little := backUp(1)
	ok(t, os.WriteFile(filepath.Join(dir, "b"), []byte("three"), 0o644))
	ok(t, os.WriteFile(filepath.Join(dir, "large"), nil, 0o644))
	ok(t, os.Truncate(filepath.Join(dir, "large"), (32<<20)+1))
	much := backUp(2)
	ok(t, os.Remove(filepath.Join(dir, "large")))
	for _, tt := range []struct {
		b    Backup
		want map[string]string
	}{
		{little, map[string]string{"a": "two", "b": "one", "sub/c": "one"}},
		{much, map[string]string{"a": "two", "b": "three", "sub/c": "one", "large": strings.Repeat("\x00", (32<<20)+1)}},
	} {
		if o, _ := w.restoreTo(tt.b.ID, RestoreTo{}); o.Status != operation.Success {
			t.Fatalf("%+v", o)
		}
		if got := contents(t, dir); !maps.Equal(got, tt.want) {
			t.Errorf("restored: %q", slices.Sorted(maps.Keys(got)))
		}
	}
}
