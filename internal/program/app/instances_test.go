package app

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"slipway/internal/edge/endpoint"
	"slipway/internal/program/scale"
)

// several returns a world whose site may have between least and most instances.
func several(t *testing.T, least, most int) *world {
	w := newWorld(t)
	w.want.Instances = scale.Range{Min: least, Max: most}
	return w
}

// load sends n requests that stay in progress.
func (w *world) load(n int) (list []*endpoint.Endpoint) {
	for range n {
		list = append(list, w.acquire("one"))
	}
	return list
}

func release(list []*endpoint.Endpoint) {
	for _, e := range list {
		e.Release()
	}
}

// inFlight lists the number of requests in progress of each instance.
func (w *world) inFlight() (list []int) {
	for _, p := range w.apps.all() {
		p.mu.Lock()
		for in := range p.each {
			in.mu.Lock()
			list = append(list, in.active)
			in.mu.Unlock()
		}
		p.mu.Unlock()
	}
	return list
}

func (w *world) wantInstances(n int) {
	w.t.Helper()
	synctest.Wait()
	if got := w.apps.Status("one").Instances; got != n {
		w.t.Errorf("%d instances, want %d; the log: %q", got, n, w.said())
	}
}

// More instances must start while the running ones keep answering, and each request must go to the instance with the
// fewest requests. Instances that are no longer needed must end.
func TestInstancesFollowWhatIsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := several(t, 1, 3)
		w.engine.boot = time.Second
		first := w.load(25)
		w.wantInstances(1)
		begun := time.Now()
		second := w.load(1) // must not wait
		if time.Since(begun) != 0 {
			t.Errorf("a request waited for %s", time.Since(begun))
		}
		time.Sleep(5 * time.Second)
		w.wantInstances(3)
		release(first[:20])
		third := w.load(15)
		if got := w.inFlight(); !slices.Equal(got, []int{7, 7, 7}) {
			t.Errorf("in flight %v, want the same of each", got)
		}
		release(first[20:])
		release(second)
		release(third[:len(third)-1])
		last := third[len(third)-1:]
		w.pass(scale.DownAfter - 5*time.Second)
		w.wantInstances(3)
		w.pass(10 * time.Second)
		w.wantInstances(1)
		release(last)
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := w.apps.up.Load(); n != 1 {
			t.Errorf("%d counted, want 1", n)
		}
		w.pass(16 * time.Minute)
		w.wantState("one", Sleeping)
		w.wantInstances(0)
	})
}

// The minimum of instances must start with the program, and all of them must go to sleep with it.
func TestLeastInstances(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := several(t, 3, 3)
		w.acquire("one").Release()
		w.wantInstances(3)
		w.pass(14 * time.Minute)
		w.wantInstances(3)
		w.pass(2 * time.Minute)
		w.wantState("one", Sleeping)
		synctest.Wait()
		if n := w.apps.up.Load(); n != 0 {
			t.Errorf("%d counted, want 0", n)
		}
	})
}

// A preview must have one instance, whatever the settings of its site say.
func TestPreviewsHaveOneInstance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := several(t, 2, 3)
		w.known["site"] = row{"site", "other", "live", "", 0, "", 0}
		defer release(w.load(100))
		w.look()
		w.wantInstances(1)
	})
}

// A deployment that is about to go live must have as many instances as the one it replaces, and at least the minimum of
// its site.
func TestDeploymentBeginsWithAsMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := several(t, 2, 3)
		defer release(w.load(30))
		w.wantInstances(3)
		done, err := w.apps.Start(t.Context(), "two", nil)
		if err != nil {
			t.Fatal(err)
		}
		defer done()
		if n := w.apps.Status("two").Instances; n != 3 {
			t.Errorf("the next one begins with %d, want 3", n)
		}
		w.known["site"] = row{"site", "two", "live", "", 0, "", 0}
		w.pass(time.Minute)
		w.wantState("one", Sleeping) // all instances, after the drain
		if n := w.apps.Status("two").Instances; n != 3 {
			t.Errorf("%d after the switch, want 3", n)
		}
	})
}

