package edge

import (
	"net/http"
	"strconv"

	"slipway/internal/build/release"
	"slipway/internal/build/rules"
	"slipway/internal/edge/fileserver"
	"slipway/internal/edge/response"
)

// sitePage answers with the site's own error page, STATUS.html at its root, or with ours if it has none or the site is
// protected.
func (e *Edge) sitePage(w *recorder, r *http.Request, t *target, n *response.Notice) {
	if t.release == "" || t.protected() {
		response.Page(w, r, n)
		return
	}
	tree, err := e.tree(r.Context(), t.owner, t.release)
	if err != nil {
		response.Page(w, r, n)
		return
	}
	f, ok := tree.Lookup(strconv.Itoa(n.Status) + ".html")
	if !ok || f.Body.Size > fileserver.Largest {
		response.Page(w, r, n)
		return
	}
	h := w.Header()
	h.Set(response.RequestField, w.RequestID())
	if n.Retry > 0 {
		h.Set("Retry-After", strconv.Itoa(n.Retry))
	}
	h["X-Content-Type-Options"] = response.Nosniff
	h["X-Robots-Tag"] = response.Noindex
	if e.fileserver.Serve(&w.Recorder, r, &release.Answer{
		Kind:   release.Missing,
		Status: n.Status,
		File:   f,
		Head:   rules.Head{Auth: []string{}},
	}) != nil && w.Status == 0 {
		response.Page(w, r, n)
	}
}
