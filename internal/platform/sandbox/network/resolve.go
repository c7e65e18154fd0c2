package network

import (
	"bufio"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"slipway/internal/platform/panics"
)

// Limits of one command's resolver. Existing names keep their addresses until the command ends; missing ones are
// forgotten.
const (
	maxNameBytes = 2 << 20 // bytes of existing names
	nameCost     = 100     // approximate overhead per name
	maxUnknown   = 1 << 10
	maxLookups   = 64 // concurrent lookups; more are dropped, and clients retry
	forgetAfter  = 5 * time.Second
)

// names is the resolver in a sandbox: it assigns each existing name an address of fakeNet until the command ends. The
// proxy says whether a name exists.
type names struct {
	proxy string // unix socket
	pace  *pace  // limits queries and connections; nil: no limit

	mu sync.Mutex // guards the fields below
	// share: none, one sandbox's: 2 MiB of names
	known map[string]uint32 // number of the name's address
	back  []string          // names by that number
	bytes int               // memory of both
	// share: none, one sandbox's: 64 queries
	asking map[string]*question
	// share: none, one sandbox's: 1,024 names
	unknown map[string]denial
	oldest  []string // keys of unknown, by expiry
}

// question is a pending request to the proxy.
type question struct {
	asked chan struct{} // closed when answered
	code  dnsmessage.RCode
	addr  netip.Addr
}

// denial is a negative answer.
type denial struct {
	code  dnsmessage.RCode
	until time.Time
}

func newNames(proxy string) *names {
	return &names{proxy: proxy, known: map[string]uint32{}, asking: map[string]*question{}, unknown: map[string]denial{}}
}

// of returns the name for an address.
func (n *names) of(a netip.Addr) (string, bool) {
	a = a.Unmap()
	if !fakeNet.Contains(a) {
		return "", false
	}
	b, first := a.As4(), fakeNet.Addr().As4()
	i := (int(b[1])-int(first[1]))<<16 | int(b[2])<<8 | int(b[3]) - 2
	n.mu.Lock()
	defer n.mu.Unlock()
	if i < 0 || i >= len(n.back) {
		return "", false
	}
	return n.back[i], true
}

// addrOf returns the address with a number.
func addrOf(number uint32) netip.Addr {
	i := number + 2 // the first two are the network and the loopback
	b := fakeNet.Addr().As4()
	b[1] += byte(i >> 16)
	b[2], b[3] = byte(i>>8), byte(i)
	return netip.AddrFrom4(b)
}

// lookup returns a name's address, assigning one if needed.
func (n *names) lookup(host string) (netip.Addr, dnsmessage.RCode) {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	n.mu.Lock()
	n.forget(time.Now())
	if i, ok := n.known[host]; ok {
		n.mu.Unlock()
		return addrOf(i), dnsmessage.RCodeSuccess
	}
	if x, ok := n.unknown[host]; ok {
		n.mu.Unlock()
		return netip.Addr{}, x.code
	}
	if x := n.asking[host]; x != nil {
		n.mu.Unlock()
		<-x.asked
		return x.addr, x.code
	}
	if n.bytes+nameCost+2*len(host) > maxNameBytes {
		n.mu.Unlock()
		return netip.Addr{}, dnsmessage.RCodeRefused
	}
	x := &question{asked: make(chan struct{})}
	n.asking[host] = x
	n.mu.Unlock()

	code := n.ask(host)
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.asking, host)
	x.code = code
	if code == dnsmessage.RCodeSuccess {
		i := uint32(len(n.back))
		n.known[host], n.back = i, append(n.back, host)
		n.bytes += nameCost + 2*len(host)
		x.addr = addrOf(i)
	} else {
		n.unknown[host] = denial{code, time.Now().Add(forgetAfter)}
		n.oldest = append(n.oldest, host)
	}
	close(x.asked)
	return x.addr, x.code
}

// forget removes expired missing names, and the oldest if there are too many. The caller holds mu.
func (n *names) forget(now time.Time) {
	gone := 0
	for _, host := range n.oldest {
		if len(n.oldest)-gone <= maxUnknown && !now.After(n.unknown[host].until) {
			break
		}
		delete(n.unknown, host)
		gone++
	}
	n.oldest = slices.Delete(n.oldest, 0, gone)
	if len(n.oldest) == 0 {
		n.oldest = nil
	}
}

// ask asks the proxy whether a name exists and may be reached.
func (n *names) ask(host string) dnsmessage.RCode {
	c, err := dialUnix(n.proxy)
	if err != nil {
		return dnsmessage.RCodeServerFailure
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(15 * time.Second))
	if _, err := fmt.Fprintf(c, "GET /resolve?name=%s HTTP/1.1\r\nHost: resolver\r\nConnection: close\r\n\r\n",
		url.QueryEscape(host)); err != nil {
		return dnsmessage.RCodeServerFailure
	}
	switch status, err := readHead(bufio.NewReader(c)); {
	case err != nil:
	case status == 204: // No Content: it exists
		return dnsmessage.RCodeSuccess
	case status == 404, status == 403: // missing or forbidden
		return dnsmessage.RCodeNameError
	}
	return dnsmessage.RCodeServerFailure
}

// serve answers queries until the socket is closed.
func (n *names) serve(c net.PacketConn) {
	// share: total 64 per sandbox; owner its own sandboxes' alone; edge the query is dropped, and a client asks again
	slots := make(chan struct{}, maxLookups)
	for {
		n.pace.wait()
		buf := make([]byte, 1500)
		size, from, err := c.ReadFrom(buf)
		if err != nil {
			return
		}
		select {
		case slots <- struct{}{}:
		default:
			continue
		}
		panics.Go(func() {
			defer func() { <-slots }()
			if answer := n.answer(buf[:size]); answer != nil {
				_, _ = c.WriteTo(answer, from)
			}
		})
	}
}

// answer returns the response to one query (RFC 1035), or nil to ignore it. There are only IPv4 addresses; queries for
// other types get an empty answer.
func (n *names) answer(query []byte) []byte {
	var p dnsmessage.Parser
	h, err := p.Start(query)
	if err != nil || h.Response {
		return nil
	}
	q, err := p.Question()
	reply := dnsmessage.Message{
		Header: dnsmessage.Header{ID: h.ID, Response: true, RecursionDesired: h.RecursionDesired, RecursionAvailable: true},
	}
	switch {
	case err != nil:
		reply.RCode = dnsmessage.RCodeFormatError
	case h.OpCode != 0 || q.Class != dnsmessage.ClassINET:
		reply.Questions, reply.RCode = []dnsmessage.Question{q}, dnsmessage.RCodeNotImplemented
	default:
		reply.Questions = []dnsmessage.Question{q}
		addr, code := n.lookup(q.Name.String())
		reply.RCode = code
		if code == dnsmessage.RCodeSuccess && q.Type == dnsmessage.TypeA {
			reply.Answers = []dnsmessage.Resource{{
				Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: 60},
				Body:   &dnsmessage.AResource{A: addr.As4()},
			}}
		}
	}
	out, err := reply.Pack()
	if err != nil {
		return nil
	}
	return out
}
