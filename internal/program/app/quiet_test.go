package app

import (
	"context"
	"errors"
	"testing"
	"time"

	"slipway/internal/edge/endpoint"
	"slipway/internal/program/task"
)

// The files under a program must be replaced once its requests have ended, while new requests wait. A request that
// takes too long must be cut off.
func TestQuiet(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	a := f.nodes[0]
	under, err := a.Acquire(t.Context(), "one")
	f.ok(err)
	quiet := make(chan func(), 1)
	go func() { quiet <- a.Quiet("site", time.Hour) }()
	for a.quiet.of("site") == nil {
		time.Sleep(time.Millisecond)
	}
	if _, ok := a.Awake("one"); ok {
		t.Error("a request got the program although its site is quiet")
	}
	short, done := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer done()
	if _, err := a.Acquire(short, "one"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a request doesn't wait: %v", err)
	}
	select {
	case <-quiet:
		t.Fatal("Quiet returned although a request is in progress")
	default:
	}
	waits := make(chan *endpoint.Endpoint, 1)
	go func() {
		e, err := a.Acquire(t.Context(), "one")
		if err != nil {
			t.Errorf("a request that waits: %v", err)
		}
		waits <- e
	}()
	under.Release()
	goOn := <-quiet
	a.Renew("site") // the files under it have changed
	select {
	case <-waits:
		t.Error("a request got the program before the end of Quiet")
	default:
	}
	goOn()
	e := <-waits
	if n := f.engines[0].starts(); n != 2 {
		t.Errorf("the program started %d times, want twice", n)
	}

	goOn = a.Quiet("site", time.Millisecond)
	select {
	case <-f.engines[0].last().done:
	default:
		t.Error("a request that takes too long isn't cut off")
	}
	goOn()
	e.Release()
	e, err = a.Acquire(t.Context(), "one")
	f.ok(err)
	e.Release()
	if p := a.Status("one"); p.Message != "" || f.engines[0].starts() != 3 {
		t.Errorf("after that: %d starts, %+v", f.engines[0].starts(), p)
	}
}

// Workers and commands of a site end before an exchange, and new ones wait for it; the end of the service waits for none.
func TestQuietCommands(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	a := f.nodes[0]
	ended, wait := a.quiet.run("site")
	if wait != nil {
		t.Fatal("a command waits for nothing")
	}
	quiet := make(chan func(), 1)
	go func() { quiet <- a.Quiet("site", time.Hour) }()
	for a.quiet.of("site") == nil {
		time.Sleep(time.Millisecond)
	}
	select {
	case <-quiet:
		t.Fatal("it is quiet although a command runs")
	default:
	}
	begun := make(chan error, 1)
	go func() {
		running, done, err := a.begin(t.Context(), Execution{Deployment: "one", Command: task.Command{Shell: "true"}})
		if err == nil {
			running.Stop(0)
			done()
		}
		begun <- err
	}()
	ended()
	goOn := <-quiet
	select {
	case err := <-begun:
		t.Errorf("a command begins during an exchange: %v", err)
	default:
	}
	goOn()
	f.ok(<-begun)
	if a.quiet.running("site") {
		t.Error("a command that has ended is counted")
	}

	goOn = a.Quiet("site", time.Hour)
	down := make(chan struct{})
	close(down)
	a.quiet.begin("site", down)()
	if a.quiet.of("site") == nil {
		t.Error("the end of the service ends another's exchange")
	}
	goOn()
}
