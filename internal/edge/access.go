package edge

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"
)

// serving holds what a site's settings say beyond its release. It is immutable.
type serving struct {
	ProxyHosts []string `json:"proxyHosts"`
	Protection string   `json:"protection"` // none, previews, all: which addresses ask for the password
	SignIn     string   `json:"signIn"`     // likewise, for a member's sign-in
	Hash       string   `json:"hash"`

	AccessLog     string `json:"accessLog"`     // truncated, no-addresses, off
	SinglePage    string `json:"singlePage"`    // auto, on, off
	TrailingSlash string `json:"trailingSlash"` // auto, always, never
}

// readServing reads a row's settings; what cannot be read protects everything.
func readServing(text string) *serving {
	if text == "" {
		return nil
	}
	var s serving
	if json.Unmarshal([]byte(text), &s) != nil {
		return &serving{Protection: "all"}
	}
	return &s
}

// protected reports whether the target's visitors must give the site's password or sign in.
func (t *target) protected() bool { return t.password() || t.signIn() }

// password reports whether the site's password opens the target.
func (t *target) password() bool { return t.serving != nil && t.covered(t.serving.Protection) }

// signIn reports whether a member's sign-in opens the target.
func (t *target) signIn() bool { return t.serving != nil && t.covered(t.serving.SignIn) }

func (t *target) covered(setting string) bool {
	return setting == "all" || setting == "previews" && t.preview
}

const (
	accessCookie = "__Host-slipway_access"
	accessField  = "slipway_password"
	accessTime   = 30 * 24 * time.Hour
	maxLogin     = 4 << 10 // bytes of the form
)

// access reports whether a visitor of a protected target may pass: with the cookie that
// the right password once gave, or a member's sign-in. Otherwise it asks for one, or checks
// what was given.
func (e *Edge) access(w *recorder, r *http.Request, t *target) bool {
	if !t.protected() {
		return true
	}
	host := hostname(r.Host)
	if c, err := r.Cookie(accessCookie); err == nil && t.password() && t.serving.admits(c.Value, t.site, host, time.Now()) {
		return true
	}
	if e.member(r, t, host) && !strings.HasPrefix(r.URL.Path, memberPrefix) {
		return true
	}
	e.bound(w, r)
	if _, given, ok := r.BasicAuth(); ok && t.password() {
		return e.basicAccess(w, r, t, given)
	}
	if e.askMember(w, r, t, host) {
		return false
	}
	switch {
	case r.Method == http.MethodPost && t.password():
		e.login(w, r, t, host)
	case r.Method == http.MethodGet || r.Method == http.MethodHead:
		page(w, r, t.accessPage())
	default:
		fail(w, r, http.StatusUnauthorized)
	}
	return false
}

// accessPage is the page that says how a protected target is opened.
func (t *target) accessPage() *notice {
	switch {
	case t.password() && t.signIn():
		return pageEither
	case t.signIn():
		return pageMembers
	}
	return pageAccess
}

// login lets in who fills in the form with the site's password.
func (e *Edge) login(w *recorder, r *http.Request, t *target, host string) {
	right, answered := e.rightPassword(w, r, t, func() string {
		r.Body = http.MaxBytesReader(w, r.Body, maxLogin)
		return r.PostFormValue(accessField)
	})
	if answered {
		return
	}
	if !right {
		if t.signIn() {
			page(w, r, pageEitherDenied)
			return
		}
		page(w, r, pageDenied)
		return
	}
	until := time.Now().Add(accessTime)
	http.SetCookie(w, &http.Cookie{Name: accessCookie, Value: t.serving.pass(t.site, host, until), Path: "/", Expires: until, Secure: true, HttpOnly: true, SameSite: http.SameSiteLaxMode})
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	to := r.URL.EscapedPath()
	if to = "/" + strings.TrimLeft(to, "/"); r.URL.RawQuery != "" {
		to += "?" + r.URL.RawQuery
	}
	h.Set("Location", to)
	h.Set("Content-Length", "0")
	w.WriteHeader(http.StatusSeeOther)
}

