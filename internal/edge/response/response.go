// Package response owns what all responses to visitors have in common: what is recorded about
// a response, its deadline, and Slipway's own pages.
package response

import (
	"net/http"
	"time"

	"slipway/internal/platform/fair"
)

// Shared header values; nothing may change them.
var (
	Nosniff    = []string{"nosniff"}
	Noindex    = []string{"noindex"}
	Revalidate = []string{"public, max-age=0, must-revalidate"}
	Private    = []string{"private, max-age=0, must-revalidate"} // cacheable by the visitor's own browser only
)

// Spender counts bytes of a body as they are sent.
type Spender interface{ Sent(n int64) }

// Pacer slows a body down.
type Pacer interface {
	// Wait waits until the next n bytes may be sent, at most paceStep. It returns an error when the visitor has left.
	Wait(n int) error
}

// Rules are a site's header rules for one response.
type Rules interface {
	// Apply changes the header before it is sent with a status.
	Apply(status int, h http.Header)
}

// Recorder is a response writer that records the response.
type Recorder struct {
	http.ResponseWriter
	Owner  string // the site's owner; empty if the request has no site
	Site   string // empty if the request has no site
	Status int    // 0 until the response begins
	Bytes  int64
	Page   bool          // the response is a page of the site, requested with GET
	First  time.Duration // time until a program's response began; 0 without a program

	Request string // X-Request-Id as the program got it, or as our error page shows it; empty for other responses

	Private bool // behind a password or sign-in: cacheable by the visitor's own browser only

	Rules Rules // Optional.

	Spent Spender // counts the body's bytes. Optional.
	Pace  Pacer   // slows the body down. Optional.

	Held    *Held  // counts the header's memory until End. Optional: nil counts nothing.
	Remote  string // client's address and port, for Held
	release func()
	givenUp bool // replaced by an empty 503

	Trial bool   // only the header is wanted, and the body only if small enough for memory
	Plain bool   // depends only on host, path and accepted encodings
	Ready bool   // a plain 200 was sent and Body holds all of it
	Body  []byte // must not be changed
}

// Who returns who a request is counted for in shared limits.
func (r *Recorder) Who(q *http.Request) fair.Who {
	return fair.Who{Owner: r.Owner, Site: r.Site, Visitor: fair.Visitor(q.RemoteAddr)}
}

// WriteHeader implements [http.ResponseWriter].
func (r *Recorder) WriteHeader(status int) {
	if r.Status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) { // 1xx responses precede the final one
		r.begin(status)
		status = r.Status
	}
	if status < 200 && status != http.StatusSwitchingProtocols {
		for name := range r.Header() { // browsers would accept cookies here that the final response may not set
			if name != "Link" {
				delete(r.Header(), name)
			}
		}
	}
	r.ResponseWriter.WriteHeader(status)
	if r.givenUp {
		_ = http.NewResponseController(r.ResponseWriter).Flush() // the caller may panic before the body is written
	}
}

// begin records the response's status.
func (r *Recorder) begin(status int) {
	r.Status = status
	if status == http.StatusSwitchingProtocols {
		return
	}
	if r.Rules != nil {
		r.Rules.Apply(status, r.Header())
	}
	if r.Private {
		keepPrivate(r.Header())
	}
	r.hold()
}

// Write implements [http.ResponseWriter].
func (r *Recorder) Write(b []byte) (int, error) {
	if r.Status == 0 {
		r.WriteHeader(http.StatusOK)
	}
	if r.givenUp {
		return 0, errHeld
	}
	n, err := r.write(b)
	r.Bytes += int64(n)
	if r.Spent != nil {
		r.Spent.Sent(int64(n))
	}
	return n, err
}

// Bytes per write of a slowed body, and the time limit for the visitor to read them.
const (
	paceStep = 4 << 10
	paceTime = time.Minute
)

func (r *Recorder) write(b []byte) (n int, err error) {
	if r.Pace == nil {
		return r.ResponseWriter.Write(b)
	}
	conn := http.NewResponseController(r.ResponseWriter)
	for len(b) > 0 {
		part := b[:min(len(b), paceStep)]
		if err := r.Pace.Wait(len(part)); err != nil {
			return n, err
		}
		_ = conn.SetWriteDeadline(time.Now().Add(paceTime)) // a single deadline by length would be too short
		m, err := r.ResponseWriter.Write(part)
		n += m
		if err != nil {
			return n, err
		}
		b = b[m:]
		if len(b) > 0 {
			_ = conn.Flush() // send this part while the rest waits
		}
	}
	return n, nil
}

// RequestID returns the request's id, which also appears in the site's logs. It is created on the first call.
func (r *Recorder) RequestID() string {
	if r.Request == "" {
		r.Request = NewID()
	}
	return r.Request
}

// Unwrap serves [http.ResponseController].
func (r *Recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }
