package dashboard

import (
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"slipway/internal/tenant/account"
)

// request holds the HTTP request that a handler serves, and its user.
type request struct {
	*http.Request
	id      string
	addr    netip.Addr // of the client; invalid when it has none
	session account.Session
	user    account.User   // zero for somebody who is not signed in
	caller  account.Caller // the user as the services know them
	flash   string         // said by the page before
	problem *problem       // why the form on this page failed; nil when it didn't

	clear []string // cookies that the answer removes
}

// signedIn reports whether a user is there who owes nothing.
func (q *request) signedIn() bool { return q.user.ID != "" && !q.session.Pending }

// value returns the submitted value of a field.
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
	return account.Actor{User: q.user.ID, Owner: q.caller.Owner, Session: q.session.ID, Addr: q.addr}
}

// answer holds the response of a handler: a page, a redirect, or something else.
type answer struct {
	page   string // templates/<page>.html
	title  string
	data   any
	status int // Optional: 0 means 200, or 422 for a form that failed

	to    string // go there instead
	flash string // and say this there

	onward string // an address at another host that the page leads to
	formTo string // another origin that a form of the page is for

	live    live                        // a part that is sent again whenever it changes
	stream  func(e *events) error       // server-sent events of any kind
	raw     func(w http.ResponseWriter) // anything else
	json    any                         // for scripts
	cookies []*http.Cookie
}

func page(name, title string, data any) answer { return answer{page: name, title: title, data: data} }

// goTo sends the browser to a page, which says the sentence once. It may be empty.
func goTo(path, flash string) answer { return answer{to: path, flash: flash} }

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
