package app

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"slipway/internal/platform/id"

	"slipway/internal/platform/db"
	"slipway/internal/program/runtime"
	"slipway/internal/program/task"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/notify"
)

// heard keeps what people are told.
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

// People are told once of a crash loop and of a lack of memory, and of each failed run of a scheduled
// command: of the live deployment's alone.
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
			e.last().end(runtime.Exit{Code: 137, Reason: "out of memory", OutOfMemory: true})
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
