// Package oauth owns the authorization server (OAuth 2.1): the apps that ask for a part of a
// person's rights, the grants that people gave them, and the codes and tokens by which apps use them.
//
// A person consents on a page of the dashboard (Authorize, Approve) or types a code that a device
// shows (Device). The app gets an access token for an hour and a refresh token that works once: each
// refresh rotates both. Secrets are stored as digests. What a token may do is computed at each
// request (Authenticate) and never copied, so a revoked grant, a disabled app and a suspended user
// end at the next request. The package knows nothing of HTTP but the errors of RFC 6749 §5.2.
package oauth

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fair"
	"slipway/internal/platform/seal"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/limits"
	"slipway/internal/tenant/webhook"
)

// How long what the server gives out works.
const (
	codeLife     = time.Minute
	accessLife   = time.Hour
	refreshIdle  = 30 * 24 * time.Hour  // unused
	grantLife    = 365 * 24 * time.Hour // whatever happens
	retryGrace   = time.Minute          // in which a rotated refresh token gets the same answer once more
	deviceLife   = 10 * time.Minute
	deviceWait   = 5 * time.Second
	usesInterval = 10 * time.Second // between two writes of when grants were used
)

// Config holds what the server stands on.
type Config struct {
	DB       *db.DB
	Accounts *account.Accounts
	Limits   *limits.Limits
	Hooks    *webhook.Webhooks // told of apps that come and go. Optional.
	Seal     *seal.Sealer
	Issuer   string       // the base URL, exactly as clients compare it (RFC 9207)
	Out      *http.Client // from egress; fetches client ID metadata documents. Optional: without it apps are registered by hand alone.
	Log      *slog.Logger // Optional.

	Registration bool // apps may register themselves (RFC 7591)
}

// Server is the authorization server. It is safe for concurrent use.
type Server struct {
	c Config

	fetches  *fair.Pool // of client ID metadata documents
	removers Removers   // set by Connect

	mu sync.Mutex // guards used
	// share: total the grants used since the last flush; owner its grants, which are limited; edge none: an entry is some 60 bytes
	used map[GrantID]use
}

// use is the last time a grant was used, and from where.
type use struct {
	at   db.Time
	addr netip.Addr
}

// New starts nothing.
func New(c Config) *Server {
	c.Issuer = strings.TrimRight(c.Issuer, "/")
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	c.Limits = cmp.Or(c.Limits, limits.New(limits.Settings{}))
	c.Limits.CountRows(limits.OAuthApps, `SELECT count(*) FROM oauth_apps WHERE owner_id = $1`)
	c.Limits.CountRows(limits.OAuthGrants, `SELECT count(*) FROM oauth_grants WHERE owner_id = $1`)
	return &Server{
		c: c,
		// share: total 8 client ID metadata documents fetched at once; owner one, of each account that asks; edge waits in turn, then 503 with Retry-After
		fetches: fair.New(fair.Config{Places: 8, Owner: 1, Waiting: 64, OwnerWaiting: 4}),
		used:    map[GrantID]use{},
	}
}

// Issuer is the server's identifier (RFC 8414 §2).
func (s *Server) Issuer() string { return s.c.Issuer }

// ReadsDocuments reports whether apps may describe themselves at an address instead of being registered.
func (s *Server) ReadsDocuments() bool { return s.c.Out != nil }

// Resource is the identifier of the API that tokens are for (RFC 8707, RFC 9728).
func (s *Server) Resource() string { return s.c.Issuer + "/api/v1" }

// Run writes when grants were used, and removes what has expired, until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	tick, hourly := time.NewTicker(usesInterval), time.NewTicker(time.Hour)
	defer tick.Stop()
	defer hourly.Stop()
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
			defer cancel()
			return s.writeUses(last)
		case <-tick.C:
			if err := s.writeUses(ctx); err != nil && ctx.Err() == nil {
				s.c.Log.WarnContext(ctx, "uses of grants not written, will be retried", "err", err)
			}
		case <-hourly.C:
			if err := s.expire(ctx); err != nil && ctx.Err() == nil {
				s.c.Log.WarnContext(ctx, "expired tokens not removed, will be retried", "err", err)
			}
		}
	}
}

// expire removes codes, devices, tokens and grants that no longer work. A used code and a rotated
// token stay for a day: a second use of either ends its grant.
func (s *Server) expire(ctx context.Context) error {
	now := db.Now()
	return s.c.DB.Write(ctx, func(tx *db.Tx) error {
		for _, q := range []string{
			`DELETE FROM oauth_codes WHERE expires_at < $1`,
			`DELETE FROM oauth_devices WHERE expires_at < $1`,
			`DELETE FROM oauth_tokens WHERE expires_at < $1`,
		} {
			if _, err := tx.Exec(ctx, q, now.Add(-24*time.Hour)); err != nil {
				return err
			}
		}
		err := s.endGrantsTx(ctx, tx, `expires_at < $1 OR `+excluded+` OR NOT EXISTS (
			SELECT 1 FROM oauth_tokens t WHERE t.grant_id = oauth_grants.id AND t.expires_at >= $1)
			OR provider_id <> '' AND NOT EXISTS (
			SELECT 1 FROM team_links l WHERE l.provider_id = oauth_grants.provider_id AND l.user_id = oauth_grants.user_id)`, now)
		if err != nil {
			return err
		}
		return s.forgetUnusedTx(ctx, tx, now)
	})
}
