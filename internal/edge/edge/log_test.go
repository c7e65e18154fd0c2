package edge

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"slipway/internal/edge/fastpath"
	"slipway/internal/platform/visit"
)

// diary is a visit recorder that keeps all details.
type diary struct {
	mu      sync.Mutex // guards the rest
	lines   []visit.Line
	tops    map[visit.Name]int64
	omitted int64
	total   int64
}

func (d *diary) add(_ context.Context, _ visit.Batch, group []visit.Counts) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, v := range group {
		d.lines = append(d.lines, v.Lines...)
		d.omitted += v.Omitted
		for _, n := range v.Classes {
			d.total += n
		}
		for t, n := range v.Names {
			d.tops[t] += n
		}
	}
	return nil
}

func (d *diary) reset() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines, d.tops, d.omitted, d.total = nil, map[visit.Name]int64{}, 0, 0
}

// The access log and the top lists are the same on each way that answered a request, and contain no more than the
// site's settings allow.
func TestAccessLog(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"with the fast path", "without"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			d := &diary{tops: map[visit.Name]int64{}}
			w := start(t, func(c *Config) {
				c.Visits, c.VisitsEvery, c.NoFastPath = visitsTo(d.add), 5*time.Millisecond, way == "without"
				c.Countries = countries(func(a netip.Addr) string {
					if a.IsLoopback() {
						return "AT"
					}
					return ""
				})
			})
			w.live("s1", "blog", stateLive, w.publish(map[string]string{"index.html": "home", "about.html": "about", "app.js": script}))
			ask := func() {
				w.get("https://blog.sites.test/", "Referer: https://user:secret@news.test/x", "User-Agent: one").want(t, 200, "home")
				w.get("https://blog.sites.test/", "Referer: https://News.test/a?secret=1#x", "User-Agent: one").want(t, 200, "home")
				w.get("https://blog.sites.test/about", "Referer: https://blog.sites.test/").want(t, 200, "about")
				w.get("https://blog.sites.test/about").want(t, 200, "about")
				w.do("HEAD", "https://blog.sites.test/about").want(t, 200, "")
				w.get("https://blog.sites.test/app.js").want(t, 200, "console")
				w.get("https://blog.sites.test/wp-login.php?token=secret").want(t, 404, "")
				w.get("https://nobody.sites.test/").want(t, 404, "")
				w.until("all are counted", func() bool { d.mu.Lock(); defer d.mu.Unlock(); return d.total >= 7 })
			}
			ask()
			want := map[visit.Name]int64{
				{Kind: visit.Pages, Name: "/"}:               2,
				{Kind: visit.Pages, Name: "/about"}:          2,
				{Kind: visit.Missing, Name: "/wp-login.php"}: 1,
				{Kind: visit.Referrers, Name: "news.test"}:   1,
				{Kind: visit.Countries, Name: "AT"}:          4,
			}
			if fmt.Sprint(d.tops) != fmt.Sprint(want) {
				t.Errorf("names: %v, want %v", d.tops, want)
			}
			var paths []string
			for _, l := range d.lines {
				paths = append(paths, l.Method+l.Path)
				if (l.Status == 404) != strings.HasPrefix(l.Request, "req_") {
					t.Errorf("the id of a page of ours is %q: %+v", l.Request, l)
				}
				if l.Address != "127.0.0.0" || l.Country != "AT" || l.Host != "blog.sites.test" || l.Time.IsZero() ||
					l.Protocol != "HTTP/2.0" ||
					strings.Contains(fmt.Sprint(l), "secret") {
					t.Errorf("%+v", l)
				}
			}
			slices.Sort(paths)
			if got := strings.Join(paths,
				" "); got != "GET/ GET/ GET/about GET/about GET/app.js GET/wp-login.php HEAD/about" || d.omitted != 0 {
				t.Error(got, d.omitted)
			}
			d.reset()
			w.settle("s1", `{"accessLog":"no-addresses"}`)
			ask()
			for _, l := range d.lines {
				if l.Address != "" {
					t.Errorf("an address is kept: %+v", l)
				}
			}
			if len(d.lines) != 7 || len(d.tops) != 5 {
				t.Errorf("%d lines, %v", len(d.lines), d.tops)
			}
			d.reset()
			w.settle("s1", `{"accessLog":"off"}`)
			ask()
			if len(d.lines) != 0 || len(d.tops) != 0 || d.omitted != 0 {
				t.Errorf("turned off: %d lines, %v, %d omitted", len(d.lines), d.tops, d.omitted)
			}
		})
	}
}

// BenchmarkServed measures the cost of counting and logging a fast-path response.
func BenchmarkServed(b *testing.B) {
	w := start(b, func(c *Config) {
		c.Visits, c.VisitsEvery = visitsTo(func(context.Context, visit.Batch, []visit.Counts) error { return nil }), 10*time.Second
	})
	w.live("s1", "blog", stateLive, w.publish(map[string]string{"index.html": "hello"}))
	at := &fastpath.Place{Host: "blog.sites.test"}
	for _, log := range []string{"truncated", "off"} {
		w.settle("s1", `{"accessLog":"`+log+`"}`)
		sent := &fastpath.Sent{
			Answer:   w.ready(at, []byte("/"), 0),
			Place:    at,
			Remote:   &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1},
			Protocol: "HTTP/2.0",
			Status:   200,
			Size:     5,
		}
		b.Run(log, func(b *testing.B) {
			for b.Loop() {
				w.served(sent)
			}
		})
	}
}
