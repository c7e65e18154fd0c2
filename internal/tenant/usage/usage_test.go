package usage

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
	"slipway/internal/platform/id"
	"slipway/internal/tenant/limits"
)

const (
	ada id.Owner = "own_ada"
	eve id.Owner = "own_eve"
)

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// world is the service with a clock that the test sets.
type world struct {
	*Usage
	t     testing.TB
	clock db.Time
}

// at sets the service's clock.
func at(u *Usage, now func() db.Time) *Usage {
	u.now = now
	return u
}

func newWorld(t testing.TB, l *limits.Limits) *world {
	w := &world{t: t, clock: db.At(time.Date(2027, 3, 14, 15, 9, 26, 0, time.UTC))}
	w.Usage = at(New(Config{DB: dbtest.New(t), Limits: l}), func() db.Time { return w.clock })
	return w
}

// merge writes rows as a source does.
func (w *world) merge(rows ...Row) {
	w.t.Helper()
	ok(w.t, w.c.DB.Write(w.t.Context(), func(tx *db.Tx) error { return w.MergeTx(w.t.Context(), tx, rows) }))
}

func (w *world) month(owner id.Owner, m Meter) int64 {
	w.t.Helper()
	n, _, err := w.Current(w.t.Context(), w.c.DB, owner, m)
	ok(w.t, err)
	return n
}

// table returns a table's quantities by owner, meter and start of their interval.
func (w *world) table(name, column string) map[string]int64 {
	w.t.Helper()
	rows, err := w.c.DB.Query(w.t.Context(), `SELECT owner_id, meter, `+column+`, CAST(SUM(quantity) AS BIGINT) FROM `+name+` GROUP BY owner_id, meter, `+column)
	out := map[string]int64{}
	_, err = db.Collect(rows, err, func(s db.Scanner) (_ int, err error) {
		var owner, meter string
		var at, n int64
		err = s.Scan(&owner, &meter, &at, &n)
		out[fmt.Sprint(owner, " ", meter, " ", at)] += n
		return 0, err
	})
	ok(w.t, err)
	return out
}

// A quantity that is rewritten, late or out of order counts once. One written after its hour was sealed counts for the
// next hour, and the sealed hour stays unchanged.
func TestLateQuantities(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	first := floor(w.clock, hour)
	row := func(n int64) Row {
		return Row{Owner: ada, Meter: Bandwidth, Hour: first, Source: "edge/a", Site: "site_1", Quantity: n}
	}
	w.merge(row(100))
	w.merge(row(300))
	w.merge(row(300))
	w.merge(row(200)) // an older write that was delayed
	w.merge(Row{Owner: ada, Meter: Bandwidth, Hour: first, Source: "edge/b", Site: "site_1", Quantity: 50})
	if n := w.month(ada, Bandwidth); n != 350 {
		t.Errorf("%d are used, want 350", n)
	}
	w.clock = first.Add(3*hour - time.Second)
	ok(t, w.seal(t.Context()))
	if n := len(w.table("usage_hours", "hour")); n != 0 {
		t.Errorf("%d hours are sealed before two hours have passed", n)
	}
	w.clock = first.Add(3 * hour)
	ok(t, w.seal(t.Context()))
	key := func(h db.Time) string { return fmt.Sprint(ada, " ", Bandwidth, " ", int64(h)) }
	if got := w.table("usage_hours", "hour"); got[key(first)] != 350 || len(got) != 1 {
		t.Errorf("sealed: %v", got)
	}
	w.merge(row(320), Row{Owner: ada, Meter: Bandwidth, Hour: w.clock, Source: "edge/a", Site: "site_2", Quantity: 5})
	w.merge(row(320))
	for range 3 {
		w.clock = w.clock.Add(hour)
		ok(t, w.seal(t.Context()))
		ok(t, w.seal(t.Context()))
	}
	got := w.table("usage_hours", "hour")
	if got[key(first)] != 350 || got[key(first.Add(hour))] != 20 || got[key(first.Add(3*hour))] != 5 || len(got) != 3 {
		t.Errorf("sealed: %v", got)
	}
	if n := w.month(ada, Bandwidth); n != 375 {
		t.Errorf("%d are used, want 375", n)
	}
	for _, site := range []id.Site{"site_1", "site_2", "site_3"} {
		used, err := w.UsedBySite(t.Context(), w.c.DB, ada, site, Bandwidth)
		ok(t, err)
		if used != (site != "site_3") {
			t.Errorf("%s: used %v", site, used)
		}
	}
}

