package app

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"slipway/internal/platform/id"
)

// quiet has the sites whose requests wait, because what their programs stand on is about to be replaced.
type quiet struct {
	n atomic.Int32 // of sites: requests take no lock while there are none

	mu sync.Mutex // guards what follows; no other lock is taken while it is held
	// share: total the sites whose files or databases are being replaced; owner its sites, one exchange of each; edge another one waits
	sites map[id.Site]chan struct{}
	// share: total the sites with workers or commands that run; owner its sites; edge as for what runs
	runs map[id.Site]int // workers and commands of each
}

// quietTime is how long a request waits for an exchange.
const quietTime = 2 * time.Minute

// of returns what is closed when a site's requests go on; nil: they do.
func (q *quiet) of(site id.Site) chan struct{} {
	if q.n.Load() == 0 {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.sites[site]
}

// begin makes a site's requests wait until end is called. Another exchange of the site waits for that, too, unless down is closed.
func (q *quiet) begin(site id.Site, down <-chan struct{}) (end func()) {
	for {
		q.mu.Lock()
		wait := q.sites[site]
		if wait == nil {
			break
		}
		q.mu.Unlock()
		select {
		case <-wait:
		case <-down:
			return func() {}
		}
	}
	defer q.mu.Unlock()
	if q.sites == nil {
		q.sites = map[id.Site]chan struct{}{}
	}
	done := make(chan struct{})
	q.sites[site] = done
	q.n.Add(1)
	return func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		delete(q.sites, site)
		q.n.Add(-1)
		close(done)
	}
}

// run counts a worker or a command of a site in. It returns what is closed when it may begin, where it may not yet.
func (q *quiet) run(site id.Site) (ended func(), wait chan struct{}) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if wait := q.sites[site]; wait != nil {
		return nil, wait
	}
	if q.runs == nil {
		q.runs = map[id.Site]int{}
	}
	q.runs[site]++
	return sync.OnceFunc(func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if q.runs[site]--; q.runs[site] == 0 {
			delete(q.runs, site)
		}
	}), nil
}

func (q *quiet) running(site id.Site) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.runs[site] > 0
}

// unquiet waits until a site's programs may begin.
func (a *Apps) unquiet(ctx context.Context, site id.Site) error {
	wait := a.quiet.of(site)
	if wait == nil {
		return nil
	}
	select {
	case <-wait:
		return nil
	case <-a.down:
		return errClosing
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Quiet lets the requests to a site's programs here end before what the programs stand on is replaced, so that everything they were told
// is written was written before. Workers are ended, and commands have the same time. New ones, and new requests, wait until release is
// called. Programs that still have requests under way after drain are ended at once.
func (a *Apps) Quiet(site id.Site, drain time.Duration) (release func()) {
	release = a.quiet.begin(site, a.down)
	a.endWorkers(site)
	var programs []*program
	for _, p := range a.all() {
		p.mu.Lock()
		if p.want.Site == site {
			programs = append(programs, p)
		}
		p.mu.Unlock()
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	late := time.NewTimer(drain)
	defer late.Stop()
	for {
		busy := underWay(programs)
		if len(busy) == 0 && !a.quiet.running(site) {
			return release
		}
		select {
		case <-tick.C:
			continue
		case <-late.C:
		case <-a.down:
		}
		for in, p := range busy {
			a.logs.System(site, p.deployment, "Requests were cut off: they took longer than "+drain.String()+
				", and the site's files or database were about to be replaced")
			p.end()
			in.running.Stop(0)
		}
		return release
	}
}

// underWay returns the instances of programs that have requests.
func underWay(programs []*program) map[*instance]*program {
	busy := map[*instance]*program{}
	for _, p := range programs {
		p.mu.Lock()
		for in := range p.each {
			if in.busy() {
				busy[in] = p
			}
		}
		p.mu.Unlock()
	}
	return busy
}
