package access

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"net/http"
	"slices"
	"sync"
	"time"

	"slipway/internal/response"
)

// basic reports whether a client without a browser, which sends a protected site's
// password with each request (RFC 7617, whatever its user), may pass. What is behind the
// password does not see it.
func (g *Guard) basic(w http.ResponseWriter, r *http.Request, a Address, given string) bool {
	key := sha256.Sum256([]byte(a.Hash + "\x00" + given))
	if !g.right.has(key) {
		right, answered := g.rightPassword(w, r, a, func() string { return given })
		if answered {
			return false
		}
		if !right {
			w.Header().Set("WWW-Authenticate", `Basic realm="Protected", charset="UTF-8"`)
			response.Fail(w, r, http.StatusUnauthorized)
			return false
		}
		g.right.add(key)
	}
	r.Header.Del("Authorization")
	return true
}

// User reports whether a request carries a user and password (RFC 7617) that a release's rules
// let in; users holds the SHA-256 of each pair. It asks for one otherwise. Who gives wrong ones must wait.
func (g *Guard) User(w http.ResponseWriter, r *http.Request, site string, users []string) bool {
	if user, password, ok := r.BasicAuth(); ok {
		now := time.Now()
		if g.guesses.tired(site, visitor(r), now) {
			w.Header().Set("Retry-After", "60")
			response.Fail(w, r, http.StatusTooManyRequests)
			return false
		}
		sum := sha256.Sum256([]byte(user + ":" + password))
		got := hex.EncodeToString(sum[:])
		if slices.ContainsFunc(users, func(want string) bool { return subtle.ConstantTimeCompare([]byte(got), []byte(want)) == 1 }) {
			return true
		}
		g.guesses.wrong(site, visitor(r), now)
	}
	w.Header().Set("WWW-Authenticate", `Basic realm="Protected", charset="UTF-8"`)
	response.Page(w, r, response.PageLogin)
	return false
}

// rightOnes remembers passwords that were right for their hashes: a check costs tens of
// milliseconds and counts as a guess, and clients send theirs with each request.
type rightOnes struct {
	mu   sync.Mutex // guards keys
	keys map[[sha256.Size]byte]bool
}

const mostRightOnes = 10_000

func (o *rightOnes) has(key [sha256.Size]byte) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.keys[key]
}

func (o *rightOnes) add(key [sha256.Size]byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.keys == nil || len(o.keys) >= mostRightOnes {
		o.keys = map[[sha256.Size]byte]bool{}
	}
	o.keys[key] = true
}
