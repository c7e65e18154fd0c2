package network

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
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

// Limits of one command's resolver. Names keep their addresses while they are used; the least recently used are
// forgotten for new ones.
const (
	maxNameBytes = 2 << 20 // bytes of existing names
	nameCost     = 160     // approximate overhead per name
	maxUnknown   = 1 << 10
	maxLookups   = 64 // concurrent lookups; more wait in the socket
	forgetAfter  = 5 * time.Second
	// maxRecords caps the bytes of the records of one name.
	maxRecords = 64<<10 - 1
)

// resolverPort is the port of DNS, over UDP and TCP.
const resolverPort = 53

// names is the resolver in a sandbox: it assigns each existing name an address of fakeNet. The proxy says whether a
// name exists.
type names struct {
	proxy string // unix socket
	pace  *pace  // limits queries and connections; nil: no limit

	mu sync.Mutex // guards the fields below
	// Names that were used since recent began are there, those used before in earlier. When recent is full, it becomes
	// earlier, and what earlier had is forgotten.
	recent, earlier generation
	next            uint32 // number of the next new address
	// share: none, one sandbox's: 64 queries
	asking map[string]*question
	// share: none, one sandbox's: 1,024 names
	unknown map[string]denial
	oldest  []string // keys of unknown, by expiry
}

// generation maps names to the numbers of their addresses and back.
type generation struct {
	numbers map[string]uint32
	hosts   map[uint32]string
	bytes   int // memory of both
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
	return &names{proxy: proxy, asking: map[string]*question{}, unknown: map[string]denial{}}
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
	host, ok := n.recent.hosts[uint32(i)]
	if !ok {
		if host, ok = n.earlier.hosts[uint32(i)]; ok {
			n.use(host, uint32(i))
		}
	}
	return host, ok
}

// addrOf returns the address with a number.
func addrOf(number uint32) netip.Addr {
	i := number + 2 // the first two are the network and the loopback
	b := fakeNet.Addr().As4()
	b[1] += byte(i >> 16)
	b[2], b[3] = byte(i>>8), byte(i)
	return netip.AddrFrom4(b)
}

// addresses is how many addresses there are. A number is used again after all others, so a program that keeps the
// address of a forgotten name gets a reset instead of another host.
var addresses = uint32(1)<<(32-fakeNet.Bits()) - 3

// number returns the number of a name's address, if it has one. The caller holds mu.
func (n *names) number(host string) (uint32, bool) {
	i, ok := n.recent.numbers[host]
	if !ok {
		if i, ok = n.earlier.numbers[host]; ok {
			n.use(host, i)
		}
	}
	return i, ok
}

// assign gives a name the next free address. The caller holds mu.
func (n *names) assign(host string) uint32 {
	for {
		i := n.next
		n.next = (n.next + 1) % addresses
		if n.recent.hosts[i] == "" && n.earlier.hosts[i] == "" {
			n.use(host, i)
			return i
		}
	}
}

// use notes that a name is in use. The caller holds mu.
func (n *names) use(host string, number uint32) {
	cost := nameCost + 2*len(host)
	if n.recent.numbers == nil || n.recent.bytes+cost > maxNameBytes/2 {
		n.earlier = n.recent
		n.recent = generation{numbers: map[string]uint32{}, hosts: map[uint32]string{}}
	}
	n.recent.numbers[host], n.recent.hosts[number] = number, host
	n.recent.bytes += cost
}

// lookup returns a name's address, assigning one if needed.
func (n *names) lookup(host string) (netip.Addr, dnsmessage.RCode) {
	n.mu.Lock()
	n.forget(time.Now())
	if i, ok := n.number(host); ok {
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
	x := &question{asked: make(chan struct{})}
	n.asking[host] = x
	n.mu.Unlock()

	_, code := n.ask(host, "")
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.asking, host)
	x.code = code
	if code == dnsmessage.RCodeSuccess {
		x.addr = addrOf(n.assign(host))
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

// ask asks the proxy whether a name exists and may be reached, or for its records of a type.
func (n *names) ask(host, kind string) ([]byte, dnsmessage.RCode) {
	c, err := dialUnix(n.proxy)
	if err != nil {
		return nil, dnsmessage.RCodeServerFailure
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(15 * time.Second))
	if _, err := fmt.Fprintf(c, "GET /resolve?name=%s&type=%s HTTP/1.1\r\nHost: resolver\r\nConnection: close\r\n\r\n",
		url.QueryEscape(host), kind); err != nil {
		return nil, dnsmessage.RCodeServerFailure
	}
	r := bufio.NewReader(c)
	switch status, err := readHead(r); {
	case err != nil:
	case status == 200: // its records, as a DNS message
		if body, err := io.ReadAll(io.LimitReader(r, maxRecords+1)); err == nil && len(body) <= maxRecords {
			return body, dnsmessage.RCodeSuccess
		}
	case status == 204: // No Content: it exists
		return nil, dnsmessage.RCodeSuccess
	case status == 404, status == 403: // missing or forbidden
		return nil, dnsmessage.RCodeNameError
	}
	return nil, dnsmessage.RCodeServerFailure
}

// serve answers queries until the socket is closed.
func (n *names) serve(c net.PacketConn) {
	// share: total 64 per sandbox; owner its own sandboxes' alone; edge queries wait in the sandbox's socket
	slots := make(chan struct{}, maxLookups)
	for {
		slots <- struct{}{}
		n.pace.wait()
		buf := make([]byte, 1500)
		size, from, err := c.ReadFrom(buf)
		if err != nil {
			return
		}
		panics.Go(func() {
			defer func() { <-slots }()
			if answer := n.answer(buf[:size], true); answer != nil {
				_, _ = c.WriteTo(answer, from)
			}
		})
	}
}

// idleClient is how long a client over TCP may take to send a query.
const idleClient = 10 * time.Second

// serveTCP answers a client's queries until it closes the connection. Clients come here for answers that don't fit into
// a packet (RFC 7766).
func (n *names) serveTCP(c net.Conn) {
	for {
		_ = c.SetDeadline(time.Now().Add(idleClient))
		var size [2]byte
		if _, err := io.ReadFull(c, size[:]); err != nil {
			return
		}
		query := make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(c, query); err != nil {
			return
		}
		n.pace.wait()
		answer := n.answer(query, false)
		if answer == nil {
			return
		}
		_ = c.SetDeadline(time.Now().Add(idleClient))
		if _, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), answer...)); err != nil {
			return
		}
	}
}

