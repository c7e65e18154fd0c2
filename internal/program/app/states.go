package app

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"slipway/internal/platform/node"
	"slipway/internal/platform/panics"
	"slipway/internal/tenant/account"
)

// How long what other nodes say of their programs is believed at least, and how long is waited for it. Somebody who has restarted or
// visited a program wants to see it awake; so where they answer quickly they are asked often.
const (
	statesEvery = 100 * time.Millisecond
	statesTime  = time.Second
)

// states is what other nodes said of what runs there.
type states struct {
	mu   sync.Mutex // guards what follows; held while the nodes are asked, once for all who wait
	next time.Time  // when they are asked again: nodes that answer late are asked rarely
	// share: total what all nodes run; owner what it runs; edge replaced by what they say next
	by map[string]stated
}

// stated is what a node says of a program or a worker, or of an owner: how many programs and commands it runs.
type stated struct {
	Process
	Running int64 `json:",omitempty"`
}

// maxStated bounds what one node tells: its programs and workers are fewer.
const maxStated = 5000

// workerKey is that of a worker in states, beside those of deployments.
func workerKey(key string) string { return "worker/" + key }

// ownerKey is that of an owner.
func ownerKey(owner account.OwnerID) string { return "owner/" + string(owner) }

// States says how the programs and workers of this node are, for other nodes.
func (a *Apps) States() []byte {
	all := map[string]stated{}
	for owner, n := range a.owners.All() {
		if len(all) < maxStated {
			all[ownerKey(owner)] = stated{Running: n}
		}
	}
	for _, p := range a.all() {
		if s := p.status(); len(all) < maxStated && s.State != Sleeping {
			all[string(p.deployment)] = stated{Process: s}
		}
	}
	a.workers.mu.Lock()
	for key, w := range a.workers.running {
		w.mu.Lock()
		if len(all) < maxStated {
			all[workerKey(key)] = stated{Process: Process{State: w.state, Message: w.message, Restarts: w.restarts}}
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
	x, ok := a.statedElsewhere(key)
	return x.Process, ok
}

// runningElsewhere returns how many programs and commands of an owner other nodes run.
func (a *Apps) runningElsewhere(owner account.OwnerID) int64 {
	x, _ := a.statedElsewhere(ownerKey(owner))
	return x.Running
}

// forget makes the next one who asks hear of what has just changed.
func (s *states) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next = time.Time{}
}

func (a *Apps) statedElsewhere(key string) (x stated, ok bool) {
	if a.c.Places == nil || a.c.Relay == nil {
		return x, false
	}
	s := &a.states
	s.mu.Lock()
	defer s.mu.Unlock()
	if begun := time.Now(); begun.After(s.next) {
		s.by = a.askStates()
		s.next = time.Now().Add(max(statesEvery, 4*time.Since(begun)))
	}
	x, ok = s.by[key]
	return x, ok
}

// askStates asks all other nodes at once.
func (a *Apps) askStates() map[string]stated {
	ctx, done := context.WithTimeout(context.Background(), statesTime)
	defer done()
	nodes, err := node.List(ctx, a.c.DB)
	if err != nil {
		return nil
	}
	all := map[string]stated{}
	var mu sync.Mutex
	var work panics.Background
	for _, n := range nodes {
		if n.ID == a.node || n.State == node.Down || n.Address == "" {
			continue
		}
		work.Go(func() {
			text, err := a.c.Relay.States(ctx, n.Address)
			if err != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if err := addStates(all, text); err != nil {
				a.c.Log.Warn("states of another node not understood", "node", n.Name, "err", err)
			}
		})
	}
	work.Wait()
	return all
}

// addStates adds what a node says.
func addStates(all map[string]stated, text []byte) error {
	var theirs map[string]stated
	if err := json.Unmarshal(text, &theirs); err != nil {
		return err
	}
	for key, x := range theirs {
		x.Running += all[key].Running
		all[key] = x
	}
	return nil
}
