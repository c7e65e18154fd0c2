package account

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account/totp"
	"slipway/internal/tenant/audit"
)

// Offer is a second factor that its owner has not yet shown to work.
type Offer struct {
	Token  string // names the offer in the form that confirms it
	Secret string // base32, as people type it
	URI    string // otpauth://, as a QR code carries it
}

// How long an offer can be confirmed, and how many of one session are open at a time.
const (
	offerLife = 15 * time.Minute
	maxOffers = 5
)

var (
	errFactorOn = fault.New(fault.Conflict, "second_factor_on", "Two-factor authentication is already enabled", "disable it first")
	errNoOffer  = fault.New(fault.Conflict, "totp_offer_expired", "This setup has expired",
		"scan the new QR code and enter its code")
	errNotFresh = &fault.Error{Kind: fault.Forbidden, Message: "Enter your password to continue", Code: "password_required"}
)

// OfferTOTP returns a new secret for the owner's authenticator app: each offer has its
// own, and only the session it was made for can confirm it. The session must be Fresh,
// else it is a Forbidden fault; where a second factor is on it is a Conflict fault.
func (a *Accounts) OfferTOTP(ctx context.Context, s Session) (Offer, error) {
	if a.seal == nil {
		return Offer{}, errNoSeal
	}
	if !s.Fresh() {
		return Offer{}, errNotFresh
	}
	u, err := a.User(ctx, s.User)
	if err != nil {
		return Offer{}, err
	}
	var raw [totp.Bytes]byte
	var token [32]byte
	rand.Read(raw[:])
	rand.Read(token[:])
	o, err := a.newOffer(ctx, u, base64.RawURLEncoding.EncodeToString(token[:]), raw[:])
	if err != nil {
		return Offer{}, err
	}
	box, now := a.seal.Seal(raw[:], totpPurpose(u.ID)), db.Now()
	err = a.db.Write(ctx, func(tx *db.Tx) error {
		on, err := confirmed(ctx, tx, u.ID)
		if err != nil {
			return err
		}
		if on {
			return errFactorOn
		}
		if _, err := tx.Exec(ctx, `
			INSERT INTO totp_offers (hash, user_id, session_id, secret, created_at, expires_at) VALUES ($1, $2, $3, $4, $5, $6)`,
			digest(o.Token), u.ID, s.ID, box, now, now.Add(offerLife)); err != nil {
			return fmt.Errorf("offer two-factor secret: %w", err)
		}
		_, err = tx.Exec(ctx, `
			DELETE FROM totp_offers WHERE hash IN (SELECT hash FROM totp_offers WHERE session_id = $1
			ORDER BY created_at DESC, hash LIMIT 100 OFFSET $2)`,
			s.ID, maxOffers)
		return err
	})
	return o, err
}

// newOffer returns an offer under the name that the user knows the dashboard by. A colon would end the name in an app.
func (a *Accounts) newOffer(ctx context.Context, u User, token string, secret []byte) (Offer, error) {
	name := "Slipway"
	err := a.db.QueryRow(ctx, `SELECT name FROM owner_brands WHERE owner_id = $1`, u.Owner).Scan(&name)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return Offer{}, fmt.Errorf("find name of dashboard: %w", err)
	}
	return Offer{token, totp.Text(secret), totp.URI(secret, strings.ReplaceAll(name, ":", ""), u.Email)}, nil
}

// OfferedTOTP returns an offer again to the session it was made for, for a form whose
// code was wrong. The session must be Fresh. One that is unknown or has expired is a
// Conflict fault.
func (a *Accounts) OfferedTOTP(ctx context.Context, s Session, token string) (Offer, error) {
	if !s.Fresh() {
		return Offer{}, errNotFresh
	}
	u, err := a.User(ctx, s.User)
	if err != nil {
		return Offer{}, err
	}
	secret, err := a.offered(ctx, a.db, s.User, s.ID, token)
	if err != nil {
		return Offer{}, err
	}
	return a.newOffer(ctx, u, token, secret)
}

// offered opens the secret of a session's offer.
func (a *Accounts) offered(ctx context.Context, r db.Reader, user UserID, s SessionID, token string) ([]byte, error) {
	if a.seal == nil {
		return nil, errNoSeal
	}
	var box string
	err := r.QueryRow(ctx, `
		SELECT secret FROM totp_offers WHERE hash = $1 AND user_id = $2 AND session_id = $3 AND expires_at > $4`,
		digest(token), user, s, db.Now()).Scan(&box)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, errNoOffer
	}
	if err != nil {
		return nil, fmt.Errorf("read offered two-factor secret: %w", err)
	}
	secret, err := a.seal.Open(box, totpPurpose(user))
	if err != nil {
		return nil, fmt.Errorf("open offered two-factor secret: %w", err)
	}
	return secret, nil
}

// ConfirmTOTP turns an offered second factor on when the code is right, and returns the
// recovery codes, which are not stored. Only the session that was offered it can. The
// session stays; others that owe nothing too. Every offer to the user ends.
func (a *Accounts) ConfirmTOTP(ctx context.Context, by audit.Actor, token, code string) (codes []string, err error) {
	err = a.db.Write(ctx, func(tx *db.Tx) error {
		if err := HoldTx(ctx, tx, by); err != nil {
			return err
		}
		on, err := confirmed(ctx, tx, by.User)
		if err != nil {
			return err
		}
		if on {
			return errFactorOn
		}
		first, err := a.factors(ctx, tx, by)
		if err != nil {
			return err
		}
		secret, err := a.offered(ctx, tx, by.User, by.Session, token)
		if err != nil {
			return err
		}
		steps := totp.Steps(secret, code)
		if len(steps) == 0 {
			return errCode
		}
		n, err := tx.Exec(ctx, `
			INSERT INTO second_factors (user_id, secret, confirmed, last_step, created_at) VALUES ($1, $2, TRUE, $3, $4)
			ON CONFLICT (user_id) DO NOTHING`, by.User, a.seal.Seal(secret, totpPurpose(by.User)), steps[len(steps)-1], db.Now())
		if err != nil {
			return fmt.Errorf("enable two-factor authentication: %w", err)
		}
		if n == 0 {
			return errFactorOn
		}
		if _, err := tx.Exec(ctx, `DELETE FROM totp_offers WHERE user_id = $1`, by.User); err != nil {
			return fmt.Errorf("enable two-factor authentication: %w", err)
		}
		if codes, err = a.newCodes(ctx, tx, by.User); err != nil {
			return err
		}
		if first {
			if err := a.raiseTx(ctx, tx, by, ByTOTP); err != nil {
				return err
			}
		}
		return a.AuditTx(ctx, tx, by, audit.Event{Action: "second_factor.enabled", Subject: string(by.User)})
	})
	return codes, err
}
