package account

import (
	"context"
	"fmt"

	"slipway/internal/platform/db"
)

// SignInWithTx begins a session of a user whom a provider has vouched for (package sso). A second factor of theirs is
// still owed. A suspended user is a Forbidden fault.
func (a *Accounts) SignInWithTx(ctx context.Context, tx *db.Tx, user UserID, provider string, d Device) (Session, string, error) {
	owed, err := confirmed(ctx, tx, user)
	if err != nil {
		return Session{}, "", err
	}
	return a.beginTx(ctx, tx, user, begun{method: BySSO, provider: provider, pending: owed}, d)
}

// EnrollTx makes a user without a password, for somebody whom a provider has vouched for. A taken address is a Conflict
// fault.
func (a *Accounts) EnrollTx(ctx context.Context, tx *db.Tx, email string) (User, error) {
	email, err := CleanEmail(email)
	if err != nil {
		return User{}, err
	}
	return insertUser(ctx, tx, email, "", false)
}

// EndProviderTx signs out everybody who signed in with a provider, or one of them, ends the keys that such sessions made for
// its team, and returns how many sessions ended.
func (a *Accounts) EndProviderTx(ctx context.Context, tx *db.Tx, provider string, user UserID) (int64, error) {
	n, err := tx.Exec(ctx, `DELETE FROM sessions WHERE provider_id = $1 AND ($2 = '' OR user_id = $2)`, provider, user)
	if err != nil {
		return 0, fmt.Errorf("end sessions of provider: %w", err)
	}
	if _, err := tx.Exec(ctx, `DELETE FROM api_keys WHERE provider_id = $1 AND ($2 = '' OR user_id = $2)`, provider, user); err != nil {
		return 0, fmt.Errorf("end keys of provider: %w", err)
	}
	_, err = tx.Exec(ctx, `
		DELETE FROM session_providers WHERE provider_id = $1 AND ($2 = '' OR session_id IN (SELECT id FROM sessions
		WHERE user_id = $2))`, provider, user)
	if err != nil {
		return 0, fmt.Errorf("end sign-ins with provider: %w", err)
	}
	return n, nil
}

// UserByEmailTx is UserByEmail in the caller's transaction.
func (a *Accounts) UserByEmailTx(ctx context.Context, tx *db.Tx, email string) (User, error) {
	return scanUser(tx.QueryRow(ctx, `SELECT `+userColumns+` FROM users WHERE email = $1`, asKept(email)))
}

// HasPasskeyTx reports whether a user has a passkey.
func (a *Accounts) HasPasskeyTx(ctx context.Context, tx *db.Tx, user UserID) (has bool, err error) {
	if err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM passkeys WHERE user_id = $1)`, user).Scan(&has); err != nil {
		return false, fmt.Errorf("find passkeys: %w", err)
	}
	return has, nil
}

// UserTx is User in the caller's transaction.
func (a *Accounts) UserTx(ctx context.Context, tx *db.Tx, id UserID) (User, error) {
	return scanUser(tx.QueryRow(ctx, `SELECT `+userColumns+` FROM users WHERE id = $1`, id))
}
