package domain

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"slipway/internal/account"
	"slipway/internal/db"
	"slipway/internal/dbtest"
	"slipway/internal/fault"
)

// zone is a DNS server under the test's control, over UDP and TCP.
type zone struct {
	addr string

	mu      sync.Mutex // guards the rest
	records map[string][]dns.RR
	rcode   map[string]int // what a name is answered instead
	silent  map[string]bool
	asked   map[string]int // questions by "name TYPE"
	auth    bool
}

func newZone(t testing.TB) *zone {
	t.Helper()
	z := &zone{records: map[string][]dns.RR{}, rcode: map[string]int{}, silent: map[string]bool{}, asked: map[string]int{}}
	pc, l := bothPorts(t)
	z.addr = pc.LocalAddr().String()
	for _, s := range []*dns.Server{{PacketConn: pc, Handler: z}, {Listener: l, Handler: z}} {
		ready := make(chan struct{})
		s.NotifyStartedFunc = func() { close(ready) }
		go s.ActivateAndServe()
		<-ready
		t.Cleanup(func() { s.Shutdown() })
	}
	return z
}

func (z *zone) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	z.mu.Lock()
	defer z.mu.Unlock()
	name, qtype := strings.ToLower(strings.TrimSuffix(q.Question[0].Name, ".")), q.Question[0].Qtype
	z.asked[name+" "+dns.TypeToString[qtype]]++
	if z.silent[name] {
		return
	}
	m := new(dns.Msg)
	m.SetReply(q)
	m.Authoritative = z.auth
	if code, ok := z.rcode[name]; ok {
		m.Rcode = code
		w.WriteMsg(m)
		return
	}
	exists := false
	for hop := 0; hop < 8; hop++ {
		rrs, owner := z.records[name], name
		if rrs == nil && !z.below(name) { // a name with others below it hides the wildcard (RFC 4592)
			_, parent, _ := strings.Cut(name, ".")
			rrs = z.records["*."+parent]
		}
		next := ""
		for _, rr := range rrs {
			exists = true
			rr = dns.Copy(rr)
			rr.Header().Name = owner + "."
			switch c, ok := rr.(*dns.CNAME); {
			case rr.Header().Rrtype == qtype:
				m.Answer = append(m.Answer, rr)
			case ok:
				m.Answer = append(m.Answer, rr)
				next = strings.ToLower(strings.TrimSuffix(c.Target, "."))
			}
		}
		if next == "" {
			break
		}
		name = next
	}
	if !exists && !z.below(name) { // an empty non-terminal exists (RFC 8020)
		m.Rcode = dns.RcodeNameError
	}
	if w.LocalAddr().Network() == "udp" {
		m.Truncate(512)
	}
	w.WriteMsg(m)
}

func (z *zone) below(name string) bool {
	for n := range z.records {
		if strings.HasSuffix(n, "."+name) {
			return true
		}
	}
	return false
}

// set replaces every record of a name. Records are written as in a zone file, without
// the owner: set("x.test", "A 192.0.2.1", `TXT "v"`).
func (z *zone) set(t testing.TB, name string, records ...string) {
	t.Helper()
	z.mu.Lock()
	defer z.mu.Unlock()
	delete(z.records, name)
	for _, r := range records {
		rr, err := dns.NewRR(fmt.Sprintf("%s. 60 IN %s", name, r))
		if err != nil {
			t.Fatal(err)
		}
		z.records[name] = append(z.records[name], rr)
	}
}

func (z *zone) fail(name string, rcode int) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.rcode[name] = rcode
}

func (z *zone) hush(name string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.silent[name] = true
}

func (z *zone) authority(yes bool) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.auth = yes
}

func (z *zone) heal(name string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	delete(z.rcode, name)
}

func (z *zone) questions(q string) int {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.asked[q]
}

// event is one that the room announced.
type event struct {
	name  string
	owner account.OwnerID
	d     Domain
}

