package edge

import (
	"context"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"

	"slipway/internal/build/release"
	"slipway/internal/build/rules"
	"slipway/internal/edge/endpoint"
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
// whether one of them answered. A program may have a page at any path, so redirects apply to all of them. They don't
// apply to requests that the site makes itself.
func (e *Edge) programRules(w *recorder, r *http.Request, t *target) bool {
	if t.ruler == nil {
		return false
	}
	if v, ok := t.programs.(endpoint.Voucher); ok && v.Vouches(r.Context(), t.deployment, r) {
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
		if tree == nil {
			continue
		}
		a, ok := e.programRule(tree, r)
		if !ok {
			e.bound(w, r)
			response.Page(w, r, response.PageMissing)
			return true
		}
		answers = append(answers, a)
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

// programRule returns what a tree's rules say of a request to a program. ok is false for a path that no rule can name, if a
// rule protects some of the site.
//
// A program may take a path for another one, and what protects that one must hold: PHP answers /./a and /x/../a as /a, runs
// /a.php for /a.php/b, and a front controller answers /index.php/b as /b.
func (e *Edge) programRule(tree *release.Tree, r *http.Request) (_ release.Answer, ok bool) {
	clean := path.Clean("/" + r.URL.Path)
	if strings.HasSuffix(r.URL.Path, "/") && clean != "/" {
		clean += "/"
	}
	of := func(p string) release.Answer {
		asked := *r
		asked.URL = &url.URL{Path: p, RawQuery: r.URL.RawQuery}
		a := e.resolve(tree, &asked)
		if unknown(tree, a) {
			a.Rule = ""
		}
		return a
	}
	a := of(clean)
	if !protects(tree) {
		return a, true
	}
	others := alternatives(clean)
	if !release.Addressable(clean) || len(others) > maxAlternatives {
		return a, false
	}
	for _, p := range others {
		b := of(p)
		if a.Auth == nil {
			a.Auth = b.Auth
		}
		if a.Rule == "" && b.Rule != "" && b.Status >= http.StatusBadRequest {
			b.Head, a = a.Head, b
		}
	}
	return a, true
}

const maxAlternatives = 8

// alternatives returns the scripts that a path may begin with, and what follows each of them.
func alternatives(p string) (list []string) {
	begin := 1
	for i := 1; i < len(p); i++ {
		if p[i] != '/' {
			continue
		}
		if strings.Contains(strings.ToLower(p[begin:i]), ".ph") {
			list = append(list, p[:i], p[i:])
		}
		begin = i + 1
	}
	return list
}

// protects reports whether a rule keeps visitors from paths.
func protects(tree *release.Tree) bool {
	all := tree.Rules()
	return slices.ContainsFunc(all.Headers, func(h rules.HeaderRule) bool { return h.Auth != nil }) ||
		slices.ContainsFunc(all.Redirects, func(r rules.Redirect) bool { return r.Status >= http.StatusBadRequest })
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
