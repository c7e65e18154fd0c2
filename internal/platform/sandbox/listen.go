package sandbox

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// Listen opens the socket that Network.Proxy names, in a directory that is ours, and
// returns its path. The path may be longer than the 107 bytes that fit into a socket's
// address (unix(7)): it is bound by way of the directory's descriptor.
func Listen(dir, name string) (net.Listener, string, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, "", fmt.Errorf("open egress socket: %w", err)
	}
	defer d.Close()
	l, err := net.Listen("unix", filepath.Join("/proc/self/fd", strconv.Itoa(int(d.Fd())), name))
	if err != nil {
		return nil, "", fmt.Errorf("open egress socket: %w", err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false) // the descriptor in its path is somebody else's by then
	path := filepath.Join(dir, name)
	if err := os.Chmod(path, 0o666); err != nil {
		_ = l.Close()
		return nil, "", fmt.Errorf("open egress socket: %w", err)
	}
	return l, path, nil
}

// dup returns another descriptor of f, which a launch closes.
func dup(f *os.File) (*os.File, error) {
	c, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	fd := -1
	if e := c.Control(func(from uintptr) { fd, err = unix.FcntlInt(from, unix.F_DUPFD_CLOEXEC, 3) }); e != nil {
		err = e
	}
	if err != nil {
		return nil, fmt.Errorf("copy descriptor: %w", err)
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}
