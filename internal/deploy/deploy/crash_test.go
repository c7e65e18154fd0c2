package deploy

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"slipway/internal/build/build"
	"slipway/internal/build/toolchain"
	"slipway/internal/deploy/deployment"
	"slipway/internal/platform/db"
	"slipway/internal/platform/egress"
	"slipway/internal/platform/job"
	"slipway/internal/platform/sandbox"
)

// die starts a deployment like a process that is killed during it.
func (w *world) die(id deployment.ID, attempt int64) {
	w.t.Helper()
	_, _, _, err := w.Deployments.start(w.t.Context(), id, attempt)
	ok(w.t, err)
}

// A deployment that has killed the process twice fails with a clear error, before its repository is touched again. The
// site keeps its live release.
func TestDeploymentThatKillsTheProcessFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.commit("site", map[string]string{"index.html": "one"})
	s := w.live(w.site("git.test/acme/site").ID)
	w.stop()
	x := w.trigger(s.ID, Trigger{})
	w.die(x.ID, 1)
	w.die(x.ID, 2)
	w.c.Source = nil // using it would panic
	ok(t, w.work(t.Context(), Run{x.ID}, 3))
	got := w.status(x.ID)
	if got.Status != deployment.Failed || !strings.Contains(got.Error, "stopped unexpectedly 2 times") {
		t.Fatalf("after two crashes it is %s: %q", got.Status, got.Error)
	}
	if live, err := w.sites.Get(t.Context(), anna, s.ID); err != nil || live.LiveDeployment != s.LiveDeployment {
		t.Fatalf("the site serves %s, want %s (%v)", live.LiveDeployment, s.LiveDeployment, err)
	}
}

// A deployment succeeds after one crash, and after any number of regular restarts.
func TestRestartsAreNotCrashes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.commit("site", map[string]string{"index.html": "one"})
	s := w.live(w.site("git.test/acme/site").ID)
	w.stop()
	x := w.trigger(s.ID, Trigger{})
	w.die(x.ID, 1)
	for n := range int64(5) {
		stopping, stop := context.WithCancelCause(t.Context())
		stop(job.ErrStopping)
		if err := w.work(stopping, Run{x.ID}, n+2); !errors.Is(err, job.ErrStopping) {
			t.Fatalf("restart %d: %v", n, err)
		}
	}
	ok(t, w.work(t.Context(), Run{x.ID}, 9))
	if got := w.status(x.ID); got.Status != deployment.Success {
		t.Fatalf("the deployment is %s: %q", got.Status, got.Error)
	}
}

// A deployment that loses the database while it goes live runs again, however often this happens, and no crash is
// counted.
func TestLostDatabaseIsNoCrash(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.commit("site", map[string]string{"index.html": "one"})
	s := w.live(w.site("git.test/acme/site").ID)
	w.stop()
	x := w.trigger(s.ID, Trigger{})
	w.asked.lose("UPDATE sites SET live_deployment")
	for n := range int64(5) {
		if err := w.work(t.Context(), Run{x.ID}, n+1); !db.Lost(err) {
			t.Fatalf("run %d: %v", n, err)
		}
		if got := w.status(x.ID); got.Status.Ended() {
			t.Fatalf("after run %d it is %s: %q", n, got.Status, got.Error)
		}
	}
	w.asked.lose("")
	ok(t, w.work(t.Context(), Run{x.ID}, 6))
	if got := w.status(x.ID); got.Status != deployment.Success {
		t.Fatalf("the deployment is %s: %q", got.Status, got.Error)
	}
}

