package visits

import (
	"bytes"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"slipway/internal/platform/id"

	"slipway/internal/edge/fastpath"
	"slipway/internal/platform/visit"
)

// Limits of what is kept per site, and in total, between two collections. Beyond them visits are only counted. Long
// names and texts are cut.
const (
	siteLines = 300 // per collection
	allLines  = 10_000
	someLines = allLines / 10 // of one owner's sites
	siteTops  = 200           // names of one kind
	allTops   = 50_000
	someTops  = allTops / 10 // of one owner's sites
	maxText   = 256
)

// detail holds a site's log lines and names.
type detail struct {
	lines   atomic.Int64 // length of list, read without the lock
	omitted atomic.Int64
	owner   *Owner

	mu   sync.Mutex // guards the fields below
	list []visit.Line
	// share: total 50,000 names; owner 5,000, of one site 200 of a kind; edge counted, not kept
	tops map[visit.Name]int64
	// share: none, one site's: the kinds that there are
	kinds map[visit.Kind]int
}

// bounds counts what is kept of all sites.
type bounds struct{ lines, tops atomic.Int64 }

// Owner counts what is kept of all sites of an owner.
type Owner struct {
	ID id.Owner
	bounds
}

// addLine adds a log line if there is room. It calls make only then.
func (d *detail) addLine(b *bounds, make func() visit.Line) {
	if d.lines.Load() >= siteLines || d.owner.lines.Load() >= someLines || b.lines.Load() >= allLines {
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
	d.owner.lines.Add(1)
	b.lines.Add(1)
	d.list = append(d.list, line)
}

// addTop counts a name.
func (d *detail) addTop(b *bounds, kind visit.Kind, name string, n int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.tops == nil {
		d.tops, d.kinds = map[visit.Name]int64{}, map[visit.Kind]int{}
	}
	t := visit.Name{Kind: kind, Name: cut(name)}
	if _, ok := d.tops[t]; !ok {
		if d.kinds[kind] >= siteTops || d.owner.tops.Load() >= someTops || b.tops.Load() >= allTops {
			t.Name = ""
		} else {
			d.kinds[kind]++
			d.owner.tops.Add(1)
			b.tops.Add(1)
		}
	}
	d.tops[t] += n
}

// take returns and resets what was kept.
func (d *detail) take(b *bounds) (lines []visit.Line, omitted int64, tops map[visit.Name]int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	lines, tops = d.list, d.tops
	d.owner.lines.Add(-int64(len(lines)))
	b.lines.Add(-int64(len(lines)))
	for _, n := range d.kinds {
		d.owner.tops.Add(-int64(n))
		b.tops.Add(-int64(n))
	}
	d.list, d.tops, d.kinds = nil, nil, nil
	d.lines.Store(0)
	return lines, d.omitted.Swap(0), tops
}

// cut shortens untrusted text and removes characters that aren't printable.
func cut(s string) string {
	if len(s) > maxText {
		s = s[:maxText]
	}
	return strings.ToValidUTF8(s, "")
}

// Values of a site's access log setting; any other value keeps lines without addresses.
const (
	logTruncated = "truncated" // and the empty value
	logOff       = "off"
)

// addresses reports whether the log keeps addresses.
func addresses(log string) bool { return log == "" || log == logTruncated }

// network shortens an IPv4 address to 24 bits and an IPv6 address to 48.
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

// client is what is known about a connection's client.
type client struct{ address, country string }

func (l *Counter) clientOf(remote string) (c client) {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		host = remote
	}
	a, err := netip.ParseAddr(host)
	if err != nil {
		return c
	}
	c.address = network(a)
	if l.Countries != nil {
		c.country = l.Countries.Of(a.Unmap())
	}
	return c
}

// CountryOf returns the country of a remote address, or "".
func (l *Counter) CountryOf(remote string) string { return l.clientOf(remote).country }

// referrer returns the host of the referring page if it differs from the page's own.
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
	if from := fastpath.Hostname(rest); from != host {
		return from
	}
	return ""
}

