package edge

import (
	"net/http"
	"strings"

	"slipway/internal/edge/response"
)

func (e *Edge) redirect(w http.ResponseWriter, r *http.Request) {
	rec := record(w)
	defer e.answered(rec, r)
	e.closing(rec, r)
	e.bound(rec, r)
	host, status := e.host(r)
	if status != 0 {
		response.Fail(rec, r, status)
		return
	}
	if strings.HasPrefix(r.URL.Path, challengePath) {
		e.challenge(rec, r, host)
		return
	}
	if !e.isControl(host) {
		t, to, err := e.find(r.Context(), host)
		switch {
		case err != nil:
			response.Page(rec, r, response.PageBusy)
			return
		case t == nil && !e.Ready():
			response.Page(rec, r, response.PageStarting)
			return
		case t == nil:
			response.Page(rec, r, response.PageUnknown)
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

// challengePath is the path of HTTP challenges (RFC 8555 §8.3).
const challengePath = "/.well-known/acme-challenge/"

// challenge answers an authority's HTTP challenge. Other paths below challengePath belong to the site, which answers as
// over TLS.
func (e *Edge) challenge(w *recorder, r *http.Request, host string) {
	switch {
	case e.Certificates != nil && e.Certificates.Challenge(w, r):
	case e.isControl(host):
		response.Page(w, r, response.PageMissing)
	default:
		e.tenant(w, r, host)
	}
}
