package delivery

import (
	"cmp"
	"net"
	"net/netip"
	"net/url"
	"sync"
	"time"

	"slipway/internal/tenant/account"
)

// bounds are the limits of one destination in one process. Each user gets only part of the concurrent requests, so that
// one user can't use up the others' share.
//
// A user's rate of requests per second rises with every 2xx and falls with every other result. A destination that
// rejects requests is soon called only rarely, no matter how many webhooks lead to it.
type bounds struct {
	all, own                int // concurrent requests: in total, per user
	first, slowest, fastest float64
	faster                  float64 // increase of the rate after each 2xx, per second
	slower                  float64 // factor of the rate after each other result
}

// A network stands for all host names in it, and many customers of a provider share one. So it allows more than a host,
// and a failure lowers its rate less.
var (
	hostBounds    = bounds{all: 512, own: 200, first: 200, slowest: 2, fastest: 20_000, faster: 16, slower: 0.8}
	networkBounds = bounds{all: 768, own: 256, first: 800, slowest: 8, fastest: 80_000, faster: 64, slower: 0.945}
)

const burst = 2 // seconds of a rate that may be used at once

// Hosts counts the requests in flight to each destination: the URL's host, and the network in which its connections
// end. It is safe for concurrent use.
type Hosts struct {
	mu sync.Mutex // guards all
	// share: total 512 requests to one host, 768 to one network, Config.Slots (1,024) in all; owner 200 and 256; edge the delivery waits
	inFlight map[string]int
	// share: total every owner's pace towards hosts of deliveries under way or failing; owner its hosts; edge forgotten after an hour without deliveries
	owners map[OwnerHost]*pace
	// share: total the hosts that were connected to lately; owner its hosts; edge forgotten after an hour without connections
	reached map[string]*reached // by host
}

// OwnerHost is a user's destination: a host or network.
type OwnerHost struct {
	Owner account.OwnerID
	Host  string
}

// pace is a token bucket with an adaptive rate.
type pace struct {
	inFlight int
	rate     float64
	tokens   float64
	at       time.Time // time of tokens
}

func NewHosts() *Hosts {
	return &Hosts{inFlight: map[string]int{}, owners: map[OwnerHost]*pace{}, reached: map[string]*reached{}}
}

func boundsOf(destination string) *bounds {
	if isNetwork(destination) {
		return &networkBounds
	}
	return &hostBounds
}

func (h *Hosts) pace(k OwnerHost, now time.Time) *pace {
	p := h.owners[k]
	if p == nil {
		first := boundsOf(k.Host).first
		p = &pace{rate: first, tokens: burst * first, at: now}
		h.owners[k] = p
	}
	if gone := now.Sub(p.at).Seconds(); gone > 0 {
		p.tokens, p.at = min(p.tokens+gone*p.rate, burst*p.rate), now
	}
	return p
}

// Full lists the hosts with the maximum number of requests in flight.
func (h *Hosts) Full() (list []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for host, n := range h.inFlight {
		if !isNetwork(host) && n >= hostBounds.all {
			list = append(list, host)
		}
	}
	return list
}

// Quota limits the leases of one dispatcher transaction. It changes nothing until the transaction has committed and
// Settle is called.
type Quota struct {
	h       *Hosts
	now     time.Time
	planned map[OwnerHost]int
	hosts   map[string]int
	waiting map[OwnerHost]int
}

func (h *Hosts) Quota(now time.Time) *Quota {
	return &Quota{h, now, map[OwnerHost]int{}, map[string]int{}, map[OwnerHost]int{}}
}

// Allow returns how many of n deliveries may be sent now, and if none, how long to wait.
func (q *Quota) Allow(k OwnerHost, n int) (int, time.Duration) {
	q.h.mu.Lock()
	defer q.h.mu.Unlock()
	n, wait := q.room(k, n)
	for _, network := range q.h.networks(k.Host) {
		m, until := q.room(OwnerHost{k.Owner, network}, n)
		n, wait = min(n, m), max(wait, until)
	}
	return n, wait
}

// room is Allow for one destination. The caller holds the lock.
func (q *Quota) room(k OwnerHost, n int) (int, time.Duration) {
	p, b := q.h.pace(k, q.now), boundsOf(k.Host)
	free := min(b.all-q.h.inFlight[k.Host]-q.hosts[k.Host], b.own-p.inFlight-q.planned[k])
	if free <= 0 {
		return 0, 100 * time.Millisecond
	}
	tokens := int(p.tokens) - q.planned[k]
	if tokens <= 0 {
		// Waiting endpoints get tokens one after another.
		q.waiting[k]++
		need := float64(q.planned[k]+q.waiting[k]) - p.tokens
		return 0, max(time.Duration(need/p.rate*float64(time.Second)), 10*time.Millisecond)
	}
	return min(n, free, tokens), 0
}

// Plan records that n deliveries are claimed, and returns their expected network, or "".
func (q *Quota) Plan(k OwnerHost, n int) string {
	q.h.mu.Lock()
	network := q.h.lastNetwork(k.Host)
	q.h.mu.Unlock()
	for _, to := range []string{k.Host, network} {
		if to != "" {
			q.planned[OwnerHost{k.Owner, to}] += n
			q.hosts[to] += n
		}
	}
	return network
}

// Ended releases a request's slots at its destinations and adjusts their rates to the result.
func (h *Hosts) Ended(r Request, with Result) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	for _, to := range []string{r.Host, r.Network} {
		if to == "" {
			continue
		}
		p, b := h.hold(OwnerHost{r.Owner, to}, -1, now), boundsOf(to)
		switch {
		case with.Abandoned:
		case with.Ok():
			p.rate = min(p.rate+b.faster, b.fastest)
		default:
			p.rate = max(p.rate*b.slower, b.slowest)
			p.tokens = min(p.tokens, burst*p.rate)
		}
	}
}

// hold changes the number of requests in flight by n. The caller holds the lock.
func (h *Hosts) hold(k OwnerHost, n int, now time.Time) *pace {
	p := h.pace(k, now)
	p.inFlight = max(0, p.inFlight+n)
	h.inFlight[k.Host] += n
	if h.inFlight[k.Host] <= 0 {
		delete(h.inFlight, k.Host)
	}
	return p
}

// Settle applies the planned claims.
func (q *Quota) Settle() {
	q.h.mu.Lock()
	defer q.h.mu.Unlock()
	for k, n := range q.planned {
		q.h.hold(k, n, q.now).tokens -= float64(n)
	}
}

// Forget drops entries in their initial state, and those unused for an hour.
func (h *Hosts) Forget(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for k, p := range h.owners {
		if p.inFlight == 0 && now.Sub(p.at) > time.Hour {
			delete(h.owners, k)
		}
	}
	for host, r := range h.reached {
		if now.Sub(r.at) > time.Hour {
			delete(h.reached, host)
		}
	}
}

// HostOf returns the destination of a validated URL: its host without the port, since all ports of a host are one
// target. On this machine it includes the port, which distinguishes a developer's programs.
func HostOf(s string) string {
	u, err := url.Parse(s)
	if err != nil {
		return ""
	}
	name := u.Hostname()
	if ip, err := netip.ParseAddr(name); err == nil && ip.IsLoopback() || name == "localhost" {
		return net.JoinHostPort(name, cmp.Or(u.Port(), "443"))
	}
	return name
}

// URLKey returns a normalized URL for comparison.
func URLKey(s string) string {
	u, err := url.Parse(s)
	if err != nil {
		return s
	}
	if u.Path == "" {
		u.Path = "/"
	}
	u.ForceQuery = false
	return u.String()
}
