// Package dnstest owns a DNS server on loopback for tests, over UDP and TCP.
package dnstest

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/miekg/dns"
)

// Zone is a DNS server for all zones. It is safe for concurrent use.
type Zone struct {
	Addr string

	mu            sync.Mutex // guards the rest
	records       map[string][]dns.RR
	rcode         map[string]int    // response code by name, instead of records
	silent        map[string]bool   // names whose queries get no response
	asked         map[string]int    // number of queries by "name TYPE"
	delegated     map[string]string // addresses of the servers of delegated zones
	authoritative bool
	lie           func(q dns.Question, m *dns.Msg)
}

// New starts a server that stops with the test.
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

// BothPorts opens the same free port for UDP and TCP.
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

// ServeDNS answers as a resolver does: it follows aliases and applies wildcards to names without records and without
// names below them (RFC 4592). A name with others below it exists (RFC 8020).
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

// Set replaces all records of a name. Records are in zone file format without the owner: Set("x.test", "A 192.0.2.1",
// `TXT "v"`).
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

// Fail answers queries of a name with a response code until Restore.
func (z *Zone) Fail(name string, rcode int) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.rcode[name] = rcode
}

// Silence drops queries of a name until Restore.
func (z *Zone) Silence(name string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.silent[name] = true
}

// Restore undoes Fail and Silence for the names, or for all names if none are given.
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

// Authoritative sets whether answers have the AA bit.
func (z *Zone) Authoritative(yes bool) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.authoritative = yes
}

// Delegate forwards queries below a zone to another server.
func (z *Zone) Delegate(zone, server string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.delegated[zone] = server
}

// Tamper sets a function that may change every answer.
func (z *Zone) Tamper(change func(q dns.Question, m *dns.Msg)) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.lie = change
}

// Questions returns the number of queries so far, for example of "x.test NS".
func (z *Zone) Questions(q string) int {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.asked[q]
}
