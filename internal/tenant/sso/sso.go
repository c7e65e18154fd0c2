// Package sso owns sign-in with external accounts: OpenID Connect and GitHub providers, pending sign-ins, and the links
// between identities and users.
//
// An identity is an issuer and the issuer's ID of a person, never an email address, since addresses change hands. It
// signs in the user it was linked to in a session of that user. If a provider vouches for an address, the first sign-in
// creates an account or opens one that nobody has signed in to yet, but never another existing account. The operator
// decides for which domains a provider vouches; a team proves its domains with a TXT record. Issuers are reached
// through egress with limits on size and time. Their tokens are accepted only after checks of signature, issuer,
// audience, nonce and age.
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

type Config struct {
	DB       *db.DB
	Accounts *account.Accounts
	Seal     *seal.Sealer
	Out      *http.Client // from egress.Client; its timeout is per request
	Base     string       // URL of the dashboard, the base of callbacks
	Members  Members      // Optional: without it, signing in joins no team.
	Records  Records      // Optional: without it, domains can't be verified.
	Grants   Grants       // Optional: without it there are no apps.
	Log      *slog.Logger // Optional.
}

// Grants ends apps' access. It is implemented by *oauth.Server.
type Grants interface {
	// EndProviderTx ends the grants made in sessions of a team's provider, of one user or, if user is empty, of all.
	EndProviderTx(ctx context.Context, tx *db.Tx, provider string, user account.UserID) error
}

// Records looks up TXT records. It is implemented by *domain.Domains.
type Records interface {
	// TXT returns the TXT records at a name from its own name servers. An error means that the query failed.
	TXT(ctx context.Context, name string) ([]string, error)
}

// SSO is the service. It is safe for concurrent use.
type SSO struct {
	c   Config
	out *http.Client // Out, limited to maxAnswer bytes and to light keys

	mu sync.Mutex // guards found
	// share: total the operator's and teams' providers; owner the providers of a team, which are limited; edge none: an entry is one document of at most 128 KiB
	found map[ProviderID]*discovery
}

// New returns the service.
func New(c Config) *SSO {
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	c.Base = strings.TrimRight(c.Base, "/")
	s := &SSO{c: c, found: map[ProviderID]*discovery{}}
	if c.Out != nil {
		s.out = Bounded(c.Out)
	}
	return s
}

// Bounded wraps a client for issuers: it limits the size of responses and refuses slow keys.
func Bounded(c *http.Client) *http.Client {
	out := *c
	out.Transport = light{bounded{out.Transport}}
	return &out
}

// maxAnswer caps the bytes read from an issuer's response.
const maxAnswer = 128 << 10

// bounded limits responses to maxAnswer bytes.
type bounded struct{ next http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := b.next.RoundTrip(r)
	if err == nil {
		answer.Body = http.MaxBytesReader(nil, answer.Body, maxAnswer)
	}
	return answer, err
}
