package deploy

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"slipway/internal/build/release"
	"slipway/internal/deploy/deployment"
	"slipway/internal/deploy/hold"
	"slipway/internal/deploy/journal"
	"slipway/internal/deploy/upload"
	"slipway/internal/git/fetch"
	"slipway/internal/platform/blob"
	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
	"slipway/internal/platform/egress"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/gc"
	"slipway/internal/platform/job"
	"slipway/internal/platform/seal"
	"slipway/internal/platform/wait"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
	"slipway/internal/tenant/webhook"
)

const anna = account.OwnerID("usr_anna")

// world is the package under test with real dependencies: Git, files, database and jobs.
type world struct {
	told told
	*Deployments
	t     *testing.T
	db    *db.DB
	sites *site.Sites
	rel   *release.Releases
	gc    *gc.Collector

	store   *blob.Store
	uploads *upload.Uploads

	blobs string
	repos string
	jobs  *job.Jobs
	stop  func() // stops the workers
	asked asked
}

// asked records the statements sent to the database while on is set.
type asked struct {
	mu   sync.Mutex // guards the following fields
	on   bool
	list []string

	losing string // lose commits of transactions with a statement that contains this text. Optional.
	hit    bool   // the current transaction has such a statement
}

// Next implements the database's Faults.
func (a *asked) Next() db.Fault {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.hit {
		a.hit = false
		return db.Gone
	}
	return db.Sound
}

func (a *asked) lose(text string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.losing = text
}

func (a *asked) see(q string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.losing != "" && strings.Contains(q, a.losing) {
		a.hit = true
	}
	if a.on {
		a.list = append(a.list, q)
	}
}

// told records the sites that the Keeper and the Part were told to forget.
type told struct {
	mu   sync.Mutex // guards list
	list []string
}

func (x *told) note(what string, id site.ID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.list = append(x.list, what+" "+string(id))
}

func (x *told) all() []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Clone(x.list)
}

// ForgetSite implements Keeper.
func (x *told) ForgetSite(_ context.Context, id site.ID) error {
	x.note("keeper", id)
	return nil
}

// ForgetSiteTx implements Part.
func (x *told) ForgetSiteTx(_ context.Context, _ *db.Tx, id site.ID) error {
	x.note("part", id)
	return nil
}

