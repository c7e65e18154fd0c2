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

// Members lets members of a site see its protected addresses with their sign-in at the
// control plane. A visitor is sent there with a question that names site, host and path, and
// comes back with a grant that answers it. All three texts are sealed, so nobody else makes
// one: the question can't be made to lead anywhere but to the host that asked it.
type Members interface {
	// Ask returns the address at the control plane that a question is sent to.
	Ask(q visit.Question) string
	// Granted returns what a grant answers; false for what is none any more.
	Granted(grant string) (q visit.Question, until time.Time, ok bool)
	// Pass returns the value of a cookie that is good for who was granted a question, at a site's host until then, and Passes
	// reports whether a value is one now, of a user who is signed in and a member now.
	Pass(q visit.Question, host string, until time.Time) string
	Passes(ctx context.Context, value string, site id.Site, host string) bool
}

// GrantPath is where a host takes grants.
const GrantPath = memberPrefix + "granted"

const (
	memberPrefix = "/.slipway/"
	memberStart  = memberPrefix + "sign-in" // begins anew, for browsers that follow no header
	memberCookie = "__Host-slipway_member"
	nonceCookie  = "__Host-slipway_nonce"
	maxAskPath   = 2000 // bytes
	nonceTime    = 15 * time.Minute
)

// member reports whether a visitor of an address that wants a sign-in may pass, with the
// cookie that a grant once gave.
func (g *Guard) member(r *http.Request, a Address) bool {
	if !a.SignIn || g.Members == nil {
		return false
	}
	c, err := r.Cookie(memberCookie)
	return err == nil && len(c.Value) <= 4096 && g.Members.Passes(r.Context(), c.Value, a.Site, a.Host)
}

// askMember sends a visitor to the control plane, or takes the grant that they come back
// with. It reports whether it has answered.
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
	if !a.Password && strings.Contains(r.Header.Get("Accept"), "text/html") { // there is nothing to choose from
		h.Set("Refresh", "0; url="+g.question(w, r, a, r.URL.RequestURI()))
	}
	return false
}

// question gives the browser a nonce and returns where it is to ask.
func (g *Guard) question(w http.ResponseWriter, r *http.Request, a Address, path string) string {
	nonce := ""
	if c, err := r.Cookie(nonceCookie); err == nil && len(c.Value) == 22 { // of another tab that asks
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
