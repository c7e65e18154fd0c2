package pushes

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"slipway/internal/deploy/preview"
	"slipway/internal/git/forge"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fair"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/job"
	"slipway/internal/platform/panics"
	"slipway/internal/platform/text"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
)

// Limits of polling.
const (
	maxPolls    = 20          // concurrent polls of one process
	ownerPolls  = 5           // concurrent polls of one owner
	pollTimeout = time.Minute // of one poll
	pollTick    = 2 * time.Second
	pollPause   = 200 * time.Millisecond // pause before freed places are filled again
	maxPollRefs = 5_000                  // branches and tags of a polled repository
)

// Run polls repositories for new commits and ends unused previews, until ctx ends.
func (g *Pushes) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	// share: total 20 repositories asked at once; owner 5; edge the repository is asked a little later
	places, freed := fair.New(fair.Config{Places: maxPolls, Owner: ownerPolls}), make(chan struct{}, 1)
	tick := time.NewTicker(pollTick)
	defer tick.Stop()
	var tidied time.Time
	for {
		if err := panics.Call(func() error { return g.pollDue(ctx, places, freed, &running) }); err != nil && ctx.Err() == nil {
			g.c.Log.WarnContext(ctx, "repositories not polled", "err", err)
		}
		if time.Since(tidied) > time.Hour {
			tidied = time.Now()
			if err := panics.Call(func() error { return g.endUnused(ctx) }); err != nil && ctx.Err() == nil {
				g.c.Log.WarnContext(ctx, "unused previews not ended", "err", err)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-freed:
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(pollPause):
			}
		}
	}
}

// due is a site whose repository must be polled now.
type due struct {
	site    site.ID
	owner   account.OwnerID
	at      db.Time
	minutes int
	done    func() // releases its place
}

// pollDue starts a poll for each free place, longest overdue first. It moves the site's next poll into the future, so
// that no other node takes it. If this process dies, that next poll finds the same changes.
func (g *Pushes) pollDue(ctx context.Context, places *fair.Pool, freed chan struct{}, running *sync.WaitGroup) error {
	held, _ := places.Held()
	if g.c.Repositories == nil || held == maxPolls {
		return nil
	}
	now := db.Now()
	rows, err := g.c.DB.Query(ctx, `
		SELECT site_id, owner_id, poll_at, poll_minutes FROM (
			SELECT g.site_id, s.owner_id, g.poll_at, g.poll_minutes, ROW_NUMBER() OVER (PARTITION BY s.owner_id ORDER BY g.poll_at) AS place`+from+`
			WHERE g.poll_minutes > 0 AND g.poll_at <= $1 AND s.status <> 'stopped') d
		WHERE place <= $2 ORDER BY poll_at LIMIT $3`, now, ownerPolls, maxPolls)
	list, err := db.Collect(rows, err, func(r db.Scanner) (d due, err error) { return d, r.Scan(&d.site, &d.owner, &d.at, &d.minutes) })
	if err != nil {
		return fmt.Errorf("find repositories to poll: %w", err)
	}
	// An owner with many unresponsive repositories doesn't block others.
	var free []due
	for _, d := range list {
		var ok bool
		if d.done, ok = places.Try(fair.Who{Owner: string(d.owner)}); ok {
			free = append(free, d)
		}
	}
	if len(free) == 0 {
		return nil
	}
	var taken []due
	err = g.c.DB.Write(ctx, func(tx *db.Tx) error {
		taken = taken[:0]
		for _, d := range free {
			next := now.Add(job.Jitter(time.Duration(d.minutes) * time.Minute))
			n, err := tx.Exec(ctx,
				`UPDATE git_settings SET poll_at = $3 WHERE site_id = $1 AND poll_at = $2 AND poll_minutes > 0`, d.site,
				d.at, next)
			if err != nil {
				return fmt.Errorf("take poll: %w", err)
			}
			if n == 1 {
				taken = append(taken, d)
			}
		}
		return nil
	})
	for _, d := range free {
		if err != nil || !slices.ContainsFunc(taken, func(x due) bool { return x.site == d.site }) {
			d.done() // another node polls it
		}
	}
	if err != nil {
		return err
	}
	for _, d := range taken {
		running.Go(func() {
			defer func() {
				d.done()
				select {
				case freed <- struct{}{}:
				default:
				}
			}()
			ctx, cancel := context.WithTimeout(ctx, pollTimeout)
			defer cancel()
			if err := panics.Call(func() error { return g.poll(ctx, d.site) }); err != nil && ctx.Err() == nil {
				g.c.Log.WarnContext(ctx, "repository not polled", "site", d.site, "err", err)
			}
		})
	}
	return nil
}

// poll polls one repository and handles new commits like a push.
func (g *Pushes) poll(ctx context.Context, id site.ID) error {
	s, err := g.c.Sites.ByID(ctx, g.c.DB, id)
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	refs, byDefault, err := g.c.Repositories.Heads(ctx, s)
	why := ""
	if f := fault.As(err); f != nil {
		why = text.Line(f.Message, 300)
	} else if err != nil && ctx.Err() != nil {
		why = "The repository didn't answer in time"
	} else if err != nil {
		return err
	}
	if len(refs) > maxPollRefs {
		why, refs = fmt.Sprintf("The repository has more than %d branches and tags; use a webhook", maxPollRefs), nil
	}
	ctx = context.WithoutCancel(ctx) // the result is stored even if ctx ends
	if why == "" {                   // usually nothing is new
		had, known, err := polled(ctx, g.c.DB, s)
		if err != nil {
			return err
		}
		if known && maps.Equal(had, refs) {
			return g.c.DB.Write(ctx, func(tx *db.Tx) error { return notePolled(ctx, tx, id, "") })
		}
	}
	return g.c.DB.Write(ctx, func(tx *db.Tx) error {
		set, err := g.lockTx(ctx, tx, s.Owner, id)
		if fault.Is(err, fault.NotFound) {
			return nil
		}
		if err != nil || set.PollMinutes == 0 {
			return err
		}
		if s, err = g.c.Sites.LockTx(ctx, tx, s.Owner, id); err != nil {
			return err
		}
		if why != "" {
			return notePolled(ctx, tx, id, why)
		}
		return g.polledTx(ctx, tx, set, s, refs, byDefault)
	})
}

