package app

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"slipway/internal/platform/fault"
)

// A request that wakes a program learns why it ended, of what it printed.
func TestWakeNamesTheCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.engine.boot, w.engine.dieIn = time.Hour, time.Second
		go func() { // as soon as it runs
			for w.engine.starts() == 0 {
				time.Sleep(time.Millisecond)
			}
			for i := range 100 {
				w.engine.last().spec.Output("stderr", fmt.Sprint("line ", i))
			}
			w.engine.last().spec.Output("stderr", "Error: Cannot find module 'dotenv'")
		}()
		_, err := w.apps.Acquire(t.Context(), "one")
		f := fault.As(err)
		if f == nil || !strings.HasPrefix(f.Details, "The application exited: exit code 1: Package dotenv is not in the release") {
			t.Errorf("the request fails with %v", err)
		}
	})
}

// What a program prints before it is healthy is kept within bounds, and no longer than until then.
func TestRecentIsBounded(t *testing.T) {
	t.Parallel()
	r := new(recent)
	for range 1000 {
		r.add(strings.Repeat("x", 1<<20))
	}
	if len(r.lines) != lastLines || len(r.lines[0]) > maxRecent+10 {
		t.Errorf("%d lines of %d bytes", len(r.lines), len(r.lines[0]))
	}
	r.end()
	if r.add("more"); len(r.lines) != 0 {
		t.Error("it is kept after the program was healthy")
	}
}
