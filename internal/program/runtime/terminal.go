package runtime

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"slipway/internal/platform/fault"
)

// tty is a pseudo-terminal of a program. A nil one is none.
type tty struct {
	ours   *os.File
	inside *os.File // what the program gets
	user   *Terminal

	begun bool
	over  chan struct{} // closed when the program has ended
	read  chan struct{} // closed when all that it wrote was passed on
	once  sync.Once     // closes over
}

// openTTY opens a pseudo-terminal for a program of the host's user uid.
func openTTY(t *Terminal, uid int) (_ *tty, err error) {
	refuse := func(err error) (*tty, error) {
		return nil, fmt.Errorf("open terminal: %w: %w", &fault.Error{
			Kind:       fault.Unavailable,
			Message:    "This server has no terminal left",
			Code:       "no_terminal",
			RetryAfter: 10 * time.Second,
		}, err)
	}
	x := &tty{user: t, over: make(chan struct{}), read: make(chan struct{})}
	if x.ours, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		return refuse(err)
	}
	// The other end is opened by the descriptor: a path may lead to another file system's.
	err = x.control(func(fd int) error {
		if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
			return err
		}
		peer, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
		if errno != 0 {
			return errno
		}
		x.inside = os.NewFile(peer, "terminal")
		return nil
	})
	if err != nil {
		x.close()
		return refuse(err)
	}
	if os.Geteuid() == 0 { // /dev/stdout is opened again by some
		if err := x.inside.Chown(uid, -1); err != nil {
			x.close()
			return nil, fmt.Errorf("give terminal to program: %w", err)
		}
	}
	if err := x.resize(t.Size); err != nil {
		x.close()
		return nil, fmt.Errorf("set size of terminal: %w", err)
	}
	return x, nil
}

// control calls f with our end's descriptor, which os.File.Fd would make block.
func (x *tty) control(f func(fd int) error) error {
	raw, err := x.ours.SyscallConn()
	if err != nil {
		return err
	}
	if e := raw.Control(func(fd uintptr) { err = f(int(fd)) }); e != nil {
		return e
	}
	return err
}

// maxSide bounds a terminal's columns and rows.
const maxSide = 1000

func (x *tty) resize(s Size) error {
	if s.Columns <= 0 || s.Rows <= 0 {
		s = Size{80, 24}
	}
	size := &unix.Winsize{Col: uint16(min(s.Columns, maxSide)), Row: uint16(min(s.Rows, maxSide))}
	return x.control(func(fd int) error { return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, size) })
}

// started begins to carry what is typed and what is written, just before the program runs. It
// has its end by now: ours of that must go, or nobody would notice when the program's does.
func (x *tty) started() {
	if x == nil {
		return
	}
	_ = x.inside.Close()
	x.begun = true
	// uncaught: copies bytes
	go func() {
		defer close(x.read)
		defer x.hangUp()
		_, _ = io.Copy(x.user.Output, struct{ io.Reader }{x.ours}) // until the program's end, or ours
	}()
	// uncaught: copies bytes
	go func() {
		_, _ = io.Copy(struct{ io.Writer }{x.ours}, x.user.Input)
		x.hangUp()
	}()
	if x.user.Sizes == nil {
		return
	}
	// uncaught: copies bytes
	go func() {
		for {
			select {
			case s, ok := <-x.user.Sizes:
				if !ok {
					return
				}
				_ = x.resize(s)
			case <-x.over:
				return
			}
		}
	}()
}

// hangUp tells the program that nobody is there any more.
func (x *tty) hangUp() {
	if x != nil {
		_ = x.ours.Close()
	}
}

// lastWords is how long what a program wrote before its end may take to be passed on.
const lastWords = 5 * time.Second

// finish passes on what the program wrote before its end.
func (x *tty) finish() {
	if x == nil {
		return
	}
	x.once.Do(func() { close(x.over) })
	if !x.begun {
		return
	}
	late := time.NewTimer(lastWords)
	defer late.Stop()
	select {
	case <-x.read:
	case <-late.C:
	}
	x.hangUp()
}

func (x *tty) close() {
	if x == nil {
		return
	}
	x.once.Do(func() { close(x.over) })
	_ = x.ours.Close()
	if x.inside != nil {
		_ = x.inside.Close()
	}
}