var errCut = errors.New("cut off")

// With any repetition, kill, lost response, reordering or clock that steps back, everything written counts exactly once
// by hour, by day and by site. Only what a killed process hadn't written is missing.
func TestEveryHistoryCountsOnce(t *testing.T) {
	t.Parallel()
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, nil)
			r := rand.New(rand.NewPCG(seed, 26))
			owners, sites, meters := []id.Owner{ada, eve}, []id.Site{"site_1", "site_2", ""}, []Meter{Bandwidth, Build, Requests}
			type of struct {
				owner id.Owner
				meter Meter
			}
			truth, lost := map[of]int64{}, map[of]int64{}
			started := 0
			start := func() *Source { started++; return NewSource(fmt.Sprint("edge/", started)) }
			nodes := []*Source{start(), start(), start()}
			var sent [][]Row // rows sent earlier
			sealed := map[string]int64{}
			stored := map[Row]int64{} // largest committed quantity of each row
			note := func(rows []Row) {
				for _, row := range rows {
					k := row
					k.Quantity = 0
					stored[k] = max(stored[k], row.Quantity)
				}
			}
			merge := func(rows []Row, commit bool) error {
				err := w.c.DB.Write(t.Context(), func(tx *db.Tx) error {
					if err := w.MergeTx(t.Context(), tx, rows); err != nil {
						return err
					}
					if !commit {
						return errCut
					}
					return nil
				})
				if err == nil {
					note(rows)
				}
				return err
			}
			for range 400 {
				n := r.IntN(len(nodes))
				switch r.IntN(10) {
				case 0, 1, 2, 3:
					o, m, q := owners[r.IntN(2)], meters[r.IntN(3)], 1+r.Int64N(1000)
					truth[of{o, m}] += q
					nodes[n].Add(w.clock, o, m, sites[r.IntN(3)], q)
				case 4, 5: // a flush whose response may be lost, or which may fail
					rows := nodes[n].Pending()
					sent = append(sent, rows)
					commit := r.IntN(4) > 0
					if err := merge(rows, commit); err != nil && !errors.Is(err, errCut) {
						t.Fatal(err)
					} else if err == nil && r.IntN(3) > 0 {
						nodes[n].Written(rows)
					}
				case 6: // an earlier write arrives again
					if len(sent) > 0 {
						ok(t, merge(sent[r.IntN(len(sent))], true))
					}
				case 7:
					w.clock = w.clock.Add(time.Duration(r.Int64N(int64(90 * time.Minute))))
					if r.IntN(5) == 0 {
						w.clock = w.clock.Add(-time.Hour)
					}
				case 8:
					ok(t, w.seal(t.Context()))
					now := w.table("usage_hours", "hour")
					for k, n := range sealed {
						if now[k] != n {
							t.Fatalf("the sealed hour %s has changed from %d to %d", k, n, now[k])
						}
					}
					sealed = now
				case 9:
					if r.IntN(4) == 0 { // killed: its earlier writes may still arrive
						for _, row := range nodes[n].Pending() {
							lost[of{row.Owner, row.Meter}] += row.Quantity // at most: part of it may be stored
						}
						nodes[n] = start()
					}
				}
			}
			for _, s := range nodes {
				note(s.Pending())
				ok(t, w.Write(t.Context(), s))
			}
			var want int64
			for _, n := range stored {
				want += n
			}
			w.clock = w.clock.Add(10 * hour)
			ok(t, w.seal(t.Context()))
			for _, tb := range []struct{ name, column string }{{"usage_hours", "hour"}, {"usage_days", "day"}} {
				got := w.table(tb.name, tb.column)
				for k, want := range truth {
					var sum int64
					for h := floor(w.clock, day).Add(-90 * day); h <= w.clock; h = h.Add(hour) {
						sum += got[fmt.Sprint(k.owner, " ", k.meter, " ", int64(h))]
					}
					if sum > want || sum < want-lost[k] {
						t.Errorf("%s of %s, %s: %d, want %d, at most %d of them lost", k.meter, k.owner, tb.name, sum, want, lost[k])
					}
				}
			}
			sum := func(table string) (n int64) {
				ok(t, w.c.DB.QueryRow(t.Context(), `SELECT COALESCE(CAST(SUM(quantity) AS BIGINT), 0) FROM `+table).Scan(&n))
				return n
			}
			hours := sum("usage_hours")
			if hours != want || hours != sum("usage_days") || hours != sum("usage_sources") || sum("usage_sites") > hours {
				t.Errorf("%d by hour, %d by day, %d by source, %d by site; want %d", hours, sum("usage_days"), sum("usage_sources"), sum("usage_sites"), want)
			}
		})
	}
}

