// Package sso owns sign-in with accounts that people have elsewhere: providers of OpenID Connect and GitHub, sign-ins
// under way, and which identity belongs to which user.
//
// An identity is an issuer and that issuer's id of a person, never an email address: addresses change hands. An identity
// signs in the user that it was linked to, which takes a session of that user. Where a provider vouches for the addresses
// of a domain, its first sign-in makes an account, and opens one that nobody has signed in to yet; it never opens another
// one. The operator says for which domains a provider does; a team proves its own by a TXT record. Issuers are reached
// through the way out that the operator controls, with bounds on size and time; what they answer is believed after its
// signature, issuer, audience, nonce and age are checked.
package sso

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"strings"
	"sync"

	"slipway/internal/platform/db"
	"slipway/internal/platform/seal"
	"slipway/internal/tenant/account"
)

// Config says where providers live and how they are reached.
type Config struct {
	DB       *db.DB
	Accounts *account.Accounts
	Seal     *seal.Sealer
	Out      *http.Client // from egress.Client: its timeout is for one answer of an issuer
	Base     string       // the dashboard's address, to which providers send people back
	Members  Members      // Optional: without it nobody joins a team by signing in.
	Records  Records      // Optional: without it no domain is verified.
	Grants   Grants       // Optional: without it there are no apps.
	Log      *slog.Logger // Optional.
}

// Grants ends what apps may do. *oauth.Server is one.
type Grants interface {
	// EndProviderTx ends what people granted in sessions of a team's provider; user empty: what anybody did.
	EndProviderTx(ctx context.Context, tx *db.Tx, provider string, user account.UserID) error
}

// Records looks up TXT records. *domain.Domains is one.
type Records interface {
	// TXT returns the TXT records at a name, as its own name servers have them. An error means that nobody answered.
	TXT(ctx context.Context, name string) ([]string, error)
}

// SSO is the service. It is safe for concurrent use.
type SSO struct {
	c   Config
	out *http.Client // Out, with bounds on what it reads

	mu sync.Mutex // guards found
	// share: total the operator's and teams' providers; owner the providers of a team, which are limited; edge none: an entry is one document of at most 128 KiB
	found map[ProviderID]*discovery
}

// New returns the providers kept in the database.
func New(c Config) *SSO {
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	c.Base = strings.TrimRight(c.Base, "/")
	s := &SSO{c: c, found: map[ProviderID]*discovery{}}
	if c.Out != nil {
		s.out = Bounded(c.Out)
	}
	return s
}

// Bounded returns a client for issuers: it reads no more of an answer than it should, and no key that takes long to check with.
func Bounded(c *http.Client) *http.Client {
	out := *c
	out.Transport = light{bounded{out.Transport}}
	return &out
}

// maxAnswer is the most bytes that are read of anything an issuer answers.
const maxAnswer = 128 << 10

// bounded refuses to read more of an answer than maxAnswer.
type bounded struct{ next http.RoundTripper }

// RoundTrip sends a request.
func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := b.next.RoundTrip(r)
	if err == nil {
		answer.Body = http.MaxBytesReader(nil, answer.Body, maxAnswer)
	}
	return answer, err
}
