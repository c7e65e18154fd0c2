package edge

import (
	"errors"
	"net/http"
	"strings"

	"slipway/internal/build/release"
	"slipway/internal/build/rules"
	"slipway/internal/edge/fastpath"
	"slipway/internal/edge/fileserver"
	"slipway/internal/edge/proxy"
	"slipway/internal/edge/response"
	"slipway/internal/platform/blob"
)

// files is the backend for releases: files for GET and HEAD, headers for OPTIONS, and redirects for every method,
// within a deadline that depends on the length.
func (e *Edge) files(w *recorder, r *http.Request, t *target) {
	e.bound(w, r)
	switch {
	case t.release == "" && r.Method != http.MethodGet && r.Method != http.MethodHead:
		response.Fail(w, r, http.StatusMethodNotAllowed)
	case t.release == "":
		response.Page(w, r, response.PageEmpty)
	default:
		e.answer(w, r, t)
	}
}

func (e *Edge) answer(w *recorder, r *http.Request, t *target) {
	tree, err := e.tree(r.Context(), t.owner, t.release)
	if err != nil {
		e.broken(w, r, t, err)
		return
	}
	h := w.Header()
	if t.preview {
		h["X-Robots-Tag"] = response.Noindex
	}
	h["X-Content-Type-Options"] = response.Nosniff
	if t.serving != nil {
		tree = tree.Served(t.serving.SinglePage, t.serving.TrailingSlash)
	}
	a := e.resolve(tree, r)
	if t.preview { // overrides the site's own rules
		a.Set = append(a.Set, rules.Field{Name: "X-Robots-Tag", Value: "noindex"})
	}
	w.Plain = a.Kind == release.Found && len(a.Vary) == 0 && !a.ByCountry && a.Auth == nil && !t.preview && !t.protected()
	if w.Trial && !w.Plain {
		return // not a plain file, or depends on more than the path; never forward here
	}
	if a.Auth != nil && !e.guard.User(w, r, t.site, a.Auth) {
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead && a.Kind != release.Proxied && a.Kind != release.Redirected {
		if r.Method == http.MethodOptions && a.Kind == release.Found {
			fileserver.Options(h, &a)
			w.WriteHeader(http.StatusNoContent)
			return
		}
		response.Fail(w, r, http.StatusMethodNotAllowed)
		return
	}
	w.Private = w.Private || a.Auth != nil
	e.answerWith(w, r, t, a)
}

// answerWith writes what a release's files and rules answer.
func (e *Edge) answerWith(w *recorder, r *http.Request, t *target, a release.Answer) {
	h := w.Header()
	var err error
	switch a.Kind {
	case release.Found:
		w.Page = r.Method == http.MethodGet && isPage(a.File)
		err = e.fileserver.Serve(&w.Recorder, r, &a)
	case release.Missing:
		err = e.fileserver.Serve(&w.Recorder, r, &a)
	case release.Redirected:
		h["Cache-Control"] = response.Revalidate
		if a.ByCountry {
			h["Cache-Control"] = response.Private
		}
		if len(a.Vary) > 0 {
			fileserver.Vary(h, a.Vary...)
		}
		h["Location"] = []string{a.Location}
		h["Content-Length"] = []string{"0"}
		w.WriteHeader(a.Status)
	case release.Proxied:
		rule := proxy.Rule{To: a.Location, Preview: t.preview, Protected: w.Private}
		if t.serving != nil {
			rule.Hosts = t.serving.ProxyHosts
		}
		e.proxy.Forward(&w.Recorder, r, rule)
	default:
		response.Page(w, r, response.PageMissing.As(a.Status))
	}
	if err != nil {
		e.broken(w, r, t, err)
	}
}

// broken logs and answers for a live release that can't be read.
func (e *Edge) broken(w *recorder, r *http.Request, t *target, err error) {
	if r.Context().Err() != nil {
		return // the visitor is gone
	}
	e.Log.ErrorContext(r.Context(), "release not readable", "site", t.site, "release", t.release, "path", r.URL.Path,
		"request", w.RequestID(), "err", err)
	if w.Status != 0 {
		panic(http.ErrAbortHandler) // the visitor must see that the response is incomplete
	}
	if errors.Is(err, blob.ErrUnavailable) {
		response.Page(w, r, response.PageAway)
		return
	}
	response.Page(w, r, response.PageBroken)
}

// resolve finds what a release's files and rules answer for a request.
func (e *Edge) resolve(tree *release.Tree, r *http.Request) release.Answer {
	q := rules.Request{
		Path: r.URL.EscapedPath(), Query: r.URL.RawQuery, Host: fastpath.Hostname(r.Host),
		Language: strings.Join(r.Header["Accept-Language"], ","), Cookie: strings.Join(r.Header["Cookie"], "; "),
	}
	if tree.ByCountry() {
		q.Country = e.visits.CountryOf(r.RemoteAddr)
	}
	return tree.Resolve(q)
}

func isPage(f release.File) bool { return strings.HasPrefix(f.Type, "text/html") }
