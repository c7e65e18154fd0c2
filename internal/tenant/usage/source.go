package usage

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/id"
)

// Source counts in memory and stores absolute quantities. Quantities not stored when its process ends are lost. It is
// safe for concurrent use.
type Source struct {
	name string

	mu   sync.Mutex // guards the rest
	hour db.Time    // the latest hour counted in
	// share: total what is used within an hour; owner one entry for each of its sites and meters; edge entries of earlier hours go once they are written
	totals map[entry]int64
	// share: none, it holds keys of totals
	dirty map[entry]bool
}

type entry struct {
	owner id.Owner
	meter Meter
	hour  db.Time
	site  id.Site
}

// NewSource returns a source. The name must be unique, even across restarts.
func NewSource(name string) *Source {
	return &Source{name: name, totals: map[entry]int64{}, dirty: map[entry]bool{}}
}

// ProcessSource returns a new source for one kind of count in this process.
func ProcessSource(kind string) *Source { return NewSource(kind + "/" + db.Random(10)) }

// Add counts use at a time. If the clock was set back it counts in the latest hour, since earlier hours are stored and
// no longer in memory.
func (s *Source) Add(at db.Time, owner id.Owner, m Meter, site id.Site, n int64) {
	if n <= 0 || owner == "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hour = max(s.hour, floor(at, hour))
	e := entry{owner, m, s.hour, site}
	s.totals[e] += n
	s.dirty[e] = true
}

// Pending returns the quantities that aren't stored, in a fixed order.
func (s *Source) Pending() []Row {
	s.mu.Lock()
	defer s.mu.Unlock()
	rows := make([]Row, 0, len(s.dirty))
	for e := range s.dirty {
		rows = append(rows, Row{Owner: e.owner, Meter: e.meter, Hour: e.hour, Source: s.name, Site: e.site, Quantity: s.totals[e]})
	}
	slices.SortFunc(rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(a.Owner, b.Owner), cmp.Compare(a.Meter, b.Meter), cmp.Compare(a.Hour, b.Hour), cmp.Compare(a.Site, b.Site))
	})
	return rows
}

// Written marks rows returned by Pending as stored.
func (s *Source) Written(rows []Row) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range rows {
		if e := (entry{r.Owner, r.Meter, r.Hour, r.Site}); s.totals[e] == r.Quantity {
			delete(s.dirty, e)
		}
	}
	for e := range s.totals {
		if e.hour < s.hour && !s.dirty[e] {
			delete(s.totals, e) // the hour is over
		}
	}
}

// writeTimeout limits a write whose caller's context has ended.
const writeTimeout = 30 * time.Second

// Write stores a source's pending quantities, even if ctx has ended. Quantities stay pending on error.
func (u *Usage) Write(ctx context.Context, s *Source) error {
	rows := s.Pending()
	if len(rows) == 0 {
		return nil
	}
	ctx, done := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
	defer done()
	if err := u.c.DB.Write(ctx, func(tx *db.Tx) error { return u.MergeTx(ctx, tx, rows) }); err != nil {
		return err
	}
	s.Written(rows)
	return nil
}
