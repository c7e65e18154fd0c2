package app

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"slipway/internal/platform/fault"
	"slipway/internal/platform/id"
	"slipway/internal/program/runtime"
)

// Before a visitor is refused, the program that has been idle the longest must be put to sleep early.
func TestIdleProgramsMakeRoom(t *testing.T) {
	for name, limit := range map[string]func(*Config){
		"of the server": func(c *Config) { c.Most = 3 },
		"of the owner":  func(c *Config) { c.Limits = allowance{most: func() int64 { return 3 }} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				limit(&w.apps.c)
				for i := range 3 {
					w.acquire(id.Deployment(fmt.Sprint(i))).Release()
					time.Sleep(time.Second)
				}
				if _, err := w.apps.Acquire(t.Context(), "more"); code(err) != codeFull {
					t.Errorf("beside three that were used this moment: %v", err)
				}
				w.wantState("more", Sleeping) // nothing is wrong with it
				time.Sleep(spareTime)
				busy := w.acquire("0")
				w.acquire("more").Release()
				w.wantState("0", Running)
				w.wantState("1", Sleeping)
				w.wantState("2", Running)
				w.wantState("more", Running)
				synctest.Wait()
				if n := w.apps.up.Load(); n != 3 {
					t.Errorf("%d run, want 3", n)
				}
				time.Sleep(2 * spareTime)
				for _, id := range []id.Deployment{"2", "more"} {
					defer w.acquire(id).Release()
				}
				if _, err := w.apps.Acquire(t.Context(), "1"); code(err) != codeFull {
					t.Errorf("beside three that are busy: %v", err)
				}
				busy.Release()
				time.Sleep(2 * spareTime)
				w.acquire("1").Release()
				w.wantState("0", Sleeping)
			})
		})
	}
}

// A program that is set to run always must not be put to sleep for another one. Nor may a program of another owner be
// put to sleep for an owner's limit.
func TestWhatMakesNoRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.apps.c.Limits = allowance{most: func() int64 { return 1 }}
		w.want.Sleep, w.want.Owner = 0, "anna"
		w.acquire("one").Release()
		w.look() // its site must be known to serve it
		w.want.Sleep = 15 * time.Minute
		time.Sleep(time.Hour)
		if _, err := w.apps.Acquire(t.Context(), "preview"); code(err) != codeFull {
			t.Errorf("beside one that never sleeps: %v", err)
		}
		w.want.Owner = "ben"
		w.acquire("other").Release()
		w.wantState("one", Running)
		time.Sleep(time.Minute)
		w.acquire("third").Release()
		w.wantState("one", Running)
		w.wantState("other", Sleeping)
	})
}

// A restart must not put to sleep the program that it restarts.
func TestRestartWithoutRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.apps.c.Most = 1
		w.acquire("one").Release()
		time.Sleep(time.Minute)
		if err := w.apps.Restart(t.Context(), "one"); code(err) != codeFull {
			t.Errorf("Restart = %v", err)
		}
		w.wantState("one", Running)
	})
}

// The owner who runs the most programs must make room: many programs of one owner must not push those of others to
// sleep, however long those are idle.
func TestTheOwnerOfMostMakesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.apps.c.Most = 4
		wake := func(owner id.Owner, name string) {
			t.Helper()
			w.want.Owner, w.want.Site = owner, id.Site("site "+string(owner)+name)
			w.acquire(id.Deployment(name)).Release()
			time.Sleep(2 * spareTime)
		}
		wake("ben", "ben")
		for i := range 3 {
			wake("anna", fmt.Sprint(i))
		}
		wake("carla", "carla")
		w.wantState("ben", Running)
		w.wantState("carla", Running)
		w.wantState("0", Sleeping)
		for i := 3; i < 10; i++ {
			wake("anna", fmt.Sprint(i))
		}
		w.wantState("ben", Running)
		w.wantState("carla", Running)
		w.wantState("9", Running)
	})
}

// Starts of one owner that hang must not hold up those of other owners.
func TestStartsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.engine.boot = -1 // the programs never listen
		w.want.Health = 10 * time.Minute
		w.want.Owner = "anna"
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for i := range 3 * maxStarts {
			w.want.Site = id.Site(fmt.Sprint("site", i))
			go func() { _, _ = w.apps.Acquire(ctx, id.Deployment(fmt.Sprint(i))) }()
			synctest.Wait()
		}
		if n := w.engine.starts(); n != maxStarts/4 {
			t.Errorf("%d of one owner start at once, want %d", n, maxStarts/4)
		}
		w.engine.boot = 0
		w.want.Owner, w.want.Site = "ben", "site ben"
		w.acquire("ben").Release()
		w.wantState("ben", Running)
		cancel()
		for _, p := range w.engine.started {
			p.end(exitOne)
		}
	})
}

// If no machine has room, an idle program must be put to sleep, as at the limit of programs. If none is idle, the
// request must fail with that reason, and this must not count as a crash.
func TestMachinesWithoutRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.engine.room = 1
		w.acquire("one").Release()
		time.Sleep(2 * spareTime)
		w.want.Site = "site two"
		e := w.acquire("two")
		w.wantState("one", Sleeping)
		w.wantState("two", Running)
		w.want.Site = "site three" // no program is idle
		_, err := w.apps.Acquire(t.Context(), "three")
		if f := fault.As(err); code(err) != codeFull || !strings.HasPrefix(f.Details, "no room on the cluster") {
			t.Errorf("Acquire = %v", err)
		}
		if said := w.said(); !slices.Contains(said, "Not started: no room on the cluster: 0/3 nodes are available") {
			t.Errorf("the log has %q", said)
		}
		w.wantState("two", Running)
		e.Release()
		time.Sleep(time.Minute)
		w.acquire("three").Release()
	})
}

// A program that fits on no machine must not put all other programs to sleep.
func TestNoMachineIsLargeEnough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		const idle = maxSpared + 3
		for i := range idle {
			w.want.Site = id.Site(fmt.Sprint("site ", i))
			w.acquire(id.Deployment(fmt.Sprint(i))).Release()
		}
		time.Sleep(2 * spareTime)
		w.want.Site = "huge"
		w.engine.refuse = fmt.Errorf("%w: 0/3 nodes are available", runtime.ErrNoRoom)
		if _, err := w.apps.Acquire(t.Context(), "huge"); code(err) != codeFull {
			t.Errorf("Acquire = %v", err)
		}
		running := 0
		for _, p := range w.engine.started {
			if p.running() {
				running++
			}
		}
		if running != idle-maxSpared {
			t.Errorf("%d of %d idle programs run on", running, idle)
		}
	})
}
