package cgroup

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// All sandboxes together weigh more than one thread of the service, where the kernel weighs
// their group against single threads.
func TestShareOfAll(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ v2, foreground bool }{{false, true}, {false, false}, {true, true}} {
		h := Hierarchy{Point: t.TempDir(), V2: tt.v2, Controllers: map[string]bool{"cpu": true}}
		at := filepath.Join(h.Point, "slipway", "cpu.shares")
		if err := os.Mkdir(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte("1024"), 0o644); err != nil { // as the kernel does
			t.Fatal(err)
		}
		if _, err := New([]Hierarchy{h}, "/slipway/installation", "run", Limits{Foreground: tt.foreground}); err != nil {
			t.Fatal(err)
		}
		want := strconv.FormatInt(shareOfAll(), 10)
		if tt.v2 || !tt.foreground { // in version 2 the service is in a group as well
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
