package sso

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/text"
	"slipway/internal/tenant/account"
)

const (
	// SignInTime is how long a sign-in at the provider may take.
	SignInTime = 10 * time.Minute

	maxSignIns = 10 // pending sign-ins per browser
)

// Start describes the origin of a sign-in.
type Start struct {
	Browser string            // random value of a cookie; the response is only accepted in this browser
	Next    string            // dashboard path to open afterwards
	Session account.SessionID // session of the user who links the identity; empty: a sign-in
}

// secrets holds the secret values of a pending sign-in.
type secrets struct {
	Verifier string `json:"verifier"` // PKCE
	Nonce    string `json:"nonce"`
}

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// NewBrowser returns a cookie value for a browser without one.
func NewBrowser() string { return oauth2.GenerateVerifier() }

// Begin begins a sign-in and returns the URL for the browser.
func (s *SSO) Begin(ctx context.Context, id ProviderID, from Start) (string, error) {
	p, err := s.Get(ctx, s.c.DB, id)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	keep := secrets{oauth2.GenerateVerifier(), oauth2.GenerateVerifier()}
	state := oauth2.GenerateVerifier()
	var to string
	if p.Kind == GitHub {
		to = s.client(p, githubAt(p), "", githubScopes...).AuthCodeURL(state, oauth2.S256ChallengeOption(keep.Verifier))
	} else {
		at, err := s.discover(ctx, p)
		if err != nil {
			return "", err
		}
		to = s.client(p, at.Endpoint(), "", oidc.ScopeOpenID, "email", "profile").
			AuthCodeURL(state, oauth2.S256ChallengeOption(keep.Verifier), oidc.Nonce(keep.Nonce))
	}
	return to, s.c.DB.Write(ctx, func(tx *db.Tx) error { return s.rememberTx(ctx, tx, p, from, state, keep) })
}

// rememberTx stores a pending sign-in and deletes the browser's oldest ones over the limit.
func (s *SSO) rememberTx(ctx context.Context, tx *db.Tx, p Provider, from Start, state string, keep secrets) error {
	now, browser := db.Now(), digest(from.Browser)
	box, err := json.Marshal(keep)
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `DELETE FROM sso_sign_ins WHERE expires_at <= $1`, now); err != nil {
		return fmt.Errorf("forget sign-ins: %w", err)
	}
	_, err = tx.Exec(ctx, `
		DELETE FROM sso_sign_ins WHERE digest IN (
			SELECT digest FROM sso_sign_ins WHERE browser = $1 ORDER BY expires_at DESC, digest LIMIT 1000 OFFSET $2)`, browser, maxSignIns-1)
	if err != nil {
		return fmt.Errorf("forget oldest sign-in: %w", err)
	}
	_, err = tx.Exec(ctx, `
		INSERT INTO sso_sign_ins (digest, browser, provider_id, secrets, session_id, next, expires_at) VALUES ($1, $2, $3, $4, $5, $6, $7)`,
		digest(state), browser, p.ID, s.c.Seal.Seal(box, "sso sign-in/"+digest(state)), from.Session, text.Cut(from.Next, 2000),
		now.Add(SignInTime))
	if err != nil {
		return fmt.Errorf("begin sign-in: %w", err)
	}
	return nil
}

// Proof is an identity that a provider has just confirmed in this browser.
type Proof struct {
	Provider Provider
	Subject  string
	Email    string // may be empty
	Verified bool   // whether the provider verified the address, by the rules of its kind
	Next     string // dashboard path to open

	session account.SessionID // the session that links the identity; empty: a sign-in
}

// Links reports whether the sign-in links the identity to a user.
func (p Proof) Links() bool { return p.session != "" }

// take consumes the pending sign-in with this state, which belongs to one browser and provider.
func (s *SSO) take(ctx context.Context, id ProviderID, browser, state string) (keep secrets, proof Proof, err error) {
	refuse := invalid("This sign-in has expired or was started in another browser", "start again from the sign-in page", "invalid_state")
	if state == "" || len(state) > 200 || browser == "" {
		return keep, proof, refuse
	}
	var box string
	found := false
	err = s.c.DB.Write(ctx, func(tx *db.Tx) error {
		rows, err := tx.Query(ctx, `
			DELETE FROM sso_sign_ins WHERE digest = $1 AND browser = $2 AND provider_id = $3 AND expires_at > $4
			RETURNING secrets, session_id, next`, digest(state), digest(browser), id, db.Now())
		list, err := db.Collect(rows, err, func(r db.Scanner) (p Proof, err error) { return p, r.Scan(&box, &p.session, &p.Next) })
		found = len(list) == 1
		if found {
			proof = list[0]
		}
		return err
	})
	if err != nil {
		return keep, proof, fmt.Errorf("end sign-in: %w", err)
	}
	if !found {
		return keep, proof, refuse
	}
	plain, err := s.c.Seal.Open(box, "sso sign-in/"+digest(state))
	if err == nil {
		err = json.Unmarshal(plain, &keep)
	}
	return keep, proof, err
}

// Finish handles the provider's response in the browser and returns the proven identity.
func (s *SSO) Finish(ctx context.Context, id ProviderID, browser string, q url.Values) (Proof, error) {
	keep, proof, err := s.take(ctx, id, browser, q.Get("state"))
	if err != nil {
		return proof, err
	}
	p, err := s.Get(ctx, s.c.DB, id)
	if err != nil {
		return proof, err
	}
	proof.Provider = p
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	var at *issuer
	if p.Kind != GitHub {
		if at, err = s.discover(ctx, p); err != nil {
			return proof, err
		}
	}
	if iss := q.Get("iss"); iss != "" && iss != p.Issuer || iss == "" && at != nil && at.signsAnswers {
		return proof, s.refused(ctx, p, fmt.Errorf("the answer is from the issuer %q", text.Line(iss, 200)))
	}
	if why := q.Get("error"); why != "" {
		return proof, fault.New(fault.Forbidden, "sso_refused", p.Name+" didn't sign you in",
			text.Line(cmp.Or(q.Get("error_description"), why), 200))
	}
	code := q.Get("code")
	if code == "" || len(code) > 4000 {
		return proof, s.refused(ctx, p, fmt.Errorf("a code of %d bytes", len(code)))
	}
	secret, err := s.open(p)
	if err != nil {
		return proof, err
	}
	if p.Kind == GitHub {
		err = s.askGitHub(ctx, &proof, secret, code, keep)
	} else {
		err = s.exchange(ctx, at, &proof, secret, code, keep)
	}
	if err == nil && !plainSubject(proof.Subject) {
		err = fmt.Errorf("a subject of %d bytes", len(proof.Subject))
	}
	if err != nil {
		return proof, s.refused(ctx, p, err)
	}
	return proof, nil
}

// refused logs why a response is rejected and returns a fault without the reason.
func (s *SSO) refused(ctx context.Context, p Provider, err error) error {
	s.c.Log.WarnContext(ctx, "sign-in with provider refused", "provider", p.ID, "err", text.Line(err.Error(), 500))
	return fault.New(fault.Forbidden, "sso_invalid", "The answer of "+p.Name+" is not valid",
		"start again from the sign-in page; if it happens again, ask the operator: the server log has the reason")
}
