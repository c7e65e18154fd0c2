package e2e

import (
	"context"
	"os"
	"testing"
	"time"

	"slipway/e2e/world"
)

// After upgrade --undo, the previous program runs on the newer schema. No write acknowledged by either program is lost,
// and no request fails. With SLIPWAY_E2E_BEFORE, the previous program is an earlier release's.
func TestUpgradeUndone(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), world.Patience(4*time.Minute))
	defer cancel()
	m := newMachine(ctx, t, "")
	good, goodSum := release(t, m.program, "\nanother build")
	v := visit(ctx, t, m.World, m.site)
	write := m.writes(ctx, t, true)
	v.more(ctx, t)
	before, err := os.Stat(m.Binary)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range [][]string{{good, goodSum}, {"", "", "--undo"}} {
		args := append(step[2:], "--ready-within", "2m")
		if out, err := m.upgrade(ctx, step[0], step[1], args...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
		v.more(ctx, t)
	}
	if back, err := os.Stat(m.Binary); err != nil || back.Size() != before.Size() {
		t.Errorf("the program of before is not back: %v", err)
	}
	m.well(ctx, t)
	t.Logf("%d requests over an upgrade and its undoing", v.end())
	if write.end() == 0 {
		t.Error("nothing was written meanwhile")
	}
	write.kept(ctx, t)
}