// Nodes that write and seal at the same time count each row once.
func TestManyNodes(t *testing.T) {
	t.Parallel()
	url := dbtest.URL(t)
	begin := db.At(time.Date(2027, 3, 14, 15, 0, 0, 0, time.UTC))
	now := func() db.Time { return begin.Add(5 * hour) }
	var all sync.WaitGroup
	const nodes, rounds = 3, 40
	for n := range nodes {
		u := at(New(Config{DB: dbtest.Open(t, url)}), now)
		s := NewSource(fmt.Sprint("edge/", n))
		all.Go(func() {
			for i := range rounds {
				s.Add(begin.Add(time.Duration(i)*time.Minute), ada, Bandwidth, id.Site(fmt.Sprint("site_", i%3)), 1)
				if err := u.Write(context.Background(), s); err != nil {
					t.Error(err)
				}
				if err := u.seal(context.Background()); err != nil && !errors.Is(err, errSealed) {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	w := &world{Usage: at(New(Config{DB: dbtest.Open(t, url)}), func() db.Time { return begin.Add(9 * hour) }), t: t}
	ok(t, w.seal(t.Context()))
	for table, column := range map[string]string{"usage_hours": "hour", "usage_days": "day", "usage_sites": "day"} {
		var sum int64
		for n := range maps.Values(w.table(table, column)) {
			sum += n
		}
		if sum != nodes*rounds {
			t.Errorf("%s: %d, want %d", table, sum, nodes*rounds)
		}
	}
}

// Old source rows, sealed hours and per-site days are deleted. Per-owner days stay.
func TestForget(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.merge(Row{Owner: ada, Meter: Build, Hour: w.clock, Source: "dep_1/a", Site: "site_1", Quantity: 60_000})
	w.clock = w.clock.Add(keepSources + 2*hour)
	ok(t, w.Tidy(t.Context()))
	w.merge(Row{Owner: ada, Meter: Build, Hour: w.clock.Add(-keepSources), Source: "dep_1/a", Site: "site_1", Quantity: 90_000}) // too late
	count := func(table string) (n int) {
		ok(t, w.c.DB.QueryRow(t.Context(), `SELECT count(*) FROM `+table).Scan(&n))
		return n
	}
	if count("usage_sources") != 0 || count("usage_hours") != 1 || count("usage_sites") != 1 {
		t.Errorf("%d, %d, %d rows", count("usage_sources"), count("usage_hours"), count("usage_sites"))
	}
	w.clock = w.clock.Add(keepSites + day)
	ok(t, w.Tidy(t.Context()))
	if count("usage_hours") != 0 || count("usage_sites") != 0 || count("usage_days") != 1 {
		t.Errorf("%d, %d, %d rows", count("usage_hours"), count("usage_sites"), count("usage_days"))
	}
}

// Usage counted by an earlier version counts for this month, including what it counts while running beside this one.
func TestEarlierVersions(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.merge(Row{Owner: ada, Meter: Build, Hour: w.clock, Source: "dep_1/a", Site: "site_1", Quantity: 1})
	for _, q := range []string{
		`INSERT INTO build_time (owner_id, month, site_id, ms) VALUES ('own_ada', 202703, 'site_9', 7)`,
		`INSERT INTO build_time (owner_id, month, site_id, ms) VALUES ('own_ada', 202702, 'site_8', 1000)`,
		`INSERT INTO bandwidth (owner_id, month, bytes, paused) VALUES ('own_ada', 202703, 50, FALSE)`,
	} {
		ok(t, w.c.DB.Admin(t.Context(), q))
	}
	if b, n := w.month(ada, Build), w.month(ada, Bandwidth); b != 8 || n != 50 {
		t.Errorf("%d ms, %d bytes", b, n)
	}
	for site, want := range map[id.Site]bool{"site_9": true, "site_8": false} {
		if used, err := w.UsedBySite(t.Context(), w.c.DB, ada, site, Build); err != nil || used != want {
			t.Errorf("%s: %v, %v", site, used, err)
		}
	}
}
