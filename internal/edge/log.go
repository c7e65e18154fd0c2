package edge

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"slipway/internal/fastpath"
)

// Line is one request in a site's access log. Query strings are left out, for they hold
// secrets, and addresses are cut so that they name a network, not a visitor.
type Line struct {
	At       time.Time
	Method   string
	Host     string
	Path     string
	Protocol string
	Status   int
	Bytes    int64
	Referrer string
	Agent    string
	Address  string // empty where the site's settings say so
	Country  string // empty where no database of countries is configured, or it doesn't know
}

// What is counted by name.
const (
	TopPage     = "page"
	TopMissing  = "missing"
	TopReferrer = "referrer"
	TopCountry  = "country"
)

// Top is something that was counted by its name: "page", "/about". A name that is empty
// stands for all those that were too many.
type Top struct{ Kind, Name string }

// The most that is kept of one site, and of all, between two looks. What is over it is
// counted, not kept. Names and texts are cut.
const (
	siteLines = 300 // in ten seconds
	allLines  = 10_000
	siteTops  = 200 // names of one kind
	allTops   = 50_000
	maxText   = 256
)

// detail holds what is kept of a site's requests beside their number.
type detail struct {
	lines   atomic.Int64 // as many as are in list: whether there is room is asked without the lock
	omitted atomic.Int64

	mu    sync.Mutex // guards the rest
	list  []Line
	tops  map[Top]int64
	kinds map[string]int
}

// bounds is how much is kept of all sites.
type bounds struct{ lines, tops atomic.Int64 }

// addLine keeps a line if there is room for it. make is called only then.
func (d *detail) addLine(b *bounds, make func() Line) {
	if d.lines.Load() >= siteLines || b.lines.Load() >= allLines {
		d.omitted.Add(1)
		return
	}
	line := make()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lines.Load() >= siteLines {
		d.omitted.Add(1)
		return
	}
	d.lines.Add(1)
	b.lines.Add(1)
	d.list = append(d.list, line)
}

// addTop counts a name.
func (d *detail) addTop(b *bounds, kind, name string, n int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.tops == nil {
		d.tops, d.kinds = map[Top]int64{}, map[string]int{}
	}
	t := Top{kind, cut(name)}
	if _, ok := d.tops[t]; !ok {
		if d.kinds[kind] >= siteTops || b.tops.Load() >= allTops {
			t.Name = ""
		} else {
			d.kinds[kind]++
			b.tops.Add(1)
		}
	}
	d.tops[t] += n
}

// take returns what was kept and begins again.
func (d *detail) take(b *bounds) (lines []Line, omitted int64, tops map[Top]int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	lines, tops = d.list, d.tops
	b.lines.Add(-int64(len(lines)))
	for _, n := range d.kinds {
		b.tops.Add(-int64(n))
	}
	d.list, d.tops, d.kinds = nil, nil, nil
	d.lines.Store(0)
	return lines, d.omitted.Swap(0), tops
}

// cut shortens a text from outside and takes out what is no text.
func cut(s string) string {
	if len(s) > maxText {
		s = s[:maxText]
	}
	return strings.ToValidUTF8(s, "")
}

// The values of the setting accessLog.
const (
	logTruncated = "truncated" // and nothing
	logNoAddress = "no-addresses"
	logOff       = "off"
)

func (t *target) logs() string {
	if t.serving == nil || t.serving.AccessLog == "" {
		return logTruncated
	}
	return t.serving.AccessLog
}

// network cuts an address: an IPv4 address to 24 bits, an IPv6 address to 48.
func network(a netip.Addr) string {
	a = a.Unmap().WithZone("")
	bits := 24
	if a.Is6() {
		bits = 48
	}
	p, err := a.Prefix(bits)
	if err != nil {
		return ""
	}
	return p.Addr().String()
}

// client holds what is known of a connection's other end.
type client struct{ address, country string }

func (e *Edge) clientOf(remote string) (c client) {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		host = remote
	}
	a, err := netip.ParseAddr(host)
	if err != nil {
		return c
	}
	c.address = network(a)
	if e.Country != nil {
		c.country = e.Country(a.Unmap())
	}
	return c
}

