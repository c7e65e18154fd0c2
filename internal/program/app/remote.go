package app

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"syscall"
	"time"

	"slipway/internal/edge/endpoint"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/id"
	"slipway/internal/platform/node"
	"slipway/internal/program/placement"
	"slipway/internal/program/relay"
	"slipway/internal/program/remote"
)

// relayRetry is how soon a request that no node took tries again.
const relayRetry = 250 * time.Millisecond

// reach connects to a program of another node, which wakes it where it sleeps.
func (a *Apps) reach(ctx context.Context, address string, deployment id.Deployment) (*remote.Program, error) {
	x, woke, err := a.remotes.Reach(ctx, address, deployment)
	if woke {
		a.states.forget() // it is awake now
	}
	return x, err
}

// Acquire returns the deployment's program for one request, wherever it runs, and starts it first where it
// sleeps. It waits for WakeTime at most; what it can't wake is an Unavailable fault.
func (a *Apps) Acquire(ctx context.Context, deployment id.Deployment) (*endpoint.Endpoint, error) {
	a.sure(ctx)
	if e, ok := a.awake(deployment); ok {
		return e, nil
	}
	if a.c.Places == nil {
		return a.acquire(ctx, deployment)
	}
	bounded, done := context.WithTimeoutCause(ctx, a.c.WakeTime, errWakeTimeout)
	defer done()
	var first *silent
	for {
		e, err := a.acquireAnywhere(bounded, deployment)
		if err == nil || !again(err) {
			return e, err
		}
		if now := (*silent)(nil); errors.As(err, &now) {
			if a.cut(now) || first != nil && first.at.Node == now.at.Node && first.at.Ended < now.at.Ended {
				return nil, &fault.Error{
					Kind: fault.Unavailable, Code: placement.NodeDown, RetryAfter: 5 * time.Second,
					Message: "The site runs on the node " + now.at.Name + ", which this one can't reach",
				}
			}
			first = cmp.Or(first, now)
		}
		select { // its node may be about to die, or to give it away
		case <-time.After(relayRetry):
		case <-bounded.Done():
			return nil, cmp.Or(context.Cause(ctx), error(errWakeTimeout))
		}
	}
}

// silent is the error of a node that gave no sign of itself. If it renews its lease after that, it is not about to die, and waiting for
// another one to take over is in vain: the connection between the two is cut.
type silent struct {
	at placement.Place
	error
}

func (s *silent) Unwrap() error { return s.error }

// moment returns a moment of this process by the database's clock.
func (a *Apps) moment(t time.Time) db.Time { return a.c.DB.Now().Add(-time.Since(t)) }

// cut reports whether a silent node has renewed its lease since it was last heard, and gave no sign to a question that was sent later.
func (a *Apps) cut(s *silent) bool {
	var long *relay.Silent
	if !errors.As(s.error, &long) {
		return false
	}
	renewed := s.at.Ended.Add(-node.Lease)
	return a.moment(long.Since) < renewed && renewed < a.moment(long.Asked)
}

// cutTime is how long the connection to a node has to be cut until this one takes over programs that its visitors ask for.
const cutTime = 20 * time.Second

// takeCut makes this node the one of a site whose node can't be reached from here.
func (a *Apps) takeCut(ctx context.Context, s *silent, deployment id.Deployment) (taken bool, err error) {
	var long *relay.Silent
	if a.c.Engine == nil || !a.cut(s) || !errors.As(s.error, &long) || time.Since(long.Since) < cutTime {
		return false, nil
	}
	site, err := a.siteOf(ctx, deployment)
	if err != nil || site == "" {
		return false, err
	}
	taken, err = a.c.Places.TakeCut(ctx, site, s.at)
	if taken {
		a.c.Log.WarnContext(ctx, "program taken over: its node can't be reached from here, though it runs", "site", site, "node", s.at.Name)
	}
	return taken, err
}

// again reports whether who asks again may find it otherwise: nothing of a request has been sent.
func again(err error) bool {
	f := fault.As(err)
	return errors.Is(err, relay.ErrUnreached) || f != nil && (f.Code == placement.NodeDraining || f.Code == codeClosing)
}

// acquireAnywhere tries once.
func (a *Apps) acquireAnywhere(ctx context.Context, deployment id.Deployment) (*endpoint.Endpoint, error) {
	err := a.look(ctx, deployment)
	var away *placement.Away
	if errors.As(err, &away) {
		return a.acquireAt(ctx, away, deployment)
	}
	if err != nil {
		// The database doesn't answer: what is known goes on.
		if x := a.remotes.Get(deployment); x != nil && fault.As(err) == nil {
			return x.Endpoint(), nil
		}
		return nil, err
	}
	if a.c.Engine != nil && a.c.Places.Takes() {
		e, err := a.acquire(ctx, deployment)
		if errors.As(err, &away) { // another node was quicker
			return a.acquireAt(ctx, away, deployment)
		}
		return e, err
	}
	// This node runs no programs, or none any more: any other that does will take it.
	all, err := node.List(ctx, a.c.DB)
	if err != nil {
		return nil, err
	}
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	last := error(a.noEngine())
	if a.c.Engine != nil {
		e, err := a.acquire(ctx, deployment)
		if err == nil {
			return e, nil
		}
		last = err
	}
	for _, n := range all {
		if n.ID == a.node || n.State != node.Up || n.Address == "" || !slices.Contains(n.Roles, "worker") || a.c.Relay == nil {
			continue
		}
		x, err := a.reach(ctx, n.Address, deployment)
		if err == nil {
			return x.Endpoint(), nil
		}
		if f := fault.As(err); f != nil && f.Code == placement.OnAnotherNode { // this node is about to give it away
			err = relay.ErrUnreached
		}
		last = err
	}
	return nil, last
}

// acquireAt returns the program of a site that another node has.
func (a *Apps) acquireAt(ctx context.Context, away *placement.Away, deployment id.Deployment) (*endpoint.Endpoint, error) {
	if away.State == node.Down || away.Address == "" || a.c.Relay == nil {
		return nil, away
	}
	x, err := a.reach(ctx, away.Address, deployment)
	switch {
	case err == nil:
		return x.Endpoint(), nil
	case errors.Is(err, relay.ErrUnreached) && away.Pinned: // nobody else may have it
		return nil, &fault.Error{
			Kind: fault.Unavailable, Code: placement.NodeDown, Message: "The node " + away.Name + ", which has the site's files, doesn't answer",
			RetryAfter: 5 * time.Second,
		}
	case fault.As(err) != nil && fault.As(err).Code == placement.OnAnotherNode: // it has moved this moment
		return nil, relay.ErrUnreached
	}
	if errors.Is(err, relay.ErrUnreached) && !errors.Is(err, syscall.ECONNREFUSED) { // one that refuses may be starting
		s := &silent{away.Place, err}
		if taken, err := a.takeCut(ctx, s, deployment); err != nil {
			return nil, err
		} else if taken {
			return a.acquire(ctx, deployment)
		}
		err = s
	}
	return nil, err
}
