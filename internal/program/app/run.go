package app

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fair"
	"slipway/internal/platform/id"
	"slipway/internal/platform/panics"
	"slipway/internal/program/figures"
	"slipway/internal/program/placement"
)

// Run keeps what runs as it should be until ctx ends, and then stops everything.
func (a *Apps) Run(ctx context.Context) error {
	wake, unlisten := a.c.DB.Listen("live")
	defer unlisten()
	placed, unheard := a.c.DB.Listen(placement.Topic)
	defer unheard()
	lost := a.c.Places.Lost()
	tick := time.NewTicker(a.c.Tick)
	defer tick.Stop()
	flushed := make(chan struct{})
	flush, stopFlush := context.WithCancel(context.Background())
	go func() { defer close(flushed); panics.Loop(flush, a.logs.Run) }()
	tasks := make(chan struct{})
	// uncaught: each of its turns catches
	go func() { defer close(tasks); a.runTasks(ctx) }()
	sampled := make(chan struct{})
	go func() {
		defer close(sampled)
		panics.Loop(ctx, figures.NewSampler(a.figures, counted{a}, a.c.Usage, a.c.Log).Run)
	}()
	storage := make(chan struct{})
	go func() { defer close(storage); panics.Loop(ctx, a.countStorage) }()
	panics.Go(func() { a.keepUp(ctx) })
	panics.Go(func() { panics.Loop(ctx, a.keepHandingOver) })
	for changed, moved := true, false; ; {
		select {
		case <-ctx.Done():
			a.close()
			<-tasks
			<-sampled
			<-storage
			stopFlush()
			<-flushed
			return nil
		case <-wake:
			changed = true
		case <-placed:
			moved = true
		case <-lost:
			moved = true
		case <-tick.C:
		}
		if moved {
			err := panics.Call(func() error { return a.leave(ctx) })
			if moved = err != nil; moved && ctx.Err() == nil {
				a.c.Log.WarnContext(ctx, "sites of this node not compared, will be retried", "err", err)
			}
		}
		err := panics.Call(func() error { return a.compare(ctx, changed) })
		changed = err != nil
		if err != nil && ctx.Err() == nil {
			a.c.Log.WarnContext(ctx, "programs not reconciled, will be retried", "err", err)
		}
	}
}

// row holds the database's settings of a site whose program runs here.
type row struct {
	site            id.Site
	deployment      id.Deployment
	state, settings string

	revision int64
	owner    id.Owner
	updated  db.Time // when the site or its variables last changed
}

// askEvery is how long what sites serve is believed where nobody has said that it changed.
const askEvery = 30 * time.Second

// compare moves every program towards where it should be. The database is asked when a
// site's state has changed or a program of a new site has come, and else now and then.
func (a *Apps) compare(ctx context.Context, changed bool) error {
	all := a.all()
	if len(all) == 0 {
		a.known = nil
		return nil
	}
	sites := map[id.Site]bool{}
	stale := changed || a.known == nil || time.Since(a.asked) > askEvery
	for _, p := range all {
		p.mu.Lock()
		site := p.want.Site
		p.mu.Unlock()
		if site != "" {
			sites[site] = true
			if _, ok := a.known[site]; !ok {
				stale = true
			}
		}
	}
	if stale {
		known, err := a.read(ctx, slices.Collect(maps.Keys(sites)))
		if err != nil {
			a.known = nil // what changed is asked for again
			return err
		}
		a.known, a.asked = known, time.Now()
	}
	a.moveAll(all, a.known)
	return nil
}

func (a *Apps) moveAll(all []*program, known map[id.Site]row) {
	for _, p := range all {
		a.settle(p, known)
		a.move(p, known)
	}
}

// read returns what sites serve; one that is gone has an empty row.
func (a *Apps) read(ctx context.Context, sites []id.Site) (map[id.Site]row, error) {
	known := make(map[id.Site]row, len(sites))
	for part := range slices.Chunk(sites, 200) {
		for _, site := range part {
			known[site] = row{site: site}
		}
		var args db.Args
		sites := db.AddList(&args, part)
		rows, err := a.c.DB.Query(ctx, `SELECT l.site_id, l.owner_id, l.deployment_id, l.state, r.run, r.revision, r.updated
			FROM live l JOIN run_settings r ON r.site_id = l.site_id WHERE l.site_id IN (`+sites+`)`, args...)
		list, err := db.Collect(rows, err, func(s db.Scanner) (r row, err error) {
			return r, s.Scan(&r.site, &r.owner, &r.deployment, &r.state, &r.settings, &r.revision, &r.updated)
		})
		if err != nil {
			return nil, fmt.Errorf("read live: %w", err)
		}
		for _, r := range list {
			known[r.site] = r
		}
	}
	return known, nil
}

