package edge

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"time"

	"slipway/internal/edge/allowance"
	"slipway/internal/edge/endpoint"
	"slipway/internal/edge/fastpath"
	"slipway/internal/edge/response"
	"slipway/internal/edge/throttle"
	"slipway/internal/edge/visits"
)

// serve answers a request over TLS from one host, one target and one release.
func (e *Edge) serve(w http.ResponseWriter, r *http.Request) {
	e.closing(w, r)
	host, status := e.host(r)
	if status == 0 && e.isControl(host) && e.Control != nil {
		// An earlier response on this connection may have left its deadline.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Time{})
		e.Control.ServeHTTP(w, r)
		return
	}
	rec := record(w)
	rec.Held, rec.Remote = e.held, r.RemoteAddr
	defer rec.End()
	defer e.answered(rec, r)
	e.offer(w.Header(), r.ProtoMajor)
	if status != 0 {
		e.bound(rec, r)
		response.Fail(rec, r, status)
		return
	}
	e.tenant(rec, r, host)
}

// answered counts a finished response.
func (e *Edge) answered(rec *recorder, r *http.Request) {
	e.metrics.answered(rec.Status, rec.Bytes)
	if rec.visits != nil {
		shown := rec.Page && (rec.Status == http.StatusOK || rec.Status == http.StatusNotModified)
		if t := rec.target; !t.preview && rec.Status != 0 {
			e.visits.Request(rec.visits, t.accessLog(), r, rec.Status, rec.Bytes, shown, rec.Request)
		}
		bytes := rec.Bytes
		if rec.paused {
			bytes = 0 // our own pages don't count as the site's traffic
		}
		e.visits.Count(rec.visits, rec.Status, bytes, shown)
	}
	if rec.allowed != nil {
		rec.allowed.End()
	}
	if rec.slow != nil {
		rec.slow.End()
	}
}

// spends reports whether a target may answer: bandwidth is left, or it answers slowly. If not, it has written the
// response.
func (e *Edge) spends(w *recorder, r *http.Request, t *target) bool {
	if t.spent() {
		return e.slowed(w, r, t)
	}
	if t.lease == nil || t.visits == nil {
		return true
	}
	w.allowed = t.lease.Admit(r.Context())
	if w.allowed != nil {
		w.Spent = w.allowed
		return true
	}
	if t.slow != nil { // the database doesn't say yet that nothing is left
		return e.slowed(w, r, t)
	}
	e.bound(w, r)
	e.pausedPage(w, r)
	return false
}

func (e *Edge) pausedPage(w *recorder, r *http.Request) {
	w.paused = true
	response.Page(w, r, response.PagePaused)
}

// tenant answers a site's request: with its backend if the site is live, else with one of our pages.
func (e *Edge) tenant(rec *recorder, r *http.Request, host string) {
	t, to, err := e.find(r.Context(), host)
	if t != nil {
		rec.visits, rec.target, rec.Owner, rec.Site = t.visits, t, string(t.owner), string(t.site)
		if err == nil && to == "" && t.state == stateLive {
			rec.Private = t.protected()
			if answer := e.backendOf(t); answer != nil {
				if e.admitted(rec, r, t) && e.spends(rec, r, t) {
					answer(rec, r, t)
				}
				return
			}
		}
	}
	e.bound(rec, r)
	switch {
	case err != nil:
		if r.Context().Err() == nil && !errors.Is(err, errCrowded) {
			e.Log.ErrorContext(r.Context(), "host lookup failed", "host", host, "err", err)
		}
		response.Page(rec, r, response.PageBusy)
	case t == nil && !e.Ready():
		response.Page(rec, r, response.PageStarting)
	case t == nil:
		response.Page(rec, r, response.PageUnknown)
	case to != "" && t.state != stateStopped:
		redirect(rec, r, e.elsewhere(to, r))
	case t.state == stateStopped:
		e.sitePage(rec, r, t, response.PageStopped)
	case t.state == statePaused:
		e.pausedPage(rec, r)
	case t.state == stateError:
		response.Page(rec, r, response.PageError)
	case t.state == stateEmpty:
		response.Page(rec, r, response.PageEmpty)
	default:
		e.Log.ErrorContext(r.Context(), "no backend for this site", "site", t.site, "state", t.state, "backend", t.backend)
		response.Page(rec, r, response.PageBusy)
	}
}

