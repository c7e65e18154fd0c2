package response

import (
	"errors"
	"net/http"

	"slipway/internal/platform/fair"
)

// The most that an answer of a program, or of another host that rules forward to, has before
// its body.
const (
	MaxFields = 500
	MaxHeader = 32 << 10
)

// What the fields of answers may hold that are under way, until their visitors have read
// them: a request of a few bytes can ask for tens of kilobytes.
const (
	freeHeld    = 4 << 10 // of an answer, which does not count
	visitorHeld = 4 << 20
	ownerHeld   = 16 << 20
	allHeld     = 64 << 20
)

// NewHeld returns the bytes that the fields of answers under way may hold, for Recorder.
func NewHeld() *fair.Pool {
	// share: total 64 MiB of header fields of answers under way that have more than 4 KiB; owner 16 MiB, one visitor of a site 4 MiB; edge 503 with Retry-After
	return fair.New(fair.Config{Places: allHeld, Owner: ownerHeld, Visitor: visitorHeld})
}

// Fits reports whether an answer has no more fields than one may have.
func Fits(h http.Header) bool {
	fields, bytes := 0, 0
	for name, values := range h {
		for _, v := range values {
			fields++
			bytes += len(name) + len(v) + len(": \r\n")
		}
	}
	return fields <= MaxFields && bytes <= MaxHeader
}

// errHeld is the error of writing the body of an answer that has been given up.
var errHeld = errors.New("header fields of other answers hold too much memory")

// hold counts what the answer's fields hold until End. Where that is too much, the answer
// becomes an empty one with status 503.
func (r *Recorder) hold() {
	if r.Held == nil {
		return
	}
	h := r.Header()
	n := 0
	for name, values := range h {
		for _, v := range values {
			n += len(name) + len(v) + 32 // as RFC 9113 §6.5.2 counts
		}
	}
	if n <= freeHeld {
		return
	}
	release, ok := r.Held.TryN(fair.Who{Owner: r.Owner, Site: r.Site, Visitor: fair.Visitor(r.Remote)}, n)
	if ok {
		r.release = release
		return
	}
	clear(h)
	h["Retry-After"] = []string{"5"}
	h["Cache-Control"] = []string{"no-store"}
	h["Content-Length"] = []string{"0"} // a body would wait for the client's window
	r.Status, r.givenUp, r.Page, r.Ready = http.StatusServiceUnavailable, true, false, false
}

// End ends the count of what the answer's fields hold, once the visitor has read them and
// the last bytes of a body: net/http keeps them as long.
func (r *Recorder) End() {
	if r.release != nil {
		_ = http.NewResponseController(r.ResponseWriter).Flush()
		r.release()
		r.release = nil
	}
}
