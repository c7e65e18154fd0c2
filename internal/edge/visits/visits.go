// Package visits owns the statistics of visits: responses per site, access log lines and names of pages, within limits
// that strangers can't raise. Counting takes no lock; every few seconds the counts are passed to a [Recorder] that
// stores them.
package visits

import (
	"context"
	"crypto/rand"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"slipway/internal/platform/id"
	"slipway/internal/platform/visit"
)

// Site counts the responses of one site until they are collected. Counting is a few additions without a lock or an
// allocation.
type Site struct {
	id      id.Site
	classes [4]atomic.Int64
	pages   atomic.Int64
	bytes   atomic.Int64
	listed  atomic.Bool // the site is in Counter.list
	detail  detail
}

// NewSite returns the counters for a site.
func NewSite(site id.Site, owner *Owner) *Site { return &Site{id: site, detail: detail{owner: owner}} }

// Page counts how often a kept response is sent. It must not change.
type Page struct {
	Site *Site // nil if there is no site, or nothing is counted
	Host string
	Path string
	HTML bool         // it is a page of the site
	hits atomic.Int64 // since the last collection
}

// Config holds the dependencies and settings of a Counter.
type Config struct {
	Recorder  Recorder      // Optional: nil counts nothing.
	Every     time.Duration // interval of Record
	Countries Countries     // Optional: nil records no countries.
	Marks     Marks         // Optional
	Log       *slog.Logger
}

// Recorder stores counts.
type Recorder interface {
	// Record stores the counts of some sites. Calls don't overlap. A group that fails is offered again later with the
	// same numbers and the same batch, so that Record can detect one that was stored although its result was lost.
	Record(ctx context.Context, b visit.Batch, group []visit.Counts) error
}

// Marks is called around the collection of counts.
type Marks interface {
	Collecting() // the counts so far are about to be handed over
	Stored()     // the recorder has stored everything counted before the last Collecting
}

// Countries maps addresses to countries.
type Countries interface {
	// Of returns the ISO 3166 code of an address's country, or "".
	Of(a netip.Addr) string
}

// Counter collects the counts of the sites that were visited since the last collection; others cost nothing. It is safe
// for concurrent use.
type Counter struct {
	Config
	bounds bounds
	mu     sync.Mutex // guards the rest
	list   []*Site
	pages  []*Page // pages with hits
}

// New returns a Counter. [Counter.Run] stores what it counts.
func New(c Config) *Counter { return &Counter{Config: c} }

func (l *Counter) addPage(p *Page) {
	l.mu.Lock()
	l.pages = append(l.pages, p)
	l.mu.Unlock()
}

func (l *Counter) add(v *Site) {
	l.mu.Lock()
	l.list = append(l.list, v)
	l.mu.Unlock()
}

// Count adds a response; page says that it was a page of the site. It reads listed last, while collect clears it first:
// so a response is either collected or puts the site into the list again.
func (l *Counter) Count(v *Site, status int, bytes int64, page bool) {
	class := status/100 - 2
	if class < 0 || class >= len(v.classes) {
		return // the visitor had left
	}
	v.classes[class].Add(1)
	if bytes > 0 {
		v.bytes.Add(bytes)
	}
	if page {
		v.pages.Add(1)
	}
	if !v.listed.Load() && v.listed.CompareAndSwap(false, true) {
		l.add(v)
	}
}

// collect returns and resets the counts.
func (l *Counter) collect() []visit.Counts {
	l.mu.Lock()
	list, pages := l.list, l.pages
	l.list, l.pages = nil, nil
	l.mu.Unlock()
	for _, h := range pages {
		h.Site.detail.addTop(&l.bounds, visit.Pages, h.Path, h.hits.Swap(0))
	}
	out := make([]visit.Counts, 0, len(list))
	for _, v := range list {
		v.listed.Store(false)
		n := visit.Counts{Site: v.id, Owner: v.detail.owner.ID, Pages: v.pages.Swap(0), Bytes: v.bytes.Swap(0)}
		for i := range v.classes {
			n.Classes[i] = v.classes[i].Swap(0)
		}
		n.Lines, n.Omitted, n.Names = v.detail.take(&l.bounds)
		if n.Classes != [4]int64{} || n.Pages > 0 || n.Bytes > 0 { // another response may be counted between two reads
			out = append(out, n)
		}
	}
	return out
}

// groupMost caps the sites per call of Record, so that its transactions stay short.
const groupMost = 500

// batch is a group of counts that the recorder refused.
type batch struct {
	visit.Batch
	group []visit.Counts
}

// Run passes the counts to the recorder at intervals and when ctx ends. Refused counts are offered again before newer
// ones. A killed process loses the counts of its last interval.
func (l *Counter) Run(ctx context.Context) error {
	if l.Recorder == nil {
		return nil
	}
	tick := time.NewTicker(l.Every)
	defer tick.Stop()
	b := visit.Batch{Counter: rand.Text(), Since: time.Now()} // the batch before the first one
	var refused *batch                                        // the batch that was refused
	var kept []visit.Counts                                   // later counts that weren't offered yet
	failing := false
	for done := false; !done; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			done = true
		}
		var err error
		if refused != nil {
			if err = l.hand(ctx, refused.Batch, refused.group); err == nil {
				refused = nil
			}
		}
		if l.Marks != nil {
			l.Marks.Collecting()
		}
		kept = merge(kept, l.collect())
		until := time.Now()
		for len(kept) > 0 && err == nil {
			b.Number++
			n := min(len(kept), groupMost)
			if err = l.hand(ctx, b, kept[:n]); err != nil {
				refused = &batch{b, withoutDetails(kept[:n:n])}
			}
			kept = kept[n:]
		}
		kept = withoutDetails(kept)
		if len(kept) == 0 {
			b.Since = until
			if refused == nil && l.Marks != nil {
				l.Marks.Stored()
			}
		}
		if (err != nil) != failing { // log each change once
			failing = err != nil
			if failing {
				l.Log.ErrorContext(ctx, "visits not recorded; retrying with the next batch", "sites",
					len(refused.group)+len(kept), "err", err)
			} else {
				l.Log.InfoContext(ctx, "visits recorded again")
			}
		}
	}
	return nil
}

// withoutDetails drops the lines and names of counts that must wait: only numbers are kept.
func withoutDetails(list []visit.Counts) []visit.Counts {
	for i := range list {
		list[i].Omitted += int64(len(list[i].Lines))
		list[i].Lines, list[i].Names = nil, nil
	}
	return list
}

func (l *Counter) hand(ctx context.Context, b visit.Batch, group []visit.Counts) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return l.Recorder.Record(ctx, b, group)
}

// merge adds up the counts of several collections.
func merge(a, b []visit.Counts) []visit.Counts {
	if len(a) == 0 {
		return b
	}
	type key struct {
		site  id.Site
		owner id.Owner
	}
	at := make(map[key]int, len(a))
	for i, v := range a {
		at[key{v.Site, v.Owner}] = i
	}
	for _, v := range b {
		k := key{v.Site, v.Owner}
		i, ok := at[k]
		if !ok {
			at[k] = len(a)
			a = append(a, v)
			continue
		}
		for c, n := range v.Classes {
			a[i].Classes[c] += n
		}
		a[i].Pages += v.Pages
		a[i].Bytes += v.Bytes
		a[i].Omitted += v.Omitted
		a[i].Lines, a[i].Names = v.Lines, v.Names // kept counts have no details
	}
	return a
}
