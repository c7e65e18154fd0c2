package pod

import (
	"errors"
	"io"
	"net"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Half is a connection of which one direction can be ended.
type Half interface {
	net.Conn
	CloseWrite() error
}

// Join passes bytes on between two connections until both sides have ended. One learns of the other's reset as such.
func Join(a, b Half) {
	one := func(from, to Half) {
		if _, err := io.Copy(to, from); err != nil { // one side is gone: the other learns it
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

// reset has a connection reset when it is closed, unless something that was sent on it has not come yet: the edge sends a request again
// that a program reset without having read it.
func reset(c Half) {
	if t, ok := c.(*net.TCPConn); ok && unsent(t) == 0 {
		_ = t.SetLinger(0)
	}
}

// unsent returns how many bytes that were written have not been acknowledged; -1 where nobody knows.
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
