package pod

import (
	"errors"
	"io"
	"net"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Half is a connection with separately closable directions.
type Half interface {
	net.Conn
	CloseWrite() error
}

// Join copies bytes between two connections until both have ended. A reset of one resets the other.
func Join(a, b Half) {
	one := func(from, to Half) {
		if _, err := io.Copy(to, from); err != nil { // reset the other side too
			if errors.Is(err, syscall.ECONNRESET) {
				reset(from)
				reset(to)
			}
			from.Close()
			to.Close()
			return
		}
		_ = to.CloseWrite()
	}
	var both sync.WaitGroup
	both.Go(func() { one(a, b) })
	both.Go(func() { one(b, a) })
	both.Wait()
}

// reset makes closing a connection reset it, unless sent bytes are unacknowledged. The edge repeats a request if the
// program reset the connection without reading it.
func reset(c Half) {
	if t, ok := c.(*net.TCPConn); ok && unsent(t) == 0 {
		_ = t.SetLinger(0)
	}
}

// unsent returns the number of sent but unacknowledged bytes, or -1 if unknown.
func unsent(c *net.TCPConn) int {
	n := -1
	raw, err := c.SyscallConn()
	if err != nil {
		return n
	}
	if e := raw.Control(func(fd uintptr) { n, err = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) }); errors.Join(e, err) != nil {
		return -1
	}
	return n
}
