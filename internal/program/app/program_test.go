package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"slipway/internal/edge/endpoint"
	"slipway/internal/platform/id"

	"slipway/internal/platform/fault"
	"slipway/internal/platform/job"
	"slipway/internal/program/runtime"
)

func TestManyRequestsWakeOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.engine.boot = 2 * time.Second
		var wg sync.WaitGroup
		for range 500 {
			wg.Go(func() { w.acquire("one").Release() })
		}
		synctest.Wait()
		w.wantState("one", Starting)
		wg.Wait()
		if n := w.engine.starts(); n != 1 {
			t.Errorf("%d starts, want 1", n)
		}
		w.wantState("one", Running)
	})
}

func TestWakeTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.engine.boot = 45 * time.Second
		begun := time.Now()
		_, err := w.apps.Acquire(t.Context(), "one")
		if code(err) != "wake_timeout" || time.Since(begun) != 30*time.Second {
			t.Errorf("Acquire = %v after %s, want wake_timeout after 30s", err, time.Since(begun))
		}
		w.acquire("one").Release() // the start continued without its first caller
		if n := w.engine.starts(); n != 1 {
			t.Errorf("%d starts, want 1", n)
		}
	})
}

func TestStartReturnsItsReasonOnce(t *testing.T) {
	for name, tt := range map[string]struct {
		set  func(*fakeEngine)
		code string
		text string
	}{
		"refused by the engine": {func(e *fakeEngine) {
			e.refuse = &fault.Error{Kind: fault.Invalid, Message: "no Node.js 99", Code: "no_node"}
		}, "no_node", "no Node.js 99"},
		"never listens": {func(e *fakeEngine) { e.boot = -1 }, "application_unhealthy", "does not listen on port 3000 after 1m0s"},
		"ends before": {
			func(e *fakeEngine) { e.boot, e.dieIn = time.Second, time.Millisecond },
			"application_crashed",
			"exit code 1",
		},
		"ends as it listens": {func(e *fakeEngine) { e.dieDialed = true }, "application_crashed", "exit code 1"},
		"answers 500":        {func(e *fakeEngine) { e.status = 500 }, "application_unhealthy", "answers / with 500"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.known["site"] = row{"site", "other", "live", "", 0, "", 0}
				tt.set(w.engine)
				_, err := w.apps.Start(t.Context(), "one", nil)
				if code(err) != tt.code || !strings.Contains(err.Error(), tt.text) {
					t.Errorf("Start = %v (%s), want %s with %q", err, code(err), tt.code, tt.text)
				}
				if n := w.engine.starts(); n > 1 {
					t.Errorf("%d starts, want 1", n)
				}
				synctest.Wait()
				if n := w.apps.up.Load(); n != 0 {
					t.Errorf("%d instances counted after the failure, want 0", n)
				}
				// The next deployment must be started at once, without a back-off.
				w.engine.refuse, w.engine.boot, w.engine.status, w.engine.dieIn, w.engine.dieDialed = nil, 0, 0, 0, false
				release, err := w.apps.Start(t.Context(), "one", nil)
				if err != nil {
					t.Fatalf("Start of the repaired one = %v", err)
				}
				release()
			})
		})
	}
}

// A health time longer than the two minutes that a start usually has must be waited for.
func TestSlowStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.want.Health, w.engine.boot = 10*time.Minute, 5*time.Minute
		release, err := w.apps.Start(t.Context(), "one", nil)
		if err != nil {
			t.Fatal(err)
		}
		release()
	})
}

func TestCrashLoopBacksOffAndSaysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.acquire("one").Release()
		w.engine.last().end(runtime.Exit{Code: 3, Reason: "exit code 3"})
		synctest.Wait()
		w.wantState("one", Crashed)
		w.acquire("one").Release() // the first restart comes at once, because a single bad request may have been the cause
		for i := range 10 {
			w.engine.last().end(runtime.Exit{Reason: "out of memory", OutOfMemory: true})
			synctest.Wait()
			_, err := w.apps.Acquire(t.Context(), "one")
			f := fault.As(err)
			if f == nil || f.Code != "application_crashed" || !strings.Contains(f.Details, "out of memory") {
				t.Fatalf("Acquire after crash %d = %v", i+2, err)
			}
			if f.RetryAfter > time.Minute || i > 5 && f.RetryAfter < time.Minute {
				t.Errorf("after crash %d: retry after %s", i+2, f.RetryAfter)
			}
			if _, err := w.apps.Acquire(t.Context(), "one"); code(err) != "application_crashed" {
				t.Fatalf("a second Acquire in the back-off = %v", err)
			}
			time.Sleep(f.RetryAfter)
			w.acquire("one").Release()
		}
		if n := w.engine.starts(); n != 12 {
			t.Errorf("%d starts, want 12: one for each crash and the first", n)
		}
		said := w.said()
		if !slices.ContainsFunc(said, func(s string) bool {
			return strings.Contains(s, "out of memory, 11 times in a row; the next attempt is in 1m0s")
		}) {
			t.Errorf("the log says %q", said)
		}
		// A program that ran for a while has no back-off.
		time.Sleep(time.Minute)
		w.engine.last().end(runtime.Exit{Code: 1, Reason: "exit code 1"})
		synctest.Wait()
		w.acquire("one").Release()
	})
}

