package edge

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"
)

// ledger adds up what OnVisits is given, and may refuse it.
type ledger struct {
	mu     sync.Mutex // guards the rest
	bySite map[string]Visits
	refuse int // times
	most   int // sites in one group
}

func (l *ledger) add(_ context.Context, since time.Time, group []Visits) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refuse > 0 {
		l.refuse--
		return errors.New("the database is away")
	}
	if since.IsZero() || since.After(time.Now()) {
		return fmt.Errorf("since %v", since)
	}
	l.most = max(l.most, len(group))
	seen := map[string]bool{}
	for _, v := range group {
		if seen[v.Site] {
			panic("site " + v.Site + " twice in one group")
		}
		seen[v.Site] = true
		l.bySite[v.Site] = merge([]Visits{l.bySite[v.Site]}, []Visits{{Classes: v.Classes, Pages: v.Pages, Bytes: v.Bytes}})[0]
	}
	return nil
}

// numbers are what is compared of visits.
func numbers(v Visits) string { return fmt.Sprint(v.Classes, v.Pages, v.Bytes) }

func (l *ledger) of(site string) Visits {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bySite[site]
}

func (w *world) wantVisits(l *ledger, site string, want Visits) {
	w.t.Helper()
	all := func(v Visits) int64 { return v.Classes[0] + v.Classes[1] + v.Classes[2] + v.Classes[3] }
	w.until("all answers are counted", func() bool { return all(l.of(site)) >= all(want) })
	if got := l.of(site); numbers(got) != numbers(want) {
		w.t.Errorf("%s: %+v, want %+v", site, got, want)
	}
}

// Every answer of a site is counted once, under whichever of its addresses it was asked
// for; what belongs to no site, or to one deployment of it, is not.
func TestVisits(t *testing.T) {
	t.Parallel()
	l := &ledger{bySite: map[string]Visits{}}
	w := start(t, func(c *Config) { c.OnVisits, c.VisitsEvery = l.add, 5*time.Millisecond })
	id := w.publish(map[string]string{"index.html": "<h1>hello</h1>", "app.js": "12345", "404.html": "<h1>gone</h1>", "docs/index.html": "<p>"})
	w.live("s1", "blog", stateLive, id)
	w.live("s2", "other", stateLive, id)
	w.claim("www.customer.test", "s1", "", claimActive)
	if err := w.DB.Admin(t.Context(), fmt.Sprintf("INSERT INTO previews (label, host_label, release) VALUES ('abcdefghijk1', 'blog', '%s')", id)); err != nil {
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
	w.get("http://blog.sites.test/").want(t, 308, "") // comes back with https
	w.get("https://nobody.sites.test/").want(t, 404, "")
	w.get("https://abcdefghijk1--blog.sites.test/").want(t, 200, "hello")
	w.get("https://panel.test/").want(t, 200, "control plane")
	text := int64(len("<h1>hello</h1>"))
	want := Visits{Classes: [4]int64{4, 2, 2, 0}, Pages: 3, Bytes: 2*text + 5 + int64(len("<h1>gone</h1>")) + int64(len("Method Not Allowed\n"))}
	w.wantVisits(l, "s1", want)

	// A switch to another release, another label and a stop go on counting.
	next := w.publish(map[string]string{"index.html": "<h1>again</h1>"})
	w.live("s1", "blog", stateLive, next)
	w.get("https://blog.sites.test/").want(t, 200, "again")
	w.live("s1", "journal", stateLive, next)
	w.get("https://journal.sites.test/").want(t, 200, "again")
	w.live("s1", "journal", stateStopped, next)
	off := w.get("https://journal.sites.test/").want(t, 503, "switched off")
	want.Classes[0] += 2
	want.Classes[3]++
	want.Pages += 2
	want.Bytes += 2*text + int64(len(off.body))
	w.wantVisits(l, "s1", want)
	w.wantVisits(l, "s2", Visits{})
}

// What cannot be recorded is offered again, and nothing is counted twice.
func TestVisitsRefused(t *testing.T) {
	t.Parallel()
	l := &ledger{bySite: map[string]Visits{}, refuse: 20}
	w := start(t, func(c *Config) { c.OnVisits, c.VisitsEvery = l.add, time.Millisecond })
	id := w.publish(map[string]string{"index.html": "x"})
	w.live("s1", "blog", stateLive, id)
	for range 10 {
		w.get("https://blog.sites.test/").want(t, 200, "x")
	}
	w.wantVisits(l, "s1", Visits{Classes: [4]int64{10}, Pages: 10, Bytes: 10})
}

// What was counted before the end is handed over at the end, in groups.
func TestVisitsAtTheEnd(t *testing.T) {
	t.Parallel()
	l := &ledger{bySite: map[string]Visits{}}
	e := New(Config{OnVisits: l.add, VisitsEvery: time.Hour})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- e.reportVisits(ctx) }()
	const sites = 2*visitsGroup + 7
	for i := range sites {
		v := &visits{site: fmt.Sprint("s", i)}
		e.visited.count(v, 200, 3, false)
		e.visited.count(v, 500, 0, false)
		e.visited.count(v, 0, 0, false) // the visitor left
	}
	stop()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if len(l.bySite) != sites || l.most != visitsGroup {
		t.Errorf("%d sites in groups of at most %d", len(l.bySite), l.most)
	}
	if got := l.of("s7"); numbers(got) != numbers(Visits{Classes: [4]int64{1, 0, 0, 1}, Bytes: 3}) {
		t.Errorf("s7: %+v", got)
	}
}

// Counting while somebody collects loses nothing and counts nothing twice.
func TestVisitsConcurrently(t *testing.T) {
	t.Parallel()
	var list visited
	sites := []*visits{{site: "a"}, {site: "b"}}
	const workers, each = 8, 5000
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for i := range each {
				list.count(sites[i%2], 204, 2, true)
			}
		})
	}
	got := map[string]Visits{}
	take := func() {
		for _, v := range list.collect() {
			got[v.Site] = merge([]Visits{got[v.Site]}, []Visits{{Classes: v.Classes, Pages: v.Pages, Bytes: v.Bytes}})[0]
		}
	}
	counted := make(chan struct{})
	go func() { wg.Wait(); close(counted) }()
	for open := true; open; {
		select {
		case <-counted:
			open = false
		default:
		}
		take()
	}
	take()
	const n = workers * each / 2
	for _, site := range []string{"a", "b"} {
		if numbers(got[site]) != numbers(Visits{Classes: [4]int64{n}, Pages: n, Bytes: 2 * n}) {
			t.Errorf("%s: %+v", site, got[site])
		}
	}
	if len(list.list) > 0 {
		t.Error("the list is not empty")
	}
}
