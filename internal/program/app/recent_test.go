package app

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"slipway/internal/platform/fault"
)

// If a program ends while a request wakes it, the request's error must name the cause, taken from the program's output.
func TestWakeNamesTheCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.engine.boot, w.engine.dieIn = time.Hour, time.Second
		go func() { // runs as soon as the program has started
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

// Output from before a program is healthy must be kept within bounds, and must be dropped afterwards.
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
		t.Error("recent keeps a line although the program is healthy")
	}
}