// polledTx compares a repository's refs with those of the last poll. At the first poll nothing is new.
func (g *Pushes) polledTx(ctx context.Context, tx *db.Tx, set Settings, s site.Site, refs map[string]string, byDefault string) error {
	had, known, err := polled(ctx, tx, s)
	if err != nil {
		return err
	}
	if !known || !maps.Equal(had, refs) {
		if known {
			if err := g.actOnPollTx(ctx, tx, set, s, had, refs, byDefault); err != nil {
				return err
			}
		}
		now, err := json.Marshal(seen{s.Repository, refs})
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `UPDATE git_settings SET poll_refs = $2 WHERE site_id = $1`, s.ID, string(now)); err != nil {
			return fmt.Errorf("note polled branches: %w", err)
		}
	}
	return notePolled(ctx, tx, s.ID, "")
}

// seen is the stored form of a repository's refs at the last poll.
type seen struct {
	Repository string            `json:"repository"`
	Refs       map[string]string `json:"refs"`
}

// polled returns the refs of the last poll, and whether there was one.
func polled(ctx context.Context, r db.Reader, s site.Site) (refs map[string]string, known bool, err error) {
	var text string
	err = r.QueryRow(ctx, `SELECT poll_refs FROM git_settings WHERE site_id = $1`, s.ID).Scan(&text)
	if errors.Is(err, sql.ErrNoRows) || err == nil && text == "" {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("read polled branches: %w", err)
	}
	var had seen
	if err := json.Unmarshal([]byte(text), &had); err != nil {
		return nil, false, fmt.Errorf("read polled branches of %s: %w", s.ID, err)
	}
	return had.Refs, had.Repository == s.Repository, nil
}

// notePolled records a poll and its error, or "".
func notePolled(ctx context.Context, tx *db.Tx, id site.ID, why string) error {
	_, err := tx.Exec(ctx, `UPDATE git_settings SET poll_error = $2, polled_at = $3 WHERE site_id = $1`, id, why, db.Now())
	if err != nil {
		return fmt.Errorf("note poll: %w", err)
	}
	return nil
}

// maxPollChanges caps the branches and tags that one poll handles. More can arrive at once, such as after a mirror was
// set up. The production branch is always included.
const maxPollChanges = 50

func (g *Pushes) actOnPollTx(
	ctx context.Context,
	tx *db.Tx,
	set Settings,
	s site.Site,
	had, has map[string]string,
	byDefault string,
) error {
	var changes []forge.Change
	note := func(name, commit string, deleted bool) {
		c := forge.Change{Commit: commit, Deleted: deleted}
		if b, ok := strings.CutPrefix(name, "refs/heads/"); ok {
			c.Branch = b
		} else {
			c.Tag = strings.TrimPrefix(name, "refs/tags/")
		}
		changes = append(changes, c)
	}
	for _, name := range slices.Sorted(maps.Keys(has)) {
		if had[name] != has[name] {
			note(name, has[name], false)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(had)) {
		if _, still := has[name]; !still {
			note(name, "", true)
		}
	}
	main := s.Branch
	if main == "" {
		main = byDefault
	}
	slices.SortStableFunc(changes, func(a, b forge.Change) int {
		if a.Branch != main && b.Branch == main {
			return 1
		} else if a.Branch == main && b.Branch != main {
			return -1
		}
		return 0
	})
	for _, c := range changes[:min(len(changes), maxPollChanges)] {
		e := incoming{forge.Event{Name: "poll", Kind: forge.Push, DefaultBranch: byDefault, Changes: []forge.Change{c}}, ViaPoll}
		out, err := g.push(ctx, tx, set, s, e, c)
		if f := fault.As(err); f != nil && f.Kind != fault.Internal { // such as too many waiting deployments
			out, err = skipped(f.Message), nil
		}
		if err != nil {
			return err
		}
		said := out.Message
		if out.Reason != "" {
			said = out.Reason
		}
		if err := noteEventTx(ctx, tx, s.ID, e, out, said); err != nil {
			return err
		}
	}
	tx.Notify(s.Owner.Topic())
	return nil
}

// endUnused ends the preview addresses that had no deployment for as long as their site's settings say.
func (g *Pushes) endUnused(ctx context.Context) error {
	type row struct {
		site site.ID
		days int
	}
	rows, err := g.c.DB.Query(ctx, `SELECT g.site_id, g.preview_days`+from+`WHERE g.preview_days > 0 ORDER BY g.site_id`)
	list, err := db.Collect(rows, err, func(r db.Scanner) (x row, err error) { return x, r.Scan(&x.site, &x.days) })
	if err != nil {
		return fmt.Errorf("find settings of previews: %w", err)
	}
	byDays := map[int][]site.ID{}
	for _, x := range list {
		byDays[x.days] = append(byDays[x.days], x.site)
	}
	for days, sites := range byDays {
		for some := range slices.Chunk(sites, 500) {
			err := g.c.DB.Write(ctx, func(tx *db.Tx) error {
				_, err := preview.EndUnusedTx(ctx, tx, some, db.Now().Add(-time.Duration(days)*24*time.Hour))
				return err
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}
