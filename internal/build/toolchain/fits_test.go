package toolchain

import "testing"

// Fits interprets a range like npm.
func TestFits(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		want, node string
		fits       bool
	}{
		{"", "20.1.0", true},
		{"20", "20.1.0", true},
		{">=20 <23", "22.9.1", true},
		{"lts/iron", "20.1.0", true},
		{"latest", "20.1.0", true},
		{"22", "20.1.0", false},
		{"20.1.1", "20.1.0", false},
		{"nonsense!", "20.1.0", false},
		{"20", "", false},
	} {
		if got := Fits(test.want, test.node); got != test.fits {
			t.Errorf("Fits(%q, %q) = %v", test.want, test.node, got)
		}
	}
}
