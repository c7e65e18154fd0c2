package graceful

import (
	"context"
	"errors"
	"net/http"
	"sync"
)

// Ender is a server that can end: Shutdown lets what is under way finish, Close doesn't.
type Ender interface {
	Shutdown(ctx context.Context) error
	Close() error
}

// Group is servers that serve until one of them fails, or all are told to end. NewGroup makes it; it is used by one goroutine.
type Group struct {
	members []Ender
	failed  chan error // the first failure
}

// NewGroup returns a group without members.
func NewGroup() *Group { return &Group{failed: make(chan error, 1)} }

// Serve adds a server and runs it on its own. What run returns after the end is http.ErrServerClosed; all else is a failure.
func (g *Group) Serve(srv Ender, run func() error) {
	g.members = append(g.members, srv)
	// uncaught: a server's loop: servers catch the panics of their handlers
	go func() {
		if err := run(); !errors.Is(err, http.ErrServerClosed) {
			select {
			case g.failed <- err:
			default: // another one failed before
			}
		}
	}()
}

// Failed is told why a server has ended that was not told to.
func (g *Group) Failed() <-chan error { return g.failed }

// Shutdown ends all servers at once, and returns when each has finished what was under way, or was closed because ctx had ended.
func (g *Group) Shutdown(ctx context.Context) {
	var all sync.WaitGroup
	for _, srv := range g.members {
		// uncaught: the end of the service
		all.Go(func() {
			if err := srv.Shutdown(ctx); err != nil {
				srv.Close()
			}
		})
	}
	all.Wait()
}
