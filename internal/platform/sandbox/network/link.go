package network

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"slipway/internal/platform/panics"
)

// Link connects the host with a running sandbox: it dials ports that the command listens on, and sends the command
// signals.
//
// The sandbox has its own loopback. If we may, we create sockets there (handout.go). Otherwise the shim stays inside,
// connects and sends us the connected socket (unix(7), SCM_RIGHTS), so that data flows directly. We accept only TCP
// connections to a loopback address. A Link is safe for concurrent use and fails once the command has ended.
type Link struct {
	conn *net.UnixConn

	// ready is closed once reach is set, if the shim hands out its network (handout.go); else it is nil.
	ready chan struct{}
	reach *reach
	over  chan struct{} // closed at the end

	mu   sync.Mutex // guards the fields below
	next uint32
	// share: none, one sandbox's: 256 dials
	waiting map[uint32]chan dialed
	ended   error
}

type dialed struct {
	conn net.Conn
	err  error
}

// Requests of the host: an operation, its number, and a port or signal.
const (
	linkDial   = 1
	linkSignal = 2
	linkSize   = 7 // op, uint32, uint16
)

// Responses: an operation's number and its result; with result zero, a socket follows.
const (
	answerSize  = 5
	answerOK    = 0
	answerNoOne = 1 // no process listens on that port
	answerOther = 2
)

// ErrNobodyListens is returned by Dial until the command listens.
var ErrNobodyListens = errors.New("nothing listens on the port")

// NewLink returns a link and the descriptor for the inside. h says what the shim hands out; nil means that the shim
// stays.
func NewLink(h *Handover) (*Link, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make link: %w", err)
	}
	inside := os.NewFile(uintptr(fds[1]), "link")
	if h != nil {
		if err := unix.SetsockoptInt(fds[0], unix.SOL_SOCKET, unix.SO_PASSCRED, 1); err != nil {
			_, _ = unix.Close(fds[0]), inside.Close()
			return nil, nil, fmt.Errorf("make link: %w", err)
		}
	}
	ours := os.NewFile(uintptr(fds[0]), "link")
	c, err := net.FileConn(ours)
	_ = ours.Close()
	if err != nil {
		_ = inside.Close()
		return nil, nil, fmt.Errorf("make link: %w", err)
	}
	l := &Link{conn: c.(*net.UnixConn), waiting: map[uint32]chan dialed{}, over: make(chan struct{})}
	if h == nil {
		go func() {
			if err := panics.Call(func() error { l.read(); return nil }); err != nil {
				l.End(err)
			}
		}()
		return l, inside, nil
	}
	l.ready = make(chan struct{})
	go func() {
		if err := panics.Call(func() error { return l.take(h) }); err != nil {
			l.End(err)
		}
	}()
	return l, inside, nil
}

// Dial connects to a port that the command listens on, at 127.0.0.1 or ::1.
func (l *Link) Dial(ctx context.Context, port int) (net.Conn, error) {
	if l.ready != nil {
		return l.dialInside(ctx, port)
	}
	got := make(chan dialed, 1)
	l.mu.Lock()
	if l.ended != nil {
		l.mu.Unlock()
		return nil, l.ended
	}
	l.next++
	id := l.next
	l.waiting[id] = got
	l.mu.Unlock()
	if err := l.ask(linkDial, id, uint16(port)); err != nil {
		l.forget(id)
		return nil, err
	}
	select {
	case d := <-got:
		return d.conn, d.err
	case <-ctx.Done():
		if d := l.forget(id); d.conn != nil {
			_ = d.conn.Close()
		}
		return nil, ctx.Err()
	}
}

