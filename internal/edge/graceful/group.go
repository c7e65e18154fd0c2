package graceful

import (
	"context"
	"errors"
	"net/http"
	"sync"
)

// Ender is a server that can end: Shutdown lets running requests finish, Close doesn't.
type Ender interface {
	Shutdown(ctx context.Context) error
	Close() error
}

// Group runs servers until one fails or all are shut down. It isn't safe for concurrent use. [NewGroup] makes it.
type Group struct {
	members []Ender
	failed  chan error // the first failure
}

// NewGroup returns a group without servers.
func NewGroup() *Group { return &Group{failed: make(chan error, 1)} }

// Serve adds a server and runs it in a goroutine. After a shutdown run must return [http.ErrServerClosed]; any other
// result is a failure.
func (g *Group) Serve(srv Ender, run func() error) {
	g.members = append(g.members, srv)
	// uncaught: a server's loop: servers catch the panics of their handlers
	go func() {
		if err := run(); !errors.Is(err, http.ErrServerClosed) {
			select {
			case g.failed <- err:
			default: // another one has failed already
			}
		}
	}()
}

// Failed receives the first failure of a server.
func (g *Group) Failed() <-chan error { return g.failed }

// Shutdown shuts down all servers at once and returns when all have finished. It closes those that are still running
// when ctx ends.
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
