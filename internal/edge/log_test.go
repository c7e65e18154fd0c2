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

	"slipway/internal/fastpath"
)

// diary remembers all details.
type diary struct {
	mu      sync.Mutex // guards the rest
	lines   []Line
	tops    map[Top]int64
	omitted int64
	total   int64
}

func (d *diary) add(_ context.Context, _ time.Time, group []Visits) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, v := range group {
		d.lines = append(d.lines, v.Lines...)
		d.omitted += v.Omitted
		for _, n := range v.Classes {
			d.total += n
		}
		for t, n := range v.Tops {
			d.tops[t] += n
		}
	}
	return nil
}

func (d *diary) reset() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines, d.tops, d.omitted, d.total = nil, map[Top]int64{}, 0, 0
}

// The access log and the names say the same whichever way a request was answered, and no
// more than the site's settings allow.
func TestAccessLog(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"with the fast path", "without"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			d := &diary{tops: map[Top]int64{}}
			w := start(t, func(c *Config) {
				c.OnVisits, c.VisitsEvery, c.NoFastPath = d.add, 5*time.Millisecond, way == "without"
				c.Country = func(a netip.Addr) string {
					if a.IsLoopback() {
						return "AT"
					}
					return ""
				}
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
			want := map[Top]int64{{TopPage, "/"}: 2, {TopPage, "/about"}: 2, {TopMissing, "/wp-login.php"}: 1, {TopReferrer, "news.test"}: 1, {TopCountry, "AT"}: 4}
			if fmt.Sprint(d.tops) != fmt.Sprint(want) {
				t.Errorf("names: %v, want %v", d.tops, want)
			}
			var paths []string
			for _, l := range d.lines {
				paths = append(paths, l.Method+l.Path)
				if l.Address != "127.0.0.0" || l.Country != "AT" || l.Host != "blog.sites.test" || l.At.IsZero() || l.Protocol != "HTTP/2.0" || strings.Contains(fmt.Sprint(l), "secret") {
					t.Errorf("%+v", l)
				}
			}
			slices.Sort(paths)
			if got := strings.Join(paths, " "); got != "GET/ GET/ GET/about GET/about GET/app.js GET/wp-login.php HEAD/about" || d.omitted != 0 {
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

// What strangers can make us keep is bounded, per site and overall; what is over it is
// counted.
func TestAccessLogBounds(t *testing.T) {
	t.Parallel()
	var list visited
	long := strings.Repeat("ä", 1000)
	for s := range 40 {
		v := &visits{site: fmt.Sprint("s", s)}
		for i := range 2 * siteLines {
			v.detail.addLine(&list.bounds, func() Line { return Line{Path: cut(long)} })
			v.detail.addTop(&list.bounds, TopMissing, fmt.Sprint("/", i, long), 1)
			list.count(v, 404, 0, false)
		}
	}
	var lines, omitted, names, hits int64
	for _, v := range list.collect() {
		if len(v.Lines) > siteLines || len(v.Tops) > siteTops+1 {
			t.Fatalf("%d lines, %d names of one site", len(v.Lines), len(v.Tops))
		}
		lines += int64(len(v.Lines))
		omitted += v.Omitted
		for top, n := range v.Tops {
			if len(top.Name) > maxText {
				t.Fatal("a long name:", len(top.Name))
			}
			names++
			hits += n
		}
	}
	if lines != allLines || lines+omitted != 40*2*siteLines || hits != 40*2*siteLines || names > allTops+40 {
		t.Errorf("%d lines, %d omitted, %d names, %d hits", lines, omitted, names, hits)
	}
	if list.bounds.lines.Load() != 0 || list.bounds.tops.Load() != 0 {
		t.Error("what was collected still counts")
	}
}

func TestNetwork(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{"203.0.113.77": "203.0.113.0", "::ffff:203.0.113.77": "203.0.113.0", "2001:db8:1:2:3:4:5:6": "2001:db8:1::", "fe80::1%eth0": "fe80::"} {
		if got := network(netip.MustParseAddr(in)); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}

// BenchmarkServed is what counting and logging cost an answer of the fast path.
func BenchmarkServed(b *testing.B) {
	w := start(b, func(c *Config) {
		c.OnVisits, c.VisitsEvery = func(context.Context, time.Time, []Visits) error { return nil }, 10*time.Second
	})
	w.live("s1", "blog", stateLive, w.publish(map[string]string{"index.html": "hello"}))
	at := &fastpath.Place{Host: "blog.sites.test"}
	for _, log := range []string{"truncated", "off"} {
		w.settle("s1", `{"accessLog":"`+log+`"}`)
		sent := &fastpath.Sent{Answer: w.ready(at, []byte("/"), 0), Place: at, Remote: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}, Protocol: "HTTP/2.0", Status: 200, Size: 5}
		b.Run(log, func(b *testing.B) {
			for b.Loop() {
				w.served(sent)
			}
		})
	}
}
