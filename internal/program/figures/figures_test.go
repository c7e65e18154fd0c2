package figures

import (
	"context"
	"testing"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
)

// The figures of answers, usage and wakes must be readable per minute and per hour, summed over the nodes. Figures that
// could not be written must not be lost.
func TestFigures(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	nodes := []*Counter{New(d), New(d)}
	now := db.Now()
	for i, a := range nodes {
		for range 98 {
			a.Answered("site", 200, 1000, 30*time.Millisecond)
		}
		a.Answered("site", 404, 10, 700*time.Millisecond)
		a.Answered("site", 502, 10, 700*time.Millisecond)
		a.Note("site", func(f *Figures) { f.Wakes, f.Restarts, f.Memory, f.CPU = 1, 2, int64(100*(i+1)), time.Second })
		over, cancel := context.WithCancel(t.Context())
		cancel()
		if err := a.Write(over, now); err == nil {
			t.Error("Write succeeded with a canceled context")
		}
		ok(a.Write(t.Context(), now))
		ok(a.Write(t.Context(), now)) // writes nothing new
	}
	for _, back := range []time.Duration{time.Hour, 23 * time.Hour, 30 * 24 * time.Hour} {
		list, total, step, err := nodes[0].Read(t.Context(), "site", now.Add(-back), 0, 0)
		ok(err)
		if total.Requests() != 200 || total.Statuses != [4]int64{
			196,
			0,
			2,
			2,
		} || total.Wakes != 2 || total.Restarts != 4 || total.Memory != 200 || total.Bytes != 196_040 || total.CPU != 2*time.Second {
			t.Errorf("%s back: %+v", back, total)
		}
		if p50, p99 := total.Latency(.5), total.Latency(.99); p50 < 20*time.Millisecond || p50 > 50*time.Millisecond ||
			p99 < 500*time.Millisecond ||
			p99 > time.Second {
			t.Errorf("half began within %s, 99 of 100 within %s", p50, p99)
		}
		if n := len(list); n < int(back/step) || n > int(back/step)+2 || list[n-1].Requests() != 200 {
			t.Errorf("%s back: %d points of %s", back, n, step)
		}
	}
	if list, total, step, err := nodes[0].Read(
		t.Context(),
		"site",
		now.Add(-time.Hour),
		now.Add(-30*time.Minute),
		15*time.Minute,
	); err != nil || step != 15*time.Minute || len(list) < 2 || len(list) > 4 || total.Requests() != 0 {
		t.Errorf("up to half an hour ago: %d points of %s, %+v, %v", len(list), step, total, err)
	}
	if list, _, step, err := nodes[0].Read(
		t.Context(),
		"site",
		now.Add(-365*24*time.Hour),
		now,
		time.Minute,
	); err != nil || step != time.Minute || len(list) > 1+int(keepMinutes/time.Minute) {
		t.Errorf("a year in minutes: %d points of %s, %v", len(list), step, err)
	}
	if list, total, _, err := nodes[0].Read(
		t.Context(),
		"other",
		now,
		0,
		0,
	); err != nil || len(list) == 0 || total.Requests() != 0 || total.Latency(.5) != 0 {
		t.Errorf("another site has %+v, %v", total, err)
	}
	ok(d.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), `UPDATE app_metrics SET at = $1`, now.Add(-400*24*time.Hour))
		return err
	}))
	ok(nodes[0].Tidy(t.Context()))
	var n int
	ok(d.QueryRow(t.Context(), `SELECT count(*) FROM app_metrics`).Scan(&n))
	if n != 0 {
		t.Errorf("%d old rows stay", n)
	}
}
