// Package graceful owns the shutdown of an HTTP server without lost requests: every accepted connection is answered.
//
// [http.Server.Shutdown] closes connections whose request it has read but not yet passed to the handler, so a client
// that connected just before sees a reset. This server stops accepting, waits until each request in transit has reached
// the handler, and only then shuts down.
package graceful

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"
)

// freshTime is how long a shutdown waits for a connection's first request, as net/http does.
const freshTime = 5 * time.Second

// Server is an HTTP/1.1 server with such a shutdown. [New] makes it.
type Server struct {
	*http.Server

	mu sync.Mutex // guards the rest
	ln net.Listener
	// share: total the connections of the listener, see connlimit; owner PerAddress of one network; edge refused
	owed    map[net.Conn]time.Time // connections whose request hasn't reached the handler, and the deadline for it
	closing bool
	serving sync.WaitGroup // running Serve calls, which may accept one more connection
}

type connKey struct{}

// New wraps a server that hasn't started. The caller must not use srv any more.
func New(srv *http.Server) *Server {
	s := &Server{Server: srv, owed: map[net.Conn]time.Time{}}
	handler, hook := srv.Handler, srv.ConnState
	srv.ConnContext = func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) }
	srv.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, _ := r.Context().Value(connKey{}).(net.Conn)
		s.owe(c, time.Time{})
		handler.ServeHTTP(w, r)
	})
	srv.ConnState = func(c net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			s.owe(c, time.Now().Add(freshTime))
		case http.StateActive: // part of a request has arrived; the header has its own timeout
			s.owe(c, time.Now().Add(srv.ReadHeaderTimeout))
		default:
			s.owe(c, time.Time{})
		}
		if hook != nil {
			hook(c, state)
		}
	}
	return s
}

// owe records until when to wait for a connection's next request; zero means not to wait.
func (s *Server) owe(c net.Conn, until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if until.IsZero() {
		delete(s.owed, c)
		return
	}
	s.owed[c] = until
}

// Serve serves until Shutdown or Close, then returns [http.ErrServerClosed].
func (s *Server) Serve(ln net.Listener) error {
	s.mu.Lock()
	if s.closing {
		s.mu.Unlock()
		return http.ErrServerClosed
	}
	s.ln = ln
	s.serving.Add(1)
	s.mu.Unlock()
	err := s.Server.Serve(ln)
	s.serving.Done()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing && errors.Is(err, net.ErrClosed) {
		return http.ErrServerClosed
	}
	return err
}

// Shutdown stops accepting and returns when all requests are answered, or with the context's error.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	s.closing = true
	if s.ln != nil {
		s.ln.Close()
	}
	s.mu.Unlock()
	s.serving.Wait()
	s.SetKeepAlivesEnabled(false)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for s.owes() {
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), s.Server.Shutdown(ctx))
		case <-tick.C:
		}
	}
	return s.Server.Shutdown(ctx)
}

// owes reports whether a request is in transit.
func (s *Server) owes() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for _, until := range s.owed {
		if now.Before(until) {
			return true
		}
	}
	return false
}
