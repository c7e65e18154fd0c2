package edge

import (
	"context"
	"fmt"
	"maps"
	"time"

	"slipway/internal/platform/id"

	"slipway/internal/platform/db"
)

// pausedEvery is how often the view paused_sites is read; who changes it also says so.
const pausedEvery = 10 * time.Second

// readPaused reads which sites are paused, this month because their owner's bandwidth is
// used up or until further notice, and which owners have so little of it left that their responses take an
// allowance. It reports whether that has changed.
func (e *Edge) readPaused(ctx context.Context, now time.Time) (changed bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	month := int64(now.UTC().Year())*100 + int64(now.UTC().Month())
	rows, err := e.DB.Query(ctx, `SELECT site_id FROM paused_sites WHERE month = $1 OR month = 0`, month)
	ids, err := db.Collect(rows, err, func(s db.Scanner) (id id.Site, err error) { return id, s.Scan(&id) })
	if err != nil {
		return false, fmt.Errorf("read paused sites: %w", err)
	}
	paused := make(map[id.Site]bool, len(ids))
	for _, id := range ids {
		paused[id] = true
	}
	changed = !maps.Equal(paused, e.paused)
	e.paused = paused
	if e.allowances == nil {
		return changed, nil
	}
	rows, err = e.DB.Query(ctx, `SELECT owner_id FROM capped_owners WHERE month = $1`, month)
	owners, err := db.Collect(rows, err, func(s db.Scanner) (id id.Owner, err error) { return id, s.Scan(&id) })
	if err != nil {
		return changed, fmt.Errorf("read capped owners: %w", err)
	}
	capped := e.allowances.Set(owners)
	changed = changed || !maps.Equal(capped, e.capped)
	e.capped = capped
	return changed, nil
}
