package graceful

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"slipway/internal/platform/wait"
)

// late is a listener whose connections aren't read before hold is closed.
type late struct {
	net.Listener
	hold chan struct{} // closed: read now
}

func (l late) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return lateConn{c, l.hold}, nil
}

type lateConn struct {
	net.Conn
	hold chan struct{}
}

func (c lateConn) Read(p []byte) (int, error) {
	<-c.hold
	return c.Conn.Read(p)
}

// start serves with a ConnState hook, which may be nil, and returns the address.
func start(
	t *testing.T, hold chan struct{}, hook func(net.Conn, http.ConnState), h http.HandlerFunc,
) (s *Server, addr string, ended chan error) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s = New(&http.Server{Handler: h, ConnState: hook, ReadHeaderTimeout: time.Minute})
	ended = make(chan error, 1)
	go func() { ended <- s.Serve(late{ln, hold}) }()
	t.Cleanup(func() { s.Close() })
	return s, ln.Addr().String(), ended
}

// Connections accepted before the shutdown get a response with "Connection: close", even if their request is read only
// after it began. Later connections are refused.
func TestAcceptedAreAnswered(t *testing.T) {
	t.Parallel()
	hold := make(chan struct{})
	accepted := make(chan struct{}, 20)
	hook := func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			accepted <- struct{}{}
		}
	}
	s, addr, ended := start(t, hold, hook, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "answered") })
	var clients sync.WaitGroup
	for range cap(accepted) {
		clients.Go(func() {
			c, err := net.Dial("tcp", addr)
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			fmt.Fprint(c, "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 0\r\n\r\n")
			got, err := io.ReadAll(c)
			if want := "answered"; err != nil || len(got) < len(want) || string(got[len(got)-len(want):]) != want {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
	for range cap(accepted) {
		<-accepted
	}
	shut := make(chan error, 1)
	go func() { shut <- s.Shutdown(t.Context()) }()
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		t.Errorf("Serve: %v", err)
	}
	if c, err := net.Dial("tcp", addr); err == nil {
		c.Close()
		t.Error("a connection was accepted after the shutdown began")
	}
	close(hold)
	clients.Wait()
	if err := <-shut; err != nil {
		t.Errorf("Shutdown: %v", err)
	}
}

// The shutdown waits for responses in progress, but not for silent connections, and not forever.
func TestEndIsBounded(t *testing.T) {
	t.Parallel()
	hold := make(chan struct{})
	close(hold)
	began, release := make(chan struct{}), make(chan struct{})
	s, addr, _ := start(t, hold, nil, func(w http.ResponseWriter, r *http.Request) { close(began); <-release })
	for _, sends := range []string{"", "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n"} {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprint(c, sends)
	}
	<-began
	shut := make(chan error, 1)
	go func() { shut <- s.Shutdown(t.Context()) }()
	wait.Until(t, "nobody is taken in", func() bool {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			c.Close()
		}
		return err != nil
	})
	select {
	case err := <-shut:
		t.Errorf("it ended before the answer: %v", err)
	default:
	}
	close(release)
	if err := <-shut; err != nil {
		t.Error(err)
	}
	if err := s.Serve(nil); !errors.Is(err, http.ErrServerClosed) {
		t.Errorf("Serve after the end: %v", err)
	}
}