// Request records a response of net/http, according to the site's access log setting. shown says that it was a page;
// request is the id on our error page.
func (l *Counter) Request(v *Site, log string, r *http.Request, status int, bytes int64, shown bool, request string) {
	l.keep(v, log, fastpath.Hostname(r.Host), r.URL.EscapedPath(), shown, r.Header.Get("Referer"),
		func() client { return l.clientOf(r.RemoteAddr) },
		visit.Line{Method: r.Method, Protocol: r.Proto, Status: status, Bytes: bytes, Agent: r.UserAgent(), Request: request})
}

var agentField, refererField = []byte("user-agent"), []byte("referer")

// Passed records a response that the fast path forwarded.
func (l *Counter) Passed(v *Site, log string, q *fastpath.Request, status int, size int64, shown bool, request string) {
	line := visit.Line{Method: q.Method, Protocol: q.Protocol(), Status: status, Bytes: size, Request: request}
	from := ""
	for _, f := range q.Fields {
		switch {
		case len(f.Name) == len(agentField) && bytes.EqualFold(f.Name, agentField):
			line.Agent = string(f.Value)
		case len(f.Name) == len(refererField) && bytes.EqualFold(f.Name, refererField):
			from = string(f.Value)
		}
	}
	l.keep(v, log, q.Place.Host, string(q.Path), shown, from, func() client { return l.clientAt(q.Place, q.Remote) }, line)
}

// clientAt returns and caches what is known about a connection's client.
func (l *Counter) clientAt(at *fastpath.Place, remote net.Addr) client {
	if c, ok := at.Client.Load().(*client); ok {
		return *c
	}
	c := l.clientOf(remote.String())
	at.Client.Store(&c)
	return c
}

// keep records a response; line holds the remaining values.
func (l *Counter) keep(v *Site, log, host, path string, shown bool, from string, clientOf func() client, line visit.Line) {
	if log == logOff {
		return
	}
	d := &v.detail
	var c client
	if shown || d.lines.Load() < siteLines {
		c = clientOf()
	}
	if shown {
		d.addTop(&l.bounds, visit.Pages, path, 1)
		if from := referrer(from, host); from != "" {
			d.addTop(&l.bounds, visit.Referrers, from, 1)
		}
		if c.country != "" {
			d.addTop(&l.bounds, visit.Countries, c.country, 1)
		}
	}
	if line.Status == http.StatusNotFound {
		d.addTop(&l.bounds, visit.Missing, path, 1)
	}
	d.addLine(&l.bounds, func() visit.Line {
		n := line
		n.Time, n.Method, n.Host, n.Path, n.Referrer, n.Agent, n.Country = time.Now(), cut(line.Method), host, cut(path), referrer(
			from,
			"",
		), cut(line.Agent), c.country
		if addresses(log) {
			n.Address = c.address
		}
		return n
	})
}

// Sent records a response of the fast path. A page costs an addition, or a map lookup if it has a referrer; beyond the
// limits a log line costs only the check.
func (l *Counter) Sent(s *fastpath.Sent, p *Page, log string) {
	if log == logOff {
		return
	}
	d := &p.Site.detail
	if p.HTML && !s.Head {
		if p.hits.Add(1) == 1 {
			l.addPage(p)
		}
		if from := referrer(s.Referrer(), p.Host); from != "" {
			d.addTop(&l.bounds, visit.Referrers, from, 1)
		}
		if l.Countries != nil {
			if c := l.clientAt(s.Place, s.Remote); c.country != "" {
				d.addTop(&l.bounds, visit.Countries, c.country, 1)
			}
		}
	}
	if d.lines.Load() >= siteLines {
		d.omitted.Add(1)
		return
	}
	d.addLine(&l.bounds, func() visit.Line {
		n := visit.Line{
			Time:     time.Now(),
			Method:   http.MethodGet,
			Host:     p.Host,
			Path:     cut(p.Path),
			Protocol: s.Protocol,
			Status:   s.Status,
			Bytes:    s.Size,
			Referrer: referrer(s.Referrer(), ""),
			Agent:    cut(s.Agent()),
		}
		if s.Head {
			n.Method = http.MethodHead
		}
		c := l.clientAt(s.Place, s.Remote)
		n.Country = c.country
		if addresses(log) {
			n.Address = c.address
		}
		return n
	})
}
