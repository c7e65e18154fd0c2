package connlimit

import "testing"

// Visitors can't take all file descriptors, however few there are.
func TestPlaces(t *testing.T) {
	t.Parallel()
	for _, n := range []uint64{64, 256, 512, 1024, 20_000, 1 << 20, 1 << 40} {
		p := Plan(n, 0, 0)
		left := int(min(n, 1<<20)) - p.Edge - p.Control
		if p.Edge < 1 || p.EdgeAddress < 1 || p.EdgeSpare >= p.Edge || p.Control < 1 || p.ControlAddress < 1 ||
			left < int(min(n, 1<<20))/8 && left < 1024 {
			t.Errorf("%d descriptors: %+v, %d left", n, p, left)
		}
		if p.EdgeAddress > p.Edge/2 || p.ControlAddress > p.Control/2 {
			t.Errorf("%d descriptors: one address takes most of %+v", n, p)
		}
	}
	if p := Plan(20_000, 100, 7); p.Edge != 100 || p.EdgeAddress != 7 {
		t.Errorf("the operator's limits are not kept: %+v", p)
	}
	if p := Plan(1024, 1_000_000, 0); p.Edge > 512 {
		t.Errorf("the operator's wish leaves nothing for the control plane: %+v", p)
	}
}
