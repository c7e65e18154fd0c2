package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"sync"
	"time"

	"slipway/internal/platform/id"
	"slipway/internal/platform/panics"
	"slipway/internal/program/figures"
	"slipway/internal/program/runtime"
	"slipway/internal/program/scale"
)

// ejectTime is how long an instance that gave a request no answer is asked last.
const ejectTime = 5 * time.Second

// each yields the instances that run; mu is held.
func (p *program) each(yield func(*instance) bool) {
	if p.now == nil || !yield(p.now) {
		return
	}
	for _, in := range p.more {
		if !yield(in) {
			return
		}
	}
}

// first returns the instance that stands for all of them.
func (p *program) first() *instance {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.now
}

// allowed returns how many instances may run; mu is held. What a site doesn't serve, or no longer, gets no more than it has.
func (p *program) allowed() scale.Range {
	if !p.live {
		return scale.Range{Max: 1 + len(p.more)}
	}
	return p.want.Instances
}

// pick returns the instance with the fewest requests in flight, held for one more; mu is held. Where all of them have many, another
// one is started: no request waits for it.
func (p *program) pick() *instance {
	best := p.now
	if p.want.Instances.Max > 1 || len(p.more) > 0 {
		now := time.Now()
		fewest, total := math.MaxInt, 1
		for in := range p.each {
			in.mu.Lock()
			active := in.active
			failing := !in.failed.IsZero() && now.Sub(in.failed) < ejectTime
			in.mu.Unlock()
			total += active
			if failing {
				active += math.MaxInt / 2
			}
			if active < fewest {
				best, fewest = in, active
			}
		}
		best.hold() // before fit ends one that is idle
		p.fit(now, total)
		return best
	}
	best.hold()
	return best
}

// fit starts or ends instances as so many requests in flight need; mu is held.
func (p *program) fit(now time.Time, inFlight int) {
	running := 1 + len(p.more)
	if p.now == nil || p.gone || p.away || !p.drain.IsZero() || running == 1 && p.want.Instances.Max <= 1 {
		return
	}
	n := p.scale.Want(p.allowed(), running, inFlight, now)
	if n > running && !p.growing {
		p.growing = true
		p.apps.work.Go(p.grow)
	}
	if n < running {
		drain := p.want.Drain
		for _, in := range p.more[n-1:] {
			p.apps.work.Go(func() { p.apps.retire(in, drain) })
		}
		p.more = slices.Clip(p.more[:n-1])
		p.apps.logs.System(p.want.Site, p.deployment, "Scaled down to "+instances(n))
	}
}

// refit is fit for the loop, which looks also when nobody asks. It returns when a request last ended.
func (p *program) refit(now time.Time) (used time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	total, used := p.load()
	p.fit(now, total)
	return used
}

// load returns how many requests are under way, and when the last one ended; mu is held.
func (p *program) load() (inFlight int, used time.Time) {
	for in := range p.each {
		in.mu.Lock()
		inFlight += in.active
		if in.used.After(used) {
			used = in.used
		}
		in.mu.Unlock()
	}
	return inFlight, used
}

// instances is a number of them in words.
func instances(n int) string {
	if n == 1 {
		return "1 instance"
	}
	return fmt.Sprintf("%d instances", n)
}

// grow starts as many instances as are needed.
func (p *program) grow() {
	ctx, cancel := p.apps.untilDown()
	defer cancel()
	p.mu.Lock()
	total, _ := p.load()
	n := p.allowed().Needed(total)
	p.mu.Unlock()
	_ = panics.Call(func() error { p.raise(ctx, n); return nil })
	p.mu.Lock()
	defer p.mu.Unlock()
	p.growing = false
	if total, _ = p.load(); ctx.Err() == nil {
		p.fit(time.Now(), total) // more may have come meanwhile
	}
}

