// Package memory owns the size of the heap: a small heap has room to grow, and memory of a
// burst of work is returned to the system.
package memory

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// The interval of checks, the minimum gain for returning memory to the system, and the rate of allocations per second
// below which the process is idle.
const (
	memoryEvery = time.Second
	memoryGain  = 2 << 20
	memoryCalm  = 4 << 20
)

// startedAfter is the number of checks after which the start is over.
const startedAfter = 2

// heapRoom is the minimum growth before a collection: a small heap would otherwise be collected thirty times a second
// under load.
const heapRoom = 32 << 20

// usage holds figures of the Go heap, in bytes.
type usage struct {
	allocated uint64 // since the start
	objects   uint64 // live objects, and dead ones not yet collected
	live      uint64 // at the last collection
	free      uint64 // kept from the system but unused
}

// gain estimates how many bytes a collection would free.
func (u usage) gain() uint64 { return u.free + u.objects - min(u.objects, u.live) }

// GiveBack returns memory to the system after a burst of work, until ctx ends. On its own the runtime collects the
// garbage of a burst after two minutes at the earliest and returns it slowly: between deployments the process would
// look twice its size, and builds and programs would have that much less.
func GiveBack(ctx context.Context) error {
	tick := time.NewTicker(memoryEvery)
	defer tick.Stop()
	before, percent := readUsage(), 100
	adjust := func(live uint64) {
		// changing it stops the world
		if p := garbage(live); os.Getenv("GOGC") == "" && (p < percent*9/10 || p > percent*11/10) {
			percent = p
			debug.SetGCPercent(percent)
		}
	}
	adjust(before.live)
	for looks := 1; ; looks++ {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		now := readUsage()
		if worthwhile(before, now) {
			debug.FreeOSMemory()
			now = readUsage()
		}
		if looks == startedAfter {
			_ = ForgetStart() // pages that couldn't be unmapped stay
		}
		adjust(now.live)
		before = now
	}
}

// garbage returns the value for GOGC: 100 as usual, more for a small heap, and down to 50 for a large one, so that a
// burst of 80 MB doesn't take 160.
func garbage(live uint64) int {
	return int(max(50, min(100*heapRoom/max(live, 1), 800)))
}

// worthwhile reports whether the process became idle between two checks and a collection would free enough, both
// absolutely and relative to the live heap.
func worthwhile(before, now usage) bool {
	calm := now.allocated-before.allocated < memoryCalm*uint64(memoryEvery/time.Second)
	return calm && now.gain() > max(memoryGain, now.live/4)
}

func readUsage() (u usage) {
	s := []metrics.Sample{
		{Name: "/gc/heap/allocs:bytes"},
		{Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/gc/heap/live:bytes"},
		{Name: "/memory/classes/heap/free:bytes"},
	}
	metrics.Read(s)
	for i, to := range []*uint64{&u.allocated, &u.objects, &u.live, &u.free} {
		if s[i].Value.Kind() == metrics.KindUint64 {
			*to = s[i].Value.Uint64()
		}
	}
	return u
}
