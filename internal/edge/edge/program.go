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

// program is the backend for programs. It holds the request while a sleeping program starts. Static files are served
// without the program.
func (e *Edge) program(w *recorder, r *http.Request, t *target) {
	if e.programRules(w, r, t) || e.programAsset(w, r, t) {
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

// mostTries caps the programs tried for one request when they exit one after another.
const mostTries = 3

// ask forwards a request to a program. It returns false if the program exited before it got the request, so that the
// caller can retry (except on the last try).
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
	case r.Context().Err() != nil: // the visitor is gone
		return true
	}
	failed(p, w.RequestID(), r.Method, r.URL.EscapedPath(), err)
	e.programFailed(w, r, t, err)
	return true
}

// failed writes to the site's log why its program didn't answer. Visitors see only the request's id.
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

// maxPath caps the bytes of a path in such a line.
const maxPath = 200

// asleep answers when a program couldn't be started.
func (e *Edge) asleep(w *recorder, r *http.Request, t *target, err error) {
	if r.Context().Err() != nil {
		return // the visitor is gone
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

// programFailed answers when a program exited or took too long.
func (e *Edge) programFailed(w *recorder, r *http.Request, t *target, err error) {
	e.Log.DebugContext(r.Context(), "application did not answer", "site", t.site, "err", err)
	if errors.Is(err, proxy.ErrTimeout) {
		e.sitePage(w, r, t, response.PageTimeout)
		return
	}
	e.sitePage(w, r, t, response.PageCrashed)
}
