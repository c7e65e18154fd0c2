package response

import (
	"errors"
	"net/http"

	"slipway/internal/platform/fair"
)

// Header limits of responses from programs and forwarded hosts.
const (
	MaxFields = 500
	MaxHeader = 32 << 10
)

// Memory limits for the headers of responses in progress: a request of a few bytes can cause tens of kilobytes.
const (
	freeHeld       = 4 << 10 // per response, not counted
	fieldHeld      = 160     // overhead per field: net/http stores fields twice
	connectionHeld = 1 << 20
	siteHeld       = 4 << 20 // of one visitor at one site
	visitorHeld    = 16 << 20
	ownerHeld      = 16 << 20
	allHeld        = 64 << 20
)

// Held counts the memory held by headers of responses in progress.
type Held struct{ owners, visitors, connections *fair.Pool }

// NewHeld returns a Held that counts nothing yet.
func NewHeld() *Held {
	return &Held{
		// share: total 64 MiB of header fields of answers under way that have more than 4 KiB; owner 16 MiB, one visitor of a site 4 MiB; edge 503 with Retry-After
		owners: fair.New(fair.Config{Places: allHeld, Owner: ownerHeld, Visitor: siteHeld}),
		// share: total of header fields as before; owner 16 MiB of one visitor; edge 503 with Retry-After
		visitors: fair.New(fair.Config{Places: allHeld, Visitor: visitorHeld}),
		// share: total of header fields as before; owner 1 MiB of one connection; edge 503 with Retry-After
		connections: fair.New(fair.Config{Places: allHeld, Visitor: connectionHeld}),
	}
}

// Bytes returns the counted memory.
func (h *Held) Bytes() int { n, _ := h.owners.Held(); return n }

// take counts n bytes of a response until release is called. ok is false if they exceed a limit.
func (h *Held) take(r *Recorder, n int) (release func(), ok bool) {
	var taken []func()
	release = func() {
		for _, f := range taken {
			f()
		}
	}
	visitor := fair.Visitor(r.Remote)
	for _, x := range []struct {
		pool *fair.Pool
		who  fair.Who
	}{
		{h.connections, fair.Who{Visitor: r.Remote}},
		{h.visitors, fair.Who{Visitor: visitor}},
		{h.owners, fair.Who{Owner: r.Owner, Site: r.Site, Visitor: visitor}},
	} {
		one, ok := x.pool.TryN(x.who, n)
		if !ok {
			release()
			return nil, false
		}
		taken = append(taken, one)
	}
	return release, true
}

// Fits reports whether a response's header is within the limits.
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

// errHeld is returned by writes to a response that was replaced by a 503.
var errHeld = errors.New("header fields of other answers hold too much memory")

// hold counts the response's header until [Recorder.End]. If that exceeds a limit, the response becomes an empty 503.
func (r *Recorder) hold() {
	if r.Held == nil {
		return
	}
	h := r.Header()
	n, fields := 0, 0
	for name, values := range h {
		fields += len(values)
		for _, v := range values {
			n += len(name) + len(v) + 32 // size as in RFC 9113 §6.5.2
		}
	}
	if n <= freeHeld {
		return
	}
	release, ok := r.Held.take(r, n+fields*(fieldHeld-32))
	if ok {
		r.release = release
		return
	}
	clear(h)
	h["Retry-After"] = []string{"5"}
	h["Cache-Control"] = []string{"no-store"}
	h["Content-Length"] = []string{"0"} // a body would need the client's window
	r.Status, r.givenUp, r.Page, r.Ready = http.StatusServiceUnavailable, true, false, false
}

// End ends the counting of the response's header. Call it once the visitor has read the response, since net/http keeps
// the header until then.
func (r *Recorder) End() {
	if r.release != nil {
		_ = http.NewResponseController(r.ResponseWriter).Flush()
		r.release()
		r.release = nil
	}
}