// raise brings a program up to n instances, and what its site wants at least, or as many as there is room for. Each gets requests once
// it is healthy, and what runs goes on where one can't be started.
func (p *program) raise(ctx context.Context, n int) {
	p.mu.Lock()
	want, run, lacks := p.want, p.run, min(max(n, p.want.Instances.Min), p.want.Instances.Max)-1-len(p.more)
	up := p.now != nil && !p.gone
	p.mu.Unlock()
	if !up || lacks <= 0 {
		return
	}
	list, err := p.besides(ctx, want, lacks)
	var late []*instance
	p.mu.Lock()
	for _, in := range list {
		panics.Go(func() { p.watch(in) })
		if p.now == nil || p.gone || p.run != run || len(p.more)+1 >= p.want.Instances.Max {
			late = append(late, in)
			continue
		}
		in.bound(p.want)
		p.more = append(p.more, in)
	}
	if up = p.now != nil && p.run == run; up && len(list) > len(late) {
		p.scale.Started()
		p.stayed = time.Time{}
		p.apps.logs.System(want.Site, p.deployment, "Scaled up to "+instances(1+len(p.more)))
	}
	if up && err != nil && ctx.Err() == nil {
		p.stays(err)
	}
	p.mu.Unlock()
	for _, in := range late {
		in.running.Stop(stopGrace)
	}
}

// besides starts n instances: the first alone, which shows whether the program comes up at all, and then the others at once. It returns
// those that are healthy, and why one is not.
func (p *program) besides(ctx context.Context, want Wanted, n int) (list []*instance, err error) {
	var mu sync.Mutex // guards list, err
	one := func() {
		in, why := p.beside(ctx, want)
		mu.Lock()
		defer mu.Unlock()
		if err = cmp.Or(err, why); why == nil {
			list = append(list, in)
		}
	}
	if one(); err != nil {
		return nil, err
	}
	var others panics.Group
	for range n - 1 {
		others.Go(one)
	}
	others.Wait()
	return list, err
}

// beside starts one more of what runs, with the same files, variables and limits, and returns it once it is healthy. It makes no
// other program sleep.
func (p *program) beside(ctx context.Context, want Wanted) (*instance, error) {
	start, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	in, err := p.begin(start, want, true)
	if err != nil {
		return nil, err
	}
	if err := p.healthy(ctx, in, nil); err != nil {
		in.running.Stop(0)
		p.watch(in)
		return nil, err
	}
	in.transport.Warm(ctx)
	return in, nil
}

// staysEvery is how often a site's log says why fewer instances run than are needed.
const staysEvery = 5 * time.Minute

// stays notes why there is no further instance for now; mu is held.
func (p *program) stays(err error) {
	now := time.Now()
	p.scale.Failed(now)
	p.apps.c.Log.Warn("instance not started", "site", p.want.Site, "deployment", p.deployment, "err", err)
	if now.Sub(p.stayed) < staysEvery {
		return
	}
	p.stayed = now
	p.apps.logs.System(p.want.Site, p.deployment, "Stays at "+instances(1+len(p.more))+": "+reasonOf(err))
}

// lost takes an instance out that fails while others run, and reports whether it did; mu is held. Their number is made good later and
// later, as a program that crashes is started again. memory says that it needed more of that than it has.
func (p *program) lost(in *instance, why string, memory bool) bool {
	if !p.takeOut(in) {
		return false
	}
	p.restarts++
	p.apps.figures.Note(in.site, func(f *figures.Figures) { f.Restarts++ })
	if time.Since(in.begun) > healthyTime {
		p.failures = 0
	}
	p.failures++
	p.scale.Hold(time.Now().Add(p.backoff()))
	p.apps.logs.System(in.site, p.deployment, why+"; "+instances(1+len(p.more))+" left")
	p.tellEnd(why, memory)
	return true
}

// takeOut takes an instance out while others run, and reports whether it did; mu is held.
func (p *program) takeOut(in *instance) bool {
	switch i := slices.Index(p.more, in); {
	case i >= 0:
		p.more = slices.Delete(slices.Clone(p.more), i, i+1)
	case p.now == in && len(p.more) > 0:
		p.now, p.more = p.more[0], slices.Clone(p.more[1:])
	default:
		return false
	}
	return true
}

// replace starts another instance in the place of one of several whose machine is to be empty. Where there is no room for it the others
// go on. It reports whether there were others.
func (p *program) replace(ctx context.Context, in *instance) bool {
	p.mu.Lock()
	want, run, several := p.want, p.run, len(p.more) > 0
	p.mu.Unlock()
	if !several {
		return false
	}
	other, err := p.beside(ctx, want)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil {
		panics.Go(func() { p.watch(other) })
		if p.now == nil || p.gone || p.run != run {
			p.apps.work.Go(func() { other.running.Stop(stopGrace) })
			return true
		}
		p.more = append(p.more, other)
	}
	if !p.takeOut(in) {
		return p.now != in
	}
	p.apps.work.Go(func() { p.apps.retire(in, want.Drain) })
	return true
}

// member is an instance for its transport: one that refuses connections is taken out, where others run.
type member struct {
	runtime.Program
	of *program
	in *instance
}

// Dial connects to it.
func (m member) Dial(ctx context.Context) (net.Conn, error) {
	c, err := m.Program.Dial(ctx)
	if errors.Is(err, runtime.ErrNotListening) {
		m.of.eject(m.in)
	}
	return c, err
}

// eject takes an instance out that accepts no connections while others do, and ends it once the requests that it has are answered.
func (p *program) eject(in *instance) {
	select {
	case <-in.running.Done(): // its end is noticed anyway
		return
	default:
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if drain := p.want.Drain; !p.gone && p.lost(in, "An instance refuses connections", false) {
		in.end()
		p.apps.work.Go(func() { p.apps.retire(in, drain) })
	}
}

// spareable returns the instance that could end for another program's: the idlest of those beside the first, and else all that there is.
// mu is held.
func (p *program) spareable() (idle *instance) {
	always := p.live && p.want.Sleep == 0
	switch {
	case p.now == nil, always && len(p.more) < max(1, p.want.Instances.Min):
		return nil
	case len(p.more) == 0:
		return p.now
	}
	var since time.Time
	for _, in := range p.more {
		in.mu.Lock()
		if in.active == 0 && (idle == nil || in.used.Before(since)) {
			idle, since = in, in.used
		}
		in.mu.Unlock()
	}
	return idle
}

// dropBeside ends one that runs beside the first, if it is idle where it must be.
func (p *program) dropBeside(i int, evenBusy bool) bool {
	in := p.more[i]
	if !evenBusy && in.busy() {
		return false
	}
	p.more = slices.Delete(slices.Clone(p.more), i, i+1)
	p.scale.Hold(time.Now().Add(spareTime))
	p.apps.work.Go(func() { in.running.Stop(stopGrace) })
	return true
}

// serving returns how many instances run of what a site serves now.
func (a *Apps) serving(site id.Site) (n int) {
	for _, p := range a.all() {
		p.mu.Lock()
		if p.live && p.want.Site == site && p.now != nil {
			n = max(n, 1+len(p.more))
		}
		p.mu.Unlock()
	}
	return n
}

// counted lists the instances that run.
type counted struct{ apps *Apps }

// Running lists them with what they use.
func (c counted) Running() (list []figures.Running) {
	for _, p := range c.apps.all() {
		p.mu.Lock()
		all, site, owner := slices.Collect(p.each), p.want.Site, p.want.Owner
		p.mu.Unlock()
		for _, in := range all {
			u := in.running.Usage()
			list = append(list, figures.Running{ID: in.id, Site: site, Owner: owner, Memory: u.Memory, CPU: u.CPU})
		}
	}
	return list
}

// untilDown returns a context that ends with the service.
func (a *Apps) untilDown() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	// uncaught: waits
	go func() {
		select {
		case <-a.down:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}
