package network

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Commands with a Link run for long, and there may be hundreds: a shim next to each would take more memory than many of
// the commands. So if we may enter network namespaces, the shim hands its namespace and the listening sockets of its
// network to the service and then becomes the command. The sockets stay in that namespace. All this happens before any
// code of the tenant runs, and nothing is accepted over the Link afterwards.

// MayEnter reports whether we may create sockets in other network namespaces.
func MayEnter() bool { return networks().err == nil }

const handedOut = 'H'

// HandOut is the shim's side: it sends the network namespace, the stage's sockets and those of forwarded ports, in this
// order, and waits for the acknowledgment.
func HandOut(link *os.File, sockets []int, forwards map[int]string) error {
	space, err := os.Open("/proc/self/ns/net")
	if err != nil {
		return fmt.Errorf("hand out the network: %w", err)
	}
	defer space.Close()
	fds := append([]int{int(space.Fd())}, sockets...)
	for _, port := range slices.Sorted(maps.Keys(forwards)) {
		fd, err := bound(unix.SOCK_STREAM, [4]byte{127, 0, 0, 1}, uint16(port))
		if err != nil {
			return fmt.Errorf("offer port %d: %w", port, err)
		}
		fds = append(fds, fd)
	}
	if err := unix.Sendmsg(int(link.Fd()), []byte{handedOut}, unix.UnixRights(fds...), nil, 0); err != nil {
		return fmt.Errorf("hand out the network: %w", err)
	}
	for _, fd := range fds[1:] {
		_ = unix.Close(fd)
	}
	var taken [1]byte
	for {
		n, err := unix.Read(int(link.Fd()), taken[:])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n != 1 {
			return fmt.Errorf("hand out the network: %w", cmp.Or(err, errors.New("nobody takes it")))
		}
		_ = link.Close()
		return nil
	}
}

// reach is the service's side of a command whose shim has handed out its network.
type reach struct {
	space   *os.File // network namespace
	process int      // pidfd of the command
	sockets []io.Closer
}

func (r *reach) close() {
	_ = r.space.Close()
	_ = unix.Close(r.process)
	for _, s := range r.sockets {
		_ = s.Close()
	}
}

// Handover describes what the shim hands to the service over a [Link].
type Handover struct {
	Proxy    string // the host's proxy socket; "" if none
	Ports    []uint16
	Forwards map[int]string // ports → sockets of the host
}

// sockets returns the number of expected descriptors.
func (h *Handover) sockets() int {
	n := 1 + len(h.Forwards)
	if h.Proxy != "" {
		n += 1 + len(h.Ports)
	}
	return n
}

// take is the service's side of HandOut.
func (l *Link) take(h *Handover) error {
	if err := l.receive(h); err != nil {
		return fmt.Errorf("take the network of a sandbox: %w", err)
	}
	close(l.ready)
	if _, err := l.conn.Write([]byte{handedOut}); err != nil {
		return fmt.Errorf("take the network of a sandbox: %w", err)
	}
	return nil
}

