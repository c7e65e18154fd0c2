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

// How often the process's memory is examined, how much must be gained for it to be given
// back to the system, and below which rate of allocations per second nothing is going on.
const (
	memoryEvery = time.Second
	memoryGain  = 2 << 20
	memoryCalm  = 4 << 20
)

// startedAfter is after how many looks the start is over.
const startedAfter = 2

// heapRoom says how far the heap may grow before it is collected, however little is live: a
// small one would be collected thirty times a second while requests come in.
const heapRoom = 32 << 20

// usage holds the Go runtime's figures of its heap, in bytes.
type usage struct {
	allocated uint64 // since the start
	objects   uint64 // living ones, and those that no collection has found dead yet
	live      uint64 // at the last collection
	free      uint64 // kept from the system without an object in it
}

// gain estimates the bytes that a collection now would give back, as far as it is known.
func (u usage) gain() uint64 { return u.free + u.objects - min(u.objects, u.live) }

// GiveBack returns memory to the system once a burst of work is over. By itself the runtime
// collects what a burst has left after two minutes at the earliest, and gives it back slowly
// then: after deployments, and between them, the process would look twice its size, and
// builds and programs beside it would have that much less.
func GiveBack(ctx context.Context) error {
	tick := time.NewTicker(memoryEvery)
	defer tick.Stop()
	before, percent := readUsage(), 100
	adjust := func(live uint64) {
		// setting it stops everything for a moment
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
			_ = ForgetStart() // what could not be unmapped stays
		}
		adjust(now.live)
		before = now
	}
}

// garbage returns how large the part of the heap without use may become, in percent of what
// is live: the runtime's own 100, more where little is live, and down to 50 where it is much,
// so that a burst which needs 80 MB doesn't take 160.
func garbage(live uint64) int {
	return int(max(50, min(100*heapRoom/max(live, 1), 800)))
}

// worthwhile reports whether the work has calmed down between two looks and a collection
// would give back much, in itself and beside what is live.
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
