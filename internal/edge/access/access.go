// Package access owns the protection of a site's addresses: visitors with its password (by
// form or with each request), members with their sign-in, and users in the release's own
// rules. It asks for credentials, remembers visitors with a cookie, and limits guesses.
package access

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"
	"time"

	"slipway/internal/platform/id"

	"slipway/internal/edge/response"
	"slipway/internal/platform/fair"
)

const (
	accessCookie = "__Host-slipway_access"
	accessField  = "slipway_password"
	accessTime   = 30 * 24 * time.Hour
	maxLogin     = 4 << 10 // bytes of the form
)

// Config holds the dependencies and settings of a Guard.
type Config struct {
	// Password reports whether a visitor's password is the one that a site's settings hold
	// the hash of. Optional: without it nobody passes with one.
	Password func(hash, password string) bool
	// Members lets members of a site in by their sign-in. Optional: without it nobody passes
	// an address that wants one.
	Members Members
	Port    string // of all addresses: ":8443", or "" for 443
}

// Guard stands before protected addresses. It is safe for concurrent use.
type Guard struct {
	Config
	guesses  *fair.Attempts // of passwords
	users    *fair.Attempts // wrong users and passwords of rules
	checking *fair.Pool     // bounds how many passwords are checked at once
	right    rightOnes
}

// New returns a Guard.
func New(c Config) *Guard {
	return &Guard{
		Config: c,
		// share: total every site with guesses in the last minute; owner of each site 120 guesses, one network 40, one visitor 10; edge 429 with Retry-After
		guesses: fair.NewAttempts(fair.Limit{
			Window:  time.Minute,
			Visitor: guessesPerVisitor,
			Network: guessesPerNetwork,
			Site:    guessesPerSite,
		}),
		// share: total every site with sign-ins in the last minute; owner of each site 30 of one visitor; edge 429 with Retry-After
		users: fair.NewAttempts(fair.Limit{Window: time.Minute, Visitor: 3 * guessesPerVisitor}), // checking one costs nothing
		// share: total 2 passwords checked at once, 256 waiting; owner 1 at once, 64 waiting; edge waits in turn for 5 s at most, then the page says that the site is busy
		checking: fair.New(fair.Config{Places: 2, Owner: 1, Waiting: 256, OwnerWaiting: 64}),
	}
}

// Passwords that are checked within a minute, at one site.
const (
	guessesPerVisitor = 10
	guessesPerNetwork = 40
	guessesPerSite    = 120
)

// checkWait is how long a password waits for its turn to be checked.
const checkWait = 5 * time.Second

// Settings holds what a site's settings say of who may see it.
type Settings struct {
	Password string `json:"protection"` // none, previews, all: which addresses ask for the password
	SignIn   string `json:"signIn"`     // likewise, for a member's sign-in
	Hash     string `json:"hash"`
}

// Protects reports whether visitors must give the site's password or sign in, at its own
// addresses or at those of previews.
func (s *Settings) Protects(preview bool) bool {
	return covers(s.Password, preview) || covers(s.SignIn, preview)
}

// Of returns one of the site's addresses.
func (s *Settings) Of(owner id.Owner, site id.Site, host string, preview bool) Address {
	return Address{
		Owner:    owner,
		Site:     site,
		Host:     host,
		Password: covers(s.Password, preview),
		SignIn:   covers(s.SignIn, preview),
		Hash:     s.Hash,
	}
}

func covers(setting string, preview bool) bool {
	return setting == "all" || setting == "previews" && preview
}

// Address is one that is protected.
type Address struct {
	Owner    id.Owner // of the site
	Site     id.Site
	Host     string // in lower case, without port
	Password bool   // the site's password opens it
	SignIn   bool   // a member's sign-in opens it
	Hash     string // of the password
}

// Passes reports whether a visitor may pass: with the cookie that the right password once
// gave, or a member's sign-in.
func (g *Guard) Passes(r *http.Request, a Address) bool {
	if c, err := r.Cookie(accessCookie); err == nil && a.Password && a.admits(c.Value, time.Now()) {
		return true
	}
	return g.member(r, a) && !strings.HasPrefix(r.URL.Path, memberPrefix)
}

// Ask asks a visitor who doesn't pass for a password or a sign-in, or checks what was given. It
// reports whether they may pass now; else they have been answered.
func (g *Guard) Ask(w http.ResponseWriter, r *http.Request, a Address) bool {
	if _, given, ok := r.BasicAuth(); ok && a.Password {
		return g.basic(w, r, a, given)
	}
	if g.askMember(w, r, a) {
		return false
	}
	switch {
	case r.Method == http.MethodPost && a.Password:
		g.login(w, r, a)
	case r.Method == http.MethodGet || r.Method == http.MethodHead:
		response.Page(w, r, a.page())
	default:
		response.Fail(w, r, http.StatusUnauthorized)
	}
	return false
}

