package app

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"slipway/internal/platform/node"
)

// How long what other nodes say of their programs is believed, and how long is waited for it.
const (
	statesEvery = 2 * time.Second
	statesTime  = time.Second
)

// states is what other nodes said of what runs there.
type states struct {
	mu sync.Mutex // guards what follows; held while the nodes are asked, once for all who wait
	at time.Time
	// share: total what all nodes run; owner what it runs; edge replaced by what they say next
	by map[string]Process
}

// maxStated bounds what one node tells: its programs and workers are fewer.
const maxStated = 5000

// workerKey is that of a worker in states, beside those of deployments.
func workerKey(key string) string { return "worker/" + key }

// States says how the programs and workers of this node are, for other nodes.
func (a *Apps) States() []byte {
	all := map[string]Process{}
	for _, p := range a.all() {
		if s := p.status(); len(all) < maxStated && s.State != Sleeping {
			all[string(p.deployment)] = s
		}
	}
	a.workers.mu.Lock()
	for key, w := range a.workers.running {
		w.mu.Lock()
		if len(all) < maxStated {
			all[workerKey(key)] = Process{State: w.state, Message: w.message, Restarts: w.restarts}
		}
		w.mu.Unlock()
	}
	a.workers.mu.Unlock()
	text, err := json.Marshal(all)
	if err != nil {
		a.c.Log.Error("states of programs not told", "err", err)
	}
	return text
}

// elsewhere returns how a deployment's program, or a worker, is on another node.
func (a *Apps) elsewhere(key string) (p Process, ok bool) {
	if a.c.Places == nil || a.c.Relay == nil {
		return p, false
	}
	s := &a.states
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.at) > statesEvery {
		s.by, s.at = a.askStates(), time.Now()
	}
	p, ok = s.by[key]
	return p, ok
}

// askStates asks all other nodes at once.
func (a *Apps) askStates() map[string]Process {
	ctx, done := context.WithTimeout(context.Background(), statesTime)
	defer done()
	nodes, err := node.List(ctx, a.c.DB)
	if err != nil {
		return nil
	}
	all := map[string]Process{}
	var mu sync.Mutex
	var work sync.WaitGroup
	for _, n := range nodes {
		if n.ID == a.node || n.State == node.Down || n.Address == "" {
			continue
		}
		work.Go(func() {
			text, err := a.c.Relay.States(ctx, n.Address)
			if err != nil {
				return
			}
			var theirs map[string]Process
			if err := json.Unmarshal(text, &theirs); err != nil {
				a.c.Log.Warn("states of another node not understood", "node", n.Name, "err", err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			for key, p := range theirs {
				all[key] = p
			}
		})
	}
	work.Wait()
	return all
}
