// Package wait owns how tests wait: for a condition, never for a time.
package wait

import (
	"testing"
	"time"
)

// patience is how long a condition may take on a machine that is busy with other tests. Only a
// test that fails ever waits for so long.
const patience = 2 * time.Minute

// Until returns as soon as ok reports true, which it asks again and again on the test's own
// goroutine. After two minutes the test fails, with what it waited for and, where it is
// given, what state then returns.
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
