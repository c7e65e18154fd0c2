package account

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/account/totp"
	"slipway/internal/tenant/audit"
)

// StepUp raises a session to one that has passed the second factor, by a code of the authenticator app or a recovery code,
// which is spent. A wrong code is an Unauthorized fault; throttling is the caller's.
func (a *Accounts) StepUp(ctx context.Context, by audit.Actor, code string) error {
	code = strings.TrimSpace(code)
	return a.db.Write(ctx, func(tx *db.Tx) (err error) {
		method := ByTOTP
		if totp.Looks(code) {
			err = a.spendTOTP(ctx, tx, by.User, code)
		} else {
			method = ByRecovery
			err = spendCode(ctx, tx, by.User, code)
		}
		if err != nil {
			return err
		}
		return a.raiseTx(ctx, tx, by, method)
	})
}

// StepUpPasskey is StepUp by the answer of the user's passkey to AskPasskey.
func (a *Accounts) StepUpPasskey(ctx context.Context, by audit.Actor, token string, response []byte) error {
	return a.answerPasskey(ctx, token, response, func(tx *db.Tx, owner UserID, _ PasskeyID) error {
		if owner != by.User {
			return errPasskey
		}
		return a.raiseTx(ctx, tx, by, ByPasskey)
	})
}

// raiseTx notes that the holder of a session has passed a second factor.
func (a *Accounts) raiseTx(ctx context.Context, tx *db.Tx, by audit.Actor, method Method) error {
	n, err := tx.Exec(ctx, `UPDATE sessions SET method = $3, proven_at = $4 WHERE id = $1 AND user_id = $2 AND NOT pending`,
		by.Session, by.User, method, db.Now())
	if err != nil {
		return fmt.Errorf("raise session: %w", err)
	}
	if n == 0 {
		return errSession
	}
	by.Owner, by.Rights = "", "" // it concerns the session alone
	return a.AuditTx(ctx, tx, by, audit.Event{Action: "session.raised", Subject: string(by.Session), Detail: "by " + string(method)})
}

// MustBeStrong is nil for a caller whose session has passed the second factor, and for keys and apps.
func (a *Accounts) MustBeStrong(ctx context.Context, r db.Reader, by Caller) error {
	if by.session == "" {
		return nil
	}
	var method Method
	err := r.QueryRow(ctx, `SELECT method FROM sessions WHERE id = $1`, by.session).Scan(&method)
	if errors.Is(err, sql.ErrNoRows) {
		return errSession
	}
	if err != nil {
		return fmt.Errorf("find session: %w", err)
	}
	if !method.Strong() {
		return errStepUp
	}
	return nil
}

// MayChangeFactors is nil where the actor's session may change the second factors of its user. A member of a team that
// requires two-factor authentication, and an emergency owner, must have passed the one that they have: else a password
// alone would make the factor that the team asks for.
func (a *Accounts) MayChangeFactors(ctx context.Context, r db.Reader, by audit.Actor) error {
	_, err := a.factors(ctx, r, by)
	return err
}

// factors is MayChangeFactors, and reports whether the user of a session has none yet: the one that they add is its proof.
func (a *Accounts) factors(ctx context.Context, r db.Reader, by audit.Actor) (first bool, err error) {
	var has, asked bool
	var method Method
	err = r.QueryRow(ctx, `
		SELECT p.two_factor, COALESCE((SELECT s.method FROM sessions s WHERE s.id = $2 AND s.user_id = p.id), ''),
			EXISTS (SELECT 1 FROM memberships m WHERE m.user_id = p.id AND (m.break_glass
				OR EXISTS (SELECT 1 FROM two_factor_teams t WHERE t.owner_id = m.owner_id)))
		FROM people p WHERE p.id = $1`, by.User, by.Session).Scan(&has, &method, &asked)
	if err != nil {
		return false, missingUser(err)
	}
	if has && asked && !method.Strong() {
		return false, errStepUp
	}
	return !has && by.Session != "", nil
}
