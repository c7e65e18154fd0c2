package job

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
)

// Shares without running jobs come first, then those with the fewest. A share at the limit gets no turn, except the
// service's own.
func TestTurns(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		running map[string]int
		most    int
		want    []turn
	}{
		{nil, 2, []turn{{but: true}}},
		{map[string]int{"a": 1, "b": 2, "": 3}, 2, []turn{{but: true, shares: []string{"", "a", "b"}}, {shares: []string{"a"}}, {shares: []string{""}}}},
		{map[string]int{"b": 1, "a": 1, "": 1}, 2, []turn{{but: true, shares: []string{"", "a", "b"}}, {shares: []string{"", "a", "b"}}}},
	} {
		same := func(a, b turn) bool { return a.but == b.but && slices.Equal(a.shares, b.shares) }
		if got := turns(x.running, x.most); !slices.EqualFunc(got, x.want, same) {
			t.Errorf("%v: %v, want %v", x.running, got, x.want)
		}
	}
}

// With thousands of waiting jobs, both databases read the next one from an index in order, without sorting or scanning
// the table.
func TestNextIsIndexed(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	j := New(Config{DB: d, Log: slog.New(slog.DiscardHandler), Queues: map[string]int{"default": 4}})
	Handle(j, Policy{}, func(context.Context, work, int64) error { return nil })
	if err := d.Write(t.Context(), func(tx *db.Tx) error {
		for n := range 5000 {
			if _, err := Enqueue(t.Context(), tx, work{"x"}, Options{Share: fmt.Sprint("s", n%7)}); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	explain := "EXPLAIN QUERY PLAN "
	if !d.Single() {
		explain = "EXPLAIN "
	}
	if err := d.Admin(t.Context(), "ANALYZE jobs"); err != nil {
		t.Fatal(err)
	}
	for _, x := range []turn{{but: true}, {but: true, shares: []string{"s1", "s2"}}, {shares: []string{"s3"}}, {shares: []string{"s3", "s4"}}} {
		if err := d.Write(t.Context(), func(tx *db.Tx) error {
			query, args := j.next(tx, "default", x, tx.Now())
			rows, err := tx.Query(t.Context(), explain+query, args...)
			plan, err := db.Collect(rows, err, func(s db.Scanner) (detail string, err error) {
				if d.Single() {
					var id, parent, unused int64
					return detail, s.Scan(&id, &parent, &unused, &detail)
				}
				return detail, s.Scan(&detail)
			})
			text := strings.Join(plan, "\n")
			if !strings.Contains(text, "jobs_next") || strings.Contains(text, "B-TREE") || strings.Contains(text, "Sort") ||
				strings.Contains(text, "Seq Scan") || strings.Contains(text, "SCAN") {
				t.Errorf("%+v:\n%s", x, text)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
}
