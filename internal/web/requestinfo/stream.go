package requestinfo

import (
	"net/netip"

	"slipway/internal/platform/fair"
	"slipway/internal/tenant/account"
)

// Limits of open streams (logs and live pages) and downloads: in total, per user, and per client's network, which may
// have many users.
const (
	AllStreams     = 1000
	UserStreams    = 20
	NetworkStreams = 200
)

// Streams limits the open responses in total, per user and per network, so that neither a user nor a client with many
// users takes all places. It is safe for concurrent use.
type Streams struct {
	users, networks *fair.Pool

	Terminals *Streams // open terminals of pages and the API, counted separately; nil within Terminals
}

// Limits of open terminals: per user, per network, and in total.
const (
	UserTerminals    = 3
	NetworkTerminals = 10
	AllTerminals     = 50
)

// NewStreams returns Streams with these limits: in total, per user, and per network.
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

// Begin takes a place for a user's stream to an address. ok is false if there is none; otherwise the caller must call
// done when the stream ends.
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
