package graceful

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// ending is a server whose shutdown takes the time in needs.
type ending struct {
	needs  time.Duration
	end    chan struct{}
	closed bool
}

func (e *ending) run() error { <-e.end; return http.ErrServerClosed }

func (e *ending) Shutdown(ctx context.Context) error {
	defer close(e.end)
	select {
	case <-time.After(e.needs):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (e *ending) Close() error { e.closed = true; return nil }

// Servers shut down concurrently, each with the whole time, and a server that needs longer is closed.
func TestGroupShutdown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := NewGroup()
		quick, slow, stuck := &ending{needs: time.Second}, &ending{needs: 9 * time.Second}, &ending{needs: time.Hour}
		for _, e := range []*ending{quick, slow, stuck} {
			e.end = make(chan struct{})
			g.Serve(e, e.run)
		}
		ctx, done := context.WithTimeout(t.Context(), 10*time.Second)
		defer done()
		from := time.Now()
		g.Shutdown(ctx)
		if took := time.Since(from); took != 10*time.Second || quick.closed || slow.closed || !stuck.closed {
			t.Errorf("ended after %s; closed: %t %t %t", took, quick.closed, slow.closed, stuck.closed)
		}
		synctest.Wait()
		select {
		case err := <-g.Failed():
			t.Errorf("an end that was asked for is a failure: %v", err)
		default:
		}
	})
}

// Failed returns the error of the first server that fails. Later failures don't block.
func TestGroupFailed(t *testing.T) {
	t.Parallel()
	g, broken := NewGroup(), errors.New("the listener is gone")
	for range 3 {
		g.Serve(&ending{}, func() error { return broken })
	}
	if err := <-g.Failed(); !errors.Is(err, broken) {
		t.Errorf("heard of %v", err)
	}
}
