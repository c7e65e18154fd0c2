// Package dnstest owns a DNS server on loopback that answers what a test says, over UDP
// and TCP: programs, resolvers and certificate authorities ask it as any other.
package dnstest

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/miekg/dns"
)

// Zone is the server: of every zone that there is. It is safe for concurrent use.
type Zone struct {
	Addr string

	mu            sync.Mutex // guards the rest
	records       map[string][]dns.RR
	rcode         map[string]int    // what a name is answered instead
	silent        map[string]bool   // names about which nothing is answered
	asked         map[string]int    // questions by "name TYPE"
	delegated     map[string]string // zones and the address of the server that has them
	authoritative bool
	lie           func(q dns.Question, m *dns.Msg)
}

// New starts a server that ends with the test.
func New(t testing.TB) *Zone {
	t.Helper()
	z := &Zone{
		records:   map[string][]dns.RR{},
		rcode:     map[string]int{},
		silent:    map[string]bool{},
		asked:     map[string]int{},
		delegated: map[string]string{},
	}
	pc, l := BothPorts(t)
	z.Addr = pc.LocalAddr().String()
	for _, s := range []*dns.Server{{PacketConn: pc, Handler: z}, {Listener: l, Handler: z}} {
		ready := make(chan struct{})
		s.NotifyStartedFunc = func() { close(ready) }
		go s.ActivateAndServe()
		<-ready
		t.Cleanup(func() { s.Shutdown() })
	}
	return z
}

// BothPorts opens one port for UDP and TCP; a port that is free for one may be taken for
// the other.
func BothPorts(t testing.TB) (net.PacketConn, net.Listener) {
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

// ServeDNS answers like a resolver: aliases are followed, wildcards stand for names that
// neither have records nor have any below them (RFC 4592), and a name with others below it
// exists (RFC 8020).
func (z *Zone) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	z.mu.Lock()
	defer z.mu.Unlock()
	name, kind := strings.ToLower(strings.TrimSuffix(q.Question[0].Name, ".")), q.Question[0].Qtype
	z.asked[name+" "+dns.TypeToString[kind]]++
	if z.silent[name] {
		return
	}
	m := new(dns.Msg)
	m.SetReply(q)
	m.Authoritative = z.authoritative
	if code, ok := z.rcode[name]; ok {
		m.Rcode = code
		w.WriteMsg(m)
		return
	}
	exists := false
	for range 8 {
		for zone, server := range z.delegated {
			if strings.HasSuffix(name, "."+zone) {
				further := new(dns.Msg)
				further.SetQuestion(dns.Fqdn(name), kind)
				if a, err := dns.Exchange(further, server); err == nil {
					m.Answer = append(m.Answer, a.Answer...)
					exists = exists || a.Rcode == dns.RcodeSuccess
				}
			}
		}
		rrs := z.records[name]
		if rrs == nil && !z.below(name) {
			_, parent, _ := strings.Cut(name, ".")
			rrs = z.records["*."+parent]
		}
		next := ""
		for _, rr := range rrs {
			exists = true
			rr = dns.Copy(rr)
			rr.Header().Name = dns.Fqdn(name)
			switch c, ok := rr.(*dns.CNAME); {
			case rr.Header().Rrtype == kind:
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
	if !exists && !z.below(name) {
		m.Rcode = dns.RcodeNameError
	}
	if z.lie != nil {
		z.lie(q.Question[0], m)
	}
	if w.LocalAddr().Network() == "udp" {
		m.Truncate(512)
	}
	w.WriteMsg(m)
}

func (z *Zone) below(name string) bool {
	for n := range z.records {
		if strings.HasSuffix(n, "."+name) {
			return true
		}
	}
	return false
}

// Set replaces every record of a name. Records are written as in a zone file, without the
// owner: Set("x.test", "A 192.0.2.1", `TXT "v"`).
func (z *Zone) Set(name string, records ...string) {
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

// Fail answers questions about a name with a code, until Restore.
func (z *Zone) Fail(name string, rcode int) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.rcode[name] = rcode
}

// Silence leaves questions about a name without an answer, until Restore.
func (z *Zone) Silence(name string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.silent[name] = true
}

// Restore ends Fail and Silence for names; without any for all.
func (z *Zone) Restore(names ...string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	if len(names) == 0 {
		clear(z.rcode)
		clear(z.silent)
	}
	for _, name := range names {
		delete(z.rcode, name)
		delete(z.silent, name)
	}
}

// Authoritative says whether answers claim to be the zone's own.
func (z *Zone) Authoritative(yes bool) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.authoritative = yes
}

// Delegate sends questions about names below a zone on to another server.
func (z *Zone) Delegate(zone, server string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.delegated[zone] = server
}

// Tamper lets a test change every answer.
func (z *Zone) Tamper(change func(q dns.Question, m *dns.Msg)) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.lie = change
}

// Questions counts the questions so far, such as "x.test NS".
func (z *Zone) Questions(q string) int {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.asked[q]
}
