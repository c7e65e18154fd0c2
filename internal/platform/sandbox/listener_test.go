package sandbox

import (
	"bytes"
	"net"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// A command's listener is file descriptor 3, and accept blocks on it, as PHP-FPM's workers expect.
func TestListenerWaits(t *testing.T) {
	t.Parallel()
	b, work := newSandbox(t), newWork(t)
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	f, err := l.(*net.UnixListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, linked := range []func(*Link){nil, func(*Link) {}} {
		var out bytes.Buffer
		res, err := b.Run(t.Context(), Command{
			Argv:     []string{"/bin/cat", "/proc/self/fdinfo/3"},
			Work:     work,
			UID:      siteUID(),
			Limits:   small(),
			Stdout:   &out,
			Stderr:   &out,
			Listener: f,
			Linked:   linked,
		})
		if err != nil || !res.OK() {
			t.Fatalf("%v, %v: %s", res, err, out.String())
		}
		found := regexp.MustCompile(`flags:\s*0([0-7]+)`).FindSubmatch(out.Bytes())
		if found == nil {
			t.Fatalf("no listener at 3: %s", out.String())
		}
		flags, err := strconv.ParseInt(string(found[1]), 8, 64)
		if err != nil {
			t.Fatal(err)
		}
		if flags&unix.O_NONBLOCK != 0 {
			t.Errorf("accept doesn't wait: flags %#o", flags)
		}
	}
}