// Signal sends a signal to the command.
func (l *Link) Signal(s unix.Signal) error {
	if l.ready == nil {
		return l.ask(linkSignal, 0, uint16(s))
	}
	late := time.NewTimer(5 * time.Second)
	defer late.Stop()
	select {
	case <-l.ready:
	case <-l.over:
		return l.Ended()
	case <-late.C:
		return errors.New("reach into sandbox: it has not started")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended != nil {
		return l.ended
	}
	return l.reach.signal(s)
}

// dialTime is how long a command may take to accept a connection.
const dialTime = 2 * time.Second

func (l *Link) dialInside(ctx context.Context, port int) (net.Conn, error) {
	select {
	case <-l.ready:
	case <-l.over:
		return nil, l.Ended()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	by := time.Now().Add(dialTime)
	if at, ok := ctx.Deadline(); ok && at.Before(by) {
		by = at
	}
	c, err := l.reach.dial(by, port)
	if err != nil {
		if why := l.Ended(); why != nil {
			return nil, why
		}
	}
	return c, err
}

// Ended returns why the link has ended; nil while it has not.
func (l *Link) Ended() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended
}

func (l *Link) ask(op byte, id uint32, arg uint16) error {
	var m [linkSize]byte
	m[0] = op
	binary.LittleEndian.PutUint32(m[1:], id)
	binary.LittleEndian.PutUint16(m[5:], arg)
	_ = l.conn.SetWriteDeadline(time.Now().Add(5 * time.Second))
	if _, err := l.conn.Write(m[:]); err != nil {
		return fmt.Errorf("reach into sandbox: %w", err)
	}
	return nil
}

// forget removes a request. If its response arrived at the same moment, forget returns it.
func (l *Link) forget(id uint32) dialed {
	l.mu.Lock()
	got := l.waiting[id]
	delete(l.waiting, id)
	l.mu.Unlock()
	select {
	case d := <-got:
		return d
	default:
		return dialed{}
	}
}

// read distributes responses until the link ends.
func (l *Link) read() {
	var m [answerSize + 1]byte
	oob := make([]byte, unix.CmsgSpace(4*4)) // room for several descriptors, to detect and close extra ones
	for {
		n, on, _, _, err := l.conn.ReadMsgUnix(m[:], oob)
		if err != nil || n == 0 {
			l.End(errors.New("the program has ended"))
			return
		}
		fds := received(oob[:on])
		if n != answerSize {
			closeAll(fds)
			continue
		}
		d := dialed{err: errors.New("the sandbox could not connect")}
		switch {
		case m[4] == answerNoOne:
			d.err = ErrNobodyListens
		case m[4] == answerOK && len(fds) == 1:
			d.conn, d.err = adopt(fds[0])
			fds = nil
		}
		closeAll(fds)
		id := binary.LittleEndian.Uint32(m[:])
		l.mu.Lock()
		got := l.waiting[id]
		delete(l.waiting, id)
		if got != nil {
			got <- d // buffered, and at most one is sent
		}
		l.mu.Unlock()
		if got == nil && d.conn != nil {
			_ = d.conn.Close()
		}
	}
}

// End closes the link; waiting requests fail with why.
func (l *Link) End(why error) {
	_ = l.conn.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended != nil {
		return
	}
	l.ended = why
	close(l.over)
	if l.reach != nil {
		l.reach.close()
	}
	for id, got := range l.waiting {
		delete(l.waiting, id)
		got <- dialed{err: why}
	}
}

func received(oob []byte) (fds []int) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	for _, m := range messages {
		if rights, err := unix.ParseUnixRights(&m); err == nil {
			fds = append(fds, rights...)
		}
	}
	return fds
}

func closeAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}

// adopt wraps a socket from a sandbox. It accepts only a TCP connection to a loopback address, since a tenant may send
// any descriptor.
func adopt(fd int) (net.Conn, error) {
	f := os.NewFile(uintptr(fd), "program")
	defer f.Close() // net.FileConn duplicates it
	refuse := func(why string) (net.Conn, error) {
		return nil, fmt.Errorf("the sandbox sent %s instead of a connection", why)
	}
	unix.CloseOnExec(fd)
	if kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE); err != nil || kind != unix.SOCK_STREAM {
		return refuse("something else")
	}
	if proto, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PROTOCOL); err != nil || proto != unix.IPPROTO_TCP {
		return refuse("another socket")
	}
	peer, err := unix.Getpeername(fd)
	if err != nil {
		return refuse("an unconnected socket")
	}
	switch p := peer.(type) {
	case *unix.SockaddrInet4:
		if p.Addr[0] != 127 {
			return refuse("a connection to elsewhere")
		}
	case *unix.SockaddrInet6:
		if !net.IP(p.Addr[:]).IsLoopback() {
			return refuse("a connection to elsewhere")
		}
	default:
		return refuse("another socket")
	}
	return net.FileConn(f)
}