// A restart must replace all instances.
func TestRestartReplacesInstances(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := several(t, 2, 2)
		busy := w.acquire("one")
		w.wantInstances(2)
		if err := w.apps.Restart(t.Context(), "one"); err != nil {
			t.Fatal(err)
		}
		w.wantInstances(2)
		time.Sleep(time.Second)
		if got := w.engine.alive(); !slices.Equal(got, []int{0, 2, 3}) { // instance 0 has a request
			t.Errorf("%v run", got)
		}
		busy.Release()
		time.Sleep(time.Second)
		synctest.Wait()
		if got := w.engine.alive(); !slices.Equal(got, []int{2, 3}) {
			t.Errorf("%v run", got)
		}
		if n := w.apps.up.Load(); n != 2 {
			t.Errorf("%d counted, want 2", n)
		}
	})
}

// alive lists the indexes of the started programs that still run.
func (e *fakeEngine) alive() (list []int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, p := range e.started {
		if p.running() {
			list = append(list, i)
		}
	}
	return list
}

// If an instance fails, the other instances must take the requests, and a new one must replace it.
func TestInstancesThatFail(t *testing.T) {
	for name, fail := range map[string]func(w *world, p *fakeProgram){
		"ended": func(_ *world, p *fakeProgram) { p.end(exitOne) },
		"refuses connections": func(w *world, p *fakeProgram) {
			p.mu.Lock()
			p.listens = time.Now().Add(time.Hour)
			p.mu.Unlock()
			e := w.acquire("one")
			defer e.Release()
			if c, err := e.Upstream.Get(w.t.Context(), true); err == nil {
				c.Close()
				w.t.Error("connected")
			}
			<-e.Ended // after which the request acquires another instance
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := several(t, 2, 2)
				w.acquire("one").Release()
				w.wantInstances(2)
				fail(w, w.engine.started[0])
				w.wantInstances(1)
				w.wantState("one", Running)
				w.acquire("one").Release()
				if n := w.engine.starts(); n != 2 {
					t.Errorf("%d starts, want no wake", n)
				}
				w.pass(3 * time.Second)
				w.wantInstances(2)
				if n := w.apps.Status("one").Restarts; n != 1 {
					t.Errorf("%d restarts", n)
				}
			})
		})
	}
}

// A program that crashes a second after each start must not be started more often because it may have many instances.
func TestCrashLoopOfInstances(t *testing.T) {
	starts := map[int]int{}
	for _, most := range []int{1, 10} {
		synctest.Test(t, func(t *testing.T) {
			w := several(t, most, most)
			w.engine.dieIn = time.Second
			for range 600 {
				if e, err := w.apps.Acquire(t.Context(), "one"); err == nil {
					e.Release()
				}
				w.pass(time.Second)
			}
			starts[most] = w.engine.starts()
		})
	}
	if starts[10] > starts[1]+10 {
		t.Errorf("%d starts in 10 minutes, with one instance %d", starts[10], starts[1])
	}
}

// Instances that crash beside one that does not must be restarted with growing delays.
func TestInstancesCrashBesideTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := several(t, 1, 3)
		w.acquire("one").Release()
		w.engine.mu.Lock()
		w.engine.dieIn = time.Second
		w.engine.mu.Unlock()
		busy := w.load(30)
		w.pass(10 * time.Minute)
		if n := w.engine.starts(); n < 5 || n > 40 {
			t.Errorf("%d starts in 10 minutes", n)
		}
		w.wantState("one", Running)
		release(busy)
	})
}

// If a new instance does not become healthy, the running ones must not be affected, and further attempts must come with
// growing delays.
func TestInstanceThatDoesNotStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := several(t, 1, 5)
		w.acquire("one").Release()
		w.engine.status = 500
		busy := w.load(50)
		w.wantInstances(1)
		w.pass(10 * time.Minute)
		w.wantInstances(1)
		w.wantState("one", Running)
		if n := w.engine.starts(); n < 3 || n > 12 {
			t.Errorf("%d starts", n)
		}
		if said := w.said(); len(said) > 3 || !strings.HasPrefix(said[0], "Stays at 1 instance: The application is not healthy") {
			t.Errorf("the log: %q", said)
		}
		w.engine.mu.Lock()
		w.engine.status = 0
		w.engine.mu.Unlock()
		w.pass(2 * time.Minute)
		w.wantInstances(5)
		release(busy)
	})
}

