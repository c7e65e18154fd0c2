package app

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"slipway/internal/platform/id"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/usage"
)

// latencies are the upper ends of the classes in which first bytes are counted; the last
// class has none.
var latencies = [15]time.Duration{
	1 * time.Millisecond,
	2 * time.Millisecond,
	5 * time.Millisecond,
	10 * time.Millisecond,
	20 * time.Millisecond,
	50 * time.Millisecond,
	100 * time.Millisecond,
	200 * time.Millisecond,
	500 * time.Millisecond,
	time.Second,
	2 * time.Second,
	5 * time.Second,
	10 * time.Second,
	30 * time.Second,
	time.Minute,
}

// Figures are those of a site's programs in a stretch of time.
type Figures struct {
	Statuses [4]int64 // 2xx (1xx included), 3xx, 4xx, 5xx
	Wakes    int64    // starts because somebody asked
	Restarts int64    // ends that nobody asked for, and restarts that somebody did
	Bytes    int64    // of the bodies of answers
	Memory   int64    // the most that was seen, bytes
	CPU      time.Duration
	counts   [16]int64 // first bytes, by latencies
}

// Requests is how many answers there were.
func (f Figures) Requests() int64 {
	return f.Statuses[0] + f.Statuses[1] + f.Statuses[2] + f.Statuses[3]
}

// Latency returns the time within which a share of the answers began, 0.99 say: read off
// between the ends of a class. It is 0 without answers.
func (f Figures) Latency(share float64) time.Duration {
	var all int64
	for _, n := range f.counts {
		all += n
	}
	rank, low := share*float64(all), time.Duration(0)
	for i, n := range f.counts {
		high := latencies[min(i, len(latencies)-1)]
		if n > 0 && rank <= float64(n) {
			return low + time.Duration(float64(high-low)*max(rank, 0)/float64(n))
		}
		rank -= float64(n)
		low = high
	}
	return 0
}

func (f *Figures) add(o Figures) {
	for i, n := range o.Statuses {
		f.Statuses[i] += n
	}
	for i, n := range o.counts {
		f.counts[i] += n
	}
	f.Wakes, f.Restarts, f.Bytes, f.CPU, f.Memory = f.Wakes+o.Wakes, f.Restarts+o.Restarts, f.Bytes+o.Bytes, f.CPU+o.CPU, max(
		f.Memory,
		o.Memory,
	)
}

// Point is the figures of one step.
type Point struct {
	At db.Time
	Figures
}

// metrics collects figures and writes them every few seconds.
type metrics struct {
	mu sync.Mutex // guards sites
	// share: total the sites with requests since the last flush; owner its sites; edge none: an entry is some 200 bytes
	sites map[string]*Figures
	// share: total the instances that run; owner those that it may run; edge gone with them
	cpu map[*instance]time.Duration // what was counted of each, the loop's alone
	at  time.Time                   // of the last sample, the loop's alone

	used *usage.Source // what they used, for their owners; nil: it isn't counted
}

// How often figures are written, and how long those of each step stay.
const (
	metricsEvery = 10 * time.Second
	keepMinutes  = 25 * time.Hour
	keepHours    = 31 * 24 * time.Hour
)

// steps are the two in which figures are stored.
var steps = []struct{ step, keep time.Duration }{{time.Minute, keepMinutes}, {time.Hour, keepHours}}

func (m *metrics) of(site id.Site, note func(*Figures)) {
	if site == "" {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.sites == nil {
		m.sites = map[string]*Figures{}
	}
	f := m.sites[string(site)]
	if f == nil {
		f = &Figures{}
		m.sites[string(site)] = f
	}
	note(f)
}

// answered counts an answer of a site's program, the bytes of its body, and how long its first
// byte took.
func (m *metrics) answered(site id.Site, status int, bytes int64, took time.Duration) {
	m.of(site, func(f *Figures) {
		f.Bytes += bytes
		f.Statuses[min(max(status/100, 2), 5)-2]++
		i, _ := slices.BinarySearch(latencies[:], took)
		f.counts[i]++
	})
}

// sample adds what the instances use now.
func (a *Apps) sample() {
	a.mu.Lock()
	all := make([]*program, 0, len(a.programs))
	for _, p := range a.programs {
		all = append(all, p)
	}
	a.mu.Unlock()
	seen := map[*instance]time.Duration{}
	now := time.Now()
	took := now.Sub(a.metrics.at)
	if a.metrics.at.IsZero() || took > 3*metricsEvery {
		took = metricsEvery // it was not looked at for longer: that is not counted
	}
	a.metrics.at = now
	for _, p := range all {
		p.mu.Lock()
		in, site, owner := p.now, p.want.Site, p.want.Owner
		p.mu.Unlock()
		if in == nil {
			continue
		}
		u := in.running.Usage()
		seen[in] = u.CPU
		more := max(0, u.CPU-a.metrics.cpu[in])
		a.metrics.of(site, func(f *Figures) { f.Memory, f.CPU = max(f.Memory, u.Memory), f.CPU+more })
		if a.metrics.used == nil {
			continue
		}
		a.metrics.used.Add(db.At(now), owner, usage.CPU, site, more.Milliseconds())
		a.metrics.used.Add(db.At(now), owner, usage.Memory, site, u.Memory>>20*took.Milliseconds()/1000)
	}
	a.metrics.cpu = seen
}

// countFigures samples and writes until ctx ends, and once more then.
func (a *Apps) countFigures(ctx context.Context) {
	tick := time.NewTicker(metricsEvery)
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
		err := a.writeFigures(last, db.Now())
		if err == nil && a.c.Usage != nil {
			err = a.c.Usage.Write(last, a.metrics.used)
		}
		if err == nil && time.Since(tidied) > time.Hour {
			if err = a.tidyFigures(last); err == nil {
				tidied = time.Now()
			}
		}
		cancel()
		if err != nil {
			a.c.Log.WarnContext(ctx, "application metrics not written, will be retried", "err", err)
		}
	}
}

