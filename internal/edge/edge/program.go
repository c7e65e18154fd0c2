package edge

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"slipway/internal/edge/endpoint"
	"slipway/internal/edge/fastpath"
	"slipway/internal/edge/proxy"
	"slipway/internal/edge/response"
	"slipway/internal/platform/fault"
)

// program is the backend of sites that are programs. A sleeping one is woken while the
// request is held. Static files are answered without it.
func (e *Edge) program(w *recorder, r *http.Request, t *target) {
	if e.programAsset(w, r, t) {
		return
	}
	begun := time.Now()
	for tries := 1; ; tries++ {
		p, err := t.programs.Acquire(r.Context(), t.deployment)
		if err != nil {
			e.asleep(w, r, t, err)
			return
		}
		if e.ask(w, r, t, p, begun, tries == mostTries) {
			return
		}
	}
}

// mostTries is how many times a request looks for a program that takes it, where one after
// the other ends in that moment.
const mostTries = 3

// ask lets a program answer a request. It returns false where the program has ended without
// having got it, unless it is the last try.
func (e *Edge) ask(w *recorder, r *http.Request, t *target, p *endpoint.Endpoint, begun time.Time, last bool) (done bool) {
	defer p.Release()
	defer func() {
		if p.Answered != nil && w.Status != 0 {
			p.Answered(w.Status, w.Bytes, cmp.Or(w.First, time.Since(begun)))
		}
	}()
	err := e.proxy.Serve(&w.Recorder, r, p, proxy.Site{
		Host:      fastpath.Hostname(r.Host),
		Preview:   t.preview,
		Protected: t.protected(),
	}, begun)
	switch {
	case err == nil:
		return true
	case !errors.Is(err, proxy.ErrUnreached):
	case !last && p.Ends(r.Context()):
		return false
	case r.Context().Err() != nil: // nobody is there any more
		return true
	}
	failed(p, w.RequestID(), r.Method, r.URL.EscapedPath(), err)
	e.programFailed(w, r, t, err)
	return true
}

// failed writes to a site's log why its program did not answer: visitors see the request's id alone.
func failed(p *endpoint.Endpoint, request, method, path string, err error) {
	if p.Failed == nil {
		return
	}
	status := http.StatusBadGateway
	if errors.Is(err, proxy.ErrTimeout) {
		status = http.StatusGatewayTimeout
	}
	p.Failed(fmt.Sprintf("%s %s was answered with %d: %s (request %s)",
		method, path[:min(len(path), maxPath)], status, proxy.Reason(err), request))
}

// maxPath is how many bytes of a request's path such a line has.
const maxPath = 200

// asleep answers for a program that could not be woken.
func (e *Edge) asleep(w *recorder, r *http.Request, t *target, err error) {
	if r.Context().Err() != nil {
		return // nobody is there any more
	}
	after := 5 * time.Second
	if f := fault.As(err); f != nil {
		if f.RetryAfter > 0 {
			after = f.RetryAfter
		}
	} else {
		e.Log.ErrorContext(r.Context(), "application not woken", "site", t.site, "deployment", t.deployment, "err", err)
	}
	w.Header().Set("Retry-After", strconv.Itoa(int((after+time.Second-1)/time.Second)))
	e.bound(w, r)
	e.sitePage(w, r, t, response.PageWaking)
}

// programFailed answers for a program that did not: it ended, or took too long.
func (e *Edge) programFailed(w *recorder, r *http.Request, t *target, err error) {
	e.Log.DebugContext(r.Context(), "application did not answer", "site", t.site, "err", err)
	if errors.Is(err, proxy.ErrTimeout) {
		e.sitePage(w, r, t, response.PageTimeout)
		return
	}
	e.sitePage(w, r, t, response.PageCrashed)
}
