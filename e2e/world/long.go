package world

import "testing"

// Long leaves a story to make test-all: one that shows in depth, with large applications, or at every moment of a kill what
// shorter ones show once, and takes some ten seconds or more.
func Long(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("make test-all tells it")
	}
}
