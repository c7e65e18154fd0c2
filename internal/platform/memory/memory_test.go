package memory

import (
	"context"
	"runtime"
	"testing"
	"time"
)

// Memory is returned only if there is much of it and the program is idle.
func TestMemoryIsGivenBackWhenItIsCalm(t *testing.T) {
	t.Parallel()
	const mb = 1 << 20
	for name, tt := range map[string]struct {
		before, now usage
		want        bool
	}{
		"after a burst": {
			usage{allocated: 900 * mb},
			usage{allocated: 901 * mb, objects: 80 * mb, live: 30 * mb, free: 20 * mb},
			true,
		},
		"free alone": {
			usage{allocated: 900 * mb},
			usage{allocated: 901 * mb, objects: 30 * mb, live: 30 * mb, free: 20 * mb},
			true,
		},
		"during it": {
			usage{allocated: 900 * mb},
			usage{allocated: 990 * mb, objects: 80 * mb, live: 30 * mb, free: 20 * mb},
			false,
		},
		"little": {
			usage{allocated: 900 * mb},
			usage{allocated: 901 * mb, objects: 5 * mb, live: 4 * mb, free: 1 * mb},
			false,
		},
		"little beside much": {
			usage{allocated: 900 * mb},
			usage{allocated: 901 * mb, objects: 420 * mb, live: 400 * mb, free: 20 * mb},
			false,
		},
		"more live than there is": {usage{}, usage{objects: 10 * mb, live: 30 * mb}, false},
	} {
		if got := worthwhile(tt.before, tt.now); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// readUsage returns the numbers of this process.
func TestMemoryUsageIsRead(t *testing.T) {
	runtime.GC() // so that there are numbers of a collection
	before := readUsage()
	block := make([]byte, 64<<20)
	after := readUsage()
	runtime.KeepAlive(block)
	if after.allocated-before.allocated < 64<<20 || after.objects == 0 || after.live == 0 {
		t.Errorf("before %+v, after %+v", before, after)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := GiveBack(ctx); err != nil {
		t.Error(err)
	}
}

// The garbage collector's target is high for small heaps and low for large ones.
func TestGarbage(t *testing.T) {
	t.Parallel()
	for live, want := range map[uint64]int{0: 800, 1 << 20: 800, 8 << 20: 400, 16 << 20: 200, 32 << 20: 100, 64 << 20: 50, 1 << 30: 50} {
		if got := garbage(live); got != want {
			t.Errorf("%d MiB live: %d percent, want %d", live>>20, got, want)
		}
	}
}