func newWorld(t *testing.T, change ...func(*Config)) *world {
	t.Helper()
	dir := t.TempDir()
	w := &world{t: t, repos: filepath.Join(dir, "repos")}
	w.db = dbtest.New(t, func(c *db.Config) {
		if c.Seen = w.asked.see; c.Faults == nil {
			c.Faults = &w.asked
		}
	})
	log := slog.New(slog.NewTextHandler(testLog{t}, nil))
	sealer, err := seal.Load(filepath.Join(dir, "key"))
	ok(t, err)
	out, err := egress.New(egress.Config{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	ok(t, err)
	ok(t, os.MkdirAll(w.repos, 0o755))
	hang := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	t.Cleanup(hang.Close)
	src, err := fetch.New(fetch.Config{
		Dir: filepath.Join(dir, "source"), Egress: out,
		Hosts: map[string]string{"git.test": "file://" + w.repos, "hang.test": hang.URL},
	})
	ok(t, err)
	w.blobs = filepath.Join(dir, "blobs")
	store, err := blob.Open(w.blobs, blob.Options{Deletions: gc.NewRecord(w.db)})
	ok(t, err)
	w.rel = release.New(release.Config{Blobs: store})
	w.gc = gc.New(gc.Config{DB: w.db, Blobs: store, Log: log, Grace: time.Hour})
	hooks := webhook.New(webhook.Config{DB: w.db, Seal: sealer})
	w.sites = site.New(site.Config{DB: w.db, Hooks: hooks, Seal: sealer, Domain: "sites.test"})
	w.store = store
	w.uploads = upload.New(upload.Config{DB: w.db, Sites: w.sites, Releases: w.rel, Blobs: store, Log: log})
	c := Config{DB: w.db, Sites: w.sites, Hooks: hooks, Source: src, Releases: w.rel, Uploads: w.uploads, Log: log}
	for _, f := range change {
		f(&c)
	}
	w.Deployments = New(c)
	w.ConnectParts([]Keeper{&w.told}, &w.told)
	w.gc.Register("deployments", w.Roots)
	w.gc.Register("uploads", w.uploads.Roots)
	w.start()
	return w
}

// sweep collects garbage as if all files were a day old.
func (w *world) sweep() {
	w.t.Helper()
	yesterday := time.Now().Add(-24 * time.Hour)
	ok(w.t, filepath.Walk(w.blobs, func(p string, info fs.FileInfo, err error) error {
		if err == nil && info.Mode().IsRegular() {
			err = os.Chtimes(p, yesterday, yesterday)
		}
		return err
	}))
	_, err := w.gc.Collect(w.t.Context())
	ok(w.t, err)
}

// start runs the workers.
func (w *world) start() {
	w.jobs = job.New(job.Config{
		DB:     w.db,
		Log:    slog.New(slog.DiscardHandler),
		Queues: map[string]int{"default": 2, QueueName: 3},
		Poll:   20 * time.Millisecond,
		Drain:  time.Millisecond,
	})
	w.Work(w.jobs)
	w.sites.Work(w.jobs)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); w.jobs.Run(ctx) }()
	var once sync.Once
	w.stop = func() { once.Do(func() { cancel(); <-done }) }
	w.t.Cleanup(w.stop)
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// commit commits files to acme/<name> and returns the commit's ID.
func (w *world) commit(name string, files map[string]string) string {
	w.t.Helper()
	dir := filepath.Join(w.repos, "acme", name)
	git := func(args ...string) string {
		cmd := exec.Command("git", append([]string{
			"-C", dir, "-c", "user.name=T", "-c", "user.email=t@example.test", "-c", "init.defaultBranch=main",
		}, args...)...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			w.t.Fatalf("git %v: %v\n%s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	if _, err := os.Stat(dir); err != nil {
		ok(w.t, os.MkdirAll(dir, 0o755))
		git("init", "-q")
	}
	for p, text := range files {
		f := filepath.Join(dir, p)
		ok(w.t, os.MkdirAll(filepath.Dir(f), 0o755))
		if to, link := strings.CutPrefix(text, "-> "); link {
			os.Remove(f)
			ok(w.t, os.Symlink(to, f))
			continue
		}
		ok(w.t, os.WriteFile(f, []byte(text), 0o644))
	}
	git("add", "-A")
	git("commit", "-q", "--allow-empty", "-m", "change\n\nbody")
	return git("rev-parse", "HEAD")
}

func (w *world) site(repo string) site.Site {
	w.t.Helper()
	s, err := w.sites.Create(w.t.Context(), anna, site.NewSite{Name: "My site", Type: "static", Repository: repo})
	ok(w.t, err)
	return s
}

// live waits until the site is provisioned and returns it.
func (w *world) live(id site.ID) site.Site {
	w.t.Helper()
	var s site.Site
	w.until("the site is active or in error", func() bool {
		var err error
		s, err = w.sites.Get(w.t.Context(), anna, id)
		return err == nil && (s.Status == site.Active || s.Status == site.Failed)
	})
	return s
}

func (w *world) until(what string, ok func() bool) {
	w.t.Helper()
	wait.Until(w.t, what, ok)
}

func (w *world) trigger(id site.ID, t Trigger) deployment.Deployment {
	w.t.Helper()
	t.Cause = deployment.ByAPI
	x, err := w.Trigger(w.t.Context(), anna, id, t)
	ok(w.t, err)
	if x.Status != deployment.Pending || x.Queue == nil {
		w.t.Fatalf("triggered as %+v, want pending and queued", x)
	}
	return x
}

func (w *world) status(id deployment.ID) deployment.Deployment {
	w.t.Helper()
	x, err := w.Get(w.t.Context(), anna, id)
	ok(w.t, err)
	return x
}

func (w *world) ended(id deployment.ID) deployment.Deployment {
	w.t.Helper()
	w.until("the deployment ends", func() bool { return w.status(id).Status.Ended() })
	return w.status(id)
}

func (w *world) write(fn func(tx *db.Tx) error) {
	w.t.Helper()
	ok(w.t, w.db.Write(w.t.Context(), fn))
}

// log returns a deployment's messages with their levels.
func (w *world) log(id deployment.ID) []string {
	w.t.Helper()
	lines, _, err := w.Logs(w.t.Context(), anna, id, 0, 1000)
	ok(w.t, err)
	var out []string
	for i, l := range lines {
		if l.N != int64(i+1) {
			w.t.Fatalf("line %d has number %d", i+1, l.N)
		}
		out = append(out, l.Level+" "+l.Message)
	}
	return out
}

func (w *world) files(id release.ID) (names []string) {
	w.t.Helper()
	tree, err := w.rel.Load(w.t.Context(), id)
	ok(w.t, err)
	for f := range tree.Files() {
		names = append(names, f.Path)
	}
	slices.Sort(names)
	return names
}

func TestNewSiteGoesLive(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	commit := w.commit("site", map[string]string{
		"index.html":               "<h1>one</h1>",
		"about.html":               "a",
		".env":                     "SECRET=1",
		".git-credentials":         "x",
		".well-known/security.txt": "hello",
		"slipway.toml":             "",
		"good":                     "-> about.html",
		"bad":                      "-> /etc/passwd",
		"up":                       "-> ../../x",
	})
	s := w.live(w.site("git.test/acme/site").ID)
	if s.Status != site.Active {
		t.Fatalf("the site is %s: %s", s.Status, s.StatusReason)
	}
	x := w.status(s.LiveDeployment)
	if x.Status != deployment.Success || x.CommitHash != commit || x.Branch != "main" || x.Cause != deployment.ByProvision || !x.Current || x.StartedAt == 0 || x.CompletedAt < x.StartedAt ||
		x.CommitMessage != "change\n\nbody" || x.Framework != "static" ||
		x.URL != "https://"+x.ID.Label()+"--my-site.sites.test" {
		t.Fatalf("got %+v", x)
	}
	for _, st := range x.Stages {
		if st.Status != "success" || st.StartedAt == 0 || st.CompletedAt < st.StartedAt {
			t.Errorf("stage %+v", st)
		}
	}
	if s.Branch != "main" {
		t.Errorf("the site's branch is %q, want the default that was found", s.Branch)
	}
	if got, want := w.files(x.Release), []string{".well-known/security.txt", "about.html", "good", "index.html"}; !slices.Equal(got, want) {
		t.Errorf("published %v, want %v", got, want)
	}
	log := strings.Join(w.log(x.ID), "\n")
	for _, want := range []string{
		"info Fetching",
		"info Commit " + commit[:12],
		`warn Skipped "bad"`,
		`warn Skipped "up"`,
		"info Published 4 files",
		"info Live at https://my-site.sites.test",
	} {
		if !strings.Contains(log, want) {
			t.Errorf("the log lacks %q:\n%s", want, log)
		}
	}
}

func TestSecondDeploymentReusesWhatDidNotChange(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.commit("site", map[string]string{"index.html": "one", "a.css": "a", "b.css": "b"})
	s := w.live(w.site("git.test/acme/site").ID)
	w.commit("site", map[string]string{"index.html": "two"})
	x := w.ended(w.trigger(s.ID, Trigger{}).ID)
	if x.Status != deployment.Success || !strings.Contains(strings.Join(w.log(x.ID), "\n"), "2 unchanged") {
		t.Fatalf("%s: %v", x.Status, w.log(x.ID))
	}
}

func TestOutputFolderIsFound(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.commit("site", map[string]string{"public/index.html": "one", "README.md": "no"})
	s := w.live(w.site("git.test/acme/site").ID)
	if got := w.files(s.LiveRelease); !slices.Equal(got, []string{"index.html"}) {
		t.Fatalf("published %v (%s %s)", got, s.Status, s.StatusReason)
	}
}

func TestFailureSaysWhyAndLeavesTheLiveSiteAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.live(w.site("git.test/acme/absent").ID)
	if s.Status != site.Failed || s.StatusReason == "" {
		t.Fatalf("the site is %s, %q", s.Status, s.StatusReason)
	}
	w.commit("absent", map[string]string{"index.html": "now it is there"})
	w.ended(w.trigger(s.ID, Trigger{}).ID)
	if s = w.live(s.ID); s.Status != site.Active || s.StatusReason != "" {
		t.Fatalf("the next deployment left the site %s, %q", s.Status, s.StatusReason)
	}
	x := w.ended(w.trigger(s.ID, Trigger{Branch: "nope"}).ID)
	if x.Status != deployment.Failed || x.Error == "" || x.Current {
		t.Fatalf("got %+v", x)
	}
	if log := w.log(x.ID); !strings.HasPrefix(log[len(log)-1], "error ") || !strings.Contains(log[len(log)-1], "nope") {
		t.Errorf("the log ends with %q", log[len(log)-1])
	}
	w.commit("absent", map[string]string{"slipway.toml": "[build]\noutput = \"nowhere\"\n"})
	if x = w.ended(w.trigger(s.ID, Trigger{}).ID); x.Status != deployment.Failed || x.CommitHash == "" ||
		x.CommitMessage != "change\n\nbody" {
		t.Errorf("a deployment that failed after its fetch says of its commit %q, %q", x.CommitHash, x.CommitMessage)
	}
	if after := w.live(s.ID); after.Status != site.Active || after.LiveDeployment != s.LiveDeployment {
		t.Errorf("the live site changed: %+v", after)
	}
}

func TestDeploymentsOfASiteRunInOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.commit("site", map[string]string{"index.html": "one"})
	s := w.live(w.site("git.test/acme/site").ID)
	var ids []deployment.ID
	for range 5 {
		ids = append(ids, w.trigger(s.ID, Trigger{}).ID)
	}
	var last db.Time
	for _, id := range ids {
		x := w.ended(id)
		if x.Status != deployment.Success || x.StartedAt < last {
			t.Fatalf("%s ended as %s, started %s after the one before ended", id, x.Status, x.StartedAt.Sub(last))
		}
		last = x.CompletedAt
	}
	list, total, err := w.List(t.Context(), anna, s.ID, deployment.Filter{Page: 1, Limit: 3})
	if err != nil || total != 6 || len(list) != 3 || list[0].ID != ids[4] || !list[0].Current {
		t.Fatalf("list of %d: %v, %v", total, list, err)
	}
}

func TestHooksFoldAndSupersede(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.commit("site", map[string]string{"index.html": "one"})
	s := w.live(w.site("git.test/acme/site").ID)
	var hook site.Hook
	w.write(func(tx *db.Tx) (err error) {
		hook, err = w.sites.CreateHookTx(t.Context(), tx, anna, s.ID, site.NewHook{Name: "ci", Branch: "main"})
		return err
	})
	w.stop() // so that deployments wait
	call := func(c HookCall) (x deployment.Deployment, folded bool) {
		t.Helper()
		w.write(func(tx *db.Tx) (err error) { x, folded, err = w.TriggerHookTx(t.Context(), tx, hook.ID, c); return err })
		return x, folded
	}
	byAPI := w.trigger(s.ID, Trigger{Branch: "main"})
	first, folded := call(HookCall{})
	if folded || first.ID == byAPI.ID {
		t.Fatal("a hook's call was folded into a deployment that somebody asked for by API")
	}
	if again, folded := call(HookCall{}); !folded || again.ID != first.ID {
		t.Fatalf("the same call again made %s, folded %v", again.ID, folded)
	}
	second, folded := call(HookCall{Title: "release 2"})
	if folded || second.ID == first.ID {
		t.Fatal("a call that asks for something else was folded")
	}
	if x := w.status(first.ID); x.Status != deployment.Canceled || !strings.Contains(x.Error, "Superseded") {
		t.Fatalf("the older one is %s, %q", x.Status, x.Error)
	}
	err := w.db.Write(t.Context(), func(tx *db.Tx) error {
		_, _, err := w.TriggerHookTx(t.Context(), tx, hook.ID, HookCall{Branch: "other"})
		return err
	})
	if !fault.Is(err, fault.Forbidden) {
		t.Fatalf("another branch: %v, want Forbidden", err)
	}
	w.start()
	for _, id := range []deployment.ID{byAPI.ID, second.ID} {
		if x := w.ended(id); x.Status != deployment.Success {
			t.Errorf("%s ended as %s, %s", id, x.Status, x.Error)
		}
	}
}

func TestCancelWaitingAndRunning(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.site("hang.test/acme/site")
	var running deployment.Deployment
	w.until("the first deployment runs", func() bool {
		list, _, err := w.List(t.Context(), anna, s.ID, deployment.Filter{Page: 1, Limit: 1})
		if err == nil && len(list) == 1 {
			running = list[0]
		}
		return running.Status == deployment.Building
	})
	waiting := w.trigger(s.ID, Trigger{})
	if q := w.status(waiting.ID).Queue; q == nil || q.Position != 1 || q.Reason != "site_busy" {
		t.Errorf("queue %+v, want position 1, site_busy", q)
	}
	cancel := func(id deployment.ID) (err error) {
		return w.db.Write(t.Context(), func(tx *db.Tx) error { _, err := w.CancelTx(t.Context(), tx, anna, id); return err })
	}
	ok(t, cancel(waiting.ID))
	if x := w.status(waiting.ID); x.Status != deployment.Canceled || x.StartedAt != 0 {
		t.Fatalf("got %+v", x)
	}
	ok(t, cancel(waiting.ID)) // canceling again is no error
	at := time.Now()
	ok(t, cancel(running.ID))
	if x := w.ended(running.ID); x.Status != deployment.Canceled || x.Error != "Canceled by its owner" {
		t.Fatalf("got %s %q after %s", x.Status, x.Error, time.Since(at))
	}
	if got := w.live(s.ID); got.Status != site.Failed {
		t.Fatalf("the site is %s, want error: nothing is left that may bring it up", got.Status)
	}
	w.commit("site", map[string]string{"index.html": "x"})
	repo := "git.test/acme/site"
	w.write(func(tx *db.Tx) error {
		_, err := w.sites.UpdateTx(t.Context(), tx, anna, s.ID, site.Patch{Repository: &repo})
		return err
	})
	done := w.ended(w.trigger(s.ID, Trigger{}).ID)
	if err := cancel(done.ID); done.Status != deployment.Success || !fault.Is(err, fault.Conflict) {
		t.Fatalf("canceling what is done (%s): %v, want Conflict", done.Status, err)
	}
}

func TestRollbackIsInstantAndWinsOverOlderRuns(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.commit("site", map[string]string{"index.html": "one"})
	s := w.live(w.site("git.test/acme/site").ID)
	one := w.status(s.LiveDeployment)
	roll := func(to deployment.ID) (x deployment.Deployment, err error) {
		err = w.db.Write(t.Context(), func(tx *db.Tx) (err error) { x, err = w.RollbackTx(t.Context(), tx, anna, s.ID, to); return err })
		return x, err
	}
	if _, err := roll(""); !fault.Is(err, fault.Conflict) {
		t.Fatalf("with nothing to go back to: %v, want Conflict", err)
	}
	w.commit("site", map[string]string{"index.html": "two"})
	two := w.ended(w.trigger(s.ID, Trigger{}).ID)
	w.stop()
	older := w.trigger(s.ID, Trigger{})
	back, err := roll("")
	ok(t, err)
	if back.Release != one.Release || back.ReleaseOf != one.ID || back.CommitHash != one.CommitHash || back.Cause != deployment.ByRollback {
		t.Fatalf("got %+v", back)
	}
	if x := w.status(back.ID); x.Status != deployment.Success || !x.Current {
		t.Fatalf("after the transaction it is %s, current %v", x.Status, x.Current)
	}
	w.start() // a deployment triggered before the rollback must not undo it
	if x := w.ended(older.ID); x.Status != deployment.Canceled {
		t.Fatalf("the older deployment ended as %s", x.Status)
	}
	if got, _ := w.sites.Get(t.Context(), anna, s.ID); got.LiveRelease != one.Release {
		t.Fatal("an older deployment undid the rollback")
	}
	if _, err := roll(two.ID); err != nil {
		t.Fatalf("forward again: %v", err)
	}
	if _, err := roll(older.ID); !fault.Is(err, fault.Conflict) {
		t.Fatalf("to one without a release: %v, want Conflict", err)
	}
}

// A run that is interrupted at any point runs again and completes. The worker that was replaced can't write anything.
func TestInterruptedRunIsDoneAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.commit("site", map[string]string{"index.html": "one"})
	s := w.live(w.site("git.test/acme/site").ID)
	w.stop()
	x := w.trigger(s.ID, Trigger{})
	// The first worker starts, writes a line, and disappears.
	started, _, _, err := w.Deployments.start(t.Context(), x.ID, 1)
	ok(t, err)
	dead, err := w.progress(t.Context(), started, 1)
	ok(t, err)
	dead.enter("fetch", deployment.Building)
	dead.Printf("info", "the first worker was here")
	ok(t, dead.Flush(t.Context()))
	// The second worker takes over.
	ok(t, w.work(t.Context(), Run{x.ID}, 2))
	got := w.status(x.ID)
	if got.Status != deployment.Success || got.StartedAt != started.StartedAt {
		t.Fatalf("got %+v", got)
	}
	if log := w.log(x.ID); !strings.Contains(log[0], "first worker") || len(log) < 4 {
		t.Fatalf("log %v", log)
	}
	dead.Printf("info", "a ghost")
	if err := dead.Flush(t.Context()); !errors.Is(err, journal.ErrFenced) {
		t.Fatalf("the first worker wrote: %v, want ErrFenced", err)
	}
	late := w.trigger(s.ID, Trigger{})
	if _, _, _, err := w.Deployments.start(t.Context(), late.ID, 5); err != nil {
		t.Fatal(err)
	}
	ok(t, w.work(t.Context(), Run{late.ID}, 4)) // a delayed worker takes nothing over
	if got := w.status(late.ID); got.Status != deployment.Building {
		t.Fatalf("the older worker left it %s", got.Status)
	}
	ok(t, w.work(t.Context(), Run{x.ID}, 3)) // a repeated run does nothing
	if again := w.status(x.ID); again.CompletedAt != got.CompletedAt {
		t.Fatal("an ended deployment ended again")
	}
}

func TestDeleteEndsWhatRunsAndLeavesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.site("hang.test/acme/site")
	w.until("it runs", func() bool {
		list, _, err := w.List(t.Context(), anna, s.ID, deployment.Filter{Page: 1, Limit: 1})
		return err == nil && len(list) == 1 && list[0].Status == deployment.Building
	})
	w.trigger(s.ID, Trigger{})
	w.write(func(tx *db.Tx) error { return w.sites.DeleteTx(t.Context(), tx, anna, s.ID) })
	w.until("its deployments are gone", func() bool {
		var n int
		err := w.db.QueryRow(t.Context(), `SELECT count(*) FROM deployments`).Scan(&n)
		return err == nil && n == 0
	})
	if got := w.told.all(); !slices.Equal(got, []string{"keeper " + string(s.ID), "part " + string(s.ID)}) {
		t.Errorf("other services were told %q", got)
	}
	w.until("only the row for the edges waits to be forgotten", func() bool {
		var n int
		err := w.db.QueryRow(t.Context(), `SELECT count(*) FROM jobs WHERE kind <> 'site.forget'`).Scan(&n)
		return err == nil && n == 0
	})
}

func TestWordPressEndsInWords(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s, err := w.sites.Create(t.Context(), anna, site.NewSite{Name: "Blog", Type: "wordpress"})
	ok(t, err)
	if s = w.live(s.ID); s.Status != site.Failed || !strings.Contains(s.StatusReason, "WordPress") {
		t.Fatalf("the site is %s, %q", s.Status, s.StatusReason)
	}
}

func TestDeploymentThatTakesTooLongEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *Config) { c.Timeout = 200 * time.Millisecond })
	s := w.live(w.site("hang.test/acme/site").ID)
	if s.Status != site.Failed || !strings.Contains(s.StatusReason, "timed out after") {
		t.Fatalf("the site is %s, %q", s.Status, s.StatusReason)
	}
}

func TestCollectKeepsWhatIsNeeded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *Config) { c.Keep, c.History = 1, 1 })
	var s site.Site
	var all []deployment.Deployment
	for i := range 5 {
		w.commit("site", map[string]string{"index.html": fmt.Sprint("version ", i)})
		if i == 0 {
			s = w.live(w.site("git.test/acme/site").ID)
			all = append(all, w.status(s.LiveDeployment))
			continue
		}
		all = append(all, w.ended(w.trigger(s.ID, Trigger{}).ID))
	}
	w.stop()
	var later interface{ Error() string }
	if err := w.collect(t.Context(), Collect{}, 1); !errors.As(err, &later) || !strings.HasPrefix(err.Error(), "again in") {
		t.Fatalf("collect: %v, want to be called again", err)
	}
	ok(t, w.db.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), `UPDATE release_holds SET until = 0`) // as if hours had passed
		return err
	}))
	w.sweep()
	for i, x := range all {
		_, err := w.rel.Load(t.Context(), x.Release)
		if kept := err == nil; kept != (i >= 3) {
			t.Errorf("release %d is kept: %v (%v); want the live one and one more", i, kept, err)
		}
	}
	if _, total, _ := w.List(t.Context(), anna, s.ID, deployment.Filter{Page: 1, Limit: 10}); total != 3 {
		t.Errorf("%d deployments are remembered, want the live one, the kept one and one more", total)
	}
}

// The releases that a running deployment uses or has made are kept on every node until a row refers to them.
func TestHeldReleasesAreRoots(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.commit("site", map[string]string{"index.html": "held"})
	s := w.live(w.site("git.test/acme/site").ID)
	x := w.status(s.LiveDeployment)
	w.stop()
	exec := func(q string, args ...any) {
		t.Helper()
		ok(t, w.db.Write(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), q, args...)
			return err
		}))
	}
	exec(`UPDATE deployments SET release = ''`)
	w.sweep()
	if _, err := w.rel.Load(t.Context(), x.Release); err != nil {
		t.Errorf("the release that was made a moment ago: %v", err)
	}
	ok(t, hold.Release(t.Context(), w.db, release.ID(blob.Sum([]byte("gone")).String()))) // as for a previous release that was damaged
	w.sweep()
	exec(`UPDATE release_holds SET until = $1`, db.Now().Add(-time.Second))
	w.sweep()
	if _, err := w.rel.Load(t.Context(), x.Release); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after the hold: %v, want it collected", err)
	}
}

// testLog writes the service's log to the test's log.
type testLog struct{ t *testing.T }

func (l testLog) Write(b []byte) (int, error) { l.t.Logf("%s", b); return len(b), nil }