// The log must say why requests got no answer, with one line for many at once.
func TestUnansweredRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		e := w.acquire("one")
		defer e.Release()
		for range 100 {
			e.Failed("GET / was answered with 502: malformed header")
		}
		time.Sleep(failedEvery)
		e.Failed("GET /later was answered with 502: malformed header")
		said := strings.Join(w.said(), "\n")
		if strings.Count(said, "GET / was") != 1 || strings.Count(said, "GET /later was") != 1 {
			t.Errorf("the log says %q", said)
		}
	})
}

func TestIdleSleepsAndWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		e := w.acquire("one")
		w.pass(20 * time.Minute)
		w.wantState("one", Running) // a request is in progress
		e.Release()
		e.Release() // a second Release must have no effect
		w.pass(14 * time.Minute)
		w.wantState("one", Running)
		w.pass(2 * time.Minute)
		w.wantState("one", Sleeping)
		synctest.Wait()
		if w.engine.last().running() {
			t.Error("the program still runs")
		}
		w.pass(time.Hour) // by now the crash must be forgotten
		if n := len(w.apps.programs); n != 0 {
			t.Errorf("%d programs remembered, want 0", n)
		}
		w.acquire("one").Release()
		w.wantState("one", Running)
	})
}

func TestNeverSleepsIsRevived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.want.Sleep = 0
		w.acquire("one").Release()
		w.pass(2 * time.Hour)
		w.wantState("one", Running)
		for i := range 4 {
			w.engine.last().end(runtime.Exit{Code: 1, Reason: "exit code 1"})
			synctest.Wait()
			w.pass(2 * time.Minute)
			w.wantState("one", Running)
			if n := w.engine.starts(); n != i+2 {
				t.Fatalf("%d starts after %d crashes", n, i+1)
			}
		}
		p := w.apps.programs["one"]
		if p.now.active != 0 {
			t.Errorf("%d requests held after revivals, want 0", p.now.active)
		}
	})
}

func TestSwitchDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		e := w.acquire("one")
		w.look()
		release, err := w.apps.Start(t.Context(), "two", nil)
		if err != nil {
			t.Fatal(err)
		}
		old := w.engine.started[0]
		w.known["site"] = row{"site", "two", "live", "", 0, "", 0}
		release()
		w.pass(29 * time.Second)
		if !old.running() {
			t.Fatal("the old program ended while a request was in progress")
		}
		e.Release()
		w.pass(time.Second)
		synctest.Wait()
		if old.running() {
			t.Error("the old program is still running although it has no request")
		}
		w.wantState("two", Running)

		// A request that outlives the drain must be cut off.
		w.known["site"] = row{"site", "one", "live", "", 0, "", 0}
		held := w.acquire("two")
		w.pass(32 * time.Second)
		synctest.Wait()
		select {
		case <-held.Ended:
		default:
			t.Error("a program is still running after its drain")
		}
	})
}

// A request whose program has ended must get a new program, because the ended one would refuse the request again.
func TestEndedIsNotHandedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		e := w.acquire("one")
		w.engine.last().end(exitOne)
		<-e.Ended
		next := w.acquire("one")
		if n := w.engine.starts(); n != 2 {
			t.Errorf("%d starts, want 2: the program that ended was handed out again", n)
		}
		next.Release()
		e.Release()
	})
}

