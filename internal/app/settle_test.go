package app

import (
	"testing"
	"testing/synctest"
	"time"

	"slipway/internal/runtime"
)

// Settings that need no new process act on the one that runs; others say that it needs a restart.
func TestSettingsActAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		look := func() { w.look(); synctest.Wait(); w.look() }
		w.known["site"] = row{"site", "one", "live", "first"}
		w.want.Settings = "first"
		w.want.Sleep = time.Hour
		w.acquire("one").Release()
		look()
		if w.apps.Status("one").NeedsRestart {
			t.Error("it needs a restart from the beginning")
		}

		w.want.Sleep, w.want.MaxBody, w.want.FirstByte, w.want.Drain = 3*time.Second, 7, 8*time.Second, 9*time.Second
		w.want.Settings = "second"
		w.known["site"] = row{"site", "one", "live", "second"}
		look()
		e := w.acquire("one")
		if e.MaxBody != 7 || e.FirstByte != 8*time.Second {
			t.Errorf("requests are held to %d bytes and %s", e.MaxBody, e.FirstByte)
		}
		e.Release()
		if s := w.apps.Status("one"); s.NeedsRestart || s.State != Running {
			t.Errorf("%+v", s)
		}
		time.Sleep(4 * time.Second)
		look()
		w.wantState("one", Sleeping)

		w.acquire("one").Release()
		w.want.Spec.Limits = runtime.Limits{Memory: 64 << 20}
		w.want.Settings = "third"
		w.known["site"] = row{"site", "one", "live", "third"}
		look()
		if !w.apps.Status("one").NeedsRestart {
			t.Error("other limits need no restart")
		}
		if err := w.apps.Restart(t.Context(), "one"); err != nil || w.apps.Status("one").NeedsRestart {
			t.Errorf("after a restart: %v", err)
		}
	})
}
