package shell

import (
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/site"
)

// Request holds the HTTP request that a handler serves, and its user.
type Request struct {
	*http.Request
	ID      string
	Addr    netip.Addr // of the client; invalid when it has none
	Session account.Session
	User    account.User   // zero for somebody who is not signed in
	Caller  account.Caller // the user as the services know them
	Flash   string         // said by the page before
	Problem *Problem       // why the form on this page failed; nil when it didn't

	Received any // what Receives took of the form's file; nil: none was chosen

	clear  []string       // cookies that the answer removes
	member account.Caller // the user in the team that the page is about, before the route narrowed them; zero: no team
}

// signedIn reports whether a user is there who owes nothing.
func (q *Request) signedIn() bool { return q.User.ID != "" && !q.Session.Pending }

// Value returns the submitted value of a field.
func (q *Request) Value(name string) string { return q.PostForm.Get(name) }

// PathID returns the id that stands in a part of the path. It may name nothing, or what isn't the user's.
func PathID[T ~string](q *Request, part string) T { return T(q.PathValue(part)) }

// Checked reports whether a box was ticked.
func (q *Request) Checked(name string) bool { return q.PostForm.Get(name) != "" }

// Query is a value of the address.
func (q *Request) Query(name string) string { return q.URL.Query().Get(name) }

// Only returns the sites that the caller may see, for lists; nil means all.
func (q *Request) Only() []site.ID {
	if len(q.Caller.Sites) == 0 {
		return nil
	}
	return q.Caller.Sites
}

// Device is where the request comes from.
func (q *Request) Device() account.Device {
	return account.Device{Agent: q.UserAgent(), Addr: q.Addr}
}

// Actor is who is asking, for the audit log.
func (q *Request) Actor() audit.Actor {
	by := q.Caller.Actor(q.Addr)
	by.User, by.Session = q.User.ID, q.Session.ID
	return by
}

// Answer holds the response of a handler: a page, a redirect, or something else.
type Answer struct {
	page   string // templates/<page>.html
	title  string
	data   any
	status int // Optional: 0 means 200, or 422 for a form that failed

	To    string // go there instead
	Flash string // and say this there

	popup  bool   // whoever opened it as a popup may learn that it has closed
	onward string // an address at another host that the page leads to
	formTo string // another origin that a form of the page is for

	live    live                        // a part that is sent again whenever it changes
	stream  func(e *Events) error       // server-sent events of any kind
	raw     func(w http.ResponseWriter) // anything else
	Json    any                         // for scripts
	Cookies []*http.Cookie
}

func Page(name, title string, data any) Answer { return Answer{page: name, title: title, data: data} }

// Raw is an answer that writes itself.
func Raw(write func(w http.ResponseWriter)) Answer { return Answer{raw: write} }

// Stream is an answer of server-sent events of any kind.
func Stream(send func(e *Events) error) Answer { return Answer{stream: send} }

// GoTo sends the browser to a page, which says the sentence once. It may be empty.
func GoTo(path, flash string) Answer { return Answer{To: path, Flash: flash} }

// Local returns next when it is a path of this dashboard, else "/": an address that
// leads elsewhere would make our sign-in page somebody else's bait.
func Local(next string) string {
	u, err := url.Parse(next)
	if err != nil || u.Scheme != "" || u.Host != "" || u.User != nil || !strings.HasPrefix(next, "/") ||
		strings.HasPrefix(next, "//") || strings.ContainsAny(next, "\\\r\n\t\x00") || len(next) > 2000 {
		return "/"
	}
	return next
}
