package network

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"slipway/internal/platform/panics"
)

// carriedConns caps concurrent forwarded connections; others wait in the accept queue.
const carriedConns = 256

// Offer serves the sandbox's network from inside, on the sockets that the stage made. It has no rights beyond the
// command's.
func Offer(proxy string, sockets []int, ports []uint16) error {
	if len(sockets) != 1+len(ports) {
		return errors.New("offer the network: sockets are missing")
	}
	n := newNames(proxy)
	for i, fd := range sockets {
		f := os.NewFile(uintptr(fd), "network")
		if i == 0 {
			c, err := net.FilePacketConn(f)
			if err != nil {
				return fmt.Errorf("offer the resolver: %w", err)
			}
			// uncaught: a sandbox's own process
			go n.serve(c)
		} else {
			l, err := net.FileListener(f)
			if err != nil {
				return fmt.Errorf("offer port %d: %w", ports[i-1], err)
			}
			// uncaught: a sandbox's own process
			go n.accept(l, ports[i-1])
		}
		_ = f.Close() // net's duplicates are closed at exec
	}
	return nil
}

func (n *names) accept(l net.Listener, port uint16) {
	// share: total carriedConns per port of a sandbox; owner its own sandboxes' alone; edge the program waits
	slots := make(chan struct{}, carriedConns)
	for {
		slots <- struct{}{}
		n.pace.wait()
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			<-slots
			time.Sleep(10 * time.Millisecond) // out of descriptors, caused by the command
			continue
		}
		panics.Go(func() {
			defer func() { <-slots }()
			n.carry(c.(*net.TCPConn), port)
		})
	}
}

// carry forwards c through the proxy to the host that its address represents. If that fails, it resets c, which a
// program treats as a failed connection.
func (n *names) carry(c *net.TCPConn, port uint16) {
	defer c.Close()
	local, _ := netip.ParseAddrPort(c.LocalAddr().String())
	host, ok := n.of(local.Addr())
	if local.Addr().IsLoopback() && port == resolverPort {
		n.serveTCP(c)
		return
	}
	if local.Addr().IsLoopback() { // clients may resolve .localhost themselves (RFC 6761)
		host, ok = "localhost", true
	}
	if !ok {
		_ = c.SetLinger(0)
		return
	}
	u, r, err := connect(n.proxy, net.JoinHostPort(host, strconv.Itoa(int(port))))
	if err != nil {
		_ = c.SetLinger(0)
		return
	}
	defer u.Close()
	up := make(chan struct{})
	// uncaught: copies bytes
	go func() {
		defer close(up)
		_, _ = io.Copy(u, c)
		_ = u.CloseWrite()
	}()
	if _, err := io.Copy(c, r); err != nil {
		_ = c.SetLinger(0)
	}
	_ = c.CloseWrite()
	<-up
}

// connect opens a tunnel to addr through the proxy and returns it with a reader of its data.
func connect(proxy, addr string) (*net.UnixConn, io.Reader, error) {
	u, err := dialUnix(proxy)
	if err != nil {
		return nil, nil, err
	}
	_ = u.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err := fmt.Fprintf(u, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", addr, addr); err != nil {
		_ = u.Close()
		return nil, nil, err
	}
	r := bufio.NewReader(u)
	status, err := readHead(r)
	if err == nil && status != 200 {
		err = fmt.Errorf("connect to %s: status %d", addr, status)
	}
	if err != nil {
		_ = u.Close()
		return nil, nil, err
	}
	_ = u.SetDeadline(time.Time{})
	return u, r, nil
}

// maxHeadLines caps the lines of the proxy's response header.
const maxHeadLines = 100

// readHead reads the proxy's response header and returns the status. It doesn't use net/http, which would slow down the
// start (ADR 0025).
func readHead(r *bufio.Reader) (status int, err error) {
	for i := range maxHeadLines {
		line, err := r.ReadSlice('\n') // fails for lines longer than the buffer
		if err != nil {
			return 0, fmt.Errorf("read the proxy's answer: %w", err)
		}
		text := strings.TrimRight(string(line), "\r\n")
		if i == 0 {
			version, rest, _ := strings.Cut(text, " ")
			code, _, _ := strings.Cut(rest, " ")
			if status, err = strconv.Atoi(code); err != nil || !strings.HasPrefix(version, "HTTP/1.") || len(code) != 3 {
				return 0, errors.New("the proxy's answer is not HTTP")
			}
		} else if text == "" {
			return status, nil
		}
	}
	return 0, errors.New("the head of the proxy's answer is too long")
}
