package account

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/audit"
)

// maxWhy is how long a reason may be, in characters.
const maxWhy = 200

// errSuspended tells somebody who has shown who they are why nothing lets them in.
func errSuspended(kind fault.Kind, why string) error {
	return fault.New(kind, "account_suspended", "This account is suspended", cmp.Or(why, "ask the operator of this installation"))
}

// SuspendTx keeps a user out until ResumeTx: sessions end, and passwords, passkeys, links
// and keys are refused from the commit on. What they own stays as it is, and their sites
// stay online. Nobody suspends themselves, and the last operator stays. why is what
// they are told; it may be empty.
func (a *Accounts) SuspendTx(ctx context.Context, tx *db.Tx, by audit.Actor, id UserID, why string) (User, error) {
	why = strings.TrimSpace(why)
	if utf8.RuneCountInString(why) > maxWhy || !utf8.ValidString(why) || strings.ContainsFunc(why, unicode.IsControl) {
		return User{}, fault.New(fault.Invalid, "invalid_reason", "The reason is too long",
			fmt.Sprintf("a reason is one line of at most %d characters", maxWhy))
	}
	if err := notOneself(by, id, "suspend"); err != nil {
		return User{}, err
	}
	if err := spareLast(ctx, tx, id); err != nil {
		return User{}, err
	}
	u, err := scanUser(tx.QueryRow(ctx, `
		UPDATE users SET suspended_at = CASE WHEN suspended_at = 0 THEN $2 ELSE suspended_at END, suspended_why = $3
		WHERE id = $1 RETURNING `+userColumns, id, db.Now(), why))
	if err != nil {
		return User{}, err
	}
	for _, q := range []string{`DELETE FROM sessions WHERE user_id = $1`, `DELETE FROM setup_links WHERE user_id = $1 AND mailed`} {
		if _, err := tx.Exec(ctx, q, id); err != nil {
			return User{}, fmt.Errorf("suspend user: %w", err)
		}
	}
	return u, nil
}

// ResumeTx lets a suspended user in again, with the password, factors and keys they had.
func (a *Accounts) ResumeTx(ctx context.Context, tx *db.Tx, id UserID) (User, error) {
	return scanUser(tx.QueryRow(ctx, `UPDATE users SET suspended_at = 0, suspended_why = '' WHERE id = $1 RETURNING `+userColumns, id))
}

// Stands is nil for an owner who may act, else a Forbidden fault: for credentials that this
// service does not check itself, such as deploy hooks. Whoever holds one need not be the
// user, so it does not say why.
func (a *Accounts) Stands(ctx context.Context, r db.Reader, owner OwnerID) error {
	err := standing(r.QueryRow(ctx, `SELECT suspended_at, suspended_why FROM owner_standing WHERE owner_id = $1`, owner), fault.Forbidden)
	if fault.As(err) != nil {
		return errSuspended(fault.Forbidden, "")
	}
	return err
}

// stands is nil for a user who may act, else a fault of that kind that tells them why not.
func stands(ctx context.Context, r db.Reader, id UserID, kind fault.Kind) error {
	return standing(r.QueryRow(ctx, `SELECT suspended_at, suspended_why FROM users WHERE id = $1`, id), kind)
}

func standing(row db.Scanner, kind fault.Kind) error {
	var at db.Time
	var why string
	switch err := row.Scan(&at, &why); {
	case errors.Is(err, sql.ErrNoRows):
		return errSession
	case err != nil:
		return fmt.Errorf("read user: %w", err)
	case at != 0:
		return errSuspended(kind, why)
	}
	return nil
}
