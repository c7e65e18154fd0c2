package main

import (
	"bytes"
	"errors"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// A package counts when its tests import the very package, not one whose name begins so.
func TestImporting(t *testing.T) {
	t.Parallel()
	list := `slipway/internal/blob [] [testing slipway/internal/blob/blobtest]
slipway/internal/site [testing slipway/internal/dbtest] []
slipway/internal/job [] [slipway/internal/dbtest testing]
slipway/internal/other [slipway/internal/dbtests] [x/slipway/internal/dbtest]
slipway/internal/dbtest [] []
`
	if got, want := importing(list, "slipway/internal/dbtest"), []string{"slipway/internal/site", "slipway/internal/job"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// Lines come whole, however they are written, and packages without tests say nothing.
func TestIndented(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	w := &indented{to: &out}
	for _, part := range strings.SplitAfter("ok a\n?   b [no test files]\nok c\nnot ended", "") {
		if n, err := w.Write([]byte(part)); n != 1 || err != nil {
			t.Fatal(n, err)
		}
	}
	if out.String() != "  ok a\n  ok c\n" {
		t.Errorf("got %q", out.String())
	}
}

func TestExitCode(t *testing.T) {
	t.Parallel()
	if got := exitCode(exec.Command("git", "no-such-command").Run()); got != 1 {
		t.Errorf("git without a command: %d", got)
	}
	if got := exitCode(errors.New("not found")); got != -1 {
		t.Errorf("no exit: %d", got)
	}
	if got := short(append([]string{"go"}, strings.Repeat("x", 200))); len([]rune(got)) != 88 || !strings.HasSuffix(got, "…") {
		t.Errorf("short: %q", got)
	}
}
