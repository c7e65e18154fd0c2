package runtime

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"
)

// Programs of a held site must be frozen and new starts must wait, while programs of other sites keep running. After
// the release all must continue.
func TestHold(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	held := w.start(w.spec("one", map[string]string{"server.js": server}))
	free := w.start(w.spec("another", map[string]string{"server.js": server}))
	w.get(held, "/x")
	w.get(free, "/x")
	release := w.Hold("site_one")
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	answered := make(chan string, 1)
	go func() { answered <- w.get(held, "/held") }()
	if got := w.get(free, "/free"); got != "hello /free" {
		t.Errorf("the other site answers %q", got)
	}
	s := w.spec("one", map[string]string{"server.js": server})
	s.ID = "second"
	if p, err := w.Start(ctx, s); err == nil {
		p.Stop(0)
		t.Error("a program of a held site started")
	} else if !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	select {
	case got := <-answered:
		t.Errorf("a held program answers %q", got)
	default:
	}
	late := s
	late.ID, late.Fresh = "late", true
	begun, waits := make(chan error, 1), &watched{Context: t.Context(), asked: make(chan struct{})}
	go func() { _, err := w.Start(waits, late); begun <- err }()
	<-waits.asked
	release()
	if err := <-begun; !errors.Is(err, ErrHeld) {
		t.Errorf("what had to wait: %v", err)
	}
	if got := <-answered; got != "hello /held" {
		t.Errorf("released, it answers %q", got)
	}
	w.start(s)
}

// watched is a context that closes asked at the first call of Done.
type watched struct {
	context.Context
	once  sync.Once
	asked chan struct{}
}

func (c *watched) Done() <-chan struct{} {
	c.once.Do(func() { close(c.asked) })
	return c.Context.Done()
}