// How long a program that no site serves stays up unused, because somebody visits
// a preview or an old deployment, and how long one that does not run is remembered.
const (
	previewSleep = time.Minute
	lingerTime   = time.Second // of one that a site has just ceased to serve: a request may be on its way to it
	rememberTime = 10 * time.Minute
)

// move decides what becomes of one program.
func (a *Apps) move(p *program, known map[id.Site]row) {
	now := time.Now()
	p.mu.Lock()
	in, want, was := p.now, p.want, p.live
	serves := known[want.Site]
	stopped := want.Site != "" && (serves.state == "stopped" || serves.state == "deleted")
	p.live = serves.state == "live" && serves.deployment == p.deployment
	switch {
	case p.away: // leave says until when
	case p.live:
		p.drain = time.Time{} // it may have come back
	case was && (in != nil || p.starting != nil):
		p.drain = now.Add(want.Drain)
	}
	if stopped && in == nil && p.starting == nil && p.state != Stopped {
		p.set(Stopped, "")
		p.failures, p.retry = 0, time.Time{}
	}
	if !stopped && p.state == Stopped && in == nil {
		p.set(Sleeping, "")
	}
	live, drain, awake := p.live, p.drain, p.live && want.Sleep == 0 && !p.away
	if p.away && in == nil {
		p.away = false
	}
	down := in == nil && p.starting == nil
	forget := down && !awake && now.Sub(p.since) > rememberTime
	revive := down && awake && now.After(p.retry)
	p.mu.Unlock()
	switch {
	case forget:
		a.forget(p)
	case revive:
		if in, _, _ := p.take(false); in != nil { // a request was quicker
			in.release()
		}
	case in == nil:
	case stopped:
		p.stop(in, true, Stopped)
	case !drain.IsZero():
		if late := now.After(drain); late || now.Sub(drain) > lingerTime-want.Drain {
			p.stop(in, late, Sleeping)
		}
	default:
		idle := now.Sub(p.refit(now))
		limit := want.Sleep
		if !live {
			limit = previewSleep
		}
		if limit > 0 && idle > limit {
			p.stop(in, false, Sleeping)
		}
	}
}

// forget drops a program that does not run, unless somebody has just asked for it.
func (a *Apps) forget(p *program) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.now == nil && p.starting == nil {
		p.gone = true
		delete(a.programs, p.deployment)
	}
}

// keepUp starts the programs that never sleep, after a restart of the service: a few at once, and of one owner fewer.
func (a *Apps) keepUp(ctx context.Context) {
	type always struct {
		site, owner string
		deployment  id.Deployment
	}
	rows, err := a.c.DB.Query(ctx, `SELECT site_id, owner_id, deployment_id FROM live WHERE backend = 'program' AND state = 'live'`)
	list, err := db.Collect(rows, err, func(s db.Scanner) (r always, err error) { return r, s.Scan(&r.site, &r.owner, &r.deployment) })
	if err != nil {
		if ctx.Err() == nil {
			a.c.Log.ErrorContext(ctx, "always-on applications not started; the next request starts them", "err", err)
		}
		return
	}
	// share: total 4 starts; owner 2; edge the others start later, those that hang hold a place for 5 s
	slots := fair.New(fair.Config{Places: 4, Owner: 2})
	var work panics.Background
	defer work.Wait()
	for _, r := range list {
		want, err := a.c.Launch.Wanted(ctx, r.deployment)
		if ctx.Err() != nil {
			return
		}
		if err != nil || want.Sleep != 0 {
			continue
		}
		work.Go(func() {
			done, err := slots.Take(ctx, fair.Who{Owner: r.owner, Site: r.site})
			if err != nil {
				return
			}
			defer done()
			p, err := a.program(r.deployment)
			if err != nil {
				return
			}
			in, try, _ := p.take(true)
			if in != nil {
				in.release()
			}
			if try == nil {
				return
			}
			select {
			case <-try.done:
			case <-time.After(5 * time.Second):
			case <-ctx.Done():
			}
		})
	}
}

// close ends every program and returns when all of them are gone.
func (a *Apps) close() {
	a.mu.Lock()
	a.closing = true
	all := a.programs
	a.programs = map[id.Deployment]*program{}
	a.mu.Unlock()
	close(a.down)
	var wg panics.Background
	for _, p := range all {
		wg.Go(func() {
			p.mu.Lock()
			p.gone = true // nothing begins after this
			try := p.starting
			p.mu.Unlock()
			if try != nil {
				<-try.done
			}
			p.end()
		})
	}
	wg.Wait()
	a.work.Wait()
}
