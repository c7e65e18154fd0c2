package edge

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"time"

	"slipway/internal/edge/allowance"
	"slipway/internal/edge/fastpath"
	"slipway/internal/edge/response"
	"slipway/internal/edge/throttle"
	"slipway/internal/edge/visits"
)

// serve answers a request that came over TLS: one host, one target, one release.
func (e *Edge) serve(w http.ResponseWriter, r *http.Request) {
	e.closing(w, r)
	host, status := e.host(r)
	if status == 0 && e.isControl(host) && e.Control != nil {
		// An answer of ours on this connection may have left its deadline.
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

// answered counts an answer that has been given.
func (e *Edge) answered(rec *recorder, r *http.Request) {
	e.metrics.answered(rec.Status, rec.Bytes)
	if rec.visits != nil {
		shown := rec.Page && (rec.Status == http.StatusOK || rec.Status == http.StatusNotModified)
		if t := rec.target; !t.preview && rec.Status != 0 {
			e.visits.Request(rec.visits, t.accessLog(), r, rec.Status, rec.Bytes, shown, rec.Request)
		}
		bytes := rec.Bytes
		if rec.paused {
			bytes = 0 // what we say instead is not the site's
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

// spends reports whether a target may answer: there is bandwidth left, or it answers slowly. Where it may not, that has been said.
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
	if t.slow != nil { // it isn't written yet that nothing is left
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

// tenant answers what concerns a site: its backend if it is live, a page of ours if not.
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

// admitted reports whether a visitor may see what a target answers with. Who may not has been
// answered.
func (e *Edge) admitted(w *recorder, r *http.Request, t *target) bool {
	if !t.protected() {
		return true
	}
	a := t.serving.Of(t.owner, t.site, fastpath.Hostname(r.Host), t.preview)
	if e.guard.Passes(r, a) {
		return true
	}
	e.bound(w, r)
	return e.guard.Ask(w, r, a)
}

// host returns the host of a request, or the status with which it is refused: 400 for a
// method that is not a token (RFC 9110 §9.1), a port that is not a number, and a request
// target that is not a path (RFC 9112, section 3.2.2 is for proxies, which we
// are not), 421 for a host that is not the one the TLS connection was made for.
func (e *Edge) host(r *http.Request) (host string, status int) {
	if !fastpath.Token(r.Method) { // net/http lets those of HTTP/2 and 3 pass, and programs would take it for a request line
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

// find returns what a host answers with: a site, the address of a deployment or a preview,
// or nil; and the host that the owner of a custom host sends its visitors to, if any.
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

// elsewhere is where an owner's redirect leads: the same path and query at the other
// host, at our port if that host is one of ours.
func (e *Edge) elsewhere(to string, r *http.Request) string {
	if name, _ := e.certificateName(to); name != "" {
		to += e.port
	}
	return "https://" + to + r.URL.RequestURI()
}

// redirect is http.Redirect without its rewriting of what is already safe.
func redirect(w http.ResponseWriter, r *http.Request, to string) {
	w.Header()["Location"] = []string{to}
	w.Header()["Content-Length"] = []string{"0"}
	w.WriteHeader(http.StatusPermanentRedirect)
}

// recorder remembers what an answer was, for the metrics and the site's visits.
type recorder struct {
	response.Recorder
	visits *visits.Site // of the site; nil when it is none's, or nobody counts
	target *target      // likewise

	paused  bool                // it has no bandwidth left, and the answer is ours
	allowed *allowance.Response // nil where nothing limits it
	slow    *throttle.Response  // nil where it is as fast as can be
}

// record returns a recorder of what is answered through w.
func record(w http.ResponseWriter) *recorder {
	return &recorder{Recorder: response.Recorder{ResponseWriter: w}}
}

// bound sets the deadlines of an answer of ours.
func (e *Edge) bound(w http.ResponseWriter, r *http.Request) { response.Bound(w, r, e.bodyTime) }

// offer tells a client that came another way that the same host answers over HTTP/3 (RFC
// 7838, section 3).
func (e *Edge) offer(h http.Header, major int) {
	if e.altSvc != nil && major < 3 {
		h["Alt-Svc"] = e.altSvc
	}
}

// closing makes a request whose length was given by Transfer-Encoding the last one of its
// connection (RFC 9112, section 6.1): net/http drops a Content-Length beside it without a
// word, and what a proxy before us took for the next request may be a part of this one.
// So is every request while the process drains.
func (e *Edge) closing(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor == 3 {
		return // it has no such field; its server tells clients of the end itself
	}
	if e.Draining != nil && e.Draining.Load() || r.ProtoMajor == 1 && len(r.TransferEncoding) > 0 {
		w.Header().Set("Connection", "close")
	}
}
