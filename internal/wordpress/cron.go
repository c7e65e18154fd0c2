package wordpress

import (
	"context"
	"sync"
	"time"

	"slipway/internal/db"
	"slipway/internal/site"
)

// How often a site's events are looked at: soon after they are due while they are, and at
// least and at most so often.
const (
	cronTick  = 10 * time.Second
	cronLeast = time.Minute
	cronMost  = 24 * time.Hour
	cronAtOne = 2 // sites at once
)

// Run runs the events of every live WordPress when they are due, until ctx ends. A sleeping
// one is woken for that.
func (w *WordPress) Run(ctx context.Context) error {
	go w.followPurges(ctx)
	tick := time.NewTicker(cronTick)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			w.events(ctx)
			w.updates(ctx)
		}
	}
}

func (w *WordPress) events(ctx context.Context) {
	rows, err := w.c.DB.Query(ctx, `
		SELECT w.site_id FROM wordpress_sites w JOIN open_sites s ON s.id = w.site_id
		WHERE w.installed <> '' AND w.next_cron <= $1 AND s.status = 'active' ORDER BY w.next_cron LIMIT 100`, db.Now())
	ids, err := db.Collect(rows, err, func(s db.Scanner) (id site.ID, err error) { return id, s.Scan(&id) })
	if err != nil {
		if ctx.Err() == nil {
			w.c.Log.WarnContext(ctx, "scheduled events of WordPress not read", "err", err)
		}
		return
	}
	var work sync.WaitGroup
	slots := make(chan struct{}, cronAtOne)
	for _, id := range ids {
		slots <- struct{}{}
		work.Go(func() {
			defer func() { <-slots }()
			w.eventsOf(ctx, id)
		})
	}
	work.Wait()
}

// eventsOf runs what is due of one site. The next time is noted first: what kills the
// process or hangs is not tried in a loop, nor by two nodes.
func (w *WordPress) eventsOf(ctx context.Context, id site.ID) {
	now := db.Now()
	taken := false
	err := w.c.DB.Write(ctx, func(tx *db.Tx) error {
		n, err := tx.Exec(ctx, `UPDATE wordpress_sites SET next_cron = $2 WHERE site_id = $1 AND next_cron <= $3`, id, now.Add(10*time.Minute), now)
		taken = n == 1
		return err
	})
	if err != nil || !taken {
		return
	}
	s, err := w.c.Sites.ByID(ctx, w.c.DB, id)
	if err != nil || s.LiveDeployment == "" {
		return
	}
	var out struct {
		Ran  int
		Next int64 // seconds
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	if err := w.task(ctx, s, s.LiveDeployment, "cron", map[string]any{}, &out); err != nil {
		if ctx.Err() == nil {
			w.c.Say(string(id), "Scheduled events of WordPress did not run: "+err.Error())
		}
		return
	}
	next := min(max(db.Time(out.Next*1000), now.Add(cronLeast)), now.Add(cronMost))
	_ = w.c.DB.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE wordpress_sites SET next_cron = $2 WHERE site_id = $1`, id, next)
		return err
	})
}
