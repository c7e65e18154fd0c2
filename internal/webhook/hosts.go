package webhook

import (
	"cmp"
	"net"
	"net/netip"
	"net/url"
	"sync"
	"time"

	"slipway/internal/account"
)

// Bounds per destination host of one process. One user's webhooks hold at
// most a part of what a host may have in flight, so that nobody can use up another's.
const (
	maxPerHost      = 512
	maxPerOwnerHost = 200
)

// A user's pace towards one host, in requests per second: it begins at firstPace, rises
// with every 2xx and falls with every other outcome. A host that doesn't want what it is
// sent is soon asked only now and then, however many webhooks lead to it.
const (
	firstPace = 200
	fastest   = 20_000
	slowest   = 2
	faster    = 16  // more per second, for each 2xx
	slower    = 0.8 // of the pace is left, after each other outcome
	burst     = 2   // seconds of the pace may come at once
)

// hosts counts what is under way to each destination. It is safe for concurrent use.
type hosts struct {
	mu       sync.Mutex // guards all
	inFlight map[string]int
	owners   map[ownerHost]*pace
}

type ownerHost struct {
	owner account.OwnerID
	host  string
}

// pace is a token bucket whose rate follows the answers.
type pace struct {
	inFlight int
	rate     float64
	tokens   float64
	at       time.Time // of tokens
}

func newHosts() *hosts {
	return &hosts{inFlight: map[string]int{}, owners: map[ownerHost]*pace{}}
}

func (h *hosts) pace(k ownerHost, now time.Time) *pace {
	p := h.owners[k]
	if p == nil {
		p = &pace{rate: firstPace, tokens: burst * firstPace, at: now}
		h.owners[k] = p
	}
	if gone := now.Sub(p.at).Seconds(); gone > 0 {
		p.tokens, p.at = min(p.tokens+gone*p.rate, burst*p.rate), now
	}
	return p
}

// full lists hosts with as many requests in flight as they may have.
func (h *hosts) full() (list []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for host, n := range h.inFlight {
		if n >= maxPerHost {
			list = append(list, host)
		}
	}
	return list
}

// quota limits what one transaction of the dispatcher may still lease. It changes nothing
// until the transaction has ended well and settle is called.
type quota struct {
	h       *hosts
	now     time.Time
	planned map[ownerHost]int
	hosts   map[string]int
	waiting map[ownerHost]int
}

func (h *hosts) quota(now time.Time) *quota {
	return &quota{h, now, map[ownerHost]int{}, map[string]int{}, map[ownerHost]int{}}
}

// allow returns how many of n deliveries may go now, and for none when to ask again.
func (q *quota) allow(k ownerHost, n int) (int, time.Duration) {
	q.h.mu.Lock()
	defer q.h.mu.Unlock()
	p := q.h.pace(k, q.now)
	free := min(maxPerHost-q.h.inFlight[k.host]-q.hosts[k.host], maxPerOwnerHost-p.inFlight-q.planned[k])
	if free <= 0 {
		return 0, 100 * time.Millisecond
	}
	tokens := int(p.tokens) - q.planned[k]
	if tokens <= 0 {
		// Those who wait are called one after the other.
		q.waiting[k]++
		need := float64(q.planned[k]+q.waiting[k]) - p.tokens
		return 0, max(time.Duration(need/p.rate*float64(time.Second)), 10*time.Millisecond)
	}
	return min(n, free, tokens), 0
}

// plan notes that n are claimed.
func (q *quota) plan(k ownerHost, n int) {
	q.planned[k] += n
	q.hosts[k.host] += n
}

// ended gives back what a request held of its destination, and sets the pace by how it ended.
func (h *hosts) ended(o outcome) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.pace(ownerHost{o.owner, o.host}, time.Now())
	p.inFlight = max(0, p.inFlight-1)
	if h.inFlight[o.host]--; h.inFlight[o.host] <= 0 {
		delete(h.inFlight, o.host)
	}
	switch {
	case o.abandoned:
	case o.ok():
		p.rate = min(p.rate+faster, fastest)
	default:
		p.rate = max(p.rate*slower, slowest)
		p.tokens = min(p.tokens, burst*p.rate)
	}
}

// settle takes what was claimed.
func (q *quota) settle() {
	q.h.mu.Lock()
	defer q.h.mu.Unlock()
	for k, n := range q.planned {
		p := q.h.pace(k, q.now)
		p.tokens -= float64(n)
		p.inFlight += n
		q.h.inFlight[k.host] += n
	}
}

// forget drops what is as it was in the beginning, or has rested for an hour.
func (h *hosts) forget(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for k, p := range h.owners {
		if p.inFlight == 0 && now.Sub(p.at) > time.Hour {
			delete(h.owners, k)
		}
	}
}

// hostOf returns the destination of a checked URL: its host, whatever the port, for all
// ports of a victim are one victim. On this machine itself ports are told apart, as the
// programs of a developer are.
func hostOf(s string) string {
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

// urlKey returns what two spellings of one URL have in common.
func urlKey(s string) string {
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
