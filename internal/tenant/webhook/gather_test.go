package webhook

import (
	"testing"
	"testing/synctest"
	"time"
)

// Results are written once half of the requests in flight have ended, or after a short wait. The result of a single
// request is written at once, and new work ends the wait.
func TestGather(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		inFlight int
		ended    int           // beside the first
		wake     time.Duration // 0: never
		want     int
		took     time.Duration
	}{
		"alone":              {inFlight: 1, want: 1},
		"one of two":         {inFlight: 2, want: 1},
		"half is there":      {inFlight: 20, ended: 14, want: 15},
		"the others hang":    {inFlight: 20, ended: 3, want: 4, took: gathering},
		"something new came": {inFlight: 20, ended: 3, wake: time.Millisecond, want: 4, took: time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				results, wake := make(chan outcome, 100), make(chan struct{}, 1)
				for range tt.ended {
					results <- outcome{}
				}
				if tt.wake > 0 {
					time.AfterFunc(tt.wake, func() { wake <- struct{}{} })
				}
				began := time.Now()
				done := gather(results, []outcome{{}}, tt.inFlight, wake)
				if took := time.Since(began); len(done) != tt.want || took != tt.took {
					t.Errorf("%d outcomes after %s, want %d after %s", len(done), took, tt.want, tt.took)
				}
			})
		})
	}
}
