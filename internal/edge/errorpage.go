package edge

import (
	"net/http"
	"strconv"

	"slipway/internal/release"
)

// sitePage answers with the site's own page for a failure, STATUS.html at the top of what it
// serves, or with ours where it has none. A protected site's files are not for everybody.
func (e *Edge) sitePage(w *recorder, r *http.Request, t *target, n *notice) {
	if t.release == "" || t.protected() {
		page(w, r, n)
		return
	}
	tree, err := e.tree(r.Context(), t.release)
	if err != nil {
		page(w, r, n)
		return
	}
	f, ok := tree.Lookup(strconv.Itoa(n.status) + ".html")
	if !ok || f.Body.Size > largest {
		page(w, r, n)
		return
	}
	h := w.Header()
	if n.retry > 0 {
		h.Set("Retry-After", strconv.Itoa(n.retry))
	}
	h["X-Content-Type-Options"] = nosniff
	h["X-Robots-Tag"] = noindex
	if e.file(w, r, &release.Answer{Kind: release.Missing, Status: n.status, File: f, Auth: []string{}}) != nil && w.status == 0 {
		page(w, r, n)
	}
}
