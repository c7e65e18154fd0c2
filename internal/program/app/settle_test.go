package app

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/id"
	"slipway/internal/program/runtime"
)

// Settings that need no new process must take effect on the running program. For others the status must say that a
// restart is needed.
func TestSettingsActAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		look := func() { w.look(); synctest.Wait(); w.look() }
		w.known["site"] = row{"site", "one", "live", "first", 0, "", 0}
		w.want.Settings = "first"
		w.want.Sleep = time.Hour
		w.acquire("one").Release()
		look()
		if w.apps.Status("one").NeedsRestart {
			t.Error("the status says from the start that a restart is needed")
		}

		w.want.Sleep, w.want.MaxBody, w.want.FirstByte, w.want.Drain = 3*time.Second, 7, 8*time.Second, 9*time.Second
		w.want.Settings = "second"
		w.known["site"] = row{"site", "one", "live", "second", 0, "", 0}
		look()
		e := w.acquire("one")
		if e.MaxBody != 7 || e.FirstByte != 8*time.Second {
			t.Errorf("requests are held to %d bytes and %s", e.MaxBody, e.FirstByte)
		}
		e.Release()
		if s := w.apps.Status("one"); s.NeedsRestart || s.State != Running {
			t.Errorf("%+v", s)
		}
		time.Sleep(4 * time.Second)
		look()
		w.wantState("one", Sleeping)

		w.acquire("one").Release()
		w.want.Spec.Limits = runtime.Limits{Memory: 64 << 20}
		w.want.Settings = "third"
		w.known["site"] = row{"site", "one", "live", "third", 0, "", 0}
		look()
		if !w.apps.Status("one").NeedsRestart {
			t.Error("the status says that other limits need no restart")
		}
		if err := w.apps.Restart(t.Context(), "one"); err != nil || w.apps.Status("one").NeedsRestart {
			t.Errorf("after a restart: %v", err)
		}
	})
}

// If the settings cannot be read for a long time, the attempts must not come every second, and must not fill the log.
// Once they can be read, they must take effect.
func TestUnreadableSettings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.want.Settings = "first"
		w.known["site"] = row{"site", "one", "live", "first", 0, "", 0}
		w.acquire("one").Release()
		w.mu.Lock()
		w.unreadable, w.read = errors.New("no such key"), 0
		w.mu.Unlock()
		w.known["site"] = row{"site", "one", "live", "second", 0, "", 0}
		w.pass(10 * time.Minute)
		w.mu.Lock()
		if w.read < 5 || w.read > 15 {
			t.Errorf("settings were read %d times in ten minutes", w.read)
		}
		w.unreadable, w.want.Settings, w.want.MaxBody = nil, "second", 7
		w.mu.Unlock()
		w.pass(longestPause + 2*time.Second)
		e := w.acquire("one")
		defer e.Release()
		if e.MaxBody != 7 {
			t.Errorf("the settings don't act: %d bytes", e.MaxBody)
		}
	})
}

// A program that runs with other variables than its site has now must be shown as in need of a restart. The order of
// the variables must not matter.
func TestVariablesNeedARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		updated := int64(0)
		set := func(env ...string) {
			updated++
			w.mu.Lock()
			w.want.Spec.Env = env
			w.mu.Unlock()
			w.known["site"] = row{"site", "one", "live", "", 0, "", db.Time(updated)}
			w.look()
			synctest.Wait()
			w.look()
		}
		set("A=1", "B=2")
		w.acquire("one").Release()
		for _, x := range []struct {
			env   []string
			needs bool
		}{{[]string{"B=2", "A=1"}, false}, {[]string{"A=1", "B=3"}, true}, {[]string{"A=1"}, true}, {[]string{"A=1", "B=2"}, false}, {[]string{"A=2"}, true}} {
			if set(x.env...); w.apps.Status("one").NeedsRestart != x.needs {
				t.Errorf("with %q it needs a restart: %v", x.env, !x.needs)
			}
		}
		if err := w.apps.Restart(t.Context(), "one"); err != nil || w.apps.Status("one").NeedsRestart {
			t.Errorf("after a restart: %v", err)
		}
	})
}

// When a site's revision changes, a new program must replace the old one within seconds and without a dropped request.
// If the new one fails, the old one must keep running.
func TestRevisionActsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		look := func() { w.look(); synctest.Wait(); w.look() }
		w.want.Revision = 1
		w.known["site"] = row{"site", "one", "live", "", 1, "", 0}
		held := w.acquire("one")
		look()
		if n := w.engine.starts(); n != 1 {
			t.Fatalf("%d starts", n)
		}
		old := w.engine.last()

		w.want.Revision = 2
		w.known["site"] = row{"site", "one", "live", "", 2, "", 0}
		look()
		if n := w.engine.starts(); n != 2 || !old.running() {
			t.Errorf("%d starts; the request under way goes on: %v", n, old.running())
		}
		held.Release()
		w.pass(time.Second)
		if old.running() || !w.engine.last().running() {
			t.Error("the old program is running, or the new one is not")
		}
		look()
		if n := w.engine.starts(); n != 2 {
			t.Errorf("%d starts although nothing has changed", n)
		}

		// A change right after that must be in force too. What the program read before its start is no change.
		w.want.Revision = 3
		w.known["site"] = row{"site", "one", "live", "", 3, "", 0}
		w.pass(againAfter)
		look()
		w.known["site"] = row{"site", "one", "live", "", 2, "", 0}
		w.pass(2 * againAfter)
		look()
		if n := w.engine.starts(); n != 3 {
			t.Errorf("%d starts after another change", n)
		}

		// A deployment that is no longer live must be left alone.
		w.known["site"] = row{"site", "two", "live", "", 4, "", 0}
		look()
		if n := w.engine.starts(); n != 3 {
			t.Errorf("%d starts of one that is not live", n)
		}
	})
}

// A program that was started for another owner must be replaced by one of the site's new owner within seconds after a
// transfer. This holds for the live deployment and for others, such as a preview.
func TestMovesWithItsSite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, live := range []id.Deployment{"one", "another"} {
			w := newWorld(t)
			look := func() { w.look(); synctest.Wait(); w.look() }
			w.want.Owner = "ann"
			w.known["site"] = row{"site", live, "live", "", 0, "ann", 0}
			held := w.acquire("one")
			look()
			old := w.engine.last()
			w.want.Owner = "ben"
			w.known["site"] = row{"site", live, "live", "", 0, "ben", 0}
			look()
			held.Release()
			w.pass(time.Second)
			if n := w.engine.starts(); n != 2 || old.running() {
				t.Errorf("live %s: %d starts, the sender's program runs: %v", live, n, old.running())
			}
			look()
			if n := w.engine.starts(); n != 2 {
				t.Errorf("live %s: %d starts although nothing has changed", live, n)
			}
		}
	})
}
