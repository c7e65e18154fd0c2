package edge

import (
	"crypto/sha256"
	"net/http"
	"sync"
)

// basicAccess reports whether a client without a browser, which sends a protected site's
// password with each request (RFC 7617, whatever its user), may pass. What is behind the
// password does not see it.
func (e *Edge) basicAccess(w *recorder, r *http.Request, t *target, given string) bool {
	key := sha256.Sum256([]byte(t.serving.Hash + "\x00" + given))
	if !e.rightOnes.has(key) {
		right, answered := e.rightPassword(w, r, t, func() string { return given })
		if answered {
			return false
		}
		if !right {
			w.Header().Set("WWW-Authenticate", `Basic realm="Protected", charset="UTF-8"`)
			fail(w, r, http.StatusUnauthorized)
			return false
		}
		e.rightOnes.add(key)
	}
	r.Header.Del("Authorization")
	return true
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