// A request that was on its way when another deployment went live must find the old program still running, because a
// new start may be refused where many programs of the site run.
func TestLateRequestAfterASwitch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.acquire("one").Release()
		w.look()
		release, err := w.apps.Start(t.Context(), "two", nil)
		if err != nil {
			t.Fatal(err)
		}
		w.known["site"] = row{"site", "two", "live", "", 0, "", 0}
		release()
		w.look()
		w.acquire("one").Release()
		if n := w.engine.starts(); n != 2 {
			t.Errorf("%d programs were started for two deployments", n)
		}
		w.pass(2 * lingerTime)
		synctest.Wait()
		if old := w.engine.started[0]; old.running() {
			t.Error("the old program is still running")
		}
	})
}

// When deployments replace each other faster than look runs, each old one must drain, and none may stay as a preview.
// The draining ones must not keep a late visitor of an earlier deployment from being answered.
func TestQuickSwitches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		for n := range 2 * perSite {
			one := id.Deployment(fmt.Sprint("d", n))
			w.known["site"] = row{"site", one, "live", "", 0, "", 0}
			w.acquire(one).Release()
			w.known["site"] = row{"site", "next", "live", "", 0, "", 0}
			w.look()
		}
		w.acquire("late").Release()
		w.pass(2 * lingerTime)
		synctest.Wait()
		for n, p := range w.engine.started[:2*perSite] {
			if p.running() {
				t.Errorf("deployment %d, which was live for a moment, runs on", n)
			}
		}
	})
}

// A program starts, and before it is up another deployment goes live, for longer than the drain time. The request that
// waited for the program must be answered before it ends.
func TestSwitchDuringASlowStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.engine.boot = 40 * time.Second
		w.want.Health = 2 * time.Minute
		w.apps.c.WakeTime = time.Minute
		got := make(chan *endpoint.Endpoint, 1)
		go func() { got <- w.acquire("one") }()
		w.pass(2 * time.Second)
		w.known["site"] = row{"site", "next", "live", "", 0, "", 0}
		w.pass(40 * time.Second)
		e := <-got
		w.pass(10 * time.Second)
		if !w.engine.last().running() {
			t.Error("the program was ended while the request that had waited for it was in progress")
		}
		e.Release()
		w.pass(2 * lingerTime)
		synctest.Wait()
		if w.engine.last().running() {
			t.Error("the program is still running")
		}
	})
}

// A rollback to a program that is still draining must keep it running, even if requests are in progress.
func TestComesBackWhileDraining(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		e := w.acquire("one")
		defer e.Release()
		w.look()
		w.known["site"] = row{"site", "two", "live", "", 0, "", 0}
		w.pass(10 * time.Second)
		w.known["site"] = row{"site", "one", "live", "", 0, "", 0}
		w.pass(5 * time.Minute)
		if !w.engine.last().running() {
			t.Error("the program that is live again was ended at the end of its drain")
		}
	})
}

func TestStoppedAndDeletedSitesEnd(t *testing.T) {
	for _, state := range []string{"stopped", "deleted"} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.want.Sleep = 0
			w.acquire("one") // never released
			w.acquire("two") // a preview
			w.look()
			w.known["site"] = row{"site", "one", state, "", 0, "", 0}
			w.pass(time.Minute)
			synctest.Wait()
			for _, p := range w.engine.started {
				if p.running() {
					t.Errorf("%s: %s runs on", state, p.spec.ID)
				}
			}
			w.wantState("one", Stopped)
			w.pass(time.Hour)
			if n := w.engine.starts(); n != 2 {
				t.Errorf("%s: %d starts, want 2: it was revived", state, n)
			}
			w.known["site"] = row{"site", "one", "live", "", 0, "", 0}
			w.acquire("one").Release()
			w.wantState("one", Running)
		})
	}
}

func TestRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		ctx := t.Context()
		if err := w.apps.Restart(ctx, "one"); err != nil || w.engine.starts() != 0 {
			t.Fatalf("Restart of what sleeps = %v, %d starts", err, w.engine.starts())
		}
		e := w.acquire("one")
		var wg sync.WaitGroup
		for range 3 { // one after the other
			wg.Go(func() {
				if err := w.apps.Restart(ctx, "one"); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if n := w.engine.starts(); n != 4 {
			t.Errorf("%d starts, want 4", n)
		}
		synctest.Wait()
		if !w.engine.started[0].running() {
			t.Error("the old one ended while it answered a request")
		}
		e.Release()
		time.Sleep(time.Second)
		synctest.Wait()
		for _, p := range w.engine.started[:3] {
			if p.running() {
				t.Error("an old program is still running")
			}
		}
		w.wantState("one", Running)

		// If the new program does not become healthy, nothing may change.
		w.engine.status = 503
		w.want.Health = time.Second
		if err := w.apps.Restart(ctx, "one"); code(err) != "application_unhealthy" {
			t.Errorf("Restart of a sick one = %v", err)
		}
		synctest.Wait()
		if !w.engine.started[3].running() || w.engine.last().running() {
			t.Error("the unhealthy program replaced the old one")
		}
		w.acquire("one").Release()
		if n := w.apps.up.Load(); n != 1 {
			t.Errorf("%d instances counted, want 1", n)
		}

		// If the program falls asleep during the restart, it must stay asleep: its next start is a new one anyway.
		w.engine.status, w.engine.boot = 0, 100*time.Millisecond
		starts := w.engine.starts()
		ended := make(chan error, 1)
		go func() { ended <- w.apps.Restart(ctx, "one") }()
		synctest.Wait()
		w.apps.Renew("site")
		if err := <-ended; err != nil {
			t.Errorf("Restart of one that falls asleep = %v", err)
		}
		synctest.Wait()
		w.wantState("one", Sleeping)
		if w.engine.starts() != starts+1 || w.engine.last().running() {
			t.Errorf("%d starts, want one more than %d; the last one runs: %v", w.engine.starts(), starts, w.engine.last().running())
		}
		w.engine.boot = 0
		w.acquire("one").Release()
		revived := len(w.engine.started) - 1

		// A restart must start a crashed program without its back-off.
		w.engine.status = 0
		for range 2 {
			w.engine.last().end(runtime.Exit{Reason: "exit code 1"})
			w.engine.started[revived].end(runtime.Exit{Reason: "exit code 1"})
			synctest.Wait()
			if err := w.apps.Restart(ctx, "one"); err != nil {
				t.Fatal(err)
			}
			w.wantState("one", Running)
		}
	})
}

func TestMostProgramsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.apps.c.Most = 3
		for i := range 3 {
			w.acquire(id.Deployment(fmt.Sprint(i))).Release()
		}
		if _, err := w.apps.Acquire(t.Context(), "more"); code(err) != "too_many_programs" {
			t.Errorf("Acquire of a fourth = %v", err)
		}
		w.pass(2 * time.Minute) // these previews get no requests
		for i := range 100 {    // sleeping programs do not count
			w.acquire(id.Deployment(fmt.Sprint("later", i))).Release()
			w.pass(2 * time.Minute)
		}
	})
}

// When the service stops, all programs must end, and none may start.
func TestCloseEndsAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.acquire("one")
		old := w.engine.last()
		if err := w.apps.Restart(t.Context(), "one"); err != nil { // the old program drains
			t.Fatal(err)
		}
		w.engine.boot = time.Second
		go w.apps.Acquire(context.Background(), "two") // this program is starting
		synctest.Wait()
		w.apps.close()
		w.apps.down = make(chan struct{}) // the cleanup closes it once more
		if old.running() {
			t.Error("the draining program is still running")
		}
		for _, p := range w.engine.started {
			if p.running() {
				t.Errorf("%s runs on", p.spec.ID)
			}
		}
		if _, err := w.apps.Acquire(t.Context(), "one"); code(err) != "draining" {
			t.Errorf("Acquire after the end = %v", err)
		}
		if err := w.apps.Restart(t.Context(), "one"); err != nil || w.engine.starts() != 3 {
			t.Errorf("Restart after the end = %v, %d starts", err, w.engine.starts())
		}
	})
}

// When the service stops and therefore ends the program of a deployment, the deployment must not count as failed: it is
// carried out after the next start.
func TestStartEndsWithTheService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for what, behave := range map[string]func(e *fakeEngine){
			"listens late":        func(e *fakeEngine) { e.boot = 30 * time.Second },
			"answers with errors": func(e *fakeEngine) { e.status = 500 },
		} {
			w := newWorld(t)
			behave(w.engine)
			ended := make(chan error, 1)
			go func() {
				_, err := w.apps.Start(t.Context(), "one", nil)
				ended <- err
			}()
			time.Sleep(10 * time.Second)
			w.apps.close()
			err := <-ended
			synctest.Wait()                   // no goroutine of the program reads down any more
			w.apps.down = make(chan struct{}) // the cleanup closes it once more
			if !errors.Is(err, job.ErrStopping) || code(err) != codeClosing {
				t.Errorf("one that %s: %v", what, err)
			}
			if said := w.said(); w.engine.last().running() || len(said) > 0 {
				t.Errorf("one that %s runs on, or the log says %q", what, said)
			}
		}
	})
}
