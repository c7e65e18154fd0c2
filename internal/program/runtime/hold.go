package runtime

import (
	"context"

	"slipway/internal/platform/id"
)

// Hold keeps every program of a site from running, and with it from writing, until release
// is called; one that is about to start waits. Requests are held meanwhile, not refused.
func (p *Processes) Hold(site id.Site) (release func()) {
	p.mu.Lock()
	for p.held[site] != nil { // one at a time
		wait := p.held[site]
		p.mu.Unlock()
		<-wait
		p.mu.Lock()
	}
	done := make(chan struct{})
	p.held[site] = done
	var stopped []func()
	for x, of := range p.running {
		if of == site {
			stopped = append(stopped, x.link.Pause())
		}
	}
	p.mu.Unlock()
	return func() {
		for _, resume := range stopped {
			resume()
		}
		p.mu.Lock()
		delete(p.held, site)
		p.mu.Unlock()
		close(done)
	}
}

// unheld waits until a site's programs may write, and reports whether it had to.
func (p *Processes) unheld(ctx context.Context, site id.Site) (waited bool, err error) {
	for ; ; waited = true {
		p.mu.Lock()
		wait := p.held[site]
		p.mu.Unlock()
		if wait == nil {
			return waited, nil
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return waited, context.Cause(ctx)
		}
	}
}

// note counts a program as running; one that came up although its site is held is paused
// until it no longer is.
func (p *Processes) note(x *process, site id.Site) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running[x] = site
	if p.outlived(x) {
		x.kill()
	}
	if wait := p.held[site]; wait != nil {
		resume := x.link.Pause()
		// uncaught: waits
		go func() { <-wait; resume() }()
	}
}

func (p *Processes) forget(x *process) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.running, x)
	x.watched.Release()
}
