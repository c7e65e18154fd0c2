package deploy

import (
	"testing"
	"testing/synctest"
	"time"
)

// A meter counts from its last start, and not while it is stopped.
func TestMeter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var m meter
		if m.lap() != 0 {
			t.Error("lap counts before the start")
		}
		m.start()
		time.Sleep(time.Minute)
		m.start()
		time.Sleep(time.Second)
		if got := m.lap(); got != time.Second {
			t.Errorf("%s since the last start", got)
		}
		time.Sleep(2 * time.Second)
		if got := m.lap(); got != 2*time.Second {
			t.Errorf("%s since the last lap", got)
		}
		m.stop()
		time.Sleep(time.Second)
		if got := m.lap(); got != 0 {
			t.Errorf("%s while it is stopped", got)
		}
	})
}
