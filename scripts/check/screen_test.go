package main

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"slipway/scripts/internal/machine"
)

// Without a terminal, a step that prints nothing must still show a line every 20 seconds, and none after it has ended.
func TestProgressInLines(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		s := &screen{to: &out, every: 20 * time.Second}
		stop := s.follow(func(took time.Duration) string { return took.String() })
		time.Sleep(30 * time.Second)
		io.WriteString(s, "--- FAIL: TestA\n")
		time.Sleep(15 * time.Second)
		stop()
		time.Sleep(time.Hour)
		if want := "  … 20s\n--- FAIL: TestA\n  … 40s\n"; out.String() != want {
			t.Errorf("got %q, want %q", out.String(), want)
		}
	})
}

// On a terminal the progress must be at most one line, cut to the width, which output replaces.
func TestProgressInPlace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		s := &screen{to: &out, every: time.Second, columns: func() int { return 10 }}
		stop := s.follow(func(took time.Duration) string { return took.String() + strings.Repeat("ü", 20) })
		time.Sleep(2500 * time.Millisecond)
		io.WriteString(s, "ok  a\nok  b\n")
		io.WriteString(s, "ok  c\n")
		time.Sleep(time.Second)
		stop()
		if want := "  … 1süüü\r\x1b[K  … 2süüü\r\x1b[Kok  a\nok  b\nok  c\n  … 3süüü\r\x1b[K"; out.String() != want {
			t.Errorf("got %q, want %q", out.String(), want)
		}
	})
}

// At its start a run must say how long it will take and what it installs.
func TestAnnounce(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	announce(&out, 7, 9)
	missing := machine.Missing(slices.Concat(needed...)...)
	for _, want := range append(missing, "about 7 minutes", "9 the first time", "Debian packages") {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in %q", want, out.String())
		}
	}
}
