package app

import (
	"sync"
	"time"

	"slipway/internal/platform/id"
)

// quiet has the sites whose requests wait, because what their programs stand on is about to be replaced.
type quiet struct {
	mu sync.Mutex // guards sites; no other lock is taken while it is held
	// share: total the sites whose files or databases are being replaced; owner its sites, one exchange of each; edge another one waits
	sites map[id.Site]chan struct{}
}

// of returns what is closed when a site's requests go on; nil: they do.
func (q *quiet) of(site id.Site) chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.sites[site]
}

// begin makes a site's requests wait until end is called. Another exchange of the site waits for that, too.
func (q *quiet) begin(site id.Site) (end func()) {
	for {
		q.mu.Lock()
		wait := q.sites[site]
		if wait == nil {
			break
		}
		q.mu.Unlock()
		<-wait
	}
	defer q.mu.Unlock()
	if q.sites == nil {
		q.sites = map[id.Site]chan struct{}{}
	}
	done := make(chan struct{})
	q.sites[site] = done
	return func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		delete(q.sites, site)
		close(done)
	}
}

// Quiet lets the requests to a site's programs here end before what the programs stand on is replaced, so that everything they were told
// is written was written before. New requests wait until release is called. Programs that still have requests under way after drain are
// ended at once.
func (a *Apps) Quiet(site id.Site, drain time.Duration) (release func()) {
	release = a.quiet.begin(site)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	late := time.NewTimer(drain)
	defer late.Stop()
	for {
		busy := a.underWay(site)
		if len(busy) == 0 {
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

// underWay returns the instances of a site that have requests.
func (a *Apps) underWay(site id.Site) map[*instance]*program {
	busy := map[*instance]*program{}
	for _, p := range a.all() {
		p.mu.Lock()
		if p.want.Site == site {
			for in := range p.each {
				if in.busy() {
					busy[in] = p
				}
			}
		}
		p.mu.Unlock()
	}
	return busy
}
