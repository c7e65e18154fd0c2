package proxy

import (
	"net/http"
	"strings"

	"slipway/internal/edge/endpoint"
	"slipway/internal/edge/response"
)

// serveFile lets a program's files answer a request where one does. Each write has its own
// deadline, like those of a program.
func serveFile(w *response.Recorder, r *http.Request, to *endpoint.Endpoint, s Site) bool {
	conn := http.NewResponseController(w)
	if s.Protected {
		w.Header()["Cache-Control"] = response.Private // only the visitor's own browser may keep it
	}
	if !to.Serve(&flowing{Recorder: w, conn: conn}, r) {
		delete(w.Header(), "Cache-Control")
		return false
	}
	w.Page = w.Status == http.StatusOK && r.Method == http.MethodGet && strings.HasPrefix(w.Header().Get("Content-Type"), "text/html")
	return true
}

// dropServerHeaders drops what programs say to a server in front of them: we do as little
// of it as a visitor should read of it.
func dropServerHeaders(h http.Header) {
	for name := range h {
		if serverField(name) {
			delete(h, name)
		}
	}
}
