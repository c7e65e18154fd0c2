package fetch

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"slipway/internal/platform/id"

	"slipway/internal/platform/fault"
)

// An owner has an exact number of repository inspections per hour, even if they come concurrently. Other owners have
// their own, and the next hour starts anew.
func TestLooksOfAnHour(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := quota{most: 50}
		try := func(owner id.Owner) (given int64) {
			var n atomic.Int64
			var all sync.WaitGroup
			for range 200 {
				all.Go(func() {
					if q.take(owner) == nil {
						n.Add(1)
					}
				})
			}
			all.Wait()
			return n.Load()
		}
		time.Sleep(20 * time.Minute)
		if a, b := try("anna"), try("bert"); a != 50 || b != 50 {
			t.Errorf("%d and %d, want 50 each", a, b)
		}
		time.Sleep(59 * time.Minute)
		if f := fault.As(q.take("anna")); f == nil || f.Kind != fault.Limited || f.RetryAfter != time.Minute {
			t.Errorf("%+v", f)
		}
		time.Sleep(time.Minute)
		if n := try("anna"); n != 50 {
			t.Errorf("%d in the next hour", n)
		}
		for i := range 1000 {
			q.take(id.Owner(fmt.Sprint("owner ", i)))
		}
		time.Sleep(time.Hour)
		q.take("anna")
		if len(q.used) != 1 {
			t.Errorf("%d owners are remembered", len(q.used))
		}
	})
}