// admitted reports whether the visitor may see the target. If not, it has written the response.
func (e *Edge) admitted(w *recorder, r *http.Request, t *target) bool {
	if !t.protected() {
		return true
	}
	if v, ok := t.programs.(endpoint.Voucher); ok && v.Vouches(r.Context(), t.deployment, r) {
		return true
	}
	a := t.serving.Of(t.owner, t.site, fastpath.Hostname(r.Host), t.preview)
	if e.guard.Passes(r, a) {
		return true
	}
	e.bound(w, r)
	return e.guard.Ask(w, r, a)
}

// host returns the host of a request, or the status that refuses it: 400 for a method that isn't a token (RFC 9110
// §9.1), a port that isn't a number, or a request target that isn't a path (absolute targets, RFC 9112 §3.2.2, are for
// proxies); 421 for a host other than that of the TLS handshake.
func (e *Edge) host(r *http.Request) (host string, status int) {
	if !fastpath.Token(r.Method) { // net/http accepts other methods on HTTP/2 and 3, which programs could take for a request line
		return "", http.StatusBadRequest
	}
	if r.URL.Host != "" || r.URL.Scheme != "" || r.URL.Opaque != "" || !strings.HasPrefix(r.URL.Path, "/") {
		if r.Method == http.MethodOptions && r.URL.Path == "*" {
			return "", http.StatusMethodNotAllowed
		}
		return "", http.StatusBadRequest
	}
	host = fastpath.Hostname(r.Host)
	if host == "" {
		return "", http.StatusBadRequest
	}
	if r.TLS != nil {
		sni := strings.ToLower(strings.TrimSuffix(r.TLS.ServerName, "."))
		if sni != host && !(sni == "" && net.ParseIP(host) != nil) {
			return "", http.StatusMisdirectedRequest
		}
	}
	return host, 0
}

// find returns the target of a host (a site, deployment or preview), or nil, and the host that the owner of a custom
// host redirects to, if any.
func (e *Edge) find(ctx context.Context, host string) (t *target, to string, err error) {
	hosts := e.table.hosts()
	label, ok := e.label(host)
	if !ok {
		if c := hosts.claim(host); c != nil {
			return hosts.of(c.site), c.redirectTo, nil
		}
		return nil, "", nil
	}
	if t := hosts.find(label); t != nil {
		return t, "", nil
	}
	t, err = e.preview(ctx, label)
	return t, "", err
}

// elsewhere returns the target URL of an owner's redirect: the same path and query at the other host, with our port if
// it is one of our hosts.
func (e *Edge) elsewhere(to string, r *http.Request) string {
	if name, _ := e.certificateName(to); name != "" {
		to += e.port
	}
	return "https://" + to + r.URL.RequestURI()
}

// redirect is [http.Redirect] without the rewriting of the URL.
func redirect(w http.ResponseWriter, r *http.Request, to string) {
	w.Header()["Location"] = []string{to}
	w.Header()["Content-Length"] = []string{"0"}
	w.WriteHeader(http.StatusPermanentRedirect)
}

// recorder records the response for metrics and the site's visits.
type recorder struct {
	response.Recorder
	visits *visits.Site // nil if the request has no site or visits aren't counted
	target *target      // nil if the request has no target

	paused  bool                // the response is our page, because no bandwidth is left
	allowed *allowance.Response // nil if nothing limits the response
	slow    *throttle.Response  // nil at full speed
}

func record(w http.ResponseWriter) *recorder {
	return &recorder{Recorder: response.Recorder{ResponseWriter: w}}
}

// bound sets the deadlines of our own responses.
func (e *Edge) bound(w http.ResponseWriter, r *http.Request) { response.Bound(w, r, e.bodyTime) }

// offer adds Alt-Svc, which announces HTTP/3 at the same host (RFC 7838 §3), to responses over other protocols.
func (e *Edge) offer(h http.Header, major int) {
	if e.altSvc != nil && major < 3 {
		h["Alt-Svc"] = e.altSvc
	}
}

// closing closes the connection after a request with Transfer-Encoding (RFC 9112 §6.1): net/http silently drops a
// Content-Length beside it, and bytes that a proxy before us took for the next request may belong to this one. It also
// closes connections while the process drains.
func (e *Edge) closing(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor == 3 {
		return // HTTP/2 has no Connection header; its server sends GOAWAY itself
	}
	if e.Draining != nil && e.Draining.Load() || r.ProtoMajor == 1 && len(r.TransferEncoding) > 0 {
		w.Header().Set("Connection", "close")
	}
}
