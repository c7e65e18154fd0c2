package account

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account/totp"
	"slipway/internal/tenant/audit"
)

// recoveryCodes is how many a user gets.
const recoveryCodes = 10

// Factor is a user's second factor.
type Factor struct {
	On    bool
	Since db.Time
	Codes int // recovery codes left
}

var (
	errCode = fault.New(fault.Unauthorized, "wrong_code", "Invalid two-factor code",
		"codes change every 30 seconds, and each works once; check that the device's clock is right")
	errNoFactor = fault.New(fault.Conflict, "no_second_factor", "Two-factor authentication is not enabled", "enable it first")
	errNoSeal   = errors.New("two-factor authentication needs a secrets key")
)

func totpPurpose(id UserID) string { return "account/" + string(id) + "/totp" }

// confirmed reports whether the user has a second factor in force.
func confirmed(ctx context.Context, r db.Reader, id UserID) (bool, error) {
	var on bool
	err := r.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM second_factors WHERE user_id = $1 AND confirmed)`, id).Scan(&on)
	if err != nil {
		return false, fmt.Errorf("find two-factor secret: %w", err)
	}
	return on, nil
}

// SecondFactor returns the owner's second factor; one that is off is no error.
func (a *Accounts) SecondFactor(ctx context.Context, owner UserID) (f Factor, err error) {
	err = a.db.QueryRow(ctx,
		`SELECT confirmed, created_at, (SELECT count(*) FROM recovery_codes WHERE user_id = $1) FROM second_factors WHERE user_id = $1`,
		owner).
		Scan(&f.On, &f.Since, &f.Codes)
	if errors.Is(err, sql.ErrNoRows) || err == nil && !f.On {
		return Factor{}, nil
	}
	if err != nil {
		return Factor{}, fmt.Errorf("find two-factor secret: %w", err)
	}
	return f, nil
}

// RenewCodes replaces the recovery codes of a second factor that is on, and ends the sessions that an earlier code confirmed but the one
// that asks: codes are often renewed because somebody else may have them.
func (a *Accounts) RenewCodes(ctx context.Context, by audit.Actor) (codes []string, err error) {
	err = a.db.Write(ctx, func(tx *db.Tx) error {
		if err := HoldTx(ctx, tx, by); err != nil {
			return err
		}
		on, err := confirmed(ctx, tx, by.User)
		if err != nil {
			return err
		}
		if !on {
			return errNoFactor
		}
		if err := a.MayChangeFactors(ctx, tx, by); err != nil {
			return err
		}
		if codes, err = a.newCodes(ctx, tx, by.User); err != nil {
			return err
		}
		if err := endConfirmedTx(ctx, tx, by.User, by.Session, ByRecovery); err != nil {
			return err
		}
		return a.AuditTx(ctx, tx, by, audit.Event{Action: "second_factor.codes_renewed", Subject: string(by.User)})
	})
	return codes, err
}

// DropTOTPTx turns the owner's second factor off, and ends what was offered and the sessions that it or a recovery code confirmed but
// the one that asks.
func (a *Accounts) DropTOTPTx(ctx context.Context, tx *db.Tx, owner UserID, except SessionID) error {
	for _, q := range []string{
		`DELETE FROM recovery_codes WHERE user_id = $1`,
		`DELETE FROM second_factors WHERE user_id = $1`,
		`DELETE FROM totp_offers WHERE user_id = $1`,
	} {
		if _, err := tx.Exec(ctx, q, owner); err != nil {
			return fmt.Errorf("disable two-factor authentication: %w", err)
		}
	}
	if err := endConfirmedTx(ctx, tx, owner, except, ByTOTP); err != nil {
		return err
	}
	return endConfirmedTx(ctx, tx, owner, except, ByRecovery)
}

// endConfirmedTx ends a user's sessions but one that a method confirmed.
func endConfirmedTx(ctx context.Context, tx *db.Tx, owner UserID, except SessionID, by Method) error {
	if _, err := tx.Exec(ctx, `DELETE FROM sessions WHERE user_id = $1 AND id <> $2 AND method = $3`, owner, except, by); err != nil {
		return fmt.Errorf("end sessions confirmed by %s: %w", by, err)
	}
	return nil
}

func (a *Accounts) newCodes(ctx context.Context, tx *db.Tx, owner UserID) ([]string, error) {
	if _, err := tx.Exec(ctx, `DELETE FROM recovery_codes WHERE user_id = $1`, owner); err != nil {
		return nil, fmt.Errorf("make recovery codes: %w", err)
	}
	codes := make([]string, recoveryCodes)
	for i := range codes {
		c := db.Random(10) // 80 bits, 16 characters
		codes[i] = c[:4] + "-" + c[4:8] + "-" + c[8:12] + "-" + c[12:]
		if _, err := tx.Exec(ctx, `INSERT INTO recovery_codes (hash, user_id, created_at) VALUES ($1, $2, $3)`,
			codeHash(owner, codes[i]), owner, db.Now()); err != nil {
			return nil, fmt.Errorf("make recovery codes: %w", err)
		}
	}
	return codes, nil
}

// codeHash returns a recovery code as it is stored. Letter case, spaces and hyphens don't count.
func codeHash(owner UserID, code string) string {
	code = strings.Map(func(r rune) rune {
		if r == '-' || r == ' ' {
			return -1
		}
		return r
	}, strings.ToLower(code))
	return digest(string(owner) + "/" + code)
}

// PassFactor completes a Pending session with a code of the authenticator app or a
// recovery code, which is spent. The session returned takes its place, with a token of
// its own. A wrong code is an Unauthorized fault and leaves the pending one as it was;
// throttling is the caller's.
func (a *Accounts) PassFactor(ctx context.Context, pending Session, code string, d Device) (s Session, token string, err error) {
	code = strings.TrimSpace(code)
	err = a.db.Write(ctx, func(tx *db.Tx) error {
		if err := LockUserTx(ctx, tx, pending.User); err != nil {
			return err
		}
		n, err := tx.Exec(ctx, `DELETE FROM sessions WHERE id = $1 AND pending AND expires_at > $2`, pending.ID, db.Now())
		if err != nil {
			return fmt.Errorf("verify two-factor code: %w", err)
		}
		if n == 0 {
			return errSession
		}
		method := ByTOTP
		if totp.Looks(code) {
			err = a.spendTOTP(ctx, tx, pending.User, code)
		} else {
			method = ByRecovery
			err = spendCode(ctx, tx, pending.User, code)
		}
		if err != nil {
			return err
		}
		s, token, err = a.beginTx(ctx, tx, pending.User, begun{method: method, provider: pending.Provider}, d)
		return err
	})
	if fault.Is(err, fault.Unauthorized) && !errors.Is(err, errSession) {
		a.noteRefusal(pending.User, d, "right password, wrong two-factor code")
	}
	return s, token, err
}

func spendCode(ctx context.Context, tx *db.Tx, owner UserID, code string) error {
	n, err := tx.Exec(ctx, `DELETE FROM recovery_codes WHERE hash = $1 AND user_id = $2`, codeHash(owner, code), owner)
	if err != nil {
		return fmt.Errorf("spend recovery code: %w", err)
	}
	if n == 0 {
		return errCode
	}
	return nil
}

// spendTOTP accepts a code of this step or one beside it, once: the step must be newer
// than the one used last (RFC 6238 §5.2).
func (a *Accounts) spendTOTP(ctx context.Context, tx *db.Tx, owner UserID, code string) error {
	if a.seal == nil {
		return errNoSeal
	}
	var box string
	err := tx.QueryRow(ctx, `SELECT secret FROM second_factors WHERE user_id = $1 AND confirmed`, owner).Scan(&box)
	if errors.Is(err, sql.ErrNoRows) {
		return errNoFactor
	}
	if err != nil {
		return fmt.Errorf("read two-factor secret: %w", err)
	}
	secret, err := a.seal.Open(box, totpPurpose(owner))
	if err != nil {
		return fmt.Errorf("open two-factor secret: %w", err)
	}
	for _, at := range totp.Steps(secret, code) {
		n, err := tx.Exec(ctx, `UPDATE second_factors SET last_step = $2 WHERE user_id = $1 AND last_step < $2`, owner, at)
		if err != nil {
			return fmt.Errorf("spend code: %w", err)
		}
		if n == 1 {
			return nil
		}
	}
	return errCode
}
