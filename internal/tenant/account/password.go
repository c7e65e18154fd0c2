package account

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"database/sql"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/crypto/argon2"
	"golang.org/x/text/unicode/norm"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fair"
	"slipway/internal/platform/fault"
)

// The cost of a password: OWASP's first choice for argon2id, about 40 ms and 19 MiB.
const (
	memory  = 19 * 1024 // KiB
	passes  = 2
	threads = 1
)

// A password's length, in characters and in bytes.
const (
	minPassword = 12
	maxPassword = 1024
)

var errPassword = &fault.Error{Kind: fault.Unauthorized, Message: "Wrong email address or password", Code: "wrong_password"}

// CheckPassword returns the user with this address and password, or one Unauthorized
// fault for all that can be wrong. It takes as long for unknown users as for known ones.
func (a *Accounts) CheckPassword(ctx context.Context, email, password string) (User, error) {
	var id UserID
	phc := ""
	err := a.db.QueryRow(ctx, `SELECT id, password FROM users WHERE email = $1`, asKept(email)).Scan(&id, &phc)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return User{}, fmt.Errorf("check password: %w", err)
	}
	known := phc != ""
	if !known { // the same work, so that time does not tell
		phc = fmt.Sprintf(
			"$argon2id$v=19$m=%d,t=%d,p=%d$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
			a.memory,
			passes,
			threads,
		)
	}
	same, err := a.matches(ctx, phc, password)
	if err != nil {
		return User{}, fmt.Errorf("check password: %w", err)
	}
	if known && same {
		return a.User(ctx, id)
	}
	return User{}, errPassword
}

// SetPassword gives the user a new password; the setup links and sessions they have stop
// working.
func (a *Accounts) SetPassword(ctx context.Context, id UserID, password string) error {
	u, err := a.User(ctx, id)
	if err != nil {
		return err
	}
	phc, err := a.hashPassword(ctx, u.Email, password)
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

// hashPassword checks that the password is good enough and returns it as a PHC string
// (github.com/P-H-C/phc-string-format).
func (a *Accounts) hashPassword(ctx context.Context, email, password string) (string, error) {
	refuse := func(details string) (string, error) {
		return "", &fault.Error{
			Kind:    fault.Invalid,
			Message: "Password doesn't meet the requirements",
			Details: details,
			Code:    "weak_password",
		}
	}
	switch {
	case !utf8.ValidString(password) || strings.ContainsRune(password, 0):
		return refuse("a password is text in UTF-8")
	case utf8.RuneCountInString(password) < minPassword:
		return refuse(fmt.Sprintf("a password has at least %d characters; a few unrelated words are easy to remember", minPassword))
	case len(password) > maxPassword:
		return refuse(fmt.Sprintf("a password has at most %d bytes", maxPassword))
	case strings.EqualFold(password, email):
		return refuse("a password must not be the email address")
	case strings.Count(password, password[:1]) == len(password):
		return refuse("a password must not be one repeated character")
	}
	var salt [16]byte
	rand.Read(salt[:])
	sum, err := a.argon(ctx, password, salt[:], passes, a.memory, threads, 32)
	if err != nil {
		return "", err
	}
	b64 := base64.RawStdEncoding.EncodeToString
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version, a.memory, passes, threads, b64(salt[:]), b64(sum)), nil
}

// matches compares a password with a PHC string, in constant time, with the parameters
// that the string names: older hashes go on working when ours grow.
func (a *Accounts) matches(ctx context.Context, phc, password string) (bool, error) {
	var version, m, t, p int
	part := strings.Split(phc, "$")
	if len(part) != 6 || part[1] != "argon2id" {
		return false, errors.New("the stored password is not argon2id")
	}
	if _, err := fmt.Sscanf(part[2]+" "+part[3], "v=%d m=%d,t=%d,p=%d", &version, &m, &t, &p); err != nil ||
		version != argon2.Version || m < 8 || m > 1<<20 || t < 1 || t > 100 || p < 1 || p > 64 {
		return false, errors.New("the stored password has unknown parameters")
	}
	salt, err := base64.RawStdEncoding.DecodeString(part[4])
	want, err2 := base64.RawStdEncoding.DecodeString(part[5])
	if err != nil || err2 != nil || len(want) < 16 || len(want) > 64 {
		return false, errors.New("the stored password is damaged")
	}
	if len(password) > maxPassword {
		return false, nil
	}
	got, err := a.argon(ctx, password, salt, uint32(t), uint32(m), uint8(p), uint32(len(want)))
	return subtle.ConstantTimeCompare(got, want) == 1, err
}

// argon runs argon2id (RFC 9106) on the normalised password when its turn comes: memory
// is what a flood of logins would exhaust.
func (a *Accounts) argon(ctx context.Context, password string, salt []byte, t, m uint32, p uint8, n uint32) ([]byte, error) {
	done, err := a.hashes.Take(ctx, fair.Who{Owner: db.Share(ctx)})
	if errors.Is(err, fair.ErrFull) {
		return nil, &fault.Error{
			Kind:       fault.Unavailable,
			Code:       "busy",
			Message:    "Too many passwords are being checked",
			Details:    "try again in a few seconds",
			RetryAfter: 5 * time.Second,
		}
	}
	if err != nil {
		return nil, err
	}
	defer done()
	return argon2.IDKey([]byte(norm.NFKC.String(password)), salt, t, m, p, n), nil
}
