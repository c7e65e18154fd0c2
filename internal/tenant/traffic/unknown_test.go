package traffic

import (
	"testing"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
	"slipway/internal/platform/id"
	"slipway/internal/platform/visit"
	"slipway/internal/tenant/usage"
)

// A batch that is offered until it is accepted adds its requests once to its site and once to its owner's usage.
func TestUnknownCommit(t *testing.T) {
	t.Parallel()
	for _, fault := range []db.Fault{db.Silent, db.Gone, db.Dropped, db.Muted} {
		faulty := false
		d := dbtest.New(t, func(c *db.Config) {
			c.Faults = dbtest.Faults(func() db.Fault {
				if faulty = !faulty; !faulty {
					return fault
				}
				return db.Sound
			})
		})
		w := &world{t: t, now: time.Now()}
		u := usage.New(usage.Config{DB: d})
		w.Traffic = New(Config{DB: d, Usage: u})
		w.sites(ada, "site_1")
		r := w.Recorder()
		for n := range int64(10) {
			counts := visit.Counts{Site: "site_1", Owner: id.Owner(ada), Classes: [4]int64{1}, Bytes: 10}
			for i := 0; r.Record(t.Context(), visit.Batch{Counter: "edge", Number: n + 1, Since: w.now}, []visit.Counts{counts}) != nil; i++ {
				if i == 5 {
					t.Fatalf("fault %d: batch %d was never taken", fault, n)
				}
			}
		}
		var ok, used int64
		err := d.QueryRow(t.Context(), `SELECT (SELECT ok FROM traffic WHERE site_id = 'site_1'),
			(SELECT quantity FROM usage_sources WHERE meter = $1)`, usage.Requests).Scan(&ok, &used)
		if err != nil || ok != 10 || used != 10 {
			t.Errorf("fault %d: %d answers and %d used, want 10 of each: %v", fault, ok, used, err)
		}
	}
}
