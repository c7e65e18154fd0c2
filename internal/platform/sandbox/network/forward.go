package network

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"

	"slipway/internal/platform/panics"
)

// Forward listens on ports of the loopback, inside, and forwards connections to the sockets.
func Forward(ports map[int]string) error {
	for port, socket := range ports {
		l, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			return fmt.Errorf("offer port %d: %w", port, err)
		}
		// uncaught: a sandbox's own process
		go forwardTo(l, socket, nil)
	}
	return nil
}

// forwardTo forwards connections to a socket until the listener is closed.
func forwardTo(l net.Listener, socket string, p *pace) {
	// share: total carriedConns per forward of a sandbox; owner its own sandboxes' alone; edge the program waits
	slots := make(chan struct{}, carriedConns)
	for {
		slots <- struct{}{}
		p.wait()
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			<-slots
			time.Sleep(10 * time.Millisecond)
			continue
		}
		panics.Go(func() {
			defer func() { <-slots }()
			carryTo(c.(*net.TCPConn), socket)
		})
	}
}

func carryTo(c *net.TCPConn, socket string) {
	defer c.Close()
	up, err := dialUnix(socket)
	if err != nil {
		return
	}
	defer up.Close()
	// uncaught: copies bytes
	go func() {
		_, _ = io.Copy(up, c)
		_ = up.CloseWrite()
	}()
	_, _ = io.Copy(c, up)
}
