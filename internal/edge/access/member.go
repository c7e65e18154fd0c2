package access

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"net/http"
	"strings"
	"time"

	"slipway/internal/platform/id"

	"slipway/internal/edge/response"
	"slipway/internal/platform/visit"
)

// Members admits members of a site by their sign-in at the control plane. The edge redirects a visitor there with a
// question that names site, host and path; the visitor comes back with a grant that answers it. Questions, grants and
// cookies are sealed, so a question always leads back to the host that asked it.
type Members interface {
	// Ask returns the control plane's address that answers a question.
	Ask(q visit.Question) string
	// Granted returns the question that a grant answers; ok is false if the grant is forged or no longer valid.
	Granted(grant string) (q visit.Question, until time.Time, ok bool)
	// Pass returns the value of a cookie for the user who was granted q, valid at host until the given time. Passes
	// reports whether a cookie's value is valid and its user is still signed in and a member.
	Pass(q visit.Question, host string, until time.Time) string
	Passes(ctx context.Context, value string, site id.Site, host string) bool
}

// GrantPath is the path at which hosts accept grants.
const GrantPath = memberPrefix + "granted"

const (
	memberPrefix = "/.slipway/"
	memberStart  = memberPrefix + "sign-in" // starts a new sign-in, for browsers that don't send the expected headers
	memberCookie = "__Host-slipway_member"
	nonceCookie  = "__Host-slipway_nonce"
	maxAskPath   = 2000 // bytes
	nonceTime    = 15 * time.Minute
)

// member reports whether the visitor has a valid member's cookie.
func (g *Guard) member(r *http.Request, a Address) bool {
	if !a.SignIn || g.Members == nil {
		return false
	}
	c, err := r.Cookie(memberCookie)
	return err == nil && len(c.Value) <= 4096 && g.Members.Passes(r.Context(), c.Value, a.Site, a.Host)
}

// askMember redirects a visitor to the control plane, or accepts the grant they return with. It reports whether it has
// written the response.
func (g *Guard) askMember(w http.ResponseWriter, r *http.Request, a Address) bool {
	if !a.SignIn || g.Members == nil || r.Method != http.MethodGet {
		return false
	}
	h := w.Header()
	switch r.URL.Path {
	case GrantPath:
		c, err := r.Cookie(nonceCookie)
		q, until, ok := g.Members.Granted(r.URL.Query().Get("grant"))
		if err != nil || !ok || q.Nonce == "" || q.Nonce != c.Value || q.Site != a.Site || q.Host != a.Host+g.Port {
			response.Page(w, r, response.PageNoGrant)
			return true
		}
		setCookie(w, memberCookie, g.Members.Pass(q, a.Host, until), until)
		setCookie(w, nonceCookie, "", time.Unix(1, 0))
		h.Set("Cache-Control", "no-store")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Location", "/"+strings.TrimLeft(q.Path, "/\\"))
		h.Set("Content-Length", "0")
		w.WriteHeader(http.StatusSeeOther)
		return true
	case memberStart:
		h.Set("Cache-Control", "no-store")
		h.Set("Location", g.question(w, r, a, "/"))
		h.Set("Content-Length", "0")
		w.WriteHeader(http.StatusSeeOther)
		return true
	}
	if !a.Password && strings.Contains(r.Header.Get("Accept"), "text/html") { // no password to choose instead
		h.Set("Refresh", "0; url="+g.question(w, r, a, r.URL.RequestURI()))
	}
	return false
}

// question sets a nonce cookie and returns the address of the control plane to redirect to.
func (g *Guard) question(w http.ResponseWriter, r *http.Request, a Address, path string) string {
	nonce := ""
	if c, err := r.Cookie(nonceCookie); err == nil && len(c.Value) == 22 { // reuse the nonce of another tab that is signing in
		nonce = c.Value
	} else {
		b := make([]byte, 16)
		rand.Read(b)
		nonce = base64.RawURLEncoding.EncodeToString(b)
	}
	setCookie(w, nonceCookie, nonce, time.Now().Add(nonceTime))
	if len(path) > maxAskPath || strings.HasPrefix(path, memberPrefix) {
		path = "/"
	}
	return g.Members.Ask(visit.Question{Site: a.Site, Host: a.Host + g.Port, Path: path, Nonce: nonce})
}

func setCookie(w http.ResponseWriter, name, value string, until time.Time) {
	http.SetCookie(w, &http.Cookie{
		Name:     name,
		Value:    value,
		Path:     "/",
		Expires:  until,
		Secure:   true,
		HttpOnly: true,
		SameSite: http.SameSiteLaxMode,
	})
}
