package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"
)

// The table has each step, the sum, and the packages that cost the most first.
func TestTable(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	packages := readCosts([]byte("1.5 3.0 SQLite /p/internal/a\nnot a line\n12.0 6.0 PostgreSQL /p/e2e b\n"), "/p")
	table(&out, []cost{{"vet", 4 * time.Second, 6 * time.Second}, {"tests", 10 * time.Second, 15 * time.Second}}, packages, 10*time.Second, 0)
	var got []string
	for line := range strings.Lines(out.String()) {
		got = append(got, strings.Join(strings.Fields(line), " "))
	}
	want := []string{
		"took processor busy", "4.0 s 6.0 s 150 % vet", "10.0 s 15.0 s 150 % tests", "10.0 s 21.0 s 210 % all",
		"the costliest packages of 2, without building them:",
		"6.0 s 12.0 s 200 % e2e b on PostgreSQL", "3.0 s 1.5 s 50 % internal/a on SQLite",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%q, want\n%q", got, want)
	}
}

// Waiting for a disk counts as idle; what isn't such a file doesn't.
func TestIdle(t *testing.T) {
	t.Parallel()
	if got := parseIdle("cpu  10 20 30 400 50 6 7 8 9 0\ncpu0 1 2 3 4 5\n"); got != 4500*time.Millisecond {
		t.Errorf("got %v", got)
	}
	for _, text := range []string{"", "cpu 1 2 3 4", "intr 1 2 3 4 5 6", "cpu 1 2 3 x 5 6"} {
		if got := parseIdle(text); got != 0 {
			t.Errorf("%q: got %v", text, got)
		}
	}
	if before := idleTime(); before <= 0 {
		t.Errorf("this machine was idle for %v", before)
	}
}

// A step's cost counts what its children used.
func TestStepCosts(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	e := step{argv: []string{"sh", "-c", "sh -c 'i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done'"}}.run(&out)
	if e.err != nil || e.processor < 10*time.Millisecond || e.took < 10*time.Millisecond {
		t.Errorf("took %v, used %v: %v %s", e.took, e.processor, e.err, out.String())
	}
}
