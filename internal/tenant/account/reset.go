package account

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/job"
	"slipway/internal/tenant/audit"
)

// ResetLife is how long a link works that was mailed to somebody who forgot their password.
const ResetLife = time.Hour

// ResetAsked is the job that answers somebody who forgot their password. Whether the
// address has a user is found out by it, not by the request, which therefore takes as
// long and says the same for every address. When it runs twice the second link takes the
// place of the first.
type ResetAsked struct {
	Email string
	Addr  string // from where it was asked
}

// Kind names the job.
func (ResetAsked) Kind() string { return "account.reset" }

// AskReset notes that somebody forgot the password of this address. If a user has it they
// get a mail with a link; nobody else learns whether one has. Throttling is the caller's.
func (a *Accounts) AskReset(ctx context.Context, email string, d Device) error {
	if !a.Mails() {
		return fault.New(fault.Conflict, "mail_off", "Email is not configured on this installation",
			"ask the operator for a password reset link")
	}
	email, err := CleanEmail(email)
	if err != nil {
		return err
	}
	return a.db.Write(ctx, func(tx *db.Tx) error {
		// One at a time for one address: the newest link is the one that works.
		_, err := job.Enqueue(ctx, tx, ResetAsked{email, d.Addr.String()}, job.Options{Group: "reset/" + digest(email)})
		return err
	})
}

// resets reports whether a user can have a link for a password mailed: they have one, or come in by providers of teams alone,
// which open those teams and nothing else.
func (a *Accounts) resets(ctx context.Context, u User) (yes bool, err error) {
	if u.Password {
		return true, nil
	}
	err = a.db.QueryRow(ctx, `
		SELECT EXISTS (SELECT 1 FROM linked_users WHERE user_id = $1) AND NOT EXISTS (SELECT 1 FROM provided_users WHERE user_id = $1)
			AND NOT EXISTS (SELECT 1 FROM passkeys WHERE user_id = $1)`, u.ID).Scan(&yes)
	if err != nil {
		return false, fmt.Errorf("find ways to sign in: %w", err)
	}
	return yes, nil
}

// reset makes the link and queues the mail with it, both or neither. Users who are
// suspended, or were invited and never came in, get none: the operator decides on those.
func (a *Accounts) reset(ctx context.Context, asked ResetAsked, _ int64) error {
	u, err := a.UserByEmail(ctx, asked.Email)
	if fault.Is(err, fault.NotFound) || err == nil && (u.Suspended != 0 || !a.Mails()) {
		return nil
	}
	if err != nil {
		return err
	}
	if may, err := a.resets(ctx, u); err != nil || !may {
		return err
	}
	return a.db.Write(ctx, func(tx *db.Tx) error {
		if _, err := tx.Exec(ctx, `DELETE FROM setup_links WHERE user_id = $1 AND mailed`, u.ID); err != nil {
			return fmt.Errorf("make reset link: %w", err)
		}
		token, err := newLink(ctx, tx, u.ID, ResetLife, true)
		if err != nil {
			return err
		}
		from, _ := netip.ParseAddr(asked.Addr) // none is none
		if err := a.AuditTx(ctx, tx, audit.Actor{
			Via:  "the sign-in page",
			Addr: from,
		}, audit.Event{Action: "password.reset_mailed", Subject: string(u.ID), About: u.ID}); err != nil {
			return err
		}
		return a.writeTo(ctx, tx, u, u.Owner, "Choose a new password", fmt.Sprintf(`Someone asked to reset the password for %s at %s.

Choose a new password within an hour:

%s/setup/%s

The link works once, and only the newest one works. Choosing a new password signs out all sessions. Two-factor authentication stays enabled.

If it wasn't you, ignore this email: your password stays the same. The request came from the address %s.
`, u.Email, a.site, a.site, token, asked.Addr), db.Now().Add(ResetLife))
	})
}
