package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"
)

// The table must list each step, the sum, and the most expensive packages first.
func TestTable(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	packages := packageCosts(readNotes([]byte("begin 1.0 SQLite /p/internal/a\nnot a line\nend 1 2\nbegin 2.0 PostgreSQL /p/e2e b\n"+
		"end 1.5 3.0 0 SQLite /p/internal/a\nend 12.0 6.0 1 PostgreSQL /p/e2e b\nbegin 3.0 SQLite /p/internal/c\nend 9.0 9.0 0 SQLite /p/x\n"), "/p"), "tests")
	table(&out, []cost{{"vet", 4 * time.Second, 6 * time.Second}, {"tests", 10 * time.Second, 15 * time.Second}}, packages, 10*time.Second, 0)
	var got []string
	for line := range strings.Lines(out.String()) {
		got = append(got, strings.Join(strings.Fields(line), " "))
	}
	want := []string{
		"took processor busy", "4.0 s 6.0 s 150 % vet", "10.0 s 15.0 s 150 % tests", "10.0 s 21.0 s 210 % all",
		"the costliest packages of 2, without building them:",
		"6.0 s 12.0 s 200 % e2e b on PostgreSQL (tests)", "3.0 s 1.5 s 50 % internal/a on SQLite (tests)",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%q, want\n%q", got, want)
	}
}

// A package is done when it has finished on each database on which it began. The progress must name what has run the
// longest and what has failed.
func TestProgress(t *testing.T) {
	t.Parallel()
	text := ""
	for _, tt := range []struct{ more, want string }{
		{"", "0 of 9 packages, compiling"},
		{"begin 100.0 SQLite /p/e2e/nodes\n", "0 of 9 packages, running: e2e/nodes 1m40s"},
		{
			"begin 110.0 SQLite /p/a\nbegin 110.5 PostgreSQL /p/a\nend 1.0 1.0 0 SQLite /p/a\n",
			"0 of 9 packages, running: e2e/nodes 1m40s, a 1m30s",
		},
		{"end 1.0 1.0 2 PostgreSQL /p/a\n", "1 of 9 packages, failed: a, running: e2e/nodes 1m40s"},
		{
			"begin 199.0 SQLite /p/b\nbegin 199.0 SQLite /p/c\nbegin 199.0 SQLite /p/d\n",
			"1 of 9 packages, failed: a, running: e2e/nodes 1m40s, b 1s, c 1s",
		},
	} {
		text += tt.more
		if got := progress(readNotes([]byte(text), "/p"), 9, time.Unix(200, 0)); got != tt.want {
			t.Errorf("after %q: %q, want %q", tt.more, got, tt.want)
		}
	}
}

// Waiting for a disk must count as idle. A malformed file must count as no idle time.
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

// The cost of a step must include its child processes.
func TestStepCosts(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	e := step{argv: []string{"sh", "-c", "sh -c 'i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done'"}}.run(&out)
	if e.err != nil || e.processor < 10*time.Millisecond || e.took < 10*time.Millisecond {
		t.Errorf("took %v, used %v: %v %s", e.took, e.processor, e.err, out.String())
	}
}