// referrer returns the host that a page was reached from, if it is another one than the
// page's own.
func referrer(field, host string) string {
	_, rest, ok := strings.Cut(field, "://")
	if !ok {
		return ""
	}
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		rest = rest[:i]
	}
	if strings.Contains(rest, "@") || len(rest) > 253 {
		return ""
	}
	if from := hostname(rest); from != host {
		return from
	}
	return ""
}

// visit keeps what is worth keeping of an answer of net/http's.
func (e *Edge) visit(rec *recorder, r *http.Request) {
	t := rec.target
	if t == nil || t.visits == nil || t.preview || rec.status == 0 {
		return
	}
	shown := rec.page && (rec.status == http.StatusOK || rec.status == http.StatusNotModified)
	e.visitOf(t, hostname(r.Host), r.URL.EscapedPath(), shown, r.Header.Get("Referer"), func() client { return e.clientOf(r.RemoteAddr) },
		Line{Method: r.Method, Protocol: r.Proto, Status: rec.status, Bytes: rec.bytes, Agent: r.UserAgent()})
}

// visitOf keeps what is worth keeping of an answer; line holds the rest of it. shown says
// that it brought a page.
func (e *Edge) visitOf(t *target, host, path string, shown bool, from string, clientOf func() client, line Line) {
	how := t.logs()
	if how == logOff {
		return
	}
	d := &t.visits.detail
	missing := line.Status == http.StatusNotFound
	var c client
	if shown || d.lines.Load() < siteLines {
		c = clientOf()
	}
	if shown {
		d.addTop(&e.visited.bounds, TopPage, path, 1)
		if from := referrer(from, host); from != "" {
			d.addTop(&e.visited.bounds, TopReferrer, from, 1)
		}
		if c.country != "" {
			d.addTop(&e.visited.bounds, TopCountry, c.country, 1)
		}
	}
	if missing {
		d.addTop(&e.visited.bounds, TopMissing, path, 1)
	}
	d.addLine(&e.visited.bounds, func() Line {
		l := line
		l.At, l.Method, l.Host, l.Path, l.Referrer, l.Agent, l.Country = time.Now(), cut(line.Method), host, cut(path), referrer(from, ""), cut(line.Agent), c.country
		if how == logTruncated {
			l.Address = c.address
		}
		return l
	})
}

// visitReady does the same for an answer of the fast path. A page costs an addition, or a
// look at a map where it was reached from elsewhere; what is over the bounds of the log
// costs nothing more than knowing that.
func (e *Edge) visitReady(s *fastpath.Sent, h *hotAnswer) {
	t := h.target
	how := t.logs()
	if how == logOff {
		return
	}
	d := &t.visits.detail
	known := func() client {
		if c, ok := s.Place.Client.(*client); ok {
			return *c
		}
		c := e.clientOf(s.Remote.String())
		s.Place.Client = &c
		return c
	}
	if h.page && !s.Head {
		if h.hits.Add(1) == 1 {
			e.visited.addPage(h)
		}
		if from := referrer(s.Referrer(), h.host); from != "" {
			d.addTop(&e.visited.bounds, TopReferrer, from, 1)
		}
		if e.Country != nil {
			if c := known(); c.country != "" {
				d.addTop(&e.visited.bounds, TopCountry, c.country, 1)
			}
		}
	}
	if d.lines.Load() >= siteLines {
		d.omitted.Add(1)
		return
	}
	d.addLine(&e.visited.bounds, func() Line {
		l := Line{At: time.Now(), Method: http.MethodGet, Host: h.host, Path: cut(h.path), Protocol: s.Protocol, Status: s.Status, Bytes: s.Size,
			Referrer: referrer(s.Referrer(), ""), Agent: cut(s.Agent())}
		if s.Head {
			l.Method = http.MethodHead
		}
		c := known()
		l.Country = c.country
		if how == logTruncated {
			l.Address = c.address
		}
		return l
	})
}