// Of several deployments that ran when the process crashed, only one runs at a time, so that another crash is
// attributed to the right one.
func TestSuspectsRunOneAtATime(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.commit("site", map[string]string{"index.html": "one"})
	a, b := w.live(w.site("git.test/acme/site").ID), w.live(w.site("git.test/acme/site").ID)
	w.stop()
	guilty, innocent := w.trigger(a.ID, Trigger{}), w.trigger(b.ID, Trigger{})
	w.die(guilty.ID, 1)
	w.die(innocent.ID, 1)
	next, err := w.suspect(t.Context(), guilty.ID)
	ok(t, err)
	if err := w.work(t.Context(), Run{innocent.ID}, 2); err == nil || w.status(innocent.ID).Status.Ended() {
		t.Fatalf("the second one ran beside the first: %v", err)
	}
	w.die(guilty.ID, 2)
	next() // as when the process ends
	ok(t, w.work(t.Context(), Run{guilty.ID}, 3))
	ok(t, w.work(t.Context(), Run{innocent.ID}, 3))
	if g, i := w.status(guilty.ID).Status, w.status(innocent.ID).Status; g != deployment.Failed || i != deployment.Success {
		t.Fatalf("the guilty one is %s, the innocent one %s", g, i)
	}
}

// A configuration file that is too large fails the deployment with an error that names it, rather than being ignored.
func TestOversizedConfigurationFailsInWords(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.commit("big", map[string]string{"index.html": "one", "slipway.toml": "output = \"dist\"\n" + strings.Repeat("# and so on\n", 100_000)})
	s := w.site("git.test/acme/big")
	w.until("it fails", func() bool {
		got, err := w.sites.Get(t.Context(), anna, s.ID)
		ok(t, err)
		return strings.Contains(got.StatusReason, "slipway.toml can't be read: it is larger than 1024 KiB")
	})
}

// A manifest with a merge conflict fails the deployment, and the site keeps its live release.
func TestConflictKeepsTheLiveRelease(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.commit("site", map[string]string{"index.html": "one"})
	s := w.live(w.site("git.test/acme/site").ID)
	w.commit("site", map[string]string{"index.html": "two", "package.json": "{\n<<<<<<< HEAD\n=======\n>>>>>>> topic\n}\n"})
	x := w.trigger(s.ID, Trigger{})
	w.until("it fails", func() bool { return w.status(x.ID).Status.Ended() })
	got := w.status(x.ID)
	if got.Status != deployment.Failed || !strings.Contains(got.Error, "package.json can't be read: lines 2 to 4 are a merge conflict") {
		t.Errorf("the deployment is %s: %q", got.Status, got.Error)
	}
	if now, err := w.sites.Get(t.Context(), anna, s.ID); err != nil || now.LiveRelease != s.LiveRelease {
		t.Errorf("the site serves %q instead of %q, %v", now.LiveRelease, s.LiveRelease, err)
	}
}

// dying is a runner whose command runs out of memory while the process is told to stop.
type dying struct{ stop func() }

func (d dying) Run(context.Context, sandbox.Command) (sandbox.Result, error) {
	d.stop()
	return sandbox.Result{Killed: sandbox.OutOfMemory, OOM: true, ExitCode: 137}, nil
}

// A build that runs out of memory has failed, even if that makes systemd stop the service (OOMPolicy=stop). It isn't
// repeated.
func TestOutOfMemoryWhileStoppingFails(t *testing.T) {
	t.Parallel()
	stopping, stop := context.WithCancelCause(t.Context())
	w := newWorld(t, func(c *Config) {
		dir := t.TempDir()
		out, err := egress.New(egress.Config{})
		ok(t, err)
		runner := dying{func() { stop(job.ErrStopping) }}
		tools, err := toolchain.New(toolchain.Config{Dir: filepath.Join(dir, "tools"), Sandbox: runner, UID: 199_990})
		ok(t, err)
		c.Builds = build.New(build.Config{DB: c.DB, Runner: runner, Toolchain: tools, Egress: out, Dir: filepath.Join(dir, "b")})
	})
	w.commit("site", map[string]string{"index.html": "one"})
	s := w.live(w.site("git.test/acme/site").ID)
	w.stop()
	w.commit("site", map[string]string{"index.html": "two", "slipway.toml": "[build]\ncommand = \"true\"\noutput = \".\"\n"})
	x := w.trigger(s.ID, Trigger{})
	ok(t, w.work(stopping, Run{x.ID}, 1))
	if got := w.status(x.ID); got.Status != deployment.Failed || !strings.Contains(got.Error, "memory") {
		t.Fatalf("the deployment is %s: %q", got.Status, got.Error)
	}
}
