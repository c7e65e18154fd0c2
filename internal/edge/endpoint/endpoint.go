// Package endpoint owns the contract between a server with a visitor's request and the program
// that responds for a site, or a layer in front of the program. Package app provides programs,
// package wordpress its guard and page cache in front of those; the edge calls both in the
// same way.
package endpoint

import (
	"context"
	"net/http"
	"time"

	"slipway/internal/platform/id"

	"slipway/internal/edge/upstream"
)

// Endpoint answers one request. Release is to be called when the request has ended.
type Endpoint struct {
	// Transport reaches what answers, whatever the address.
	Transport http.RoundTripper
	// Upstream holds connections to it, for all but what is unusual. Optional: nil where it
	// speaks something else than HTTP, or wants to see all requests.
	Upstream *upstream.Pool
	// Serve answers a request that needs no program, such as one for a file, and reports whether it
	// did. Optional.
	Serve func(w http.ResponseWriter, r *http.Request) bool
	// Tasks runs scripts that nobody who visits can ask for. Optional.
	Tasks http.RoundTripper

	Ended   <-chan struct{} // closed when it has ended and gets no request any more. Optional.
	Release func()

	MaxBody   int64         // bytes of a request's body; 0: no limit
	FirstByte time.Duration // until an answer's first byte; 0: as the edge has it

	// Answered hears an answer's status, how many bytes its body had, and how long its first byte
	// took, before Release. Optional.
	Answered func(status int, bytes int64, took time.Duration)
	// Failed hears why a request got no answer, in words for the site's log. Optional.
	Failed func(why string)
}

// endTime is how long the end of a program may take that accepts no connections.
const endTime = 5 * time.Second

// Ends reports whether an endpoint that accepts no connections has ended, or does so within 5 s.
func (e *Endpoint) Ends(ctx context.Context) bool {
	if e.Ended == nil {
		return false
	}
	late := time.NewTimer(endTime)
	defer late.Stop()
	select {
	case <-e.Ended:
		return true
	case <-late.C:
	case <-ctx.Done():
	}
	return false
}

// Source has the endpoints of deployments of one kind.
type Source interface {
	// Acquire returns the endpoint of a deployment for one request. It may wait for one, or refuse with an
	// Unavailable fault.
	Acquire(ctx context.Context, deployment id.Deployment) (*Endpoint, error)
	// Awake returns the endpoint of a deployment that can answer without waiting for anything.
	Awake(deployment id.Deployment) (*Endpoint, bool)
}

// NotHTTP is a Source whose endpoints speak something else than HTTP, such as FastCGI: none has an
// Upstream, so nobody need look whether requests can be passed on.
type NotHTTP struct{ Source }

// Pages is a Source that answers for some paths by itself, to visitors without a session. Its
// methods never wait.
type Pages interface {
	Source
	// Page returns what a path's page is, the same for as long as the page is, and what returns its fields
	// and body for an Accept-Encoding; nil where there is none.
	Page(deployment id.Deployment, host, path string) (of any, answer func(accept string) (http.Header, []byte))
	// File returns the endpoint of a deployment that is awake, if a file of it could answer a path of a host by Serve.
	File(deployment id.Deployment, host, path string) (*Endpoint, bool)
	// SessionCookies are texts in the cookies of visitors with a session.
	SessionCookies() []string
}
