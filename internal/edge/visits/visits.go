// Package visits owns the counting of what visitors of sites ask for: how many answers each
// site gave, the lines of its access log, and the names of its pages, within bounds that
// strangers can't move. Counting takes no lock; what was counted is handed over every few
// seconds and stored elsewhere.
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

// Site counts the answers of one site until they are collected. It costs a request a
// few additions: no lock, no allocation.
type Site struct {
	id      id.Site
	classes [4]atomic.Int64
	pages   atomic.Int64
	bytes   atomic.Int64
	listed  atomic.Bool // whether it stands in Counter.list
	detail  detail
}

// NewSite returns what counts for a site of an owner.
func NewSite(site id.Site, owner *Owner) *Site { return &Site{id: site, detail: detail{owner: owner}} }

// Page counts how often an answer is given that is kept. What it says of the answer must not
// change.
type Page struct {
	Site *Site // nil when it is none's, or nobody counts
	Host string
	Path string
	HTML bool         // it is a page of the site
	hits atomic.Int64 // since they were collected
}

// Config holds the dependencies and settings of a Counter.
type Config struct {
	Recorder  Recorder      // Optional: without it nothing is counted.
	Every     time.Duration // how often it is given what was counted
	Countries Countries     // Optional: without it nobody's country is known.
	Marks     Marks         // Optional
	Log       *slog.Logger
}

// Recorder stores what was counted.
type Recorder interface {
	// Record is given what each site's visitors asked for since a moment, a group of sites at a
	// time, from one goroutine. A group that it refuses is offered again later with the same
	// numbers as the same batch, so that it can tell one whose answer alone was lost.
	Record(ctx context.Context, b visit.Batch, group []visit.Counts) error
}

// Marks hears how far the recorder has come.
type Marks interface {
	Collecting() // what was counted until now is about to be handed over
	Stored()     // the recorder has taken everything that was counted before the latest Collecting
}

// Countries know where addresses are.
type Countries interface {
	// Of returns the ISO 3166 code of the country that an address is in, or nothing.
	Of(a netip.Addr) string
}

// Counter knows which sites have been visited since the last look, so that collecting
// costs nothing for those that have not. It is safe for concurrent use.
type Counter struct {
	Config
	bounds bounds
	mu     sync.Mutex // guards the rest
	list   []*Site
	pages  []*Page // that have hits
}

// New returns a Counter: Run hands over what it counts.
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

// Count adds an answer; page says that it brought a page of the site. The listed flag is read
// last: collect clears it first, so an answer is either in what collect takes or puts the site
// into the list again.
func (l *Counter) Count(v *Site, status int, bytes int64, page bool) {
	class := status/100 - 2
	if class < 0 || class >= len(v.classes) {
		return // nobody waited for the answer
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

// collect takes what was counted since the last time.
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
		if n.Classes != [4]int64{} || n.Pages > 0 || n.Bytes > 0 { // one may be counted between the looks at two
			out = append(out, n)
		}
	}
	return out
}

// A group of counts goes to the recorder at a time, so that no transaction holds up the
// others for long.
const groupMost = 500

// batch is a group of counts that the recorder refused.
type batch struct {
	visit.Batch
	group []visit.Counts
}

// Run hands the counts to the recorder now and then and, when ctx ends, once more. What it does
// not take is offered again, before what was counted since; a killed process loses what it
// counted since the last time.
func (l *Counter) Run(ctx context.Context) error {
	if l.Recorder == nil {
		return nil
	}
	tick := time.NewTicker(l.Every)
	defer tick.Stop()
	b := visit.Batch{Counter: rand.Text(), Since: time.Now()} // the batch before the next one
	var refused *batch                                        // the one batch that was offered and not taken
	var kept []visit.Counts                                   // what was counted since and never offered
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
		if (err != nil) != failing { // once when it begins, once when it is over
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

// withoutDetails drops lines and names of counts that have to wait: numbers are kept, details
// would be too much.
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

// merge adds up what several looks counted for the same site.
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
		a[i].Lines, a[i].Names = v.Lines, v.Names // of those that are kept there are none
	}
	return a
}
