package cgroup

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// With cgroup v1, where the kernel weighs the group of all sandboxes against single threads, the group weighs more than
// one thread of the service.
func TestShareOfAll(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ v2, foreground bool }{{false, true}, {false, false}, {true, true}} {
		h := Hierarchy{Point: t.TempDir(), V2: tt.v2, Controllers: map[string]bool{"cpu": true}}
		at := filepath.Join(h.Point, "slipway", "cpu.shares")
		if err := os.Mkdir(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte("1024"), 0o644); err != nil { // the kernel's default
			t.Fatal(err)
		}
		if _, err := New([]Hierarchy{h}, "/slipway/installation", "run", Limits{Foreground: tt.foreground}); err != nil {
			t.Fatal(err)
		}
		want := strconv.FormatInt(shareOfAll(), 10)
		if tt.v2 || !tt.foreground { // in version 2 the service has a cgroup too
			want = "1024"
		}
		if text, err := os.ReadFile(at); err != nil || string(text) != want {
			t.Errorf("%+v: all sandboxes weigh %q, want %s; %v", tt, text, want, err)
		}
	}
	if shareOfAll() < 1024 {
		t.Errorf("all sandboxes weigh %d, less than one thread", shareOfAll())
	}
}

// If a mount covers an earlier one of the same hierarchy, as in a cluster node that is a container, only the later one
// counts.
func TestHierarchiesThatAreCovered(t *testing.T) {
	t.Parallel()
	hs := hierarchies(`342 338 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
343 338 0:33 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids
442 438 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
`)
	if len(hs) != 2 || hs[0].Point != "/sys/fs/cgroup/pids" || hs[1].Point != "/sys/fs/cgroup/memory" {
		t.Errorf("%+v", hs)
	}
}

// The systemd unit mounts the service's writable cgroups over themselves. They don't count as another hierarchy.
func TestHierarchiesAreCountedOnce(t *testing.T) {
	t.Parallel()
	hs := hierarchies(`342 338 0:32 / /sys/fs/cgroup/memory ro,nosuid,relatime shared:90 - cgroup cgroup rw,memory
349 338 0:38 / /sys/fs/cgroup/unified ro,nosuid,nodev,noexec,relatime shared:99 - cgroup2 cgroup2 rw
379 342 0:32 /slipway /sys/fs/cgroup/memory/slipway rw,nosuid,relatime shared:91 - cgroup cgroup rw,memory
381 349 0:38 /slipway /sys/fs/cgroup/unified/slipway rw,nosuid,nodev,noexec,relatime shared:100 - cgroup2 cgroup2 rw
`)
	if len(hs) != 2 || hs[0].Point != "/sys/fs/cgroup/memory" || !hs[0].Controllers["memory"] ||
		hs[1].Point != "/sys/fs/cgroup/unified" || !hs[1].V2 {
		t.Errorf("%+v", hs)
	}
}
