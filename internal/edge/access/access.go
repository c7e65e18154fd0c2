// Package access owns the protection of a site's addresses: by the site's password (in a form or with each request), by
// the sign-in of members, and by users and passwords in the release's own rules. It asks for credentials, sets a cookie
// for visitors who passed, and limits guesses.
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
	maxLogin     = 4 << 10 // bytes of the form's body
)

// Config holds the dependencies and settings of a Guard.
type Config struct {
	// Password reports whether password matches the hash in the site's settings. Optional: nil refuses every password.
	Password func(hash, password string) bool
	// Members admits signed-in members of a site. Optional: nil means that addresses that require a sign-in admit
	// nobody.
	Members Members
	Port    string // port of all addresses, such as ":8443"; empty for 443
}

// Guard checks requests to protected addresses. It is safe for concurrent use.
type Guard struct {
	Config
	guesses  *fair.Attempts // guesses of sites' passwords
	users    *fair.Attempts // wrong users and passwords of release rules
	checking *fair.Pool     // bounds concurrent password checks
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

// Limits of password checks per site and minute.
const (
	guessesPerVisitor = 10
	guessesPerNetwork = 40
	guessesPerSite    = 120
)

// checkWait is how long a password check waits for its turn.
const checkWait = 5 * time.Second

// Settings is the part of a site's settings that says who may see the site.
type Settings struct {
	Password string `json:"protection"` // which addresses ask for the password: none, previews or all
	SignIn   string `json:"signIn"`     // which addresses ask for a member's sign-in: none, previews or all
	Hash     string `json:"hash"`
}

// Protects reports whether visitors must give the password or sign in. preview chooses between preview addresses and
// the site's own.
func (s *Settings) Protects(preview bool) bool {
	return covers(s.Password, preview) || covers(s.SignIn, preview)
}

// Of returns the protection of one of the site's addresses.
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

// Address is one protected address of a site.
type Address struct {
	Owner    id.Owner // owner of the site
	Site     id.Site
	Host     string // lower case, without port
	Password bool   // the site's password admits visitors
	SignIn   bool   // a member's sign-in admits visitors
	Hash     string // hash of the password
}

// Passes reports whether the request carries a valid cookie, which visitors get for the right password or for a
// member's sign-in.
func (g *Guard) Passes(r *http.Request, a Address) bool {
	if c, err := r.Cookie(accessCookie); err == nil && a.Password && a.admits(c.Value, time.Now()) {
		return true
	}
	return g.member(r, a) && !strings.HasPrefix(r.URL.Path, memberPrefix)
}

// Ask checks the credentials of a visitor who doesn't pass, or asks for them. It reports whether the visitor may pass
// now; if not, Ask has written the response.
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

// page returns the page that asks for the credentials of a protected address.
func (a Address) page() *response.Notice {
	switch {
	case a.Password && a.SignIn:
		return response.PageEither
	case a.SignIn:
		return response.PageMembers
	}
	return response.PageAccess
}

// login admits visitors who send the form with the site's password.
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

// rightPassword reads and checks a password. It limits guesses per visitor and site, because a check costs much
// processor time. If it doesn't check the password, it writes the response.
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

// tooMany answers visitors who have guessed too often.
func tooMany(w http.ResponseWriter, r *http.Request, wait time.Duration) {
	w.Header().Set("Retry-After", strconv.Itoa(int(wait/time.Second)+1))
	response.Fail(w, r, http.StatusTooManyRequests)
}

// pass returns the cookie's value: its expiry, and a MAC over it with a key derived from the password's hash, so that a
// new password ends all cookies.
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

// CookiePrefix starts the names of cookies that only this package reads.
const CookiePrefix = "__Host-slipway_"

// DropCookies removes this package's cookies from a request, so that the program behind the address doesn't see them.
func DropCookies(h http.Header) {
	dropCookie(h, accessCookie)
	dropCookie(h, memberCookie)
}

// dropCookie removes one cookie from a request.
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
