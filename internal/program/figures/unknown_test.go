package figures

import (
	"testing"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
)

// If it is unknown whether a commit succeeded, its figures must be written once, together with those counted since.
func TestUnknownCommit(t *testing.T) {
	t.Parallel()
	for _, fault := range []db.Fault{db.Silent, db.Gone} {
		faults := []db.Fault{db.Sound, fault, fault, db.Sound}
		d := dbtest.New(t, func(c *db.Config) { c.Faults = dbtest.Every(1, faults...) })
		c, now, failed := New(d), db.Now(), 0
		for range 12 {
			c.Answered("site", 200, 1, time.Millisecond)
			if err := c.Write(t.Context(), now); err != nil {
				if failed++; !db.Unknown(err) {
					t.Fatal(err)
				}
			}
		}
		for c.Write(t.Context(), now) != nil {
		}
		_, total, _, err := c.Read(t.Context(), "site", now.Add(-time.Minute), 0, 0)
		if err != nil || total.Requests() != 12 || failed == 0 {
			t.Errorf("fault %d: %d answers of 12, %d writes failed: %v", fault, total.Requests(), failed, err)
		}
	}
}
