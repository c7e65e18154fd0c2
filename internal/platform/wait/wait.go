// Package wait owns how tests wait: for conditions, never for a fixed time.
package wait

import (
	"testing"
	"time"
)

// patience is how long a condition may take on a busy machine. Only failing tests wait that long.
const patience = 2 * time.Minute

// Until returns as soon as ok returns true; it polls on the test's goroutine. After two minutes the test fails with
// what and, if given, the result of state.
func Until(t testing.TB, what string, ok func() bool, state ...func() string) {
	t.Helper()
	pause := 500 * time.Microsecond
	for end := time.Now().Add(patience); !ok(); time.Sleep(pause) {
		if time.Now().After(end) {
			for _, s := range state {
				t.Log(s())
			}
			t.Fatalf("waited in vain until %s", what)
		}
		pause = min(2*pause, 16*time.Millisecond)
	}
}
