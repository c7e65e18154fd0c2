package network

import (
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

// The host rejects file descriptors from a sandbox that aren't connections to its loopback.
func TestLinkTakesOnlyConnections(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("unix", "")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	file, err := unix.MemfdCreate("x", 0)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	tcp, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	for name, fd := range map[string]int{"file": file, "unix": pair[0], "unconnected": tcp} {
		if c, err := adopt(fd); err == nil {
			_ = c.Close()
			t.Errorf("%s was taken for a connection", name)
		}
	}
	_ = unix.Close(pair[1])
}
