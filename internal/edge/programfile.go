package edge

import (
	"net/http"
	"strings"
)

// programFile lets a program's files answer a request where one does. Each write has its own
// deadline, like those of a program.
func (e *Edge) programFile(w *recorder, r *http.Request, p Program) bool {
	conn := http.NewResponseController(w)
	if !p.Serve(&flowing{w, conn}, r) {
		return false
	}
	w.page = w.status == http.StatusOK && r.Method == http.MethodGet && strings.HasPrefix(w.Header().Get("Content-Type"), "text/html")
	return true
}
