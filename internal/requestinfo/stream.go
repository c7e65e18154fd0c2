package requestinfo

import (
	"sync"

	"slipway/internal/account"
)

// Streams bounds the answers that are held open.
type Streams struct {
	PerUser, All int // the most of one user, and of everybody

	mu   sync.Mutex // guards what follows
	open int
	of   map[account.UserID]int
}

// Begin counts one more stream of the user. It reports false, and counts nothing, when
// that would be too many; otherwise done is to be called when the stream ends.
func (s *Streams) Begin(u account.UserID) (done func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open >= s.All || s.of[u] >= s.PerUser {
		return nil, false
	}
	if s.of == nil {
		s.of = map[account.UserID]int{}
	}
	s.open++
	s.of[u]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.open--
		if s.of[u]--; s.of[u] == 0 {
			delete(s.of, u)
		}
	}, true
}
