package edge

import (
	"net/http"
	"strings"
)

// programFile lets a program's files answer a request where one does. Each write has its own
// deadline, like those of a program.
func (e *Edge) programFile(w *recorder, r *http.Request, t *target, p Program) bool {
	conn := http.NewResponseController(w)
	if t.protected() {
		w.Header()["Cache-Control"] = private // only the visitor's own browser may keep it
	}
	if !p.Serve(&flowing{w, conn}, r) {
		delete(w.Header(), "Cache-Control")
		return false
	}
	w.page = w.status == http.StatusOK && r.Method == http.MethodGet && strings.HasPrefix(w.Header().Get("Content-Type"), "text/html")
	return true
}

// dropServerHeaders drops what programs say to a server in front of them: we do as little
// of it as a visitor should read of it.
func dropServerHeaders(h http.Header) {
	for name := range h {
		if strings.HasPrefix(name, "X-Accel-") || name == "X-Sendfile" || name == "X-Lighttpd-Send-File" {
			delete(h, name)
		}
	}
}
