package world

import "testing"

// Long skips a test unless make test-all runs it: a test that takes over ten seconds because it covers in depth, with
// large applications, or at every moment of a kill what shorter ones cover once.
func Long(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("make test-all tells it")
	}
}
