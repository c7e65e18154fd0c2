package certs

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/mholt/acmez/v3"
	"github.com/mholt/acmez/v3/acme"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fair"
)

// ProtocolTLSALPN is the ALPN protocol of tls-alpn-01 challenges (RFC 8737 §6.2).
const ProtocolTLSALPN = "acme-tls/1"

const challengePath = "/.well-known/acme-challenge/" // RFC 8555 §8.3

// challenges holds the open challenges of this process. Those of other nodes are in the database.
type challenges struct {
	mu sync.Mutex // guards the rest
	// share: total one for each order under way; owner those of its orders; edge gone with the order
	byToken map[string]acme.Challenge
	// share: total one for each order under way; owner those of its orders; edge gone with the order
	byHost map[string]*tls.Certificate // by host, for tls-alpn-01
}

// present makes every node able to answer a challenge until withdraw is called.
func (s *Certs) present(ctx context.Context, c acme.Challenge) (withdraw func(), err error) {
	var proof *tls.Certificate
	if c.Type == acme.ChallengeTypeTLSALPN01 {
		if proof, err = acmez.TLSALPN01ChallengeCert(c); err != nil {
			return nil, fmt.Errorf("present challenge: %w", err)
		}
	}
	if !s.single {
		err := s.c.DB.Write(ctx, func(tx *db.Tx) error {
			_, err := tx.Exec(ctx, `
				INSERT INTO acme_challenges (token, host, kind, answer, until) VALUES ($1, $2, $3, $4, $5)
				ON CONFLICT (token) DO UPDATE SET until = excluded.until`,
				c.Token, s.asked(c), c.Type, c.KeyAuthorization, tx.Now().Add(attemptBudget+time.Minute))
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("present challenge: %w", err)
		}
	}
	own := &s.challenges
	own.mu.Lock()
	defer own.mu.Unlock()
	if own.byToken == nil {
		own.byToken, own.byHost = map[string]acme.Challenge{}, map[string]*tls.Certificate{}
	}
	own.byToken[c.Token] = c
	if proof != nil {
		own.byHost[c.Identifier.Value] = proof
	}
	return func() { s.withdraw(ctx, c, proof) }, nil
}

// asked returns the storage key under which other nodes find a challenge.
func (s *Certs) asked(c acme.Challenge) string {
	if c.Type == acme.ChallengeTypeDNS01 {
		return s.Delegation(c.Identifier.Value)
	}
	return c.Identifier.Value
}

func (s *Certs) withdraw(ctx context.Context, c acme.Challenge, proof *tls.Certificate) {
	own := &s.challenges
	own.mu.Lock()
	delete(own.byToken, c.Token)
	if own.byHost[c.Identifier.Value] == proof {
		delete(own.byHost, c.Identifier.Value)
	}
	own.mu.Unlock()
	if s.single {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	err := s.c.DB.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, "DELETE FROM acme_challenges WHERE token = $1", c.Token)
		return err
	})
	if err != nil { // the challenge expires by itself and only the authority can use it
		s.c.Log.InfoContext(ctx, "challenge not withdrawn", "host", c.Identifier.Value, "err", err)
	}
}

// Challenge answers an authority's request about one of our own orders and reports whether it was one. The response
// contains nothing from the request.
func (s *Certs) Challenge(w http.ResponseWriter, r *http.Request) bool {
	token, ok := strings.CutPrefix(r.URL.Path, challengePath)
	if !ok || r.Method != http.MethodGet || len(token) < 16 || len(token) > 128 ||
		strings.Trim(token, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") != "" {
		return false
	}
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	own := &s.challenges
	own.mu.Lock()
	c, found := own.byToken[token]
	own.mu.Unlock()
	answer := c.KeyAuthorization
	if !found || c.Type != acme.ChallengeTypeHTTP01 || c.Identifier.Value != host {
		all := s.elsewhere(r.Context(), acme.ChallengeTypeHTTP01, host, token)
		if len(all) == 0 {
			return false
		}
		answer = all[0]
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Cache-Control", "no-store")
	io.WriteString(w, answer)
	return true
}

// proof returns the certificate that answers a tls-alpn-01 challenge, or nil.
func (s *Certs) proof(ctx context.Context, host string) (*tls.Certificate, error) {
	own := &s.challenges
	own.mu.Lock()
	c := own.byHost[host]
	own.mu.Unlock()
	if c != nil {
		return c, nil
	}
	all := s.elsewhere(ctx, acme.ChallengeTypeTLSALPN01, host, "")
	if len(all) == 0 {
		return nil, nil
	}
	return acmez.TLSALPN01ChallengeCert(acme.Challenge{
		Type: acme.ChallengeTypeTLSALPN01, KeyAuthorization: all[0], // a name has one order at a time
		Identifier: acme.Identifier{Type: "dns", Value: host},
	})
}

// maxAnswers bounds the answers of one name: one each for the name and its wildcard, and those of abandoned orders.
const maxAnswers = 16

// elsewhere returns the answers of challenges that nodes have presented, the newest first. Only a few lookups run at a
// time, so invented names can't load the database.
func (s *Certs) elsewhere(ctx context.Context, kind, host, token string) []string {
	if s.single {
		return nil
	}
	done, ok := s.slot(ctx, host)
	if !ok {
		return nil
	}
	defer done()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	q, args := "SELECT answer FROM acme_challenges WHERE host = $1 AND kind = $2 AND until > $3", []any{host, kind, s.c.DB.Now()}
	if token != "" {
		q, args = q+" AND token = $4", append(args, token)
	}
	rows, err := s.c.DB.Query(ctx, q+fmt.Sprint(" ORDER BY until DESC, token LIMIT ", maxAnswers), args...)
	all, err := db.Collect(rows, err, func(row db.Scanner) (answer string, err error) { return answer, row.Scan(&answer) })
	if err != nil {
		if ctx.Err() == nil {
			s.c.Log.ErrorContext(ctx, "challenge not looked up", "host", host, "err", err)
		}
		return nil
	}
	return all
}

// newSlots returns the places for queries on behalf of strangers, by requested name: its owner isn't known before the
// query.
func newSlots() *fair.Pool {
	// share: total 8 queries at once for names that are not in memory; owner 2 for one name, in turn; edge waits for a second, then the handshake fails or the challenge is not found
	return fair.New(fair.Config{Places: 8, Owner: 2, Waiting: 1000, OwnerWaiting: 100})
}

// slot waits up to a second for a place to query on behalf of a stranger.
func (s *Certs) slot(ctx context.Context, name string) (done func(), ok bool) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	done, err := s.slots.Take(ctx, fair.Who{Owner: name})
	return done, err == nil
}
