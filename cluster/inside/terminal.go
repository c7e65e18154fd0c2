package inside

import (
	"bufio"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"slipway/cluster/pod"
)

// screen is a program's pseudo-terminal, used by one connection.
type screen struct {
	ours, inside *os.File
	taken        chan struct{} // closed once a connection has taken it
	begun        chan struct{} // closed once the program has started
	shown        chan struct{} // closed once all output has been forwarded
	used         atomic.Bool
	once         sync.Once
}

// lastWords limits the time for forwarding the program's last output.
const lastWords = 5 * time.Second

func newScreen(size pod.Size) (*screen, error) {
	// Non-blocking, so that closing it ends a read.
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	s := &screen{ours: os.NewFile(uintptr(fd), "ptmx"), taken: make(chan struct{}), begun: make(chan struct{}), shown: make(chan struct{})}
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		return nil, err
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		return nil, err
	}
	if s.inside, err = os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		return nil, err
	}
	return s, s.resize(size)
}

func (s *screen) resize(size pod.Size) error {
	raw, err := s.ours.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	side := func(n int) uint16 { return uint16(min(max(n, 1), 1000)) }
	err = raw.Control(func(fd uintptr) {
		failed = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Col: side(size.Columns), Row: side(size.Rows)})
	})
	if err == nil {
		err = failed
	}
	return err
}

// take takes the terminal, and returns false if it is already taken.
func (s *screen) take() bool { return s.used.CompareAndSwap(false, true) }

// begin closes this process's copy of the program's end after the start. Otherwise nobody would notice when the program
// closes its own.
func (s *screen) begin() {
	_ = s.inside.Close()
	close(s.begun)
}

// carry forwards data between the terminal and the connection that took it.
func (s *screen) carry(c *net.TCPConn) {
	close(s.taken)
	<-s.begun
	go func() {
		defer s.hangUp() // the user is gone
		for r := bufio.NewReader(c); ; {
			typed, size, err := pod.ReadFrame(r)
			if err != nil {
				return
			}
			if size != nil {
				err = s.resize(*size)
			} else {
				_, err = s.ours.Write(typed)
			}
			if err != nil {
				return
			}
		}
	}()
	_, _ = io.Copy(struct{ io.Writer }{c}, struct{ io.Reader }{s.ours}) // until the program closes its end, or this one is closed
	_ = c.CloseWrite()
	close(s.shown)
}

func (s *screen) hangUp() { s.once.Do(func() { _ = s.ours.Close() }) }

// finish waits until the program's last output has been forwarded.
func (s *screen) finish() {
	select {
	case <-s.shown:
	case <-time.After(lastWords):
	}
	s.hangUp()
}
