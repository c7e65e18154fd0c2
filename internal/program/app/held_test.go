package app

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"slipway/internal/platform/id"

	"slipway/internal/program/runtime"
	"slipway/internal/program/task"
)

// heldEngine holds its site before the first start of a program that is Fresh.
type heldEngine struct {
	fakeEngine
	held func()
	done atomic.Bool
}

func (e *heldEngine) Start(ctx context.Context, s runtime.Spec) (runtime.Program, error) {
	if s.Fresh && !e.done.Swap(true) {
		e.held()
		return nil, runtime.ErrHeld
	}
	return e.fakeEngine.Start(ctx, s)
}

// A program or command that waited while its site was held, for example for a restore, must start with the state that
// the site has after that.
func TestStartsAfterARestore(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(a *Apps, e *heldEngine) error{
		"command": func(a *Apps, e *heldEngine) error {
			running, done, err := a.begin(t.Context(), Execution{Deployment: "one", Command: task.Command{Shell: "true"}})
			if err == nil {
				running.Stop(0)
				done()
			}
			return err
		},
		"program": func(a *Apps, e *heldEngine) error {
			p, err := a.program("one")
			if err != nil {
				return err
			}
			in, _, err := p.launch(t.Context(), true)
			if err == nil {
				in.running.Stop(0)
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var password atomic.Value
			password.Store("old")
			e := &heldEngine{held: func() { password.Store("new") }}
			f := newFleet(t, 1, func(c *Config) {
				c.Engine = e
				c.Launch = wants(func(_ context.Context, deployment string) (Wanted, error) {
					return Wanted{
						Site: "site", Owner: "owner", Deployment: id.Deployment(deployment), Health: time.Minute, Sleep: time.Minute,
						Spec: runtime.Spec{Env: []string{"DB_PASSWORD=" + password.Load().(string)}},
					}, nil
				})
			})
			f.ok(start(f.nodes[0], e))
			if env := e.last().spec.Env; !slices.Contains(env, "DB_PASSWORD=new") || e.starts() != 1 {
				t.Errorf("%d starts, the last with %q", e.starts(), env)
			}
		})
	}
}