func (l *Link) receive(h *Handover) (err error) {
	want := h.sockets()
	var m [2]byte
	oob := make([]byte, unix.CmsgSpace(4*want)+unix.CmsgSpace(unix.SizeofUcred))
	n, on, flags, _, err := l.conn.ReadMsgUnix(m[:], oob)
	if err != nil {
		return err
	}
	messages, err := unix.ParseSocketControlMessage(oob[:on])
	if err != nil {
		return err
	}
	var fds []int
	pid := 0
	for _, m := range messages {
		if rights, err := unix.ParseUnixRights(&m); err == nil {
			fds = append(fds, rights...)
		} else if who, err := unix.ParseUnixCredentials(&m); err == nil {
			pid = int(who.Pid)
		}
	}
	r := &reach{process: -1}
	defer func() {
		closeAll(fds)
		if err != nil && r.space != nil {
			r.close()
		}
	}()
	if n != 1 || m[0] != handedOut || flags&unix.MSG_CTRUNC != 0 || len(fds) != want || pid <= 0 {
		return errors.New("unexpected message")
	}
	for _, fd := range fds {
		unix.CloseOnExec(fd)
	}
	r.space = os.NewFile(uintptr(fds[0]), "network")
	fds = fds[1:]
	if r.process, err = unix.PidfdOpen(pid, 0); err != nil {
		return fmt.Errorf("open the command: %w", err)
	}
	next := func() *os.File {
		f := os.NewFile(uintptr(fds[0]), "socket")
		fds = fds[1:]
		return f
	}
	pace := newPace()
	if h.Proxy != "" {
		names := newNames(h.Proxy)
		f := next()
		c, err := net.FilePacketConn(f)
		_ = f.Close()
		if err != nil {
			return fmt.Errorf("take the resolver: %w", err)
		}
		r.sockets = append(r.sockets, c)
		names.pace = pace
		// uncaught: reads packets; each is answered by one that catches
		go names.serve(c)
		for _, port := range h.Ports {
			f := next()
			s, err := net.FileListener(f)
			_ = f.Close()
			if err != nil {
				return fmt.Errorf("take port %d: %w", port, err)
			}
			r.sockets = append(r.sockets, s)
			// uncaught: accepts; each connection is carried by one that catches
			go names.accept(s, port)
		}
	}
	for _, port := range slices.Sorted(maps.Keys(h.Forwards)) {
		f := next()
		s, err := net.FileListener(f)
		_ = f.Close()
		if err != nil {
			return fmt.Errorf("take port %d: %w", port, err)
		}
		r.sockets = append(r.sockets, s)
		// uncaught: accepts; each connection is carried by one that catches
		go forwardTo(s, h.Forwards[port], pace)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended != nil {
		return l.ended
	}
	l.reach = r
	return nil
}

// dial connects to a port of the command's loopback.
func (r *reach) dial(deadline time.Time, port int) (net.Conn, error) {
	var last error
	for _, six := range []bool{false, true} {
		fd, err := networks().socket(r.space, six)
		if err != nil {
			return nil, fmt.Errorf("reach into sandbox: %w", err)
		}
		c, err := connectTo(fd, six, port, deadline)
		if err == nil {
			return c, nil
		}
		if last == nil || !errors.Is(err, unix.ECONNREFUSED) && !errors.Is(err, unix.EADDRNOTAVAIL) {
			last = err
		}
	}
	if errors.Is(last, unix.ECONNREFUSED) {
		return nil, ErrNobodyListens
	}
	return nil, fmt.Errorf("reach into sandbox: %w", last)
}

// connectTo connects a socket, which it takes over, to a loopback address.
func connectTo(fd int, six bool, port int, deadline time.Time) (net.Conn, error) {
	var to unix.Sockaddr = &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}
	if six {
		to = &unix.SockaddrInet6{Port: port, Addr: [16]byte{15: 1}}
	}
	err := unix.Connect(fd, to)
	f := os.NewFile(uintptr(fd), "program") // non-blocking, so the runtime polls it
	defer f.Close()                         // net.FileConn duplicates it
	if errors.Is(err, unix.EINPROGRESS) {
		if err = f.SetDeadline(deadline); err != nil {
			return nil, err
		}
		raw, e := f.SyscallConn()
		if e != nil {
			return nil, e
		}
		// If it is connected already, there is no event to wait for.
		if e := raw.Write(func(fd uintptr) bool {
			code, e := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR)
			if e == nil && code != 0 {
				e = syscall.Errno(code)
			}
			if e == nil {
				_, e = unix.Getpeername(int(fd))
			}
			err = e
			return !errors.Is(e, unix.ENOTCONN)
		}); e != nil {
			return nil, e
		}
	}
	if err != nil {
		return nil, err
	}
	return net.FileConn(f)
}

func (r *reach) signal(s unix.Signal) error {
	return unix.PidfdSendSignal(r.process, s, nil, 0)
}

// dialUnix connects to a unix socket of the host, whose path may exceed the length of an address.
func dialUnix(path string) (*net.UnixConn, error) {
	name := path
	if len(path) > 100 {
		dir, err := os.Open(dirOf(path))
		if err != nil {
			return nil, err
		}
		defer dir.Close()
		name = "/proc/self/fd/" + strconv.Itoa(int(dir.Fd())) + path[len(dirOf(path)):]
	}
	return net.DialUnix("unix", nil, &net.UnixAddr{Net: "unix", Name: name})
}

func dirOf(path string) string {
	for i := len(path) - 1; i > 0; i-- {
		if path[i] == '/' {
			return path[:i]
		}
	}
	return "/"
}