// rightPassword checks a password. Guesses are limited per address and per site, because each
// costs us as much as it costs who guesses; one that is not checked is answered.
func (e *Edge) rightPassword(w *recorder, r *http.Request, t *target, read func() string) (right, answered bool) {
	if !e.guesses.allow(t.site, visitor(r), time.Now()) {
		w.Header().Set("Retry-After", "60")
		fail(w, r, http.StatusTooManyRequests)
		return false, true
	}
	given := read()
	select {
	case e.checking <- struct{}{}:
		defer func() { <-e.checking }()
	case <-r.Context().Done():
		return false, true
	case <-time.After(5 * time.Second):
		page(w, r, pageBusy)
		return false, true
	}
	return e.Password != nil && given != "" && t.serving.Hash != "" && e.Password(t.serving.Hash, given), false
}

// pass is the value of the cookie: until when, and a MAC over it with a key that changes
// with the password.
func (s *serving) pass(site, host string, until time.Time) string {
	at := strconv.FormatInt(until.Unix(), 36)
	mac := hmac.New(sha256.New, []byte("slipway access "+s.Hash))
	mac.Write([]byte(site + "\n" + host + "\n" + at))
	return at + "." + hex.EncodeToString(mac.Sum(nil))
}

func (s *serving) admits(value, site, host string, now time.Time) bool {
	at, _, ok := strings.Cut(value, ".")
	until, err := strconv.ParseInt(at, 36, 64)
	if !ok || err != nil || s.Hash == "" || now.Unix() > until {
		return false
	}
	return hmac.Equal([]byte(value), []byte(s.pass(site, host, time.Unix(until, 0))))
}

// visitor is an address for counting: an IPv4 address, or an IPv6 /64.
func visitor(r *http.Request) string {
	host, _, _ := net.SplitHostPort(r.RemoteAddr)
	addr, err := netip.ParseAddr(cmp.Or(host, r.RemoteAddr))
	if err != nil {
		return r.RemoteAddr
	}
	if addr = addr.Unmap(); addr.Is6() {
		p, _ := addr.WithZone("").Prefix(64)
		return p.String()
	}
	return addr.String()
}

// guesses counts password checks within a minute.
type guesses struct {
	mu    sync.Mutex // guards the rest
	since time.Time
	n     map[string]int
}

const (
	guessesPerVisitor = 10  // a minute and site
	guessesPerSite    = 120 // a minute
)

func (g *guesses) forget(now time.Time) {
	if g.n == nil || now.Sub(g.since) >= time.Minute || len(g.n) > 100_000 {
		g.n, g.since = map[string]int{}, now
	}
}

// wrong counts a user and password of a rule that nobody has; tired reports whether a
// visitor gave too many of them. Checking one costs nothing, so sites have no limit.
func (g *guesses) wrong(site, visitor string, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.forget(now)
	g.n["basic "+site+" "+visitor]++
}

func (g *guesses) tired(site, visitor string, now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.forget(now)
	return g.n["basic "+site+" "+visitor] >= 3*guessesPerVisitor
}

func (g *guesses) allow(site, visitor string, now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.forget(now)
	g.n[site]++
	g.n[site+" "+visitor]++
	return g.n[site] <= guessesPerSite && g.n[site+" "+visitor] <= guessesPerVisitor
}

// places counts what is under way, overall and per site.
type places struct {
	mu  sync.Mutex // guards the rest
	all int
	of  map[string]int
}

func (p *places) enter(site string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all >= proxyMost || p.of[site] >= proxySite {
		return false
	}
	if p.of == nil {
		p.of = map[string]int{}
	}
	p.all++
	p.of[site]++
	return true
}

func (p *places) leave(site string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all--
	if p.of[site]--; p.of[site] <= 0 {
		delete(p.of, site)
	}
}
