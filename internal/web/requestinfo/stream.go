package requestinfo

import (
	"net/netip"

	"slipway/internal/platform/fair"
	"slipway/internal/tenant/account"
)

// The most live streams (logs and live pages) and downloads in all, of one user and of one
// client's network, whose users may be many.
const (
	AllStreams     = 1000
	UserStreams    = 20
	NetworkStreams = 200
)

// Streams bounds the answers that are held open: in all, of one user, and of one network, so
// that neither a user nor one client with many users takes all places. It is safe for
// concurrent use.
type Streams struct {
	users, networks *fair.Pool

	Terminals *Streams // open ones, which are fewer and counted apart, of pages and of the API together; nil in itself
}

// How many terminals are open: of one user, of one network, and in all.
const (
	UserTerminals    = 3
	NetworkTerminals = 10
	AllTerminals     = 50
)

// NewStreams returns places for so many streams: in all, of one user, and of one network.
func NewStreams(all, user, network int) *Streams {
	s := newStreams(all, user, network)
	s.Terminals = newStreams(AllTerminals, UserTerminals, NetworkTerminals)
	return s
}

func newStreams(all, user, network int) *Streams {
	return &Streams{
		// share: total AllStreams; owner UserStreams; edge 429 with Retry-After
		users: fair.New(fair.Config{Places: all, Owner: user}),
		// share: total AllStreams; owner a network has NetworkStreams; edge 429 with Retry-After
		networks: fair.New(fair.Config{Places: all, Owner: network}),
	}
}

// Begin takes a place for the user's stream to an address. It reports false, and takes none,
// when that would be too many; otherwise done is to be called when the stream ends.
func (s *Streams) Begin(u account.UserID, to netip.Addr) (done func(), ok bool) {
	user, ok := s.users.Try(fair.Who{Owner: string(u)})
	if !ok {
		return nil, false
	}
	network, ok := s.networks.Try(fair.Who{Owner: Network(to)})
	if !ok {
		user()
		return nil, false
	}
	return func() { network(); user() }, true
}
