package edge

import (
	"net/http"

	"slipway/internal/edge/endpoint"
)

// The kinds of backend that the views live and previews name.
const (
	backendFiles   = "files"   // the release is answered from
	backendProgram = "program" // a program that runs answers
)

// backend answers the requests of sites of one kind. It is chosen before anything of a
// request but its host has been checked: which methods there are, how long an answer may
// take, and whether a connection is taken over is its own business. What it is given can
// flush, set deadlines and hijack through http.ResponseController.
type backend func(w *recorder, r *http.Request, t *target)

// backendOf returns what answers for a site that is live, or nil where this version knows
// no backend or program of that kind: an older one may run beside a newer one during an upgrade.
func (e *Edge) backendOf(t *target) backend {
	if t.backend == backendProgram && t.programs == nil {
		return nil
	}
	return e.backends[t.backend]
}

// source notes where a target's program is had from.
func (e *Edge) source(t *target) {
	if t.backend == backendProgram {
		t.programs = e.Programs[t.runtime]
		t.pages, _ = t.programs.(endpoint.Pages)
		_, other := t.programs.(endpoint.NotHTTP)
		t.passes = t.pages == nil && !other
	}
}
