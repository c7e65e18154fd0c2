package edge

import (
	"context"
	"net/http"
	"slices"

	"slipway/internal/build/release"
	"slipway/internal/build/rules"
	"slipway/internal/edge/fileserver"
	"slipway/internal/edge/response"
)

// ruled returns the release of a program if it has rules that apply, nil otherwise.
func (e *Edge) ruled(ctx context.Context, t *target) (*release.Tree, error) {
	if t.ruler == nil || t.release == "" || t.release == release.Empty {
		return nil, nil // without a look: it must not fail with the store of releases
	}
	tree, err := e.tree(ctx, t.owner, t.release)
	if err != nil || !tree.Ruled() {
		return nil, err
	}
	return tree, nil
}

// programRules applies redirects and headers to a program: the site's own before those of its release. It reports
// whether one of them answered. A program may have a page at any path, so redirects apply to all of them.
func (e *Edge) programRules(w *recorder, r *http.Request, t *target) bool {
	if t.ruler == nil {
		return false
	}
	own, err := t.ruler.Rules(r.Context(), t.deployment)
	if err != nil {
		e.broken(w, r, t, err)
		return true
	}
	tree, err := e.ruled(r.Context(), t)
	if err != nil { // its rules may close paths
		e.broken(w, r, t, err)
		return true
	}
	var answers []release.Answer
	for _, tree := range []*release.Tree{own, tree} {
		if tree != nil {
			a := e.resolve(tree, r)
			if unknown(tree, a) {
				a.Rule = ""
			}
			answers = append(answers, a)
		}
	}
	if len(answers) == 0 {
		return false
	}
	w.Rules = programHeads(answers)
	for _, a := range answers {
		if a.Auth == nil {
			continue
		}
		w.Private = true
		if !e.guard.User(w, r, t.site, a.Auth) {
			return true
		}
		r.Header.Del("Authorization") // is for us
	}
	for _, a := range answers {
		if a.Rule != "" && (a.Kind != release.Found || r.Method == http.MethodGet || r.Method == http.MethodHead) {
			e.bound(w, r)
			w.Header()["X-Content-Type-Options"] = response.Nosniff
			e.answerWith(w, r, t, a)
			return true
		}
	}
	return false
}

// programHeads are the header rules for a program's response, the first ones before the others.
type programHeads []release.Answer

// Apply implements [response.Rules].
func (heads programHeads) Apply(status int, h http.Header) {
	said := h["Cache-Control"]
	for _, a := range slices.Backward(heads) {
		fileserver.Fields(h, &a)
	}
	if status >= http.StatusBadRequest || response.Forbids(said) { // a failure, or somebody's own page
		response.Keep(h, said)
	}
}

// unknown reports whether a rule shows another path of the site that is no file of its release. Only the program could
// answer for it, under the path that was asked for.
func unknown(tree *release.Tree, a release.Answer) bool {
	return a.Kind != release.Found && a.Kind != release.Proxied && slices.ContainsFunc(tree.Rules().Redirects, func(r rules.Redirect) bool {
		return r.Source == a.Rule && r.Status == http.StatusOK
	})
}
