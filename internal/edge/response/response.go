// Package response owns what all responses to visitors have in common: what is recorded about
// a response, its deadline, and Slipway's own pages.
package response

import (
	"net/http"
	"time"

	"slipway/internal/platform/fair"
)

// Values of header fields, shared by all answers: nobody writes to them.
var (
	Nosniff    = []string{"nosniff"}
	Noindex    = []string{"noindex"}
	Revalidate = []string{"public, max-age=0, must-revalidate"}
	Private    = []string{"private, max-age=0, must-revalidate"} // only the visitor's own browser may keep it
)

// Spender counts bytes of a body as they are sent.
type Spender interface{ Sent(n int64) }

// Pacer slows a body down.
type Pacer interface {
	// Wait waits until the next n bytes may be sent, paceStep at most. It returns an error when the visitor has left.
	Wait(n int) error
}

// Recorder remembers what an answer was.
type Recorder struct {
	http.ResponseWriter
	Owner  string // who owns the site; empty: it is none's
	Site   string // likewise
	Status int    // 0 until it has begun
	Bytes  int64
	Page   bool          // what was asked for with GET is a page of the site
	First  time.Duration // until a program's answer began; 0 where none did

	Request string // the id that a page of ours shows; empty until there is one

	Private bool // the answer is behind a password or a sign-in: only the visitor's own browser may keep it

	Spent Spender // hears of the bytes of the body. Optional.
	Pace  Pacer   // slows the body down. Optional.

	Held    *Held  // End gives back what the answer takes. Optional: nil counts nothing.
	Remote  string // the client's address and port, for Held
	release func()
	givenUp bool // the answer has become an empty one with status 503

	Trial bool   // only the header is wanted, of what is small enough for memory
	Plain bool   // the answer depends on nothing but host, path and accepted encodings
	Ready bool   // a plain answer with status 200 has been given: Body holds all of it
	Body  []byte // not to be changed
}

// Who says on whose behalf a request is answered, for what sites share.
func (r *Recorder) Who(q *http.Request) fair.Who {
	return fair.Who{Owner: r.Owner, Site: r.Site, Visitor: fair.Visitor(q.RemoteAddr)}
}

// WriteHeader is for http.ResponseWriter.
func (r *Recorder) WriteHeader(status int) {
	if r.Status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) { // 103 and the like come before the answer
		r.begin(status)
		status = r.Status
	}
	if status < 200 && status != http.StatusSwitchingProtocols {
		for name := range r.Header() { // browsers would take cookies from it that the answer itself may not set
			if name != "Link" {
				delete(r.Header(), name)
			}
		}
	}
	r.ResponseWriter.WriteHeader(status)
	if r.givenUp {
		_ = http.NewResponseController(r.ResponseWriter).Flush() // the caller may panic, as its body finds no reader
	}
}

// begin notes the answer's status.
func (r *Recorder) begin(status int) {
	r.Status = status
	if status == http.StatusSwitchingProtocols {
		return
	}
	if r.Private {
		keepPrivate(r.Header())
	}
	r.hold()
}

// Write is for http.ResponseWriter.
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

// paceStep is how many bytes of a body that is slowed down are sent at a time; paceTime how long a visitor may take to read them.
const (
	paceStep = 4 << 10
	paceTime = time.Minute
)

// write writes a part of the body.
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
		_ = conn.SetWriteDeadline(time.Now().Add(paceTime)) // one for all of it, by its length, would end it
		m, err := r.ResponseWriter.Write(part)
		n += m
		if err != nil {
			return n, err
		}
		b = b[m:]
		if len(b) > 0 {
			_ = conn.Flush() // what is here is read while the rest waits
		}
	}
	return n, nil
}

// RequestID returns the id by which a request is found in the site's logs, the same each time.
func (r *Recorder) RequestID() string {
	if r.Request == "" {
		r.Request = newRequestID()
	}
	return r.Request
}

// Unwrap is for http.ResponseController.
func (r *Recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }
