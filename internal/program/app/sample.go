package app

import (
	"context"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/program/figures"
	"slipway/internal/tenant/usage"
)

// sampleEvery is how often it is looked what programs use, and written.
const sampleEvery = 10 * time.Second

// samples are what instances used when it was last looked; the loop's alone.
type samples struct {
	cpu map[*instance]time.Duration // what was counted of each
	at  time.Time                   // of the last sample

	used *usage.Source // what they used, for their owners; nil: it isn't counted
}

// sample adds what the instances use now.
func (a *Apps) sample() {
	all := a.all()
	seen := map[*instance]time.Duration{}
	now := time.Now()
	took := now.Sub(a.samples.at)
	if a.samples.at.IsZero() || took > 3*sampleEvery {
		took = sampleEvery // it was not looked at for longer: that is not counted
	}
	a.samples.at = now
	for _, p := range all {
		p.mu.Lock()
		in, site, owner := p.now, p.want.Site, p.want.Owner
		p.mu.Unlock()
		if in == nil {
			continue
		}
		u := in.running.Usage()
		seen[in] = u.CPU
		more := max(0, u.CPU-a.samples.cpu[in])
		a.figures.Note(site, func(f *figures.Figures) { f.Memory, f.CPU = max(f.Memory, u.Memory), f.CPU+more })
		if a.samples.used == nil {
			continue
		}
		a.samples.used.Add(db.At(now), owner, usage.CPU, site, more.Milliseconds())
		a.samples.used.Add(db.At(now), owner, usage.Memory, site, u.Memory>>20*took.Milliseconds()/1000)
	}
	a.samples.cpu = seen
}

// countFigures samples and writes until ctx ends, and once more then.
func (a *Apps) countFigures(ctx context.Context) {
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	tidied := time.Time{}
	for over := false; !over; {
		select {
		case <-ctx.Done():
			over = true
		case <-tick.C:
		}
		a.sample()
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		err := a.figures.Write(last, db.Now())
		if err == nil && a.c.Usage != nil {
			err = a.c.Usage.Write(last, a.samples.used)
		}
		if err == nil && time.Since(tidied) > time.Hour {
			if err = a.figures.Tidy(last); err == nil {
				tidied = time.Now()
			}
		}
		cancel()
		if err != nil {
			a.c.Log.WarnContext(ctx, "application metrics not written, will be retried", "err", err)
		}
	}
}
