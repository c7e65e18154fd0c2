package app

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"slipway/internal/platform/id"

	"slipway/internal/platform/db"
	"slipway/internal/program/task"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/notify"
)

// heard keeps the messages that people get.
type heard struct {
	mu  sync.Mutex // guards all
	all []string
}

func (h *heard) TellTx(_ context.Context, _ *db.Tx, owner account.OwnerID, site id.Site, m notify.Message) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, strings.Join([]string{string(owner), string(site), m.Event, m.Title, m.Path}, "|"))
	return nil
}

func (h *heard) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.all)
}

// People must get one message about a crash loop, one about a lack of memory, and one about each failed run of a
// scheduled command, but only for the live deployment.
func TestPeopleAreTold(t *testing.T) {
	t.Parallel()
	h := &heard{}
	f := newFleet(t, 1, func(c *Config) { c.People = h })
	a, e := f.nodes[0], f.engines[0]
	t.Cleanup(a.close)
	crash := func(deployment id.Deployment) {
		t.Helper()
		for range crashLoop {
			f.until("a start after the back-off", func() bool {
				up, err := a.Acquire(t.Context(), deployment)
				if err == nil {
					up.Release()
				}
				return err == nil
			})
			e.last().end(outOfMemory)
			f.until("the crash is noticed", func() bool { return a.Status(deployment).State == Crashed })
		}
	}
	crash("two") // is not live
	crash("one")
	f.until("two messages", func() bool { return h.count() >= 2 })
	e.dieIn = time.Millisecond
	f.tasks["one"] = []task.Task{{Kind: "cron", Name: "tidy", Schedule: "@daily", Command: task.Command{Argv: []string{"node", "tidy.js"}}}}
	f.ok(a.declare(t.Context()))
	f.ok(a.runCron(t.Context(), RunCron{Site: "site", Deployment: "one", Name: "tidy", Command: task.Command{Argv: []string{"node", "tidy.js"}}}, 1))
	h.mu.Lock()
	defer h.mu.Unlock()
	got := strings.Join(h.all, "\n")
	for _, want := range []string{
		"owner|site|application.out_of_memory|shop: the application ran out of memory|/sites/site/logs",
		"owner|site|application.crashed|shop: the application crashed 3 times in a row|/sites/site/logs",
		"owner|site|cron.failed|shop: the scheduled command tidy failed|/sites/site/logs",
	} {
		if strings.Count(got, want) != 1 {
			t.Errorf("%q is not once in\n%s", want, got)
		}
	}
	if len(h.all) != 3 {
		t.Errorf("people were told\n%s", got)
	}
}

// A cluster reports a lack of memory seconds after the program's end. If the program was put to sleep in between, its
// log must name the lack of memory and its people must get a message. This is not a crash, so the next request must
// start it at once. A normal end must cause no message.
func TestOutOfMemoryToldLate(t *testing.T) {
	t.Parallel()
	h := &heard{}
	f := newFleet(t, 1, func(c *Config) { c.People = h })
	a, e := f.nodes[0], f.engines[0]
	t.Cleanup(a.close)
	for _, late := range []bool{false, true} {
		up, err := a.Acquire(t.Context(), "one")
		if err != nil {
			t.Fatal(err)
		}
		up.Release()
		e.last().mu.Lock()
		e.last().late = late
		e.last().mu.Unlock()
		p, err := a.program("one")
		f.ok(err)
		in := p.first()
		if !p.stop(in, false, Sleeping) {
			t.Fatal("it is not stopped")
		}
		<-in.out
	}
	f.until("people are told", func() bool { return h.count() > 0 })
	if state := a.Status("one").State; state != Sleeping || h.count() != 1 || !strings.Contains(h.all[0], "|application.out_of_memory|") {
		t.Errorf("the program is %s, and the messages are %q", state, h.all)
	}
	var said []string
	for _, x := range a.logs.Waiting() {
		if x.Stream == "system" {
			said = append(said, x.Message)
		}
	}
	if strings.Join(said, "|") != "The application exited: out of memory" {
		t.Errorf("the log says %q", said)
	}
}

// People must get one message about a worker that ends again and again.
func TestPeopleAreToldOfWorkers(t *testing.T) {
	t.Parallel()
	h := &heard{}
	f := newFleet(t, 1, func(c *Config) { c.People = h })
	a, e := f.nodes[0], f.engines[0]
	e.dieIn = time.Millisecond
	f.tasks["one"] = []task.Task{{Kind: "worker", Name: "mail", Command: task.Command{Argv: []string{"node", "mail.js"}}}}
	f.ok(a.declare(t.Context()))
	f.ok(a.keepWorkers(t.Context()))
	t.Cleanup(a.closeWorkers)
	f.until("a message", func() bool { return h.count() > 0 })
	f.until("another start", func() bool { return e.starts() > crashLoop })
	h.mu.Lock()
	defer h.mu.Unlock()
	want := "owner|site|application.crashed|shop: the worker mail crashed 3 times in a row|/sites/site/logs"
	if len(h.all) != 1 || h.all[0] != want {
		t.Errorf("the messages are %q, want %q once", h.all, want)
	}
}
