// Package graceful owns the end of an HTTP server: whoever was accepted is answered.
//
// http.Server.Shutdown closes a connection whose request it has read, but not begun to answer, without a word: whoever connected
// just before the end sees a reset. This one accepts nobody any more, waits until each request that is on its way has
// reached the handler, and only then shuts down.
package graceful

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"
)

// freshTime is how long the end waits for the first request of a connection; net/http's is the same.
const freshTime = 5 * time.Second

// Server is an http.Server for HTTP/1.1 that ends so. New makes it.
type Server struct {
	*http.Server

	mu sync.Mutex // guards the rest
	ln net.Listener
	// share: total the connections of the listener, see connlimit; owner PerAddress of one network; edge refused
	owed    map[net.Conn]time.Time // connections whose request has not reached the handler, and until when it is waited for
	closing bool
	serving sync.WaitGroup // Serve, which may have accepted one more than it was to
}

type connKey struct{}

// New takes over a server that serves nobody yet. Its fields are the caller's no more.
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
		case http.StateActive: // bytes of a request have come; its header has a time limit
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

// owe notes until when a connection's next request is waited for. The zero time means not at all.
func (s *Server) owe(c net.Conn, until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if until.IsZero() {
		delete(s.owed, c)
		return
	}
	s.owed[c] = until
}

// Serve serves until Shutdown or Close, and then returns http.ErrServerClosed.
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

// Shutdown accepts nobody any more and returns when everybody else was answered, or with the context's error.
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

// owes reports whether a request is on its way.
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
