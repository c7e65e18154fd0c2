package app

import (
	"context"
	"fmt"
	"sync"
	"time"

	"slipway/internal/db"
)

// Run keeps what runs as it should be until ctx ends, and then stops everything.
func (a *Apps) Run(ctx context.Context) error {
	wake, unlisten := a.c.DB.Listen("live")
	defer unlisten()
	tick := time.NewTicker(a.c.Tick)
	defer tick.Stop()
	flushed := make(chan struct{})
	flush, stopFlush := context.WithCancel(context.Background())
	go func() { defer close(flushed); a.logs.run(flush) }()
	a.keepUp(ctx)
	for {
		select {
		case <-ctx.Done():
			a.close()
			stopFlush()
			<-flushed
			return nil
		case <-wake:
		case <-tick.C:
		}
		if err := a.compare(ctx); err != nil && ctx.Err() == nil {
			a.c.Log.WarnContext(ctx, "programs not compared with what should run, will be tried again", "err", err)
		}
	}
}

// row holds the database's settings of a site whose program runs here.
type row struct {
	site, deployment, state string
}

// compare moves every program towards where it should be.
func (a *Apps) compare(ctx context.Context) error {
	a.mu.Lock()
	all := make([]*program, 0, len(a.programs))
	for _, p := range a.programs {
		all = append(all, p)
	}
	a.mu.Unlock()
	if len(all) == 0 {
		return nil
	}
	rows, err := a.c.DB.Query(ctx, `SELECT site_id, deployment_id, state FROM live WHERE backend = 'program'`)
	list, err := db.Collect(rows, err, func(s db.Scanner) (r row, err error) { return r, s.Scan(&r.site, &r.deployment, &r.state) })
	if err != nil {
		return fmt.Errorf("read live: %w", err)
	}
	live := make(map[string]string, len(list)) // site → what it serves
	stopped := map[string]bool{}
	for _, r := range list {
		switch r.state {
		case "live":
			live[r.site] = r.deployment
		case "stopped", "deleted":
			stopped[r.site] = true
		}
	}
	var wg sync.WaitGroup
	for _, p := range all {
		wg.Go(func() { a.move(p, live, stopped) })
	}
	wg.Wait()
	return nil
}

// previewSleep is how long a program that no site serves stays up unused: it is somebody's
// look at a preview or an old deployment.
const previewSleep = time.Minute

// move decides what becomes of one program.
func (a *Apps) move(p *program, live map[string]string, stopped map[string]bool) {
	now := time.Now()
	p.mu.Lock()
	in, want, was := p.now, p.want, p.live
	p.live = live[want.Site] == p.deployment
	replaced := was && !p.live
	if replaced {
		p.drain = now.Add(want.Drain)
	}
	drain, forget := p.drain, in == nil && p.starting == nil && !p.live && now.Sub(p.since) > 10*time.Minute
	revive := in == nil && p.starting == nil && p.live && want.Sleep == 0 && p.state != Stopped && now.After(p.retry)
	p.mu.Unlock()
	switch {
	case forget:
		a.mu.Lock()
		delete(a.programs, p.deployment)
		a.mu.Unlock()
	case revive:
		_, _, _ = p.take(false)
	case in == nil:
	case stopped[want.Site]:
		p.stop(in, true, Stopped)
	case !drain.IsZero():
		p.stop(in, now.After(drain), Sleeping)
	default:
		in.mu.Lock()
		idle := now.Sub(in.used)
		busy := in.active > 0
		in.mu.Unlock()
		limit := want.Sleep
		if !p.live {
			limit = previewSleep
		}
		if !busy && limit > 0 && idle > limit {
			p.stop(in, false, Sleeping)
		}
	}
}

// keepUp starts the programs that never sleep, after a restart of the service.
func (a *Apps) keepUp(ctx context.Context) {
	rows, err := a.c.DB.Query(ctx, `SELECT site_id, deployment_id, state FROM live WHERE backend = 'program' AND state = 'live'`)
	list, err := db.Collect(rows, err, func(s db.Scanner) (r row, err error) { return r, s.Scan(&r.site, &r.deployment, &r.state) })
	if err != nil {
		if ctx.Err() == nil {
			a.c.Log.ErrorContext(ctx, "applications that never sleep not started; the next request does", "err", err)
		}
		return
	}
	for _, r := range list {
		want, err := a.c.Wanted(ctx, r.deployment)
		if err != nil || want.Sleep != 0 {
			continue
		}
		if p, err := a.program(r.deployment); err == nil {
			_, _, _ = p.take(true)
		}
	}
}

// close ends every program.
func (a *Apps) close() {
	a.mu.Lock()
	a.closing = true
	all := a.programs
	a.mu.Unlock()
	var wg sync.WaitGroup
	for _, p := range all {
		wg.Go(func() {
			p.mu.Lock()
			in, starting := p.now, p.starting
			p.mu.Unlock()
			if starting != nil {
				<-starting
				p.mu.Lock()
				in = p.now
				p.mu.Unlock()
			}
			p.stop(in, true, Sleeping)
		})
	}
	wg.Wait()
}