// Types of records that the proxy looks up. The proxy knows them by these names.
var recordTypes = map[dnsmessage.Type]string{
	dnsmessage.TypeSRV: "SRV", dnsmessage.TypeTXT: "TXT", dnsmessage.TypeMX: "MX",
	dnsmessage.TypeCNAME: "CNAME", dnsmessage.TypeNS: "NS", dnsmessage.TypePTR: "PTR",
}

// answer returns the response to one query (RFC 1035), or nil to ignore it. packet says that it must fit into a packet.
func (n *names) answer(query []byte, packet bool) []byte {
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
		reply.Answers, reply.RCode = n.resolve(q)
	}
	out, err := reply.Pack()
	if err == nil && packet && len(out) > room(&p) {
		reply.Answers, reply.Truncated = nil, true
		out, err = reply.Pack()
	}
	if err != nil || len(out) > maxRecords {
		return nil
	}
	return out
}

// room returns how many bytes the sender of a query takes in a packet (RFC 6891). p has read the first question.
func room(p *dnsmessage.Parser) int {
	const least, most = 512, 4096
	if p.SkipAllQuestions() != nil || p.SkipAllAnswers() != nil || p.SkipAllAuthorities() != nil {
		return least
	}
	for {
		h, err := p.AdditionalHeader()
		if err != nil {
			return least
		}
		if h.Type == dnsmessage.TypeOPT {
			return min(max(int(h.Class), least), most)
		}
		if p.SkipAdditional() != nil {
			return least
		}
	}
}

// resolve answers a question. There are only IPv4 addresses. Names have no records of types that aren't looked up.
func (n *names) resolve(q dnsmessage.Question) ([]dnsmessage.Resource, dnsmessage.RCode) {
	host := strings.ToLower(strings.TrimSuffix(q.Name.String(), "."))
	head := dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: 60}
	if q.Type == dnsmessage.TypePTR {
		if a, ok := reversed(host); ok && fakeNet.Contains(a) {
			name, ok := n.of(a)
			to, err := dnsmessage.NewName(name + ".")
			if !ok || err != nil {
				return nil, dnsmessage.RCodeNameError
			}
			return []dnsmessage.Resource{{Header: head, Body: &dnsmessage.PTRResource{PTR: to}}}, dnsmessage.RCodeSuccess
		}
	}
	kind, ok := recordTypes[q.Type]
	if !ok {
		addr, code := n.lookup(host)
		if code != dnsmessage.RCodeSuccess || q.Type != dnsmessage.TypeA {
			return nil, code
		}
		return []dnsmessage.Resource{{Header: head, Body: &dnsmessage.AResource{A: addr.As4()}}}, code
	}
	body, code := n.ask(host, kind)
	if code != dnsmessage.RCodeSuccess || body == nil {
		return nil, code
	}
	var m dnsmessage.Message
	if err := m.Unpack(body); err != nil {
		return nil, dnsmessage.RCodeServerFailure
	}
	for i := range m.Answers {
		m.Answers[i].Header = head
	}
	return m.Answers, code
}

// reversed returns the IPv4 address that a name below in-addr.arpa is for.
func reversed(host string) (netip.Addr, bool) {
	digits, ok := strings.CutSuffix(host, ".in-addr.arpa")
	labels := strings.Split(digits, ".")
	slices.Reverse(labels)
	a, err := netip.ParseAddr(strings.Join(labels, "."))
	return a, ok && err == nil && a.Is4()
}
