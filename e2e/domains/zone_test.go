package domains

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/miekg/dns"

	"slipway/e2e/world"
)

// zone is a DNS under the test's control, over UDP and TCP: what the program and the
// authority ask.
type zone struct {
	addr string

	mu        sync.Mutex // guards the rest
	records   map[string][]dns.RR
	rcode     map[string]int    // what a name is answered instead
	silent    map[string]bool   // names about which nothing is answered
	delegated map[string]string // zones and the address of the server that has them
	lie       func(q dns.Question, m *dns.Msg)
}

func newZone(t testing.TB) *zone {
	t.Helper()
	z := &zone{records: map[string][]dns.RR{}, rcode: map[string]int{}, silent: map[string]bool{}, delegated: map[string]string{}}
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

// bothPorts opens one port for UDP and TCP.
func bothPorts(t testing.TB) (net.PacketConn, net.Listener) {
	t.Helper()
	for range 50 {
		addrs, err := world.FreePorts(1)
		if err != nil {
			t.Fatal(err)
		}
		pc, err := net.ListenPacket("udp", addrs[0])
		if err != nil {
			continue
		}
		if l, err := net.Listen("tcp", addrs[0]); err == nil {
			return pc, l
		}
		pc.Close()
	}
	t.Fatal("no port is free for both UDP and TCP")
	return nil, nil
}

func (z *zone) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	z.mu.Lock()
	defer z.mu.Unlock()
	name, kind := strings.ToLower(strings.TrimSuffix(q.Question[0].Name, ".")), q.Question[0].Qtype
	if z.silent[name] {
		return
	}
	m := new(dns.Msg)
	m.SetReply(q)
	if code, ok := z.rcode[name]; ok {
		m.Rcode = code
		w.WriteMsg(m)
		return
	}
	exists := false
	for range 8 {
		for below, server := range z.delegated {
			if strings.HasSuffix(name, "."+below) {
				further := new(dns.Msg)
				further.SetQuestion(dns.Fqdn(name), kind)
				if a, err := dns.Exchange(further, server); err == nil {
					m.Answer = append(m.Answer, a.Answer...)
					exists = exists || a.Rcode == dns.RcodeSuccess
				}
			}
		}
		rrs := z.records[name]
		if rrs == nil {
			_, parent, _ := strings.Cut(name, ".")
			rrs = z.records["*."+parent]
		}
		next := ""
		for _, rr := range rrs {
			exists = true
			rr = dns.Copy(rr)
			rr.Header().Name = dns.Fqdn(name)
			if c, ok := rr.(*dns.CNAME); ok && kind != dns.TypeCNAME {
				next = strings.ToLower(strings.TrimSuffix(c.Target, "."))
			} else if rr.Header().Rrtype != kind {
				continue
			}
			m.Answer = append(m.Answer, rr)
		}
		if next == "" {
			break
		}
		name = next
	}
	for n := range z.records {
		exists = exists || strings.HasSuffix(n, "."+name)
	}
	if !exists {
		m.Rcode = dns.RcodeNameError
	}
	if z.lie != nil {
		z.lie(q.Question[0], m)
	}
	if w.LocalAddr().Network() == "udp" {
		m.Truncate(1232)
	}
	w.WriteMsg(m)
}

// set replaces every record of a name: set("x.test", "A 192.0.2.1", `TXT "v"`).
func (z *zone) set(name string, records ...string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	delete(z.records, name)
	for _, r := range records {
		rr, err := dns.NewRR(fmt.Sprintf("%s. 1 IN %s", name, r))
		if err != nil {
			panic(err)
		}
		z.records[name] = append(z.records[name], rr)
	}
}

// change lets a test set what set can't.
func (z *zone) change(f func(z *zone)) {
	z.mu.Lock()
	defer z.mu.Unlock()
	f(z)
}
