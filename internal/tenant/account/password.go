package account

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
)

var errPassword = &fault.Error{Kind: fault.Unauthorized, Message: "Wrong email address or password", Code: "wrong_password"}

// CheckPassword returns the user with this address and password, or one Unauthorized
// fault for all that can be wrong. It takes as long for unknown users as for known ones.
func (a *Accounts) CheckPassword(ctx context.Context, email, password string) (User, error) {
	u, _, err := a.checkPassword(ctx, email, password)
	return u, err
}

// checkPassword is CheckPassword, and returns the hash that the password was compared with.
func (a *Accounts) checkPassword(ctx context.Context, email, password string) (u User, phc string, err error) {
	var id UserID
	err = a.db.QueryRow(ctx, `SELECT id, password FROM users WHERE email = $1`, asKept(email)).Scan(&id, &phc)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return User{}, "", fmt.Errorf("check password: %w", err)
	}
	known := phc != ""
	if !known { // the same work, so that time does not tell
		phc = a.hashes.Decoy()
	}
	same, err := a.hashes.Matches(ctx, phc, password)
	if err != nil {
		return User{}, "", fmt.Errorf("check password: %w", err)
	}
	if known && same {
		u, err = a.User(ctx, id)
		return u, phc, err
	}
	return User{}, "", errPassword
}

// holdPassword has a change of a user's password wait until the transaction ends, or is an Unauthorized fault once it has another
// hash than the one that was compared: hashing takes long enough for a change in between.
func holdPassword(ctx context.Context, tx *db.Tx, id UserID, phc string) error {
	n, err := tx.Exec(ctx, `UPDATE users SET password = password WHERE id = $1 AND password = $2`, id, phc)
	if err != nil {
		return fmt.Errorf("hold password: %w", err)
	}
	if n == 0 {
		return errPassword
	}
	return nil
}

// SetPassword gives the user a new password; the setup links and sessions they have stop
// working.
func (a *Accounts) SetPassword(ctx context.Context, id UserID, password string) error {
	u, err := a.User(ctx, id)
	if err != nil {
		return err
	}
	phc, err := a.hashes.Hash(ctx, u.Email, password)
	if err != nil {
		return err
	}
	return a.db.Write(ctx, func(tx *db.Tx) error { return setPassword(ctx, tx, id, phc) })
}

func setPassword(ctx context.Context, tx *db.Tx, id UserID, phc string) error {
	n, err := tx.Exec(ctx, `UPDATE users SET password = $2 WHERE id = $1`, id, phc)
	if err != nil {
		return fmt.Errorf("set password: %w", err)
	}
	if n == 0 {
		return fault.Missing("user")
	}
	for _, q := range []string{`DELETE FROM setup_links WHERE user_id = $1`, `DELETE FROM sessions WHERE user_id = $1`} {
		if _, err := tx.Exec(ctx, q, id); err != nil {
			return fmt.Errorf("set password: %w", err)
		}
	}
	return nil
}
