package figures

import (
	"context"
	"log/slog"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/id"
	"slipway/internal/tenant/usage"
)

// sampleEvery is how often it is looked what programs use, and written.
const sampleEvery = 10 * time.Second

// Running is an instance of a program that runs, and what it uses.
type Running struct {
	ID     string
	Site   id.Site
	Owner  id.Owner
	Memory int64 // bytes
	CPU    time.Duration
}

// Programs lists what runs. *app.Apps does.
type Programs interface{ Running() []Running }

// Sampler counts what programs use into a Counter, and for their owners.
type Sampler struct {
	counter  *Counter
	programs Programs
	usage    *usage.Usage  // nil: it isn't counted for owners
	used     *usage.Source // what they used
	log      *slog.Logger

	cpu map[string]time.Duration // what was counted of each instance; Run's alone
	at  time.Time                // of the last sample
}

// NewSampler returns one. u is optional.
func NewSampler(c *Counter, p Programs, u *usage.Usage, log *slog.Logger) *Sampler {
	s := &Sampler{counter: c, programs: p, usage: u, log: log}
	if u != nil {
		s.used = usage.ProcessSource("programs")
	}
	return s
}

// sample adds what the instances use now.
func (s *Sampler) sample() {
	seen := map[string]time.Duration{}
	memory := map[id.Site]int64{}
	now := time.Now()
	took := now.Sub(s.at)
	if s.at.IsZero() || took > 3*sampleEvery {
		took = sampleEvery // it was not looked at for longer: that is not counted
	}
	s.at = now
	for _, in := range s.programs.Running() {
		seen[in.ID] = in.CPU
		more := max(0, in.CPU-s.cpu[in.ID])
		memory[in.Site] += in.Memory
		s.counter.Note(in.Site, func(f *Figures) { f.Memory, f.CPU = max(f.Memory, memory[in.Site]), f.CPU+more })
		if s.used == nil {
			continue
		}
		s.used.Add(db.At(now), in.Owner, usage.CPU, in.Site, more.Milliseconds())
		s.used.Add(db.At(now), in.Owner, usage.Memory, in.Site, in.Memory>>20*took.Milliseconds()/1000)
	}
	s.cpu = seen
}

// Run samples and writes until ctx ends, and once more then.
func (s *Sampler) Run(ctx context.Context) {
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	tidied := time.Time{}
	for over := false; !over; {
		select {
		case <-ctx.Done():
			over = true
		case <-tick.C:
		}
		s.sample()
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		err := s.counter.Write(last, db.Now())
		if err == nil && s.usage != nil {
			err = s.usage.Write(last, s.used)
		}
		if err == nil && time.Since(tidied) > time.Hour {
			if err = s.counter.Tidy(last); err == nil {
				tidied = time.Now()
			}
		}
		cancel()
		if err != nil {
			s.log.WarnContext(ctx, "application metrics not written, will be retried", "err", err)
		}
	}
}
