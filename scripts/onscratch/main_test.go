package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// asProgram names the variable that makes this test program run as the command.
const asProgram = "SLIPWAY_TEST_ONSCRATCH"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	os.Exit(m.Run())
}

// The command's temporary files must be on a separate file system, which no other process sees and of which nothing
// remains. Where that is impossible, the command must run as usual. Its arguments, output and exit status must be
// unchanged either way.
func TestRunsACommand(t *testing.T) {
	t.Parallel()
	outside := t.TempDir()
	cmd := exec.Command(os.Args[0], "sh", "-c",
		`echo kept > "$TMPDIR/file" && echo "$TMPDIR" && cat "$TMPDIR/file" && stat -c %d "$TMPDIR" `+"\"$1\" && exit 7", "sh", outside)
	cmd.Env = append(os.Environ(), asProgram+"=1", "TMPDIR="+outside)
	var said strings.Builder
	cmd.Stderr = &said
	out, _ := cmd.Output()
	if got := cmd.ProcessState.ExitCode(); got != 7 {
		t.Fatalf("exit status %d: %s%s", got, out, said.String())
	}
	lines := strings.Fields(string(out))
	if len(lines) != 4 || lines[1] != "kept" {
		t.Fatalf("got %q", out)
	}
	left, err := filepath.Glob(filepath.Join(outside, "*"))
	if err != nil {
		t.Fatal(err)
	}
	if reason, fell := strings.CutPrefix(said.String(), "temporary files are where they always are"); fell {
		t.Logf("no image: %s", reason)
		if lines[0] != outside || lines[2] != lines[3] || len(left) != 1 {
			t.Errorf("without an image: %q, left %q", lines, left)
		}
		return
	}
	if lines[0] == outside || lines[2] == lines[3] {
		t.Errorf("temporary files are on the same file system: %q", lines)
	}
	if _, err := os.Stat(filepath.Join(lines[0], "file")); err == nil || len(left) > 0 {
		t.Errorf("the file or the image is visible outside: %v, %q", err, left)
	}
}

// If a command cannot be run, an error must say so.
func TestNoCommand(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{nil, {"no-such-command-anywhere"}} {
		cmd := exec.Command(os.Args[0], args...)
		cmd.Env = append(os.Environ(), asProgram+"=1")
		if out, err := cmd.CombinedOutput(); cmd.ProcessState.ExitCode() != 2 || len(out) == 0 {
			t.Errorf("%q: %v %s", args, err, out)
		}
	}
}
