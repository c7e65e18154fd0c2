package access

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"net/http"
	"slices"
	"sync"
	"time"

	"slipway/internal/platform/id"

	"slipway/internal/edge/response"
	"slipway/internal/platform/fair"
)

// basic reports whether a client that sends the site's password with each request (RFC 7617, with any user name) may
// pass. It removes the password, so that the program behind the address doesn't see it.
func (g *Guard) basic(w http.ResponseWriter, r *http.Request, a Address, given string) bool {
	key := sha256.Sum256([]byte(a.Hash + "\x00" + given))
	if !g.right.has(a.Site, key) {
		right, answered := g.rightPassword(w, r, a, func() string { return given })
		if answered {
			return false
		}
		if !right {
			w.Header().Set("WWW-Authenticate", `Basic realm="Protected", charset="UTF-8"`)
			response.Fail(w, r, http.StatusUnauthorized)
			return false
		}
		g.right.add(a.Site, key)
	}
	r.Header.Del("Authorization")
	return true
}

// User reports whether the request has a user and password (RFC 7617) that a release's rules admit; users holds the
// SHA-256 of each pair. If not, it answers 401, or 429 after too many wrong ones.
func (g *Guard) User(w http.ResponseWriter, r *http.Request, site id.Site, users []string) bool {
	if user, password, ok := r.BasicAuth(); ok {
		now, visitor := time.Now(), fair.Visitor(r.RemoteAddr)
		if wait := g.users.Wait(string(site), visitor, now); wait > 0 {
			tooMany(w, r, wait)
			return false
		}
		sum := sha256.Sum256([]byte(user + ":" + password))
		got := hex.EncodeToString(sum[:])
		if slices.ContainsFunc(users, func(want string) bool { return subtle.ConstantTimeCompare([]byte(got), []byte(want)) == 1 }) {
			return true
		}
		_ = g.users.Try(string(site), visitor, now)
	}
	w.Header().Set("WWW-Authenticate", `Basic realm="Protected", charset="UTF-8"`)
	response.Page(w, r, response.PageLogin)
	return false
}

// rightOnes remembers passwords that matched their hashes. Clients send the password with each request, and a check
// takes tens of milliseconds and counts as a guess.
type rightOnes struct {
	mu sync.Mutex // guards of
	// share: total 16 passwords of each of 10000 sites; owner 16 of each site; edge a site's 17th makes it forget its own, and they are checked again
	of map[id.Site]map[[sha256.Size]byte]bool // by site
}

const (
	mostRightOnes = 16
	mostSites     = 10_000
)

func (o *rightOnes) has(site id.Site, key [sha256.Size]byte) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.of[site][key]
}

func (o *rightOnes) add(site id.Site, key [sha256.Size]byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.of == nil {
		o.of = map[id.Site]map[[sha256.Size]byte]bool{}
	}
	if len(o.of) >= mostSites && o.of[site] == nil {
		for other := range o.of { // drop any other site; its passwords are checked again
			delete(o.of, other)
			break
		}
	}
	if len(o.of[site]) >= mostRightOnes || o.of[site] == nil {
		o.of[site] = map[[sha256.Size]byte]bool{}
	}
	o.of[site][key] = true
}
