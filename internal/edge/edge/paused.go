package edge

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"slipway/internal/edge/allowance"
	"slipway/internal/edge/response"
	"slipway/internal/edge/throttle"
	"slipway/internal/platform/db"
	"slipway/internal/platform/id"
)

// pausedEvery is how often the view paused_sites is read. Changes also wake the edge, except those of the command line
// on SQLite: a payment recorded there takes effect within 5 seconds.
const pausedEvery = 4 * time.Second

// capped is the bandwidth limit of an owner's sites.
type capped struct {
	lease   *allowance.Lease   // nil: far from the limit
	slow    *throttle.Throttle // speed limit once nothing is left; nil: sites are paused then
	reached bool               // nothing is left
}

// readPaused reads which sites are paused (until the bandwidth period ends, or until further notice), which owners have
// little bandwidth left, so that their responses need an allowance, and whose sites are slowed down at the limit. It
// sets moved if that has changed.
func (e *Edge) readPaused(ctx context.Context, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	// Versions before this one write only the month.
	const window = `(begins <= $1 AND ends > $1 OR ends = 0 AND month = $2)`
	at, month := db.At(now), int64(now.UTC().Year())*100+int64(now.UTC().Month())
	rows, err := e.DB.Query(ctx, `SELECT site_id FROM paused_sites WHERE (`+window+` OR month = 0)`, at, month)
	ids, err := db.Collect(rows, err, func(s db.Scanner) (id id.Site, err error) { return id, s.Scan(&id) })
	if err != nil {
		return fmt.Errorf("read paused sites: %w", err)
	}
	paused := make(map[id.Site]bool, len(ids))
	for _, id := range ids {
		paused[id] = true
	}
	e.moved = e.moved || !maps.Equal(paused, e.paused)
	e.paused = paused
	owners := map[id.Owner]capped{}
	if e.allowances != nil {
		rows, err = e.DB.Query(ctx, `SELECT owner_id FROM capped_owners WHERE `+window, at, month)
		few, err := db.Collect(rows, err, func(s db.Scanner) (id id.Owner, err error) { return id, s.Scan(&id) })
		if err != nil {
			return fmt.Errorf("read capped owners: %w", err)
		}
		for o, lease := range e.allowances.Set(few) {
			owners[o] = capped{lease: lease}
		}
	}
	rates, reached := map[id.Owner]int64{}, map[id.Owner]bool{}
	rows, err = e.DB.Query(ctx, `SELECT owner_id, rate, reached FROM throttled_owners WHERE `+window, at, month)
	if _, err = db.Collect(rows, err, func(s db.Scanner) (o id.Owner, err error) {
		var rate int64
		var spent bool
		err = s.Scan(&o, &rate, &spent)
		rates[o], reached[o] = rate, spent
		return o, err
	}); err != nil {
		return fmt.Errorf("read throttled owners: %w", err)
	}
	for o, slow := range e.throttles.Set(rates) {
		owners[o] = capped{owners[o].lease, slow, reached[o]}
	}
	e.moved = e.moved || !maps.Equal(owners, e.capped)
	e.capped = owners
	return nil
}

// arm puts bandwidth limits into force before the first site of an owner appears in the table: an owner with a small
// limit must not exceed it from the first request on. If that fails, it leaves out the owner's rows until the next
// read; other owners' rows don't wait. At start it leaves out none: with a full disk no site would be served at all.
func (e *Edge) arm(ctx context.Context, rows []*target) ([]*target, error) {
	if e.allowances == nil {
		return rows, nil
	}
	fresh := map[id.Owner]bool{}
	for _, t := range rows {
		if t.state != stateDeleted && !e.table.knows(t.owner) {
			fresh[t.owner] = true
		}
	}
	if len(fresh) == 0 {
		return rows, nil
	}
	owners := slices.Sorted(maps.Keys(fresh))
	if len(owners) > armAtOnce {
		owners = nil // nil means all owners
	}
	if err := e.Lender.Arm(ctx, owners...); err != nil {
		e.Log.WarnContext(ctx, "limits of owners not in force", "owners", len(fresh), "err", err)
		if e.loaded.Load() {
			e.moved = true // read all rows again
			return slices.DeleteFunc(rows, func(t *target) bool { return fresh[t.owner] }), nil
		}
	}
	if err := e.readPaused(ctx, time.Now()); err != nil {
		return rows, err
	}
	for _, t := range rows {
		if t.state == stateLive && e.paused[t.site] {
			t.state = statePaused
		}
		t.capped = e.capped[t.owner]
	}
	return rows, nil
}

// armAtOnce caps the owners per query; above it the query covers all owners.
const armAtOnce = 100

// slowed answers slowly for a site whose owner has no bandwidth left. If too many of the owner's responses are slow
// already, it answers with an error page and returns false.
func (e *Edge) slowed(w *recorder, r *http.Request, t *target) bool {
	slow, ok := t.slow.Take(r.Context(), w.Who(r))
	if ok {
		w.slow, w.Pace = slow, slow
		return true
	}
	e.bound(w, r)
	w.paused = true
	response.Page(w, r, response.PageThrottled)
	return false
}
