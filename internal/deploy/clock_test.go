package deploy

import (
	"testing"
	"time"
)

// Time stands still while a deployment waits for its turn, and then goes on.
func TestClock(t *testing.T) {
	t.Parallel()
	rang := make(chan time.Time, 1)
	c := newClock(200*time.Millisecond, func() { rang <- time.Now() })
	c.stop()
	select {
	case <-rang:
		t.Fatal("it rang while it stood")
	case <-time.After(400 * time.Millisecond): // longer than it has
	}
	at := time.Now()
	c.start()
	if took := (<-rang).Sub(at); took < 50*time.Millisecond {
		t.Errorf("it rang %s after it went on", took)
	}
}
