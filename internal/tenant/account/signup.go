package account

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/job"
	"slipway/internal/tenant/audit"
)

// SignUpLife is how long the link works that is mailed to somebody who signs up.
const SignUpLife = 24 * time.Hour

// mostSignUps bounds the mails to people who sign up, in an hour and of the whole installation: whoever has many addresses and networks
// can't have this installation's mail server do more.
const mostSignUps = 300

// SignUpAsked is the job that answers somebody who signs up. Whether the address has a user is found out by it, so the request
// takes as long and says the same for every address. Run twice, the second link takes the place of the first.
type SignUpAsked struct {
	ID   string
	Addr string // from where it was asked
}

// Kind names the job.
func (SignUpAsked) Kind() string { return "account.sign_up" }

// AskSignUp notes that somebody wants an account with this address. They get a mail with a link that makes it; until then there is
// no user. Who has an account is told so by mail, and nobody else learns it. seller is who sells at the host at which they ask; empty: the
// installation. Throttling by address and network is the caller's.
func (a *Accounts) AskSignUp(ctx context.Context, email, seller string, d Device) error {
	if !a.Mails() {
		return fault.New(fault.Conflict, "mail_off", "Email is not configured on this installation",
			"ask the operator for an account")
	}
	email, err := CleanEmail(email)
	if err != nil {
		return err
	}
	return a.db.Write(ctx, func(tx *db.Tx) error {
		now := db.Now()
		if _, err := tx.Exec(ctx, `DELETE FROM sign_ups WHERE expires_at <= $1`, now); err != nil {
			return fmt.Errorf("forget sign-ups: %w", err)
		}
		var n int
		if err := tx.QueryRow(ctx, `SELECT count(*) FROM sign_ups WHERE created_at > $1`, now.Add(-time.Hour)).Scan(&n); err != nil {
			return fmt.Errorf("count sign-ups: %w", err)
		}
		if n >= mostSignUps {
			return &fault.Error{
				Kind: fault.Limited, Message: "Too many people are signing up", Details: "try again in an hour", Code: "too_many_sign_ups",
				RetryAfter: time.Hour,
			}
		}
		s := SignUpAsked{db.NewID("sgn"), d.Addr.String()}
		if _, err := tx.Exec(ctx, `INSERT INTO sign_ups (id, email, hash, created_at, expires_at, seller_id) VALUES ($1, $2, '', $3, $4, $5)`,
			s.ID, email, now, now.Add(SignUpLife), seller); err != nil {
			return fmt.Errorf("write sign-up: %w", err)
		}
		_, err := job.Enqueue(ctx, tx, s, job.Options{Group: "sign_up/" + digest(email)})
		return err
	})
}

// signUp makes the link and queues the mail with it, both or neither.
func (a *Accounts) signUp(ctx context.Context, asked SignUpAsked, _ int64) error {
	var email, seller string
	err := a.db.QueryRow(ctx, `SELECT email, seller_id FROM sign_ups WHERE id = $1`, asked.ID).Scan(&email, &seller)
	if errors.Is(err, sql.ErrNoRows) || err == nil && !a.Mails() {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read sign-up: %w", err)
	}
	u, err := a.UserByEmail(ctx, email)
	if err != nil && !fault.Is(err, fault.NotFound) {
		return err
	}
	return a.db.Write(ctx, func(tx *db.Tx) error {
		until := db.Now().Add(SignUpLife)
		if u.ID != "" {
			return a.writeTo(ctx, tx, u, u.Owner, "You already have an account",
				fmt.Sprintf(`Someone asked to create an account for %s at %s, but there is one already.

Sign in, or choose a new password if you forgot yours:

%s/sign-in
%s/forgot

If it wasn't you, ignore this email. The request came from the address %s.
`, u.Email, a.site, a.site, a.site, asked.Addr), until)
		}
		token := db.Random(32)
		if _, err := tx.Exec(ctx, `UPDATE sign_ups SET hash = '' WHERE email = $1`, email); err != nil { // the newest link alone works
			return fmt.Errorf("write sign-up: %w", err)
		}
		if _, err := tx.Exec(ctx, `UPDATE sign_ups SET hash = $2 WHERE id = $1`, asked.ID, digest(token)); err != nil {
			return fmt.Errorf("write sign-up: %w", err)
		}
		return a.writeAs(ctx, tx, User{Email: email}, `
			SELECT s.sender, s.reply_to, COALESCE(h.host, '') FROM sellers s LEFT JOIN control_hosts h ON h.seller_id = s.id
			WHERE s.id = $1`, seller, "Confirm your email address", fmt.Sprintf(`Someone asked to create an account for %s at %s.

To confirm that this is your address and choose a password, open this link within 24 hours:

%s/sign-up/%s

The link works once, and only the newest one works. If it wasn't you, ignore this email: no account is created. The request came from the address %s.
`, email, a.site, a.site, token, asked.Addr), until)
	})
}

// SignUpLink returns the address that a link proves, or a NotFound fault.
func (a *Accounts) SignUpLink(ctx context.Context, token string) (email string, err error) {
	err = a.db.QueryRow(ctx, `SELECT email FROM sign_ups WHERE hash = $1 AND expires_at > $2`, digest(token), db.Now()).Scan(&email)
	if errors.Is(err, sql.ErrNoRows) {
		return "", errLink
	}
	if err != nil {
		return "", fmt.Errorf("find sign-up: %w", err)
	}
	return email, nil
}

// SignUp makes the user whose address the link proves, and signs them in. The link is spent. assign makes the account the customer of the
// seller at whose host they asked, in the same transaction; it isn't called where that was the installation's.
func (a *Accounts) SignUp(
	ctx context.Context, link, password string, d Device, assign func(ctx context.Context, tx *db.Tx, owner OwnerID, seller string) error,
) (s Session, token string, err error) {
	email, err := a.SignUpLink(ctx, link)
	if err != nil {
		return s, "", err
	}
	phc, err := a.hashes.Hash(ctx, email, password)
	if err != nil {
		return s, "", err
	}
	err = a.db.Write(ctx, func(tx *db.Tx) error {
		// Of two that hold the same link, the one whose DELETE finds the row wins.
		var seller string
		err := tx.QueryRow(ctx, `DELETE FROM sign_ups WHERE hash = $1 AND expires_at > $2 RETURNING seller_id`,
			digest(link), db.Now()).Scan(&seller)
		if errors.Is(err, sql.ErrNoRows) {
			return errLink
		}
		if err != nil {
			return fmt.Errorf("use sign-up link: %w", err)
		}
		if _, err := tx.Exec(ctx, `DELETE FROM sign_ups WHERE email = $1`, email); err != nil {
			return fmt.Errorf("forget sign-ups: %w", err)
		}
		u, err := insertUser(ctx, tx, email, phc, false)
		if err != nil {
			return err
		}
		if err := a.AuditTx(ctx, tx, audit.Actor{User: u.ID, Owner: u.Owner, Addr: d.Addr},
			audit.Event{Action: "account.signed_up", Subject: string(u.ID)}); err != nil {
			return err
		}
		if seller != "" {
			if err := assign(ctx, tx, u.Owner, seller); err != nil {
				return err
			}
		}
		s, token, err = a.beginTx(ctx, tx, u.ID, begun{method: BySetup}, d)
		return err
	})
	return s, token, err
}