// page is the page that says how a protected address is opened.
func (a Address) page() *response.Notice {
	switch {
	case a.Password && a.SignIn:
		return response.PageEither
	case a.SignIn:
		return response.PageMembers
	}
	return response.PageAccess
}

// login lets in who fills in the form with the site's password.
func (g *Guard) login(w http.ResponseWriter, r *http.Request, a Address) {
	right, answered := g.rightPassword(w, r, a, func() string {
		r.Body = http.MaxBytesReader(w, r.Body, maxLogin)
		return r.PostFormValue(accessField)
	})
	if answered {
		return
	}
	if !right {
		if a.SignIn {
			response.Page(w, r, response.PageEitherDenied)
			return
		}
		response.Page(w, r, response.PageDenied)
		return
	}
	until := time.Now().Add(accessTime)
	http.SetCookie(w, &http.Cookie{
		Name:     accessCookie,
		Value:    a.pass(until),
		Path:     "/",
		Expires:  until,
		Secure:   true,
		HttpOnly: true,
		SameSite: http.SameSiteLaxMode,
	})
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	to := r.URL.EscapedPath()
	to = "/" + strings.TrimLeft(to, "/")
	if r.URL.RawQuery != "" {
		to += "?" + r.URL.RawQuery
	}
	h.Set("Location", to)
	h.Set("Content-Length", "0")
	w.WriteHeader(http.StatusSeeOther)
}

// rightPassword checks a password. Guesses are limited per address and per site, because each
// costs us as much as it costs who guesses; one that is not checked is answered.
func (g *Guard) rightPassword(w http.ResponseWriter, r *http.Request, a Address, read func() string) (right, answered bool) {
	who := fair.Who{Owner: string(a.Owner), Site: string(a.Site), Visitor: fair.Visitor(r.RemoteAddr)}
	if wait := g.guesses.Try(string(a.Site), who.Visitor, time.Now()); wait > 0 {
		tooMany(w, r, wait)
		return false, true
	}
	given := read()
	ctx, cancel := context.WithTimeout(r.Context(), checkWait)
	defer cancel()
	done, err := g.checking.Take(ctx, who)
	if err != nil {
		if r.Context().Err() == nil {
			response.Page(w, r, response.PageBusy)
		}
		return false, true
	}
	defer done()
	return g.Password != nil && given != "" && a.Hash != "" && g.Password(a.Hash, given), false
}

// tooMany answers who guesses too often.
func tooMany(w http.ResponseWriter, r *http.Request, wait time.Duration) {
	w.Header().Set("Retry-After", strconv.Itoa(int(wait/time.Second)+1))
	response.Fail(w, r, http.StatusTooManyRequests)
}

// pass is the value of the cookie: until when, and a MAC over it with a key that changes
// with the password.
func (a Address) pass(until time.Time) string {
	at := strconv.FormatInt(until.Unix(), 36)
	mac := hmac.New(sha256.New, []byte("slipway access "+a.Hash))
	mac.Write([]byte(string(a.Site) + "\n" + a.Host + "\n" + at))
	return at + "." + hex.EncodeToString(mac.Sum(nil))
}

func (a Address) admits(value string, now time.Time) bool {
	at, _, ok := strings.Cut(value, ".")
	until, err := strconv.ParseInt(at, 36, 64)
	if !ok || err != nil || a.Hash == "" || now.Unix() > until {
		return false
	}
	return hmac.Equal([]byte(value), []byte(a.pass(time.Unix(until, 0))))
}

// CookiePrefix is how the names of cookies begin that are this package's own business.
const CookiePrefix = "__Host-slipway_"

// DropCookies takes those that open addresses out of a request: what is behind a protected
// address does not see them.
func DropCookies(h http.Header) {
	dropCookie(h, accessCookie)
	dropCookie(h, memberCookie)
}

// dropCookie takes one cookie out of a request.
func dropCookie(h http.Header, name string) {
	var rest []string
	for pair := range strings.SplitSeq(strings.Join(h["Cookie"], "; "), ";") {
		if k, _, _ := strings.Cut(strings.TrimSpace(pair), "="); k != name && k != "" {
			rest = append(rest, strings.TrimSpace(pair))
		}
	}
	delete(h, "Cookie")
	if len(rest) > 0 {
		h["Cookie"] = []string{strings.Join(rest, "; ")}
	}
}
