package account

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
)

var errLink = fault.New(fault.NotFound, "link_not_found", "This link is no longer valid",
	"it was used, has expired or was replaced by a newer one; request a new one")

// NewSetupLink returns a token, good once and for ttl, that lets its holder choose the
// user's password. For the empty id it makes the first admin, and works only while
// there is no user. The token is shown once; its digest is stored.
func (a *Accounts) NewSetupLink(ctx context.Context, user UserID, ttl time.Duration) (token string, err error) {
	err = a.db.Write(ctx, func(tx *db.Tx) error {
		token, err = a.NewSetupLinkTx(ctx, tx, user, ttl)
		return err
	})
	return token, err
}

// NewSetupLinkTx is NewSetupLink in the caller's transaction.
func (a *Accounts) NewSetupLinkTx(ctx context.Context, tx *db.Tx, user UserID, ttl time.Duration) (token string, err error) {
	return newLink(ctx, tx, user, ttl, false)
}

func newLink(ctx context.Context, tx *db.Tx, user UserID, ttl time.Duration, mailed bool) (token string, err error) {
	token = db.Random(32)
	if _, err := tx.Exec(ctx, `DELETE FROM setup_links WHERE expires_at <= $1`, db.Now()); err != nil {
		return "", fmt.Errorf("make setup link: %w", err)
	}
	_, err = tx.Exec(ctx, `INSERT INTO setup_links (hash, user_id, expires_at, mailed) VALUES ($1, $2, $3, $4)`,
		digest(token), sql.NullString{String: string(user), Valid: user != ""}, db.Now().Add(ttl), mailed)
	if err != nil {
		return "", fmt.Errorf("make setup link: %w", err)
	}
	return token, nil
}

// SetupLink returns whose password a token sets: the zero User when it makes the first
// admin, a NotFound fault when it does not work any more.
func (a *Accounts) SetupLink(ctx context.Context, token string) (User, error) {
	id, err := findLink(ctx, a.db, token)
	if err != nil || id == "" {
		return User{}, err
	}
	return a.User(ctx, id)
}

// UseSetupLink sets the password the link is for and spends the link. The address is
// read only when it makes the first admin.
func (a *Accounts) UseSetupLink(ctx context.Context, token, email, password string) (User, error) {
	return a.useSetupLink(ctx, token, email, password, func(*db.Tx, User, bool) error { return nil })
}

// useSetupLink is UseSetupLink with something more in the same transaction. then learns
// whether the link had been mailed, and of the user as they were before.
func (a *Accounts) useSetupLink(
	ctx context.Context,
	token, email, password string,
	then func(tx *db.Tx, before User, mailed bool) error,
) (User, error) {
	whose, err := a.SetupLink(ctx, token)
	if err != nil {
		return User{}, err
	}
	if whose.ID != "" {
		email = whose.Email
	} else if email, err = CleanEmail(email); err != nil {
		return User{}, err
	}
	phc, err := a.hashes.Hash(ctx, email, password)
	if err != nil {
		return User{}, err
	}
	var u User
	err = a.db.Write(ctx, func(tx *db.Tx) error {
		// Of two that hold the same link, the one whose DELETE finds the row wins.
		var mailed bool
		err := tx.QueryRow(ctx, `DELETE FROM setup_links WHERE hash = $1 AND expires_at > $2 RETURNING mailed`,
			digest(token), db.Now()).Scan(&mailed)
		if errors.Is(err, sql.ErrNoRows) {
			return errLink
		}
		if err != nil {
			return fmt.Errorf("use setup link: %w", err)
		}
		if whose.ID != "" {
			if err := stands(ctx, tx, whose.ID, fault.Forbidden); err != nil {
				return err
			}
			before, err := scanUser(tx.QueryRow(ctx, `SELECT `+userColumns+` FROM users WHERE id = $1`, whose.ID))
			if err != nil {
				return err
			}
			if err := setPassword(ctx, tx, whose.ID, phc); err != nil {
				return err
			}
			u = before
			u.Password = true
			return then(tx, before, mailed)
		}
		// Every other link for a first admin goes too, before anybody else can use it.
		for _, q := range []string{`DELETE FROM setup_links WHERE user_id IS NULL`, `DELETE FROM first_links`} {
			if _, err := tx.Exec(ctx, q); err != nil {
				return fmt.Errorf("use setup link: %w", err)
			}
		}
		if none, err := empty(ctx, tx); err != nil || !none {
			return errors.Join(err, errLink)
		}
		if u, err = insertUser(ctx, tx, email, phc, true); err != nil {
			return err
		}
		before := u
		before.Password = false
		return then(tx, before, mailed)
	})
	return u, err
}

func findLink(ctx context.Context, r db.Reader, token string) (UserID, error) {
	var user sql.NullString
	err := r.QueryRow(ctx, `SELECT user_id FROM setup_links WHERE hash = $1 AND expires_at > $2`, digest(token), db.Now()).Scan(&user)
	if errors.Is(err, sql.ErrNoRows) {
		return "", errLink
	}
	if err != nil {
		return "", fmt.Errorf("find setup link: %w", err)
	}
	if !user.Valid {
		if none, err := empty(ctx, r); err != nil || !none {
			return "", errors.Join(err, errLink)
		}
	}
	return UserID(user.String), nil
}

// digest is how random secrets are kept: they have too many bits to be guessed, so a
// fast hash is enough.
func digest(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}
