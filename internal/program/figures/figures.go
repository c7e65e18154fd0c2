// Package figures owns how sites' programs did: answers, first bytes, memory, CPU, starts and ends, by the minute for a day and by the
// hour for a month.
package figures

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"slipway/internal/platform/id"

	"slipway/internal/platform/db"
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

// Counter collects figures until they are written. It is safe for concurrent use.
type Counter struct {
	db *db.DB

	mu sync.Mutex // guards sites
	// share: total the sites with requests since the last flush; owner its sites; edge none: an entry is some 200 bytes
	sites map[id.Site]*Figures

	writing sync.Mutex // guards unsure
	unsure  *part      // may be written: it is repeated before anything else is written
}

// part is what is written in one transaction.
type part struct {
	mark  string
	at    db.Time
	sites map[id.Site]*Figures
}

// New returns a counter whose figures are kept in a database.
func New(d *db.DB) *Counter { return &Counter{db: d} }

// How long figures of each step stay.
const (
	keepMinutes = 25 * time.Hour
	keepHours   = 31 * 24 * time.Hour
)

// steps are the two in which figures are stored.
var steps = []struct{ step, keep time.Duration }{{time.Minute, keepMinutes}, {time.Hour, keepHours}}

// Note changes the figures of a site.
func (c *Counter) Note(site id.Site, note func(*Figures)) {
	if site == "" {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sites == nil {
		c.sites = map[id.Site]*Figures{}
	}
	f := c.sites[site]
	if f == nil {
		f = &Figures{}
		c.sites[site] = f
	}
	note(f)
}

// Answered counts an answer of a site's program, the bytes of its body, and how long its first
// byte took.
func (c *Counter) Answered(site id.Site, status int, bytes int64, took time.Duration) {
	c.Note(site, func(f *Figures) {
		f.Bytes += bytes
		f.Statuses[min(max(status/100, 2), 5)-2]++
		i, _ := slices.BinarySearch(latencies[:], took)
		f.counts[i]++
	})
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

// Write writes what was counted; what can't be written is counted on.
func (c *Counter) Write(ctx context.Context, now db.Time) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	if c.unsure != nil {
		if err := c.write(ctx, c.unsure); err != nil {
			return fmt.Errorf("write figures: %w", err)
		}
	}
	c.mu.Lock()
	batch := c.sites
	c.sites = nil
	c.mu.Unlock()
	for sites := range slices.Chunk(slices.Sorted(maps.Keys(batch)), 100) {
		p := &part{db.NewMark(), now, map[id.Site]*Figures{}}
		for _, site := range sites {
			p.sites[site] = batch[site]
		}
		err := c.write(ctx, p)
		if err == nil || c.unsure == p {
			maps.DeleteFunc(batch, func(site id.Site, _ *Figures) bool { return p.sites[site] != nil })
		}
		if err != nil {
			for site, more := range batch {
				c.Note(site, func(f *Figures) { f.add(*more) })
			}
			return fmt.Errorf("write figures: %w", err)
		}
	}
	return nil
}

// write adds a part to what is stored, once however often it is called, and notes whether it has to be called again.
func (c *Counter) write(ctx context.Context, p *part) error {
	err := c.db.Write(ctx, func(tx *db.Tx) error {
		if first, err := tx.MarkTx(ctx, p.mark); err != nil || !first {
			return err
		}
		for _, site := range slices.Sorted(maps.Keys(p.sites)) {
			f := p.sites[site]
			for _, s := range steps {
				args := []any{site, s.step.Milliseconds(), p.at - p.at%db.Time(s.step.Milliseconds())}
				for _, n := range f.Statuses {
					args = append(args, n)
				}
				args = append(args, f.Wakes, f.Restarts, f.Memory, f.CPU.Milliseconds(), f.Bytes)
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
	if err == nil {
		c.unsure = nil
	} else if db.Unknown(err) {
		c.unsure = p
	}
	return err
}

// Tidy forgets figures that have been kept long enough.
func (c *Counter) Tidy(ctx context.Context) error {
	for _, s := range steps {
		err := c.db.Write(ctx, func(tx *db.Tx) error {
			_, err := tx.Exec(ctx, `DELETE FROM app_metrics WHERE step = $1 AND at < $2`, s.step.Milliseconds(), db.Now().Add(-s.keep))
			return err
		})
		if err != nil {
			return fmt.Errorf("forget old figures: %w", err)
		}
	}
	return nil
}

// Read returns a site's figures from a moment until another (0: now), the oldest point
// first and without gaps. With a step of 0, a point is a minute where the first is up to two
// hours back, a quarter of an hour up to a day, else an hour; what may be asked for is one of
// these. What is older than is stored is left out: minutes after 25 hours, hours after 31
// days. The caller knows that the site is its own.
func (c *Counter) Read(
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
	rows, err := c.db.Query(
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

// PurgeTx forgets the figures of a deleted site.
func (c *Counter) PurgeTx(ctx context.Context, tx *db.Tx, site id.Site) error {
	if _, err := tx.Exec(ctx, `DELETE FROM app_metrics WHERE site_id = $1`, site); err != nil {
		return fmt.Errorf("forget figures: %w", err)
	}
	return nil
}