var metricColumns = func() string {
	names := []string{"s2", "s3", "s4", "s5", "wakes", "restarts", "memory", "cpu", "bytes"}
	for i := range 16 {
		names = append(names, fmt.Sprintf("b%d", i))
	}
	return strings.Join(names, ", ")
}()

// metricUpsert adds a row's figures to those that are there.
var metricUpsert = func() string {
	names := strings.Split(metricColumns, ", ")
	marks, adds := make([]string, len(names)), make([]string, len(names))
	for i, name := range names {
		marks[i], adds[i] = fmt.Sprintf("$%d", i+4), name+" = app_metrics."+name+" + excluded."+name
		if name == "memory" {
			adds[i] = "memory = CASE WHEN app_metrics.memory > excluded.memory THEN app_metrics.memory ELSE excluded.memory END"
		}
	}
	return `INSERT INTO app_metrics (site_id, step, at, ` + metricColumns + `) VALUES ($1, $2, $3, ` + strings.Join(marks, ", ") + `)
		ON CONFLICT (site_id, step, at) DO UPDATE SET ` + strings.Join(adds, ", ")
}()

// writeFigures writes what was counted; what can't be written is counted on.
func (a *Apps) writeFigures(ctx context.Context, now db.Time) error {
	m := &a.metrics
	m.mu.Lock()
	batch := m.sites
	m.sites = nil
	m.mu.Unlock()
	for part := range slices.Chunk(sortedKeys(batch), 100) {
		err := a.c.DB.Write(ctx, func(tx *db.Tx) error {
			for _, site := range part {
				f := batch[site]
				for _, s := range steps {
					at := now - now%db.Time(s.step.Milliseconds())
					args := []any{
						site,
						s.step.Milliseconds(),
						at,
						f.Statuses[0],
						f.Statuses[1],
						f.Statuses[2],
						f.Statuses[3],
						f.Wakes,
						f.Restarts,
						f.Memory,
						f.CPU.Milliseconds(),
						f.Bytes,
					}
					for _, n := range f.counts {
						args = append(args, n)
					}
					if _, err := tx.Exec(ctx, metricUpsert, args...); err != nil {
						return err
					}
				}
			}
			return nil
		})
		if err != nil {
			for _, site := range sortedKeys(batch) {
				m.of(id.Site(site), func(f *Figures) { f.add(*batch[site]) })
			}
			return fmt.Errorf("write figures: %w", err)
		}
		for _, site := range part {
			delete(batch, site)
		}
	}
	return nil
}

func (a *Apps) tidyFigures(ctx context.Context) error {
	for _, s := range steps {
		err := a.c.DB.Write(ctx, func(tx *db.Tx) error {
			_, err := tx.Exec(ctx, `DELETE FROM app_metrics WHERE step = $1 AND at < $2`, s.step.Milliseconds(), db.Now().Add(-s.keep))
			return err
		})
		if err != nil {
			return fmt.Errorf("forget old figures: %w", err)
		}
	}
	return nil
}

// Metrics returns a site's figures from a moment until another (0: now), the oldest point
// first and without gaps. With a step of 0, a point is a minute where the first is up to two
// hours back, a quarter of an hour up to a day, else an hour; what may be asked for is one of
// these. What is older than is stored is left out: minutes after 25 hours, hours after 31
// days. The caller knows that the site is its own.
func (a *Apps) Metrics(
	ctx context.Context,
	site id.Site,
	since, until db.Time,
	step time.Duration,
) (list []Point, total Figures, _ time.Duration, err error) {
	now := db.Now()
	if until == 0 || until > now {
		until = now
	}
	if step == 0 {
		switch back := now.Sub(since); {
		case back <= 2*time.Hour:
			step = time.Minute
		case back < keepMinutes-15*time.Minute:
			step = 15 * time.Minute
		default:
			step = time.Hour
		}
	}
	stored, keep := time.Minute, keepMinutes
	if step == time.Hour {
		stored, keep = time.Hour, keepHours
	}
	since = max(since, now.Add(-keep))
	width := db.Time(step.Milliseconds())
	for at := since - since%width; at <= until; at += width {
		list = append(list, Point{At: at})
	}
	if len(list) == 0 {
		return nil, total, step, nil
	}
	rows, err := a.c.DB.Query(
		ctx,
		`SELECT at, `+metricColumns+` FROM app_metrics WHERE site_id = $1 AND step = $2 AND at >= $3 AND at <= $4 ORDER BY at`,
		site,
		stored.Milliseconds(),
		list[0].At,
		until,
	)
	found, err := db.Collect(rows, err, func(s db.Scanner) (p Point, err error) {
		var cpu int64
		into := []any{
			&p.At,
			&p.Statuses[0],
			&p.Statuses[1],
			&p.Statuses[2],
			&p.Statuses[3],
			&p.Wakes,
			&p.Restarts,
			&p.Memory,
			&cpu,
			&p.Bytes,
		}
		for i := range p.counts {
			into = append(into, &p.counts[i])
		}
		err = s.Scan(into...)
		p.CPU = time.Duration(cpu) * time.Millisecond
		return p, err
	})
	if err != nil {
		return nil, total, step, fmt.Errorf("read figures: %w", err)
	}
	for _, p := range found {
		if i := int((p.At - list[0].At) / width); i < len(list) {
			list[i].add(p.Figures)
		}
		total.add(p.Figures)
	}
	return list, total, step, nil
}
