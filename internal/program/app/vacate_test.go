package app

import (
	"testing"
	"testing/synctest"
	"time"

	"slipway/internal/program/runtime"
)

// When the machine of a program is to be emptied, a new program must start before the old one stops, and the old one
// must first answer its requests.
func TestVacate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		e := w.acquire("one")
		first := w.engine.last()
		close(first.leaves)
		synctest.Wait()
		if w.engine.starts() != 2 || !first.running() {
			t.Fatalf("%d starts, the first one runs: %v", w.engine.starts(), first.running())
		}
		w.wantState("one", Running)
		e.Release()
		time.Sleep(time.Second)
		synctest.Wait()
		if first.running() || !w.engine.last().running() {
			t.Error("the first one was not ended, or the second one was")
		}
	})
}

// A program that has been replaced already and still answers must not be replaced again.
func TestVacateReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		e := w.acquire("one")
		first := w.engine.last()
		if err := w.apps.Restart(t.Context(), "one"); err != nil {
			t.Fatal(err)
		}
		second := w.engine.last()
		close(first.leaves)
		synctest.Wait()
		if w.engine.starts() != 2 || !first.running() || !second.running() {
			t.Errorf("%d starts, the first one runs: %v, the second: %v", w.engine.starts(), first.running(), second.running())
		}
		e.Release()
	})
}

// A program whose machine ends again and again has not crashed and must be restarted at once. If no machine keeps it,
// it must be restarted with growing delays.
func TestDisplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		displace := func() {
			w.engine.last().end(runtime.Exit{Code: 137, Reason: "its node does not answer", Displaced: true})
			synctest.Wait()
		}
		w.acquire("one").Release()
		for n := range 2 * crashLoop {
			time.Sleep(displacedTime + time.Second)
			displace()
			w.wantState("one", Sleeping)
			begun := time.Now()
			w.acquire("one").Release()
			if waited := time.Since(begun); waited > firstRetry/2 {
				t.Errorf("the start after end %d came after %v", n+1, waited)
			}
		}
		for range 3 {
			displace()
			w.wantState("one", Crashed)
			time.Sleep(lastRetry)
			w.acquire("one").Release()
		}
		displace()
		if _, err := w.apps.Acquire(t.Context(), "one"); err == nil {
			t.Error("a program that no machine keeps is restarted without a delay")
		}
	})
}

// A program that cannot run beside its replacement must be ended first, after it has answered its requests. Requests
// that come meanwhile must wait for the next start.
func TestVacateOneWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, prepare := range map[string]func(w *world){
			"storage": func(w *world) { w.want.Spec.Storage = []runtime.Storage{{Path: "data"}} },
			"no room": func(w *world) { w.apps.c.Most = 1 },
		} {
			w := newWorld(t)
			prepare(w)
			e := w.acquire("one")
			first := w.engine.last()
			close(first.leaves)
			time.Sleep(time.Second)
			if w.engine.starts() != 1 || !first.running() {
				t.Errorf("%s: %d starts, the first one runs: %v", name, w.engine.starts(), first.running())
			}
			e.Release()
			time.Sleep(time.Second)
			synctest.Wait()
			if first.running() {
				t.Errorf("%s: the first one runs on", name)
			}
			w.acquire("one").Release()
			if w.engine.starts() != 2 {
				t.Errorf("%s: %d starts", name, w.engine.starts())
			}
		}
	})
}
