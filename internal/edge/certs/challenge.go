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

// ProtocolTLSALPN is the protocol by which an authority asks for a proof in a handshake
// (RFC 8737, section 6.2).
const ProtocolTLSALPN = "acme-tls/1"

const challengePath = "/.well-known/acme-challenge/" // RFC 8555, section 8.3

// challenges are the questions that this process has asked authorities to ask. Those of
// other nodes are in the database.
type challenges struct {
	mu sync.Mutex // guards the rest
	// share: total one for each order under way; owner those of its orders; edge gone with the order
	byToken map[string]acme.Challenge
	// share: total one for each order under way; owner those of its orders; edge gone with the order
	byHost map[string]*tls.Certificate // of tls-alpn-01
}

// present gets ready to answer a challenge, on every node, until withdraw.
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

// asked is the name by which other nodes are asked about a challenge.
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
	if err != nil { // it ends by itself, and helps nobody but the authority
		s.c.Log.InfoContext(ctx, "challenge not withdrawn", "host", c.Identifier.Value, "err", err)
	}
}

// Challenge answers an authority's question about one of our own orders, and reports
// whether it was one. Nothing that a stranger sends is in the answer.
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

// proof returns the certificate that answers a challenge of the kind tls-alpn-01, or nil.
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

// maxAnswers bounds how many answers one name has: a name and its wildcard have one each, and those of orders that were given up.
const maxAnswers = 16

// elsewhere returns the answers to challenges that nodes have presented, the newest first. A few of these
// questions are looked up at a time, so that strangers who make them up harm themselves.
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

// newSlots returns the places of queries on behalf of strangers, by the name that they ask for:
// whose it is is not known before the query.
func newSlots() *fair.Pool {
	// share: total 8 queries at once for names that are not in memory; owner 2 for one name, in turn; edge waits for a second, then the handshake fails or the challenge is not found
	return fair.New(fair.Config{Places: 8, Owner: 2, Waiting: 1000, OwnerWaiting: 100})
}

// slot waits a second for the right to query on behalf of a stranger who asks for a name.
func (s *Certs) slot(ctx context.Context, name string) (done func(), ok bool) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	done, err := s.slots.Take(ctx, fair.Who{Owner: name})
	return done, err == nil
}
