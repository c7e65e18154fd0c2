package edge

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"slipway/internal/release"
)

// Visits is what visitors of one site asked for during a while, and got.
type Visits struct {
	Site    string
	Classes [4]int64 // answers, by class of status: 2xx, 3xx, 4xx, 5xx
	Pages   int64    // those of them that brought an HTML page of the site: 200, or 304 for one the visitor has
	Bytes   int64    // of bodies, as they were sent

	Tops    map[Top]int64 // what was counted by name
	Lines   []Line        // of the access log
	Omitted int64         // requests that have no line, because there were too many
}

// visits counts the answers of one site until they are collected. It costs a request a
// few additions: no lock, no allocation.
type visits struct {
	site    string
	classes [4]atomic.Int64
	pages   atomic.Int64
	bytes   atomic.Int64
	listed  atomic.Bool // whether it stands in visited.list
	detail  detail
}

// visited knows which sites have been visited since the last look, so that collecting
// costs nothing for those that have not.
type visited struct {
	bounds bounds
	mu     sync.Mutex // guards the rest
	list   []*visits
	pages  []*hotAnswer // that have hits
}

func (l *visited) addPage(h *hotAnswer) {
	l.mu.Lock()
	l.pages = append(l.pages, h)
	l.mu.Unlock()
}

func (l *visited) add(v *visits) {
	l.mu.Lock()
	l.list = append(l.list, v)
	l.mu.Unlock()
}

// count adds an answer. The listed flag is looked at last: collect clears it first, so an
// answer is either in what collect takes or puts the site into the list again.
func (l *visited) count(v *visits, status int, bytes int64, page bool) {
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
func (l *visited) collect() []Visits {
	l.mu.Lock()
	list, pages := l.list, l.pages
	l.list, l.pages = nil, nil
	l.mu.Unlock()
	for _, h := range pages {
		h.target.visits.detail.addTop(&l.bounds, TopPage, h.path, h.hits.Swap(0))
	}
	out := make([]Visits, 0, len(list))
	for _, v := range list {
		v.listed.Store(false)
		n := Visits{Site: v.site, Pages: v.pages.Swap(0), Bytes: v.bytes.Swap(0)}
		for i := range v.classes {
			n.Classes[i] = v.classes[i].Swap(0)
		}
		n.Lines, n.Omitted, n.Tops = v.detail.take(&l.bounds)
		if n.Classes != [4]int64{} || n.Pages > 0 || n.Bytes > 0 { // one may be counted between the looks at two
			out = append(out, n)
		}
	}
	return out
}

// A group of counts goes to OnVisits at a time, so that no transaction holds up the
// others for long.
const visitsGroup = 500

// reportVisits hands the counts to OnVisits every ten seconds and, when ctx ends, once
// more. What OnVisits does not take is offered again with the next; a killed process
// loses what it counted since the last time.
func (e *Edge) reportVisits(ctx context.Context) error {
	if e.OnVisits == nil {
		return nil
	}
	tick := time.NewTicker(e.VisitsEvery)
	defer tick.Stop()
	var kept []Visits
	since, failing := time.Now(), false
	for done := false; !done; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			done = true
		}
		all := merge(kept, e.visited.collect())
		from := since
		since, kept = time.Now(), nil
		var err error
		for len(all) > 0 && err == nil {
			n := min(len(all), visitsGroup)
			if err = e.handVisits(ctx, from, all[:n]); err == nil {
				all = all[n:]
			}
		}
		for i := range all { // numbers are kept, details would be too much
			all[i].Omitted += int64(len(all[i].Lines))
			all[i].Lines, all[i].Tops = nil, nil
		}
		kept = all
		if (err != nil) != failing { // once when it begins, once when it is over
			if failing = err != nil; failing {
				e.Log.ErrorContext(ctx, "visits not recorded; they are kept for the next time", "sites", len(kept), "err", err)
			} else {
				e.Log.InfoContext(ctx, "visits recorded again")
			}
		}
	}
	return nil
}

func (e *Edge) handVisits(ctx context.Context, from time.Time, group []Visits) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return e.OnVisits(ctx, from, group)
}

// merge adds up what several looks counted for the same site.
func merge(a, b []Visits) []Visits {
	if len(a) == 0 {
		return b
	}
	at := make(map[string]int, len(a))
	for i, v := range a {
		at[v.Site] = i
	}
	for _, v := range b {
		i, ok := at[v.Site]
		if !ok {
			at[v.Site] = len(a)
			a = append(a, v)
			continue
		}
		for c, n := range v.Classes {
			a[i].Classes[c] += n
		}
		a[i].Pages += v.Pages
		a[i].Bytes += v.Bytes
		a[i].Omitted += v.Omitted
		a[i].Lines, a[i].Tops = v.Lines, v.Tops // of those that are kept there are none
	}
	return a
}

// isPage reports whether a file is what a visitor would call a page.
func isPage(f release.File) bool { return strings.HasPrefix(f.Type, "text/html") }