// world is an installation: the room, its database, the DNS and a registry of .com.
type world struct {
	*Domains
	t      testing.TB
	db     *db.DB
	zone   *zone
	rdapd  *httptest.Server
	events *events
}

type events struct {
	mu  sync.Mutex // guards all
	all []event
}

// names returns the events about a name, in order.
func (e *events) names(name string) []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []string
	for _, ev := range e.all {
		if ev.d.Name == name {
			out = append(out, string(ev.owner)+" "+ev.name)
		}
	}
	return out
}

func newWorld(t testing.TB, change func(*Config), registry http.HandlerFunc) *world {
	t.Helper()
	w := &world{t: t, zone: newZone(t), db: dbtest.New(t), events: &events{}}
	if registry == nil {
		registry = rdapError(404)
	}
	w.rdapd = httptest.NewTLSServer(registry)
	t.Cleanup(w.rdapd.Close)
	c := Config{DB: w.db, Out: w.rdapd.Client(), SiteDomain: "sites.test", Resolver: &DNS{Server: w.zone.addr, Timeout: 20 * time.Second}}
	c.Addrs = []netip.Addr{netip.MustParseAddr("203.0.113.7"), netip.MustParseAddr("2001:db8::7")}
	c.Allowed = func(netip.Addr) bool { return true }
	c.NSPort = netip.MustParseAddrPort(w.zone.addr).Port()
	// Sites are named <owner>-<anything>; their subdomain is their id.
	c.SiteOf = func(_ context.Context, _ db.Reader, owner account.OwnerID, siteID string) (string, error) {
		if !strings.HasPrefix(siteID, string(owner)+"-") {
			return "", fault.Missing("site")
		}
		return siteID, nil
	}
	c.Emit = func(_ context.Context, tx *db.Tx, owner account.OwnerID, name string, d Domain) error {
		tx.AfterCommit(func() {
			w.events.mu.Lock()
			defer w.events.mu.Unlock()
			w.events.all = append(w.events.all, event{name, owner, d})
		})
		return nil
	}
	if change != nil {
		change(&c)
	}
	w.Domains = New(c)
	w.rdap.shipped = bases{"com": {w.rdapd.URL + "/com/"}}
	w.budget, w.hedge = time.Minute, time.Minute // nothing waits unless a test wants it to
	return w
}

// hurry makes waiting short, for tests in which somebody keeps silent.
func (w *world) hurry() {
	w.budget, w.hedge = time.Second, 50*time.Millisecond
	w.c.Resolver = &DNS{Server: w.zone.addr, Timeout: 200 * time.Millisecond}
}

// insert puts a row where the tests of lists and checks need one.
func (w *world) insert(owner account.OwnerID, site, name string, s Status) {
	w.t.Helper()
	now, proven := db.Now(), db.Time(0)
	if s == Active {
		proven = now
	}
	err := w.db.Write(context.Background(), func(tx *db.Tx) error {
		_, err := tx.Exec(context.Background(), `
			INSERT INTO domains (id, owner_id, site_id, name, zone, status, reason, is_primary, redirect_to, proof, proven_at,
			  findings, checks, tries, pending_at, ssl_status, cert_issuer, cert_error, created_at, updated_at)
			VALUES ($1, $2, $3, $4, $5, $6, '', FALSE, '', '', $7, '{}', 0, 0, $8, 'pending', '', '', $8, $8)`,
			db.NewID("dom"), owner, site, name, zoneOf(name), s, proven, now)
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

// bothPorts opens one port for UDP and TCP; a port that is free for one may be taken for
// the other.
func bothPorts(t testing.TB) (net.PacketConn, net.Listener) {
	t.Helper()
	for range 50 {
		pc, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		if l, err := net.Listen("tcp", pc.LocalAddr().String()); err == nil {
			return pc, l
		}
		pc.Close()
	}
	t.Fatal("no port is free for both UDP and TCP")
	return nil, nil
}
