package volume

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"slipway/internal/platform/fault"
	"slipway/internal/platform/node"
	"slipway/internal/platform/wait"
)

// A shared directory that is not mounted, is another one, or hangs must not be used until it is back. A node's own
// directory must always be usable.
func TestVolume(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	mark := filepath.Join(dir, node.MarkFile)
	put := func(text string) {
		t.Helper()
		if err := os.WriteFile(mark, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	own := New(Config{Dir: dir})
	if own.Shared() || own.Verify() != nil || own.Check() != nil {
		t.Error("a node's own directory was refused")
	}
	v := New(Config{Dir: dir, Mark: "one", Every: time.Millisecond, Patience: 50 * time.Millisecond})
	says := func(want string) bool {
		err := v.Check()
		f := fault.As(err)
		return want == "" && err == nil || want != "" && f != nil && f.Code == Unavailable && strings.Contains(f.Details, want)
	}
	put("one")
	if err := v.Verify(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(mark); err != nil {
		t.Fatal(err)
	}
	if err := v.Verify(); err == nil || !says("is it mounted") {
		t.Errorf("an empty directory: %v", err)
	}
	go func() { _ = v.Run(t.Context()) }()
	put("two")
	wait.Until(t, "another one's is refused", func() bool { return says("another installation") })
	put("one")
	wait.Until(t, "it is back", func() bool { return says("") })
	// To open a pipe is to wait for a writer, so it stands for a file server that hangs.
	if err := os.Remove(mark); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(mark, 0o600); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "it hangs", func() bool { return says("has not answered") })
	w, err := os.OpenFile(mark, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(mark); err != nil {
		t.Fatal(err)
	}
	put("one")
	if _, err := w.WriteString("one\n"); err != nil {
		t.Fatal(err)
	}
	w.Close()
	wait.Until(t, "it answers again", func() bool { return says("") })
}
