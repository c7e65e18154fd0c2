package traffic

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/id"
	"slipway/internal/tenant/account"
)

const (
	ada account.OwnerID = "usr_ada"
	eve account.OwnerID = "usr_eve"
)

// world is the service with a clock that the test sets.
type world struct {
	*Traffic
	t   testing.TB
	now time.Time
}

func newWorld(t testing.TB) *world {
	w := &world{t: t, now: time.Date(2027, 3, 14, 15, 9, 26, 0, time.UTC)}
	w.Traffic = New(Config{DB: dbtest.New(t), Now: func() db.Time { return db.At(w.now) }})
	return w
}

// sites inserts the rows of existing sites.
func (w *world) sites(owner account.OwnerID, ids ...id.Site) {
	w.t.Helper()
	err := w.c.DB.Write(w.t.Context(), func(tx *db.Tx) error {
		for _, id := range ids {
			if _, err := tx.Exec(w.t.Context(), `
				INSERT INTO sites (id, owner_id, name, slug, type, runtime, status, status_reason, repository, branch, framework, build, credential,
					needs_redeploy, live_deployment, live_release, live_version, created_at, updated_at, deleted_at)
				VALUES ($1, $2, $1, $1, 'static', 'static', 'active', '', '', '', '', '{}', '', FALSE, '', '', 0, 0, 0, 0)`, id, owner); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) add(site id.Site, c Counts) {
	w.t.Helper()
	if err := w.Add(w.t.Context(), Batch{Since: w.now}, map[id.Site]Counts{site: c}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) series(owner account.OwnerID, site id.Site, back time.Duration, step Step) Series {
	w.t.Helper()
	s, err := w.Series(w.t.Context(), owner, site, db.At(w.now.Add(-back)), step)
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

func (w *world) rows(span time.Duration) (n int) {
	w.t.Helper()
	if err := w.c.DB.QueryRow(w.t.Context(), `SELECT count(*) FROM traffic WHERE span = $1`, span.Milliseconds()).Scan(&n); err != nil {
		w.t.Fatal(err)
	}
	return n
}

// one is a count with a different value in each field.
var one = Counts{OK: 1, Redirected: 10, ClientErrors: 100, ServerErrors: 1000, Pages: 10_000, Bytes: 100_000}

func times(c Counts, n int64) (sum Counts) {
	for range n {
		sum = sum.Plus(c)
	}
	return sum
}

func TestSeries(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.sites(ada, "a", "b")
	w.sites(eve, "e")
	w.add("a", one)
	w.now = w.now.Add(2 * time.Minute) // 15:11, another five-minute interval
	w.add("a", one)
	w.add("a", one)
	w.add("e", one)
	w.add("gone", one)

	s := w.series(ada, "a", 30*time.Minute, FiveMinutes)
	if len(s.Points) != 7 || s.Points[0].At.String() != "2027-03-14T14:40:00.000Z" ||
		s.Points[6].At.String() != "2027-03-14T15:10:00.000Z" {
		t.Fatalf("%d points from %s to %s", len(s.Points), s.Points[0].At, s.Points[len(s.Points)-1].At)
	}
	for i, want := range []Counts{{}, {}, {}, {}, {}, one, times(one, 2)} {
		if s.Points[i].Counts != want {
			t.Errorf("point %d: %+v, want %+v", i, s.Points[i].Counts, want)
		}
	}
	if s.Total() != times(one, 3) || s.Total().Requests() != 3333 {
		t.Errorf("total %+v", s.Total())
	}
	for _, step := range Steps {
		if got := w.series(ada, "a", 10*time.Hour, step).Total(); got != times(one, 3) {
			t.Errorf("by %s: %+v", step, got)
		}
	}
	for name, s := range map[string]Series{
		"a stranger":               w.series(eve, "a", hour, FiveMinutes),
		"an empty site":            w.series(ada, "b", hour, FiveMinutes),
		"a site that is not there": w.series(ada, "gone", hour, FiveMinutes),
	} {
		if s.Total() != (Counts{}) || len(s.Points) != 13 {
			t.Errorf("%s: %d points, %+v", name, len(s.Points), s.Total())
		}
	}
	cards, err := w.Day(t.Context(), ada, []id.Site{"a", "b", "e", "gone"})
	if err != nil || len(cards) != 1 || cards["a"].Total() != times(one, 3) || len(cards["a"].Points) != 24 {
		t.Errorf("cards: %+v, %v", cards, err)
	}
	if cards, err := w.Day(t.Context(), ada, nil); err != nil || len(cards) != 0 {
		t.Errorf("no cards: %v, %v", cards, err)
	}

	if err := w.ForgetSite(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if got := w.series(ada, "a", 10*time.Hour, Hour).Total(); got != (Counts{}) {
		t.Errorf("after Forget: %+v", got)
	}
}

func TestSeriesRefuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for name, tt := range map[string]struct {
		back time.Duration
		step Step
		code string
	}{
		"another step":       {hour, Step(7 * time.Minute), "invalid_step"},
		"no step":            {hour, 0, "invalid_step"},
		"the future":         {-10 * time.Minute, FiveMinutes, "invalid_since"},
		"5m too far back":    {keepFine + fine, FiveMinutes, "invalid_since"},
		"15m too far back":   {keepFine + 15*time.Minute, QuarterHour, "invalid_since"},
		"1h too far back":    {keepHour + hour, Hour, "invalid_since"},
		"1d too far back":    {keepDay + day, Day, "invalid_since"},
		"the beginning":      {time.Duration(1 << 62), Day, "invalid_since"},
		"5m just so":         {keepFine, FiveMinutes, ""},
		"6h just so":         {keepHour, QuarterDay, ""},
		"1d just so":         {keepDay, Day, ""},
		"a moment from here": {-time.Second, Hour, ""},
	} {
		_, err := w.Series(t.Context(), ada, "a", db.At(w.now.Add(-tt.back)), tt.step)
		if f := fault.As(err); tt.code == "" && err != nil || tt.code != "" && (f == nil || f.Code != tt.code || f.Kind != fault.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for back, want := range map[time.Duration]string{
		time.Minute: "5m",
		6 * hour:    "5m",
		day:         "15m",
		48 * hour:   "1h",
		4 * day:     "1h",
		7 * day:     "2h",
		25 * day:    "6h",
		30 * day:    "1d",
		400 * day:   "1d",
	} {
		if got := StepFor(back).String(); got != want {
			t.Errorf("%s is shown by %s, want %s", back, got, want)
		}
	}
}

// The counts returned equal the counts added, for any age and after any aggregation. Only counts older than the
// retention are deleted.
func TestSums(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.sites(ada, "a", "b")
	end := w.now
	w.now = end.Add(-500 * day)
	r := rand.New(rand.NewPCG(1, 2))
	type key struct {
		site id.Site
		at   db.Time
	}
	truth := map[key]Counts{} // by hour
	for w.now.Before(end) {
		batch := map[id.Site]Counts{}
		for _, site := range []id.Site{"a", "b"} {
			if r.IntN(3) > 0 {
				n := Counts{
					OK:           r.Int64N(50),
					Redirected:   r.Int64N(5),
					ClientErrors: r.Int64N(5),
					ServerErrors: r.Int64N(2),
					Pages:        r.Int64N(9),
					Bytes:        r.Int64N(1 << 40),
				}
				batch[site] = n
				k := key{site, floor(db.At(w.now), hour)}
				truth[k] = truth[k].Plus(n)
			}
		}
		if err := w.Add(t.Context(), Batch{Since: w.now}, batch); err != nil {
			t.Fatal(err)
		}
		w.now = w.now.Add(time.Duration(1+r.IntN(45)) * hour)
		if w.now.Before(end) && r.IntN(4) > 0 { // the job is sometimes late
			if err := w.tidy(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	w.now = end
	if err := w.tidy(t.Context()); err != nil {
		t.Fatal(err)
	}
	check := func(what string) {
		t.Helper()
		for _, site := range []id.Site{"a", "b"} {
			for _, step := range []Step{Hour, QuarterDay, Day} {
				s := w.series(ada, site, step.Back(), step)
				for _, p := range s.Points {
					var want Counts
					for at := p.At; at < p.At.Add(time.Duration(step)); at = at.Add(hour) {
						want = want.Plus(truth[key{site, at}])
					}
					if p.Counts != want {
						t.Fatalf("%s: %s of %s at %s: %+v, want %+v", what, step, site, p.At, p.Counts, want)
					}
				}
			}
		}
	}
	check("in the end")
	if err := w.tidy(t.Context()); err != nil {
		t.Fatal(err)
	}
	check("summed up twice")
	if n := w.rows(day); n > 2*401 || n < 300 {
		t.Errorf("%d days are kept", n)
	}
	if n := w.rows(hour); n > 2*24*91 {
		t.Errorf("%d hours are kept", n)
	}
	if n := w.rows(fine); n > 2*12*49 {
		t.Errorf("%d stretches of five minutes are kept", n)
	}
	w.now = w.now.Add(500 * day)
	if err := w.tidy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := w.rows(fine) + w.rows(hour) + w.rows(day); n != 0 {
		t.Errorf("%d rows of long ago are kept", n)
	}
}

// Counts that a node reports late are added to the sum of their hour.
func TestLate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.sites(ada, "a")
	w.add("a", one)
	past := w.now
	for _, later := range []time.Duration{hour, 2 * hour} {
		w.now = past.Add(later)
		if err := w.tidy(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := w.Add(t.Context(), Batch{Since: past}, map[id.Site]Counts{"a": one}); err != nil {
			t.Fatal(err)
		}
	}
	w.now = past.Add(3 * hour)
	if err := w.tidy(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.now = past.Add(40 * hour) // hours are read now, and one day has passed
	if got := w.series(ada, "a", 41*hour, Hour).Total(); got != times(one, 3) {
		t.Errorf("%+v", got)
	}
}

// Several nodes add to the same intervals in any order.
func TestManyNodes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var ids []id.Site
	all := map[id.Site]Counts{}
	for i := range 450 {
		id := id.Site(fmt.Sprintf("site%03d", i))
		ids = append(ids, id)
		all[id] = one
	}
	w.sites(ada, ids...)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 3 {
				if err := w.Add(context.WithoutCancel(t.Context()), Batch{Since: w.now}, all); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	day, err := w.Day(t.Context(), ada, ids[:100])
	if err != nil || len(day) != 100 {
		t.Fatal(len(day), err)
	}
	for id, s := range day {
		if s.Total() != times(one, 12) {
			t.Errorf("%s: %+v", id, s.Total())
		}
	}
}

// BenchmarkDay measures the query of a page of site cards in the worst case: many sites, each with visits in every five
// minutes of the last two days.
func BenchmarkDay(b *testing.B) {
	w := newWorld(b)
	var ids []id.Site
	for i := range 200 {
		ids = append(ids, id.Site(fmt.Sprintf("site_%026d", i)))
	}
	w.sites(ada, ids...)
	batch := map[id.Site]Counts{}
	for _, id := range ids {
		batch[id] = one
	}
	end := w.now
	for w.now = end.Add(-keepFine); w.now.Before(end); w.now = w.now.Add(fine) {
		if err := w.Add(b.Context(), Batch{Since: w.now}, batch); err != nil {
			b.Fatal(err)
		}
	}
	begun := time.Now()
	if err := w.tidy(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.Logf("summed up in %s: %d stretches, %d hours, %d days", time.Since(begun), w.rows(fine), w.rows(hour), w.rows(day))
	begun = time.Now()
	if err := w.Add(b.Context(), Batch{Since: w.now}, batch); err != nil {
		b.Fatal(err)
	}
	b.Logf("%d sites added to in %s", len(ids), time.Since(begun))
	var pages, size int64
	if err := w.c.DB.QueryRow(b.Context(), `SELECT page_count, page_size FROM pragma_page_count(), pragma_page_size()`).Scan(
		&pages,
		&size,
	); err == nil {
		b.Logf("%.0f bytes a row", float64(pages*size)/float64(w.rows(fine)+w.rows(hour)))
	}
	b.Run("24 cards", func(b *testing.B) {
		for b.Loop() {
			if s, err := w.Day(b.Context(), ada, ids[100:124]); err != nil || len(s) != 24 {
				b.Fatal(len(s), err)
			}
		}
	})
	b.Run("one site", func(b *testing.B) {
		for b.Loop() {
			if _, err := w.Series(b.Context(), ada, ids[7], db.At(w.now.Add(-30*day)), Day); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// A batch offered again because the response to its commit was lost counts once.
func TestBatchCountsOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.sites(ada, "a")
	bytes := func() (n int64) {
		t.Helper()
		if err := w.c.DB.QueryRow(
			t.Context(),
			"SELECT COALESCE(CAST(SUM(bytes) AS BIGINT), 0) FROM traffic WHERE site_id = 'a'",
		).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	for i, step := range []struct {
		counter string
		number  int64
		want    int64
	}{{"x", 1, 10}, {"x", 1, 10}, {"x", 2, 20}, {"x", 1, 20}, {"y", 1, 30}, {"y", 1, 30}, {"", 0, 40}, {"", 0, 50}} {
		b := Batch{Since: w.now, Counter: step.counter, Number: step.number}
		if err := w.Add(t.Context(), b, map[id.Site]Counts{"a": {OK: 1, Bytes: 10}}); err != nil {
			t.Fatal(err)
		}
		if got := bytes(); got != step.want {
			t.Fatalf("step %d: %d bytes, want %d", i, got, step.want)
		}
	}
}
