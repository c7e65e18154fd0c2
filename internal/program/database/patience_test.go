package database

import (
	"testing"
	"testing/synctest"
	"time"

	"slipway/internal/platform/fault"
)

// The creation of a database must wait minutes for a server that starts slowly, but not for one that has given a reason
// why it cannot start.
func TestPatienceWithServers(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		after time.Duration // when the server is up; 0: never
		why   string
		want  time.Duration
		fails bool
	}{
		"slow":    {after: 2 * time.Minute, want: 2 * time.Minute},
		"never":   {want: makePatience, fails: true},
		"refused": {why: "no MariaDB", want: wakePatience, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := (&Databases{}).newServer("private", "", "", 0)
				s.why = tt.why
				if tt.after > 0 {
					time.AfterFunc(tt.after, func() { s.setUp(&admin{}, nil) })
				}
				begun := time.Now()
				_, done, err := s.useWithin(t.Context(), makePatience)
				if err == nil {
					done()
				}
				if took := time.Since(begun); took != tt.want || fault.Is(err, fault.Unavailable) != tt.fails {
					t.Errorf("after %s: %v; want it after %s", took, err, tt.want)
				}
			})
		})
	}
}
