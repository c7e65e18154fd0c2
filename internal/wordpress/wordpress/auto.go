package wordpress

import (
	"context"
	"math/rand/v2"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
)

// What is updated without being asked for.
const (
	AutoOff   = "off"
	AutoMinor = "minor"
)

// updateEvery is how often a site with automatic updates is looked at.
const updateEvery = 24 * time.Hour

// updates begins the automatic updates that are due. The next time is noted first: what
// fails is tried again a day later.
func (w *WordPress) updates(ctx context.Context) {
	type due struct {
		site  site.ID
		owner account.OwnerID
	}
	rows, err := w.c.DB.Query(ctx, `
		SELECT w.site_id, w.owner_id FROM wordpress_sites w JOIN open_sites s ON s.id = w.site_id
		WHERE (w.auto_update <> 'off' OR w.auto_extensions > 0) AND w.installed <> '' AND w.next_update <= $1 AND s.status = 'active'
		ORDER BY w.next_update LIMIT 5`, db.Now())
	list, err := db.Collect(rows, err, func(s db.Scanner) (d due, err error) { return d, s.Scan(&d.site, &d.owner) })
	if err != nil {
		if ctx.Err() == nil {
			w.c.Log.WarnContext(ctx, "automatic updates of WordPress not read", "err", err)
		}
		return
	}
	for _, d := range list {
		if err := w.autoUpdate(ctx, d.owner, d.site); err != nil && ctx.Err() == nil {
			w.c.Programs.Note(d.site, "No automatic update: "+err.Error())
		}
	}
}

func (w *WordPress) autoUpdate(ctx context.Context, owner account.OwnerID, id site.ID) error {
	now := db.Now()
	taken := false
	err := w.c.DB.Write(ctx, func(tx *db.Tx) error {
		n, err := tx.Exec(
			ctx,
			`UPDATE wordpress_sites SET next_update = $2 WHERE site_id = $1 AND next_update <= $3`,
			id,
			now.Add(updateEvery+time.Duration(rand.Int64N(int64(time.Hour)))),
			now,
		)
		taken = n == 1
		return err
	})
	if err != nil || !taken {
		return err
	}
	s, err := w.c.Sites.Get(ctx, owner, id)
	if err == nil {
		err = w.live(s)
	}
	if err != nil {
		return err
	}
	x, err := w.get(ctx, w.c.DB, id)
	if err != nil {
		return err
	}
	choice := Choice{Minor: x.Auto == AutoMinor, Auto: true}
	// Only where there is something new: a backup for nothing helps nobody.
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	var out struct{ Updated []Changed }
	if err := w.task(ctx, s, s.LiveDeployment, "update", map[string]any{
		"look":    true,
		"plugins": choice.wire(),
		"themes":  choice.wire(),
	}, &out); err != nil {
		return err
	}
	var state State
	if err := w.task(ctx, s, s.LiveDeployment, "info", map[string]any{}, &state); err != nil {
		return err
	}
	c, err := w.cores.Current(ctx, func(string, ...any) {})
	if err != nil {
		return err
	}
	core := choice.Minor && c.Version != state.Version && minor(state.Version, c.Version)
	if len(out.Updated) == 0 && !core {
		return nil
	}
	err = w.c.DB.Write(ctx, func(tx *db.Tx) error {
		_, err := w.UpdateNowTx(ctx, tx, owner, id, Update{
			Core:    core,
			Plugins: choice,
			Themes:  choice,
			Auto:    true,
		})
		return err
	})
	if fault.Is(err, fault.Conflict) { // something else is at work there
		return nil
	}
	return err
}
