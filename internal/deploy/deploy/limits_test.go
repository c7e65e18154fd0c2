package deploy

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"slipway/internal/build/build"
	"slipway/internal/build/toolchain"
	"slipway/internal/deploy/deployment"
	"slipway/internal/platform/db"
	"slipway/internal/platform/egress"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/sandbox"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/limits"
	"slipway/internal/tenant/site"
	"slipway/internal/tenant/usage"
)

// limited creates a world whose accounts have these limits.
func limited(t *testing.T, most map[limits.Name]int64, change ...func(*Config)) (*world, *limits.Limits) {
	l := limits.New(limits.Settings{Defaults: most})
	return newWorld(t, append(change, func(c *Config) { c.Limits = l })...), l
}

func used(t *testing.T, w *world, l *limits.Limits, owner account.OwnerID, name limits.Name) int64 {
	t.Helper()
	u, err := l.UseOf(t.Context(), w.db, owner, name)
	ok(t, err)
	return u.Used
}

// The files of all stored releases together stay below the limit. A release counts only what it adds to the one before.
// A deployment that would exceed the limit fails with a clear error, and the live site stays.
func TestStorageIsLimited(t *testing.T) {
	t.Parallel()
	w, l := limited(t, map[limits.Name]int64{limits.Storage: 10_000})
	w.commit("site", map[string]string{"index.html": strings.Repeat("a", 4000), "about.html": strings.Repeat("b", 2000)})
	s := w.site("git.test/acme/site")
	first := w.firstOf(s)
	if first.Status != deployment.Success {
		t.Fatal(first.Error)
	}
	if n := used(t, w, l, s.Owner, limits.Storage); n != 6000 {
		t.Errorf("%d bytes are used", n)
	}
	w.commit("site", map[string]string{"index.html": strings.Repeat("c", 3000)})
	if x := w.again(s); x.Status != deployment.Success {
		t.Fatal(x.Error)
	}
	if n := used(t, w, l, s.Owner, limits.Storage); n != 9000 {
		t.Errorf("%d bytes are used", n)
	}
	w.commit("site", map[string]string{"index.html": strings.Repeat("d", 3000)})
	x := w.again(s)
	if x.Status != deployment.Failed || !strings.Contains(x.Error, "Limit reached: stored files") || !strings.Contains(x.Error, "9.7 KiB") {
		t.Errorf("%s: %s", x.Status, x.Error)
	}
	// Files that are stored already don't count again.
	w.commit("site", map[string]string{"index.html": strings.Repeat("c", 3000), "again.html": strings.Repeat("b", 2000)})
	if x := w.again(s); x.Status != deployment.Success {
		t.Error(x.Error)
	}
	// If the limit is reached, a new deployment is refused immediately.
	ok(t, w.db.Admin(t.Context(), `UPDATE deployments SET added_bytes = 4000 WHERE added_bytes = 3000`))
	_, err := w.Trigger(t.Context(), s.Owner, s.ID, Trigger{Cause: deployment.ByAPI})
	if f := fault.As(err); f == nil || f.Kind != fault.Payment || f.Limit.Name != "storage.bytes" || f.Limit.Limit != 10_000 ||
		f.Limit.Current != 10_000 {
		t.Errorf("%v", err)
	}
	// After the oldest release is deleted, the next one counts completely.
	ok(t, w.db.Admin(t.Context(), `UPDATE deployments SET release = '' WHERE id = '`+string(first.ID)+`'`))
	if n := used(t, w, l, s.Owner, limits.Storage); n != 5000 {
		t.Errorf("%d bytes are used", n)
	}
}

// build adds a build's duration to the usage of the site's owner.
func (w *world) build(s site.Site, took time.Duration) {
	w.t.Helper()
	source := usage.ProcessSource("test")
	source.Add(db.Now(), s.Owner, usage.Build, s.ID, took.Milliseconds())
	ok(w.t, w.c.Usage.Write(w.t.Context(), source))
}

