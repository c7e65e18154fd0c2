package dashboard

import (
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"slipway/internal/account"
	"slipway/internal/db"
)

// request is what a handler is given: the HTTP request, and who it comes from.
type request struct {
	*http.Request
	id      string
	addr    netip.Addr // of the client; invalid when it has none
	session account.Session
	user    account.User   // zero for somebody who is not signed in
	caller  account.Caller // the user as the rooms know them
	flash   string         // said by the page before
	problem *problem       // why the form on this page failed; nil when it didn't

	clear []string // cookies that the answer removes
}

// signedIn reports whether a user is there who owes nothing.
func (q *request) signedIn() bool { return q.user.ID != "" && !q.session.Pending }

// value is what was typed into a field.
func (q *request) value(name string) string { return q.PostForm.Get(name) }

// checked reports whether a box was ticked.
func (q *request) checked(name string) bool { return q.PostForm.Get(name) != "" }

// query is a value of the address.
func (q *request) query(name string) string { return q.URL.Query().Get(name) }

// device is where the request comes from.
func (q *request) device() account.Device {
	return account.Device{Agent: q.UserAgent(), Addr: q.addr}
}

// actor is who is asking, for the audit log.
func (q *request) actor() account.Actor {
	return account.Actor{User: q.user.ID, Session: q.session.ID, Addr: q.addr}
}

// answer is what a handler returns: a page, a place to go to, or something else.
type answer struct {
	page   string // templates/<page>.html
	title  string
	data   any
	status int // Optional: 0 means 200, or 422 for a form that failed

	to    string // go there instead
	flash string // and say this there

	live    live                        // a part that is sent again whenever it changes
	stream  func(e *events) error       // server-sent events of any kind
	raw     func(w http.ResponseWriter) // anything else
	json    any                         // for scripts
	cookies []*http.Cookie
}

func page(name, title string, data any) answer { return answer{page: name, title: title, data: data} }

// goTo sends the browser to a page, which says the sentence once. It may be empty.
func goTo(path, flash string) answer { return answer{to: path, flash: flash} }

var requestIDs = regexp.MustCompile(`^[\w-]{8,64}$`)

func requestID(r *http.Request) string {
	if id := r.Header["X-Request-Id"]; len(id) == 1 && requestIDs.MatchString(id[0]) {
		return id[0]
	}
	return db.NewID("req")
}

// client returns the address of who is asking: the connection's, or, when a trusted
// proxy is at the other end, the last one in X-Forwarded-For that is no trusted proxy.
func (d *Dashboard) client(r *http.Request) netip.Addr {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	addr := peer.Addr().Unmap().WithZone("")
	trusted := func(ip netip.Addr) bool {
		return slices.ContainsFunc(d.TrustedProxies, func(p netip.Prefix) bool { return p.Contains(ip) })
	}
	hops := strings.Split(strings.Join(r.Header["X-Forwarded-For"], ","), ",")
	for i := len(hops) - 1; i >= 0 && trusted(addr); i-- {
		hop := strings.TrimSpace(hops[i])
		ip, err := netip.ParseAddr(hop)
		if err != nil {
			if withPort, err2 := netip.ParseAddrPort(hop); err2 == nil {
				ip, err = withPort.Addr(), nil
			}
		}
		if err != nil {
			break // what stands left of nonsense is nonsense
		}
		addr = ip.Unmap().WithZone("")
	}
	return addr
}

// network is what an address counts as: one machine has as many IPv6 addresses of a /64
// as it likes.
func network(ip netip.Addr) string {
	if ip.Is6() {
		p, _ := ip.Prefix(64)
		return p.String()
	}
	return ip.String()
}

// local returns next when it is a path of this dashboard, else "/": an address that
// leads elsewhere would make our sign-in page somebody else's bait.
func local(next string) string {
	u, err := url.Parse(next)
	if err != nil || u.Scheme != "" || u.Host != "" || u.User != nil || !strings.HasPrefix(next, "/") ||
		strings.HasPrefix(next, "//") || strings.ContainsAny(next, "\\\r\n\t\x00") || len(next) > 2000 {
		return "/"
	}
	return next
}
