package main

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// Only packages that need a database must run on both, and only the run on PostgreSQL may know of it.
func TestEnvironments(t *testing.T) {
	t.Parallel()
	on := []string{"A=b", "SLIPWAY_TEST_DSN=postgres://x", "SLIPWAY_TEST_BOTH=/p/internal/platform/db:/p/internal/tenant/site"}
	for dir, runs := range map[string]int{
		"/p/internal/platform/db": 2,
		"/p/internal/tenant/site": 2,
		"/p/internal":             1,
		"/p/internal/dbx":         1,
	} {
		got := environments(on, dir)
		if len(got) != runs || slices.ContainsFunc(got[0], func(e string) bool {
			return strings.HasPrefix(e, "SLIPWAY_TEST_DSN")
		}) || !slices.Contains(got[0], "A=b") {
			t.Errorf("%s: %q", dir, got)
		}
		if again := environments(append(slices.Clone(on), "GOGC=400", "GOMEMLIMIT=3GiB"), dir); !reflect.DeepEqual(again, got) {
			t.Errorf("%s: with what builds get: %q", dir, again)
		}
		if runs == 2 && !slices.Equal(got[1], on) {
			t.Errorf("%s on PostgreSQL: %q", dir, got[1])
		}
	}
	if got := environments(on[2:], "/p/internal/platform/db"); len(got) != 1 {
		t.Errorf("without PostgreSQL: %q", got)
	}
}

func TestRunReturnsTheStatus(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]int{"exit 0": 0, "exit 7": 7, "kill -9 $$": 1} {
		if got := run([]string{"/bin/sh", "-c", script}, nil, os.Stderr); got != want {
			t.Errorf("%s: %d, want %d", script, got, want)
		}
	}
}

// Two simultaneous runs must not write to the same file.
func TestWritesFile(t *testing.T) {
	t.Parallel()
	for arg, want := range map[string]bool{
		"-test.coverprofile=/x": true,
		"-test.cpuprofile=x":    true,
		"-test.trace=x":         true,
		"-test.run=Profile":     false,
		"-test.v=true":          false,
		"profile":               false,
	} {
		if got := writesFile(arg); got != want {
			t.Errorf("%s: %v", arg, got)
		}
	}
}