// Each instance must count towards the limit of its owner. If the limit is too low for all instances, fewer must run.
// No other program may be put to sleep for additional instances, but an idle instance must end to make room for another
// program.
func TestInstancesCount(t *testing.T) {
	for name, limit := range map[string]func(*Config){
		"to the server's": func(c *Config) { c.Most = 3 },
		"to the owner's":  func(c *Config) { c.Limits = allowance{most: func() int64 { return 3 }} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := several(t, 1, 5)
				limit(&w.apps.c)
				w.acquire("preview").Release()
				time.Sleep(2 * spareTime)
				busy := w.load(50)
				w.wantInstances(2)
				w.wantState("preview", Running)
				if said := w.said(); len(said) != 2 || !strings.HasPrefix(said[1], "Stays at 2 instances: ") {
					t.Errorf("the log: %q", said)
				}
				release(busy)
				time.Sleep(2 * spareTime)
				defer w.acquire("preview").Release()
				defer w.acquire("one").Release()
				w.acquire("more").Release()
				w.wantInstances(1)
				w.wantState("more", Running)
				synctest.Wait()
				if n := w.apps.up.Load(); n != 3 {
					t.Errorf("%d counted, want 3", n)
				}
			})
		})
	}
}

// The memory and CPU of all instances must count as the program's.
func TestInstancesAreMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := several(t, 3, 3)
		w.acquire("one").Release()
		w.wantInstances(3)
		if got := w.apps.Status("one").Memory; got != 3<<20 {
			t.Errorf("%d bytes, want those of three", got)
		}
		ids := map[string]bool{}
		for _, in := range (counted{w.apps}).Running() {
			ids[in.ID] = in.Memory == 1<<20 && in.Site == "site"
		}
		if len(ids) != 3 || ids[""] {
			t.Errorf("measured: %v", ids)
		}
	})
}

// If the machine of one of several instances is to be emptied, a new instance must start first, and the old one must
// answer its requests before it stops. If there is no room for a new instance, the remaining ones must keep running.
func TestVacateOneOfSeveral(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := several(t, 2, 2)
		list := w.load(1)
		w.wantInstances(2)
		list = append(list, w.load(1)...)
		for i, want := range [][]int{{0, 1, 2}, {0, 1, 2}} {
			if i == 1 {
				w.apps.c.Most = 1
			}
			close(w.engine.started[i].leaves)
			synctest.Wait()
			if got := w.engine.alive(); !slices.Equal(got, want) {
				t.Errorf("%v run, want %v", got, want)
			}
			w.wantState("one", Running)
			w.wantInstances(2 - i)
		}
		release(list)
		time.Sleep(time.Second)
		synctest.Wait()
		if got := w.engine.alive(); !slices.Equal(got, []int{2}) {
			t.Errorf("%v run at the end", got)
		}
	})
}

// Settings that allow fewer or more instances must apply to the running program.
func TestInstancesChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := several(t, 1, 1)
		busy := w.load(40)
		w.look()
		w.wantInstances(1)
		set := func(r scale.Range, settings string) {
			w.mu.Lock()
			w.want.Instances = r
			w.mu.Unlock()
			w.known["site"] = row{"site", "one", "live", settings, 0, "", 0}
			w.pass(3 * time.Second)
		}
		set(scale.Range{Min: 1, Max: 3}, "three")
		w.wantInstances(3)
		set(scale.Range{Min: 1, Max: 2}, "two")
		w.wantInstances(2)
		release(busy)
		if w.apps.Status("one").NeedsRestart {
			t.Error("the status says that a restart is needed")
		}
	})
}

// All instances must end when the site is stopped and when the service stops.
func TestInstancesEndTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w *world
		t.Cleanup(func() { // runs after the service has ended
			if got := w.engine.alive(); len(got) != 0 {
				t.Errorf("%v run after the end", got)
			}
		})
		w = several(t, 3, 3)
		w.acquire("one").Release()
		w.wantInstances(3)
		w.known["site"] = row{"site", "one", "stopped", "", 0, "", 0}
		w.look()
		w.wantState("one", Stopped)
		synctest.Wait()
		if got := w.engine.alive(); len(got) != 0 {
			t.Errorf("%v run", got)
		}
		w.known["site"] = row{"site", "one", "live", "", 0, "", 0}
		w.look()
		w.acquire("one").Release()
		w.wantInstances(3)
		w.apps.Renew("site")
		w.wantState("one", Sleeping)
		w.acquire("one").Release()
		w.wantInstances(3)
	})
}
