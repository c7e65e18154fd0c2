package account

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/mail"
	"strings"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/text"
)

// User is somebody who signs in.
type User struct {
	ID        UserID
	Owner     OwnerID // their personal account
	Email     string  // lower case
	Admin     bool    // runs the installation
	Password  bool    // has one
	Invited   bool    // has no way to sign in yet: no password, no passkey, and no linked account elsewhere
	CreatedAt db.Time
	Suspended db.Time // since when nothing lets them in; 0: not
	Why       string  // what they are told of it
}

const userColumns = `users.id, users.owner_id, users.email, users.admin, users.password <> '',
	users.password = '' AND NOT EXISTS (SELECT 1 FROM passkeys WHERE passkeys.user_id = users.id)
		AND NOT EXISTS (SELECT 1 FROM linked_users WHERE linked_users.user_id = users.id),
	users.created_at, users.suspended_at, users.suspended_why`

func userFields(u *User) []any {
	return []any{&u.ID, &u.Owner, &u.Email, &u.Admin, &u.Password, &u.Invited, &u.CreatedAt, &u.Suspended, &u.Why}
}

// LockUserTx makes others who change how this user signs in wait until the transaction ends: of two last ways in, one stays.
func LockUserTx(ctx context.Context, tx *db.Tx, id UserID) error {
	if _, err := tx.Exec(ctx, `UPDATE users SET admin = admin WHERE id = $1`, id); err != nil {
		return fmt.Errorf("lock user: %w", err)
	}
	return nil
}

func scanUser(row db.Scanner) (u User, err error) {
	return u, missingUser(row.Scan(userFields(&u)...))
}

func missingUser(err error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return fault.Missing("user")
	}
	return err
}

// CreateUser makes a user. An empty password makes one that cannot log in until a setup
// link is used. A taken address is a Conflict fault.
func (a *Accounts) CreateUser(ctx context.Context, email, password string, admin bool) (User, error) {
	return a.CreateUserAnd(ctx, email, password, admin, func(*db.Tx, User) error { return nil })
}

// CreateUserAnd is CreateUser with something more in the same transaction.
func (a *Accounts) CreateUserAnd(
	ctx context.Context, email, password string, admin bool, then func(tx *db.Tx, u User) error,
) (User, error) {
	email, err := CleanEmail(email)
	if err != nil {
		return User{}, err
	}
	phc := ""
	if password != "" {
		if phc, err = a.hashes.Hash(ctx, email, password); err != nil {
			return User{}, err
		}
	}
	var u User
	err = a.db.Write(ctx, func(tx *db.Tx) error {
		if u, err = insertUser(ctx, tx, email, phc, admin); err != nil {
			return err
		}
		return then(tx, u)
	})
	return u, err
}

func insertUser(ctx context.Context, tx *db.Tx, email, phc string, admin bool) (User, error) {
	owner, now := db.NewID("own"), db.Now()
	u, err := scanUser(tx.QueryRow(ctx, `
		INSERT INTO users (id, owner_id, email, password, admin, created_at) VALUES ($1, $2, $3, $4, $5, $6)
		RETURNING `+userColumns, db.NewID("usr"), owner, email, phc, admin, now))
	if db.Duplicate(err) {
		return u, fault.New(fault.Conflict, "email_taken", "A user with this email address already exists",
			"").Got(email)
	}
	if err != nil {
		return u, fmt.Errorf("create user: %w", err)
	}
	if _, err := tx.Exec(ctx, `INSERT INTO owners (id, kind, created_at) VALUES ($1, 'personal', $2)`, owner, now); err != nil {
		return u, fmt.Errorf("create personal account: %w", err)
	}
	return u, nil
}

// User returns the user with this id, or a NotFound fault.
func (a *Accounts) User(ctx context.Context, id UserID) (User, error) {
	return scanUser(a.db.QueryRow(ctx, `SELECT `+userColumns+` FROM users WHERE id = $1`, id))
}

// UserByEmail returns the user with this address in any letter case, or a NotFound fault.
func (a *Accounts) UserByEmail(ctx context.Context, email string) (User, error) {
	return scanUser(a.db.QueryRow(ctx, `SELECT `+userColumns+` FROM users WHERE email = $1`, asKept(email)))
}

// asKept is an address that somebody typed as it would be kept, if it is one.
func asKept(email string) string { return text.Cut(strings.ToLower(strings.TrimSpace(email)), 254) }

// Users returns everybody, oldest first. It is for the operator.
func (a *Accounts) Users(ctx context.Context) ([]User, error) {
	rows, err := a.db.Query(ctx, `SELECT `+userColumns+` FROM users ORDER BY created_at, id`)
	return db.Collect(rows, err, scanUser)
}

// Empty reports whether there is no user yet.
func (a *Accounts) Empty(ctx context.Context) (bool, error) { return empty(ctx, a.db) }

func empty(ctx context.Context, r db.Reader) (bool, error) {
	var some bool
	err := r.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM users)`).Scan(&some)
	return !some, err
}

// CleanEmail checks an address (RFC 5321's lengths, RFC 5322's dot-atom form) and
// returns it in lower case.
func CleanEmail(s string) (string, error) {
	s = strings.TrimSpace(s)
	at := strings.LastIndexByte(s, '@')
	parsed, err := mail.ParseAddress(s)
	if err != nil || parsed.Name != "" || parsed.Address != s || len(s) > 254 || at > 64 ||
		strings.ContainsAny(s, "\"\\[]()<>,:; \t") || strings.ContainsFunc(s, func(r rune) bool { return r < 0x20 || r == 0x7f }) {
		return "", fault.New(fault.Invalid, "invalid_email", "Invalid email address",
			"an address looks like name@example.com").Got(s)
	}
	return strings.ToLower(s), nil
}
