package edge

import (
	"net/http"

	"slipway/internal/edge/endpoint"
)

// Kinds of backend in the views live and previews.
const (
	backendFiles   = "files"   // serves the files of the release
	backendProgram = "program" // forwards to a running program
)

// backend answers requests for sites of one kind. Only the host was checked before: the backend decides about methods,
// deadlines and whether to take over the connection. Its writer supports flushing, deadlines and hijacking through
// [http.ResponseController].
type backend func(w *recorder, r *http.Request, t *target)

// backendOf returns the backend of a live site, or nil if this version doesn't know its kind: during an upgrade an
// older version may run beside a newer one.
func (e *Edge) backendOf(t *target) backend {
	if t.backend == backendProgram && t.programs == nil {
		return nil
	}
	return e.backends[t.backend]
}

// source sets the target's source of programs.
func (e *Edge) source(t *target) {
	if t.backend == backendProgram {
		t.programs = e.Programs[t.runtime]
		t.pages, _ = t.programs.(endpoint.Pages)
		t.ruler, _ = t.programs.(endpoint.Ruler)
		t.passes = t.pages == nil && t.ruler == nil
	}
}
