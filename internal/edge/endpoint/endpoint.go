// Package endpoint owns the contract between a server that has a visitor's request and what answers for a site: a
// program, or a layer in front of it. Package app provides programs, package wordpress puts its guard and page cache in
// front of them; the edge calls both in the same way.
package endpoint

import (
	"context"
	"net/http"
	"time"

	"slipway/internal/build/release"
	"slipway/internal/edge/upstream"
	"slipway/internal/platform/id"
)

// Endpoint answers one request. The caller must call Release when the request has ended.
type Endpoint struct {
	// Transport reaches the program, whatever the request's address.
	Transport http.RoundTripper
	// Upstream is a pool of connections to the program for ordinary requests. Optional: nil if the endpoint doesn't
	// speak HTTP or must see every request.
	Upstream *upstream.Pool
	// Serve answers requests that need no program, such as those for files, and reports whether it did. Optional.
	Serve func(w http.ResponseWriter, r *http.Request) bool
	// Tasks runs scripts that visitors can't request. Optional.
	Tasks http.RoundTripper

	Ended   <-chan struct{} // closed when the program has exited and gets no more requests. Optional.
	Release func()

	MaxBody   int64         // largest request body in bytes; 0: no limit
	FirstByte time.Duration // time until a response's first byte; 0: the edge's default

	// Answered is called before Release with a response's status, the bytes of its body and the time to its first byte.
	// Optional.
	Answered func(status int, bytes int64, took time.Duration)
	// Failed is called with the reason why a request got no response, for the site's log. Optional.
	Failed func(why string)
}

// endTime is how long a program that accepts no connections may take to exit.
const endTime = 5 * time.Second

// Ends reports whether a program that accepts no connections has exited or does so within 5 s.
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

// Source provides the endpoints of deployments of one kind.
type Source interface {
	// Acquire returns the endpoint of a deployment for one request. It may wait for a program to start, or fail with an
	// Unavailable fault.
	Acquire(ctx context.Context, deployment id.Deployment) (*Endpoint, error)
	// Awake returns the endpoint of a deployment if it can answer without waiting.
	Awake(deployment id.Deployment) (*Endpoint, bool)
}

// NotHTTP is a [Source] whose endpoints don't speak HTTP but, for example, FastCGI. None has an Upstream, so the edge
// needn't ask.
type NotHTTP struct{ Source }

// Rules implements [Ruler]: the rules of a release apply, and there are no others.
func (NotHTTP) Rules(context.Context, id.Deployment) (*release.Tree, error) { return nil, nil }

// Voucher is a [Source] that knows requests which a site makes to itself.
type Voucher interface {
	// Vouches reports whether a deployment's site makes a request itself.
	Vouches(ctx context.Context, deployment id.Deployment, r *http.Request) bool
}

// Ruler is a [Source] of programs to which the redirects and headers of their release apply, and to which a site may add its own.
type Ruler interface {
	// Rules returns a site's own rules; nil: none.
	Rules(ctx context.Context, deployment id.Deployment) (*release.Tree, error)
}

// Pages is a [Source] that answers some paths itself, for visitors without a session. Its methods never wait.
type Pages interface {
	Source
	// Page returns a page's identity, which changes with its content, and a function that returns its header and body
	// for an Accept-Encoding. answer is nil if there is no page.
	Page(deployment id.Deployment, host, path string) (of any, answer func(accept string) (http.Header, []byte))
	// File returns the endpoint of a running deployment if its Serve may answer path at host with a file.
	File(deployment id.Deployment, host, path string) (*Endpoint, bool)
	// SessionCookies returns texts in a visitor's Cookie header with which Page has no page for the visitor.
	SessionCookies(deployment id.Deployment) []string
}
