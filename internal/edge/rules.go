package edge

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"net/http"
	"slices"
	"strings"
	"time"

	"slipway/internal/release"
)

var private = []string{"private, max-age=0, must-revalidate"}

// resolve asks a release's files and rules what a request is answered with.
func (e *Edge) resolve(tree *release.Tree, r *http.Request) release.Answer {
	q := release.Request{
		Path: r.URL.EscapedPath(), Query: r.URL.RawQuery, Host: hostname(r.Host),
		Language: strings.Join(r.Header["Accept-Language"], ","), Cookie: strings.Join(r.Header["Cookie"], "; "),
	}
	if tree.ByCountry() {
		q.Country = e.clientOf(r.RemoteAddr).country
	}
	return tree.Resolve(q)
}

// ruleHeaders sets what the release's header rules say, over what is set by default.
func ruleHeaders(h http.Header, a *release.Answer) {
	if a.ByCountry {
		h["Cache-Control"] = private
	}
	for _, name := range a.Unset {
		delete(h, name)
	}
	for _, f := range a.Set {
		h[f.Name] = []string{f.Value}
	}
	if len(a.Vary) > 0 {
		vary(h, a.Vary...)
	}
}

// vary adds names to Vary, whose value may be shared and is not written to.
func vary(h http.Header, names ...string) {
	all := strings.Join(h["Vary"], ", ")
	for _, n := range names {
		if !strings.Contains(all, n) {
			if all != "" {
				all += ", "
			}
			all += n
		}
	}
	h["Vary"] = []string{all}
}

// admitted reports whether a request carries a user and password (RFC 7617) that the
// release's rules let in. It asks for one otherwise. Who gives wrong ones must wait.
func (e *Edge) admitted(w http.ResponseWriter, r *http.Request, t *target, a *release.Answer) bool {
	if a.Auth == nil {
		return true
	}
	if user, password, ok := r.BasicAuth(); ok {
		now := time.Now()
		if e.guesses.tired(t.site, visitor(r), now) {
			w.Header().Set("Retry-After", "60")
			fail(w, r, http.StatusTooManyRequests)
			return false
		}
		sum := sha256.Sum256([]byte(user + ":" + password))
		got := hex.EncodeToString(sum[:])
		if slices.ContainsFunc(a.Auth, func(want string) bool { return subtle.ConstantTimeCompare([]byte(got), []byte(want)) == 1 }) {
			return true
		}
		e.guesses.wrong(t.site, visitor(r), now)
	}
	w.Header().Set("WWW-Authenticate", `Basic realm="Protected", charset="UTF-8"`)
	page(w, r, pageLogin)
	return false
}
