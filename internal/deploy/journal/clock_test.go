package journal

import (
	"testing"
	"testing/synctest"
	"time"
)

// The clock stops while a deployment waits for its turn, and then continues.
func TestClock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rang := make(chan time.Time, 1)
		c := NewClock(time.Minute, func() { rang <- time.Now() })
		time.Sleep(20 * time.Second)
		c.Stop()
		time.Sleep(time.Hour) // longer than the remaining time
		select {
		case <-rang:
			t.Fatal("it rang while it stood")
		default:
		}
		at := time.Now()
		c.Start()
		if took := (<-rang).Sub(at); took != 40*time.Second {
			t.Errorf("the clock rang %s after it was resumed", took)
		}
	})
}
