package sandbox

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// Listen opens the socket for [Network.Proxy] in a directory of ours and returns its path. The path may exceed the 107
// bytes of a socket address (unix(7)), since it is bound through the directory's descriptor.
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
	l.(*net.UnixListener).SetUnlinkOnClose(false) // the path contains a descriptor number that is reused by then
	path := filepath.Join(dir, name)
	if err := os.Chmod(path, 0o666); err != nil {
		_ = l.Close()
		return nil, "", fmt.Errorf("open egress socket: %w", err)
	}
	return l, path, nil
}

// dup duplicates f for a launch, which closes the duplicate.
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
