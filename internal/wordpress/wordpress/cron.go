package wordpress

import (
	"context"
	"strconv"
	"sync"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fair"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/panics"
	"slipway/internal/program/placement"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
)

// How often a site's events are looked at: when they are due, and at least and at most so
// often.
const (
	cronTick    = 10 * time.Second
	cronLeast   = time.Minute
	cronMost    = 24 * time.Hour
	maxNoted    = 50_000
	cronAtOnce  = 24 // sites: events may hang
	cronOfOwner = 8  // of them of one owner
)

// Run runs the events of every live WordPress when they are due, until ctx ends. A sleeping
// one is woken for that.
func (w *WordPress) Run(ctx context.Context) error {
	var running panics.Background
	defer running.Wait()
	running.Go(func() { panics.Loop(ctx, w.followAddresses) })
	running.Go(func() { eachTick(ctx, w.updates) })
	eachTick(ctx, func(ctx context.Context) { w.events(ctx, &running) })
	return nil
}

func eachTick(ctx context.Context, do func(ctx context.Context)) {
	tick := time.NewTicker(cronTick)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			_ = panics.Call(func() error { do(ctx); return nil })
		}
	}
}

// crons holds what is known of events.
type crons struct {
	places *fair.Pool

	mu sync.Mutex // guards noted
	// share: total 50,000 sites; owner those of its sites; edge all are forgotten, and a site's next one costs a write
	noted map[site.ID]db.Time // the next event that a site has told of
}

func newCrons() *crons {
	return &crons{
		// share: total 24 sites whose scheduled events run; owner 8; edge runs at a later tick, 10 s apart
		places: fair.New(fair.Config{Places: cronAtOnce, Owner: cronOfOwner}),
		noted:  map[site.ID]db.Time{},
	}
}

// note remembers that a site has an event at a time, and reports whether that is news.
func (c *crons) note(id site.ID, at, now db.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if have := c.noted[id]; have > now && have <= at {
		return false
	}
	if len(c.noted) > maxNoted {
		clear(c.noted)
	}
	c.noted[id] = at
	return true
}

// scheduled hears from a site that its next event is at a time, in seconds since 1970: a post
// that is to be published is not to wait for what was next before.
func (w *WordPress) scheduled(ctx context.Context, id site.ID, text string) {
	seconds, err := strconv.ParseInt(text, 10, 64)
	now := db.Now()
	if err != nil || seconds <= 0 || seconds > int64(now.Add(cronMost))/1000 {
		return
	}
	at := max(db.Time(seconds*1000), now.Add(cronTick)) // a site may say so with every request
	if !w.crons.note(id, at, now) {
		return
	}
	ctx, done := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer done()
	err = w.c.DB.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE wordpress_sites SET next_cron = $2 WHERE site_id = $1 AND next_cron > $2`, id, at)
		return err
	})
	if err != nil {
		w.c.Log.WarnContext(ctx, "scheduled event of WordPress not noted", "site", id, "err", err)
	}
}

// events begins what is due, as far as there are places: of each owner the sites that wait the
// longest.
func (w *WordPress) events(ctx context.Context, running *panics.Background) {
	type due struct {
		site  site.ID
		owner account.OwnerID
	}
	rows, err := w.c.DB.Query(ctx, `
		SELECT site_id, owner_id FROM (
			SELECT w.site_id, w.owner_id, w.next_cron, row_number() OVER (PARTITION BY w.owner_id ORDER BY w.next_cron, w.site_id) AS n
			FROM wordpress_sites w JOIN open_sites s ON s.id = w.site_id
			WHERE w.installed <> '' AND w.next_cron <= $1 AND s.status = 'active') AS due
		WHERE n <= $2 ORDER BY n, next_cron LIMIT 1000`, db.Now(), cronOfOwner)
	list, err := db.Collect(rows, err, func(s db.Scanner) (d due, err error) { return d, s.Scan(&d.site, &d.owner) })
	if err != nil {
		if ctx.Err() == nil {
			w.c.Log.WarnContext(ctx, "scheduled events of WordPress not read", "err", err)
		}
		return
	}
	for _, d := range list {
		if err := w.c.Places.Look(ctx, d.site); err != nil { // its node runs them
			if f := fault.As(err); f != nil && f.Code == placement.NodeDown { // and others of its owner are not to wait for it
				w.putOff(ctx, d.site)
			}
			continue
		}
		done, ok := w.crons.places.Try(fair.Who{Owner: string(d.owner), Site: string(d.site)})
		if !ok { // at the next tick
			continue
		}
		running.Go(func() {
			defer done()
			w.eventsOf(ctx, d.site)
		})
	}
}

// eventsOf runs what is due of one site. The next time is noted first: what kills the
// process or hangs is not tried in a loop, nor by two nodes.
func (w *WordPress) eventsOf(ctx context.Context, id site.ID) {
	now := db.Now()
	taken, mark := false, now.Add(10*time.Minute)
	err := w.c.DB.Write(ctx, func(tx *db.Tx) error {
		n, err := tx.Exec(ctx, `UPDATE wordpress_sites SET next_cron = $2 WHERE site_id = $1 AND next_cron <= $3`, id, mark, now)
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
		Ran   int
		Next  int64        // seconds
		Blogs []blogEvents // the other ones of a network
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	if err := w.task(ctx, s, s.LiveDeployment, "cron", map[string]any{}, &out); err != nil {
		if ctx.Err() == nil {
			w.c.Programs.Note(id, "Scheduled events of WordPress did not run: "+err.Error())
			w.nextEvents(ctx, id, now.Add(cronLeast), mark) // such as while the program restarted
		}
		return
	}
	if next := w.eventsOfBlogs(ctx, s, out.Blogs); next > 0 && (out.Next == 0 || next < out.Next) {
		out.Next = next
	}
	w.nextEvents(ctx, id, min(max(db.Time(out.Next*1000), now.Add(cronLeast)), now.Add(cronMost)), mark)
}

// putOff notes that what is due of a site is looked at later, because its node is down.
func (w *WordPress) putOff(ctx context.Context, id site.ID) {
	now := db.Now()
	err := w.c.DB.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE wordpress_sites SET next_cron = $2 WHERE site_id = $1 AND next_cron <= $3`, id, now.Add(cronLeast), now)
		return err
	})
	if err != nil && ctx.Err() == nil {
		w.c.Log.WarnContext(ctx, "scheduled events of WordPress not put off", "site", id, "err", err)
	}
}

// nextEvents notes when a site's events are due again, unless it has told of sooner ones since mark was noted.
func (w *WordPress) nextEvents(ctx context.Context, id site.ID, next, mark db.Time) {
	_ = w.c.DB.Write(ctx, func(tx *db.Tx) error {
		// What the site has told of meanwhile is not in the answer.
		_, err := tx.Exec(
			ctx, `UPDATE wordpress_sites SET next_cron = $2 WHERE site_id = $1 AND (next_cron = $3 OR next_cron > $2)`,
			id, next, mark,
		)
		return err
	})
}