// When the calendar month's build minutes are used up, the account can't run builds, but can still deploy sites that
// need no build.
func TestBuildMinutesAreLimited(t *testing.T) {
	t.Parallel()
	w, l := limited(t, map[limits.Name]int64{limits.BuildMinutes: 2})
	w.commit("site", map[string]string{"index.html": "x"})
	w.commit("built", map[string]string{"slipway.toml": "[build]\ncommand = \"true\"\n"})
	plain, built := w.site("git.test/acme/site"), w.site("git.test/acme/built")
	if x := w.firstOf(plain); x.Status != deployment.Success {
		t.Fatal(x.Error)
	}
	if x := w.firstOf(built); !strings.Contains(x.Error, "can't run builds") {
		t.Fatal(x.Error)
	}
	w.build(built, 100*time.Second)
	if n := used(t, w, l, built.Owner, limits.BuildMinutes); n != 1 {
		t.Errorf("%d minutes are used", n)
	}
	w.again(built)
	w.build(built, 55*time.Second)
	_, err := w.Trigger(t.Context(), built.Owner, built.ID, Trigger{Cause: deployment.ByAPI})
	if f := fault.As(err); f == nil || f.Kind != fault.Payment || f.Limit.Name != "build.minutes" || f.Limit.Limit != 2 ||
		f.Limit.Current != 2 ||
		!strings.Contains(
			f.Details,
			"next calendar month",
		) {
		t.Errorf("%v", err)
	}
	if x := w.again(plain); x.Status != deployment.Success {
		t.Error(x.Error)
	}
	// A site that hasn't been built this month is refused when the deployment turns out to need a build.
	w.commit("other", map[string]string{"slipway.toml": "[build]\ncommand = \"true\"\n"})
	other := w.site("git.test/acme/other")
	if x := w.firstOf(other); x.Status != deployment.Failed || !strings.Contains(x.Error, "Limit reached: build minutes") {
		t.Errorf("%s: %s", x.Status, x.Error)
	}
	// In the next month, builds are possible again.
	ok(t, w.db.Admin(t.Context(), `UPDATE usage_sources SET hour = hour - 2700000000`)) // 750 hours
	if n := used(t, w, l, built.Owner, limits.BuildMinutes); n != 0 {
		t.Errorf("%d minutes are used", n)
	}
	w.again(built)
}

// A branch's automatic preview URL never fails its deployment: the preview that was deployed longest ago is removed for
// it.
func TestPreviewsMakeRoom(t *testing.T) {
	t.Parallel()
	w, l := limited(t, map[limits.Name]int64{limits.Previews: 2})
	w.commit("site", map[string]string{"index.html": "x"})
	s := w.site("git.test/acme/site")
	w.firstOf(s)
	host := func(branch string, refuse bool) error {
		return w.db.Write(t.Context(), func(tx *db.Tx) error {
			_, err := w.Previews.HostTx(t.Context(), tx, s, branch, refuse)
			return err
		})
	}
	ok(t, host("one", true))
	ok(t, host("two", true))
	ok(t, w.db.Admin(t.Context(), `UPDATE preview_hosts SET used_at = 1 WHERE branch = 'one'`))
	if err := host("three", true); !fault.Is(err, fault.Payment) {
		t.Errorf("%v", err)
	}
	ok(t, host("one", true)) // it already has one
	ok(t, w.db.Admin(t.Context(), `UPDATE preview_hosts SET used_at = 1 WHERE branch = 'one'`))
	ok(t, host("three", false))
	var left string
	ok(t, w.db.QueryRow(context.Background(), `SELECT min(branch) FROM preview_hosts WHERE site_id = $1`, s.ID).Scan(&left))
	if n := used(t, w, l, s.Owner, limits.Previews); n != 2 || left != "three" {
		t.Errorf("%d, the first of them is %s", n, left)
	}
}

// firstOf waits until a new site's first deployment has ended and returns it.
func (w *world) firstOf(s site.Site) deployment.Deployment {
	w.t.Helper()
	var id deployment.ID
	w.until("a first deployment", func() bool {
		return w.db.QueryRow(w.t.Context(), `SELECT min(id) FROM deployments WHERE site_id = $1 HAVING count(*) > 0`, s.ID).Scan(&id) == nil
	})
	return w.ended(id)
}

// again deploys a site again, waits until the deployment has ended and returns it.
func (w *world) again(s site.Site) deployment.Deployment {
	w.t.Helper()
	return w.ended(w.trigger(s.ID, Trigger{Cause: deployment.ByAPI}).ID)
}

// endless is a runner whose commands run until they are stopped.
type endless struct{}

func (endless) Run(ctx context.Context, _ sandbox.Command) (sandbox.Result, error) {
	<-ctx.Done()
	return sandbox.Result{Killed: sandbox.Canceled}, nil
}

// A build is stopped when its owner's build minutes are used up, also by concurrent builds. Its time is recorded while
// it runs.
func TestBuildEndsWithItsMinutes(t *testing.T) {
	t.Parallel()
	w, l := limited(t, map[limits.Name]int64{limits.BuildMinutes: 2}, func(c *Config) {
		dir := t.TempDir()
		out, err := egress.New(egress.Config{})
		ok(t, err)
		tools, err := toolchain.New(toolchain.Config{Dir: filepath.Join(dir, "tools"), Sandbox: endless{}, UID: 199_990})
		ok(t, err)
		c.Builds = build.New(build.Config{DB: c.DB, Runner: endless{}, Toolchain: tools, Egress: out, Dir: filepath.Join(dir, "b")})
	})
	w.commit("built", map[string]string{"index.html": "x", "slipway.toml": "[build]\ncommand = \"true\"\noutput = \".\"\n"})
	s := w.site("git.test/acme/built")
	w.build(s, 118*time.Second)
	if x := w.firstOf(s); x.Status != deployment.Failed || !strings.Contains(x.Error, "Limit reached: build minutes") {
		t.Errorf("%s: %s", x.Status, x.Error)
	}
	if n := used(t, w, l, s.Owner, limits.BuildMinutes); n != 2 {
		t.Errorf("%d minutes are used", n)
	}
}
