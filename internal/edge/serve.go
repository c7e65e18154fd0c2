package edge

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"time"

	"slipway/internal/blob"
	"slipway/internal/release"
)

// serve answers a request that came over TLS: one host, one target, one release.
func (e *Edge) serve(w http.ResponseWriter, r *http.Request) {
	e.closing(w, r)
	host, status := e.host(r)
	if status == 0 && e.control[host] && e.Control != nil {
		// An answer of ours on this connection may have left its deadline.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Time{})
		e.Control.ServeHTTP(w, r)
		return
	}
	rec := &recorder{ResponseWriter: w}
	defer e.answered(rec, r)
	e.offer(w.Header(), r.ProtoMajor)
	if status != 0 {
		e.bound(rec, r)
		fail(rec, r, status)
		return
	}
	e.tenant(rec, r, host)
}

// answered counts an answer that has been given.
func (e *Edge) answered(rec *recorder, r *http.Request) {
	e.metrics.answered(rec.status, rec.bytes)
	if rec.visits != nil {
		e.visit(rec, r)
		shown := rec.status == http.StatusOK || rec.status == http.StatusNotModified
		e.visited.count(rec.visits, rec.status, rec.bytes, rec.page && shown)
	}
}

// tenant answers what concerns a site: its backend if it is live, a page of ours if not.
func (e *Edge) tenant(rec *recorder, r *http.Request, host string) {
	t, to, err := e.find(r.Context(), host)
	if t != nil {
		rec.visits, rec.target = t.visits, t
		if err == nil && to == "" && t.state == stateLive {
			if answer := e.backendOf(t); answer != nil {
				if e.access(rec, r, t) {
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
		page(rec, r, pageBusy)
	case t == nil && !e.Ready():
		page(rec, r, pageStarting)
	case t == nil:
		page(rec, r, pageUnknown)
	case to != "" && t.state != stateStopped:
		redirect(rec, r, e.elsewhere(to, r))
	case t.state == stateStopped:
		e.sitePage(rec, r, t, pageStopped)
	case t.state == statePaused:
		page(rec, r, pagePaused)
	case t.state == stateError:
		page(rec, r, pageError)
	case t.state == stateEmpty:
		page(rec, r, pageEmpty)
	default:
		e.Log.ErrorContext(r.Context(), "no backend for this site", "site", t.site, "state", t.state, "backend", t.backend)
		page(rec, r, pageBusy)
	}
}

// host returns the host of a request, or the status with which it is refused: 400 for a
// request target that is not a path (RFC 9112, section 3.2.2 is for proxies, which we
// are not), 421 for a host that is not the one the TLS connection was made for.
func (e *Edge) host(r *http.Request) (host string, status int) {
	if r.URL.Host != "" || r.URL.Scheme != "" || r.URL.Opaque != "" || !strings.HasPrefix(r.URL.Path, "/") {
		if r.Method == http.MethodOptions && r.URL.Path == "*" {
			return "", http.StatusMethodNotAllowed
		}
		return "", http.StatusBadRequest
	}
	host = hostname(r.Host)
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

// hostname takes the port and the last dot off a Host header.
func hostname(host string) string {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	return strings.ToLower(strings.TrimSuffix(host, "."))
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

// answer serves a path of a release.
func (e *Edge) answer(w *recorder, r *http.Request, t *target) {
	tree, err := e.tree(r.Context(), t.release)
	if err != nil {
		e.broken(w, r, t, err)
		return
	}
	h := w.Header()
	if t.preview {
		h["X-Robots-Tag"] = noindex
	}
	h["X-Content-Type-Options"] = nosniff
	if t.serving != nil {
		tree = tree.Served(t.serving.SinglePage, t.serving.TrailingSlash)
	}
	a := e.resolve(tree, r)
	if t.preview { // whatever the site's own rules say
		a.Set = append(a.Set, release.Field{Name: "X-Robots-Tag", Value: "noindex"})
	}
	w.plain = a.Kind == release.Found && len(a.Vary) == 0 && !a.ByCountry && a.Auth == nil && !t.preview && !t.protected()
	if w.trial && !w.plain {
		return // the answer is no file's or depends on more than the path; above all nothing is forwarded
	}
	if !e.admitted(w, r, t, &a) {
		return
	}
	if a.Kind != release.Proxied && r.Method != http.MethodGet && r.Method != http.MethodHead {
		fail(w, r, http.StatusMethodNotAllowed)
		return
	}
	if t.protected() && a.Auth == nil {
		a.Auth = []string{} // only the visitor's own browser may keep it
	}
	switch a.Kind {
	case release.Found:
		w.page = r.Method == http.MethodGet && isPage(a.File)
		err = e.file(w, r, &a)
	case release.Missing:
		err = e.file(w, r, &a)
	case release.Redirected:
		h["Cache-Control"] = revalidate
		if a.ByCountry {
			h["Cache-Control"] = private
		}
		if len(a.Vary) > 0 {
			vary(h, a.Vary...)
		}
		h["Location"] = []string{a.Location}
		h["Content-Length"] = []string{"0"}
		w.WriteHeader(a.Status)
	case release.Proxied:
		e.proxied(w, r, t, &a)
	default:
		missing := *pageMissing
		missing.status = a.Status
		page(w, r, &missing)
	}
	if err != nil {
		e.broken(w, r, t, err)
	}
}

// broken reports what should not happen: a release that is live and cannot be read.
func (e *Edge) broken(w *recorder, r *http.Request, t *target, err error) {
	if r.Context().Err() != nil {
		return // nobody is waiting
	}
	e.Log.ErrorContext(r.Context(), "release not readable", "site", t.site, "release", t.release, "path", r.URL.Path, "err", err)
	if w.status != 0 {
		panic(http.ErrAbortHandler) // the visitor must notice that this is not all
	}
	if errors.Is(err, blob.ErrUnavailable) {
		page(w, r, pageAway)
		return
	}
	page(w, r, pageBroken)
}

// redirect is http.Redirect without its rewriting of what is already safe.
func redirect(w http.ResponseWriter, r *http.Request, to string) {
	w.Header()["Location"] = []string{to}
	w.Header()["Content-Length"] = []string{"0"}
	w.WriteHeader(http.StatusPermanentRedirect)
}

// redirect answers a request that came without TLS.
func (e *Edge) redirect(w http.ResponseWriter, r *http.Request) {
	rec := &recorder{ResponseWriter: w}
	defer e.answered(rec, r)
	e.closing(rec, r)
	e.bound(rec, r)
	host, status := e.host(r)
	if status != 0 {
		fail(rec, r, status)
		return
	}
	if strings.HasPrefix(r.URL.Path, challengePath) {
		e.challenge(rec, r, host)
		return
	}
	if !e.control[host] {
		t, to, err := e.find(r.Context(), host)
		switch {
		case err != nil:
			page(rec, r, pageBusy)
			return
		case t == nil && !e.Ready():
			page(rec, r, pageStarting)
			return
		case t == nil:
			page(rec, r, pageUnknown)
			return
		case to != "" && t.state != stateStopped:
			redirect(rec, r, e.elsewhere(to, r))
			return
		}
	}
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	redirect(rec, r, "https://"+host+e.port+r.URL.RequestURI())
}

// challengePath is where authorities look for the proof that a host is ours (RFC 8555,
// section 8.3).
const challengePath = "/.well-known/acme-challenge/"

// challenge answers on a plain listener what an authority asks. What is not one of our
// own orders is the tenant's business, whose files answer as they would over TLS.
func (e *Edge) challenge(w *recorder, r *http.Request, host string) {
	switch {
	case e.Challenge != nil && e.Challenge(w, r):
	case e.control[host]:
		page(w, r, pageMissing)
	default:
		e.tenant(w, r, host)
	}
}

// recorder remembers what an answer was, for the metrics and the site's visits.
type recorder struct {
	http.ResponseWriter
	status int
	bytes  int64
	page   bool    // what was asked for with GET is a page of the site
	trial  bool    // only the header is wanted, of what is small enough for memory
	plain  bool    // the answer depends on nothing but host, path and accepted encodings
	ready  *asset  // what a plain answer with status 200 was: all of it
	visits *visits // of the site; nil when it is none's, or nobody counts
	target *target // likewise
}

func (r *recorder) WriteHeader(status int) {
	if r.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) { // 103 and the like come before the answer
		r.status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

func (r *recorder) Write(b []byte) (int, error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	n, err := r.ResponseWriter.Write(b)
	r.bytes += int64(n)
	return n, err
}

// Unwrap is for http.ResponseController.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }
