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

// Request is an HTTP request with its user.
type Request struct {
	*http.Request
	ID      string
	Addr    netip.Addr // the client's; may be invalid
	Session account.Session
	User    account.User   // zero if not signed in
	Caller  account.Caller // the user's identity for services
	Flash   string         // message from the previous page
	Problem *Problem       // why the page's form failed, or nil

	Received any // result of the route's receiver; nil: no file was chosen

	clear  []string       // cookies to delete in the response
	member account.Caller // the user in the page's team with all rights of their role; zero: not a team's page
}

// signedIn reports whether a user is signed in without a pending second factor.
func (q *Request) signedIn() bool { return q.User.ID != "" && !q.Session.Pending }

// Value returns the submitted value of a field.
func (q *Request) Value(name string) string { return q.PostForm.Get(name) }

// Lines returns the lines of a field that aren't empty.
func (q *Request) Lines(name string) []string {
	return strings.FieldsFunc(q.Value(name), func(r rune) bool { return r == '\r' || r == '\n' })
}

// PathID returns the ID in a part of the path. The resource may not exist or belong to others.
func PathID[T ~string](q *Request, part string) T { return T(q.PathValue(part)) }

// Checked reports whether a checkbox was ticked.
func (q *Request) Checked(name string) bool { return q.PostForm.Get(name) != "" }

// Query returns a parameter of the URL.
func (q *Request) Query(name string) string { return q.URL.Query().Get(name) }

// Only returns the sites visible to the caller, for lists; nil means all.
func (q *Request) Only() []site.ID {
	if len(q.Caller.Sites) == 0 {
		return nil
	}
	return q.Caller.Sites
}

// Device returns the request's device.
func (q *Request) Device() account.Device {
	return account.Device{Agent: q.UserAgent(), Addr: q.Addr}
}

// Actor returns the actor for the audit log.
func (q *Request) Actor() audit.Actor {
	by := q.Caller.Actor(q.Addr)
	by.User, by.Session = q.User.ID, q.Session.ID
	return by
}

// Answer is a handler's response: a page, a redirect, or something else.
type Answer struct {
	page   string // templates/<page>.html
	title  string
	data   any
	status int // Optional: 0 means 200, or 422 for a failed form

	To    string // redirect to this URL instead
	Flash string // message to show there

	popup  bool   // a page that opened it as a popup may see that it closed
	onward string // URL at another host to redirect to
	formTo string // other origin to which the page's form posts

	live    live                        // part that is sent again when it changes
	stream  func(e *Events) error       // server-sent events
	raw     func(w http.ResponseWriter) // any other response
	Json    any                         // response for scripts
	Cookies []*http.Cookie
}

func Page(name, title string, data any) Answer { return Answer{page: name, title: title, data: data} }

// Raw returns an answer that write writes.
func Raw(write func(w http.ResponseWriter)) Answer { return Answer{raw: write} }

// Stream returns an answer of server-sent events.
func Stream(send func(e *Events) error) Answer { return Answer{stream: send} }

// GoTo redirects to a page that shows the message flash once. flash may be empty.
func GoTo(path, flash string) Answer { return Answer{To: path, Flash: flash} }

// Local returns next if it is a path of this dashboard, otherwise "/", so that the sign-in page can't be used for open
// redirects.
func Local(next string) string {
	u, err := url.Parse(next)
	if err != nil || u.Scheme != "" || u.Host != "" || u.User != nil || !strings.HasPrefix(next, "/") ||
		strings.HasPrefix(next, "//") || strings.ContainsAny(next, "\\\r\n\t\x00") || len(next) > 2000 {
		return "/"
	}
	return next
}
