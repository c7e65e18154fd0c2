package systemd

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestMain also acts as TestSockets's child, which prints the sockets that it was passed.
func TestMain(m *testing.M) {
	if os.Getenv("SYSTEMD_TEST_CHILD") == "" {
		os.Exit(m.Run())
	}
	// Unlike systemd, the parent doesn't know the child's pid before it starts.
	if os.Getenv("LISTEN_PID") == "self" {
		os.Setenv("LISTEN_PID", strconv.Itoa(os.Getpid()))
	}
	sockets, err := Sockets()
	if err != nil {
		os.Stdout.WriteString("error: " + err.Error())
		os.Exit(0)
	}
	var at []string
	for _, f := range sockets {
		l, err := net.FileListener(f)
		if err != nil {
			os.Stdout.WriteString(err.Error())
			os.Exit(0)
		}
		at = append(at, l.Addr().String())
	}
	left, again := os.Getenv("LISTEN_FDS"), 0
	if more, _ := Sockets(); more != nil {
		again = len(more)
	}
	os.Stdout.WriteString(strings.Join(at, ",") + ";" + left + ";" + strconv.Itoa(again))
	os.Exit(0)
}

func TestSockets(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	f, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, c := range []struct {
		name, pid, fds string
		files          int
		want           string
	}{
		{"one", "self", "1", 1, l.Addr().String() + ";;0"},
		{"two", "self", "2", 2, l.Addr().String() + "," + l.Addr().String() + ";;0"},
		{"somebody else's", "1", "1", 1, ";;0"},
		{"none", "", "", 0, ";;0"},
		{"endless", "self", "1000000000", 1, `error: LISTEN_FDS is "1000000000"; a number up to 64 is expected`},
		{"negative", "self", "-1", 1, `error: LISTEN_FDS is "-1"; a number up to 64 is expected`},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd := exec.Command(os.Args[0])
			cmd.Env = []string{"SYSTEMD_TEST_CHILD=1", "LISTEN_PID=" + c.pid, "LISTEN_FDS=" + c.fds}
			for range c.files {
				cmd.ExtraFiles = append(cmd.ExtraFiles, f)
			}
			out, err := cmd.Output()
			if err != nil {
				t.Fatal(err)
			}
			if string(out) != c.want {
				t.Errorf("got  %s\nwant %s", out, c.want)
			}
		})
	}
}

func TestNotifier(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", "60000000")
	t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))
	n := NewNotifier()
	if n.Watchdog() != time.Minute {
		t.Errorf("watchdog %v", n.Watchdog())
	}
	if os.Getenv("NOTIFY_SOCKET") != "" || os.Getenv("WATCHDOG_USEC") != "" {
		t.Error("a child would inherit the variables")
	}
	for _, x := range []struct {
		send func() error
		want string
	}{
		{func() error { return n.Working("Moving\nREADY=1", time.Minute) }, "STATUS=Moving READY=1\nEXTEND_TIMEOUT_USEC=60000000"},
		{n.Ready, "READY=1\nSTATUS=Serving."},
		{n.Alive, "WATCHDOG=1"},
		{n.Stopping, "STOPPING=1\nSTATUS=Draining."},
	} {
		if err := x.send(); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 512)
		k, err := c.Read(b)
		if err != nil || string(b[:k]) != x.want {
			t.Errorf("%q, %v; want %q", b[:k], err, x.want)
		}
	}
	if err := (Notifier{}).Ready(); err != nil {
		t.Errorf("without systemd: %v", err)
	}
	t.Setenv("WATCHDOG_USEC", "1000")
	t.Setenv("WATCHDOG_PID", "1")
	if w := NewNotifier().Watchdog(); w != 0 {
		t.Errorf("somebody else's watchdog is taken: %v", w)
	}
}
