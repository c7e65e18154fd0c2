package edge

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"slipway/internal/platform/id"

	"slipway/internal/platform/visit"
)

// ledger is a visit recorder that sums counts and can refuse the first batches.
type ledger struct {
	mu     sync.Mutex // guards the rest
	bySite map[id.Site]visit.Counts
	refuse int // remaining refusals
}

func (l *ledger) add(_ context.Context, b visit.Batch, group []visit.Counts) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refuse > 0 {
		l.refuse--
		return errors.New("the database is away")
	}
	if b.Since.IsZero() || b.Since.After(time.Now()) || b.Number < 1 {
		return fmt.Errorf("batch %+v", b)
	}
	seen := map[id.Site]bool{}
	for _, v := range group {
		if seen[v.Site] {
			panic("site " + string(v.Site) + " twice in one group")
		}
		seen[v.Site] = true
		l.bySite[v.Site] = sum(l.bySite[v.Site], v)
	}
	return nil
}

func sum(a, b visit.Counts) visit.Counts {
	for c, n := range b.Classes {
		a.Classes[c] += n
	}
	a.Pages += b.Pages
	a.Bytes += b.Bytes
	return a
}

// numbers formats the counts that tests compare.
func numbers(v visit.Counts) string { return fmt.Sprint(v.Classes, v.Pages, v.Bytes) }

func (l *ledger) of(site id.Site) visit.Counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bySite[site]
}

func (w *world) wantVisits(l *ledger, site id.Site, want visit.Counts) {
	w.t.Helper()
	all := func(v visit.Counts) int64 { return v.Classes[0] + v.Classes[1] + v.Classes[2] + v.Classes[3] }
	w.until("all answers are counted", func() bool { return all(l.of(site)) >= all(want) })
	if got := l.of(site); numbers(got) != numbers(want) {
		w.t.Errorf("%s: %+v, want %+v", site, got, want)
	}
}

// Every response of a site is counted once, under each of its addresses. Responses for no site, or for a single
// deployment, aren't counted.
func TestVisits(t *testing.T) {
	t.Parallel()
	l := &ledger{bySite: map[id.Site]visit.Counts{}}
	w := start(t, func(c *Config) { c.Visits, c.VisitsEvery = visitsTo(l.add), 5*time.Millisecond })
	id := w.publish(map[string]string{
		"index.html":      "<h1>hello</h1>",
		"app.js":          "12345",
		"404.html":        "<h1>gone</h1>",
		"docs/index.html": "<p>",
	})
	w.live("s1", "blog", stateLive, id)
	w.live("s2", "other", stateLive, id)
	w.claim("www.customer.test", "s1", "", claimActive)
	if err := w.DB.Admin(t.Context(),
		fmt.Sprintf("INSERT INTO previews (label, host_label, release) VALUES ('abcdefghijk1', 'blog', '%s')", id)); err != nil {
		t.Fatal(err)
	}
	page := w.get("https://blog.sites.test/").want(t, 200, "hello")
	w.get("https://www.customer.test/").want(t, 200, "hello")
	w.get("https://blog.sites.test/", "If-None-Match: "+page.header.Get("Etag")).want(t, 304, "")
	w.do("HEAD", "https://blog.sites.test/").want(t, 200, "")
	w.get("https://blog.sites.test/app.js").want(t, 200, "12345")
	w.get("https://blog.sites.test/nowhere").want(t, 404, "gone")
	w.get("https://blog.sites.test/docs").want(t, 308, "")
	w.do("POST", "https://blog.sites.test/").want(t, 405, "")
	w.get("http://blog.sites.test/").want(t, 308, "") // redirected to https
	w.get("https://nobody.sites.test/").want(t, 404, "")
	w.get("https://abcdefghijk1--blog.sites.test/").want(t, 200, "hello")
	w.get("https://panel.test/").want(t, 200, "control plane")
	text := int64(len("<h1>hello</h1>"))
	want := visit.Counts{
		Classes: [4]int64{4, 2, 2, 0},
		Pages:   3,
		Bytes:   2*text + 5 + int64(len("<h1>gone</h1>")) + int64(len("Method Not Allowed\n")),
	}
	w.wantVisits(l, "s1", want)

	// Counting continues after a switch of release, a new label and a stop.
	next := w.publish(map[string]string{"index.html": "<h1>again</h1>"})
	w.live("s1", "blog", stateLive, next)
	w.get("https://blog.sites.test/").want(t, 200, "again")
	w.live("s1", "journal", stateLive, next)
	w.get("https://journal.sites.test/").want(t, 200, "again")
	w.live("s1", "journal", stateStopped, next)
	off := w.get("https://journal.sites.test/").want(t, 503, "is offline")
	want.Classes[0] += 2
	want.Classes[3]++
	want.Pages += 2
	want.Bytes += 2*text + int64(len(off.body))
	w.wantVisits(l, "s1", want)
	w.wantVisits(l, "s2", visit.Counts{})
}

// Counts that can't be recorded are offered again, and nothing is counted twice.
func TestVisitsRefused(t *testing.T) {
	t.Parallel()
	l := &ledger{bySite: map[id.Site]visit.Counts{}, refuse: 20}
	w := start(t, func(c *Config) { c.Visits, c.VisitsEvery = visitsTo(l.add), time.Millisecond })
	id := w.publish(map[string]string{"index.html": "x"})
	w.live("s1", "blog", stateLive, id)
	for range 10 {
		w.get("https://blog.sites.test/").want(t, 200, "x")
	}
	w.wantVisits(l, "s1", visit.Counts{Classes: [4]int64{10}, Pages: 10, Bytes: 10})
}
