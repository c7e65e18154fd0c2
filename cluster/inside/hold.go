package inside

import (
	"io"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// holds counts the reasons for which the program is stopped.
type holds struct {
	mu sync.Mutex // guards n
	n  int
}

func (h *holds) add(n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch before := h.n; {
	case before == 0 && n > 0:
		_ = unix.Kill(-1, unix.SIGSTOP) // all processes but this one; none can be in the middle of a fork
	case before+n == 0:
		_ = unix.Kill(-1, unix.SIGCONT)
	}
	h.n += n
}

// hold stops the program until the connection ends, but for at most limit.
func (e *entry) hold(c *net.TCPConn, limit time.Duration, reply func() bool) {
	<-e.started
	e.holds.add(1)
	defer e.holds.add(-1)
	if reply() {
		_ = c.SetReadDeadline(time.Now().Add(limit))
		_, _ = io.Copy(io.Discard, c)
	}
}
