package proxy

import (
	"net/http"
	"strings"

	"slipway/internal/edge/endpoint"
	"slipway/internal/edge/response"
)

// serveFile answers with one of the program's files, if it has one for the request. Each write has its own deadline, as
// in responses of programs.
func serveFile(w *response.Recorder, r *http.Request, to *endpoint.Endpoint, s Site) bool {
	conn := http.NewResponseController(w)
	if s.Protected {
		w.Header()["Cache-Control"] = response.Private // cacheable by the visitor's own browser only
	}
	if !to.Serve(&flowing{Recorder: w, conn: conn}, r) {
		delete(w.Header(), "Cache-Control")
		return false
	}
	w.Page = w.Status == http.StatusOK && r.Method == http.MethodGet && strings.HasPrefix(w.Header().Get("Content-Type"), "text/html")
	return true
}

// dropServerHeaders drops headers by which programs control a server in front of them. We implement none of them, and
// visitors shouldn't see them.
func dropServerHeaders(h http.Header) {
	for name := range h {
		if serverField(name) {
			delete(h, name)
		}
	}
}
