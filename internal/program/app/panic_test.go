package app

import (
	"context"
	"testing"
	"testing/synctest"

	"slipway/internal/platform/id"
)

// A start that panics must fail as others do: requests must not wait for it, and programs of other sites must run.
func TestStartThatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		inner := w.apps.c.Launch
		w.apps.c.Launch = wants(func(ctx context.Context, deployment string) (Wanted, error) {
			if deployment == "poisonous" {
				panic("settings that nobody expected")
			}
			return inner.Wanted(ctx, id.Deployment(deployment))
		})
		for range 2 {
			if _, err := w.apps.Acquire(t.Context(), "poisonous"); err == nil {
				t.Error("no error")
			}
		}
		w.wantState("poisonous", Crashed)
		w.acquire("one").Release()
		w.wantState("one", Running)
	})
}
