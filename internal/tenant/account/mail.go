package account

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/job"
	"slipway/internal/platform/text"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/mail"
)

// MailQueue is the job queue that mails wait in: a mail server that answers slowly holds
// up nothing else.
const MailQueue = "mail"

// Mail is the job that gets one mail to one user. A crash between the server's word
// and ours sends it twice, with the same Message-ID.
type Mail struct {
	User  UserID
	Box   string  // the mail, sealed: it may hold a link that lets somebody in
	Until db.Time // after that it is of no use any more; 0: however late
}

// Kind names the job.
func (Mail) Kind() string { return "account.mail" }

// mailPurpose is the purpose with which queued mails are sealed. It stays as it was first called, or mails
// that were queued before could not be read.
const mailPurpose = "account/letter"

// Mails reports whether users get mails.
func (a *Accounts) Mails() bool { return a.mail != nil && a.seal != nil && a.site != "" }

// Work registers this service's own jobs.
func (a *Accounts) Work(j *job.Jobs) {
	job.Handle(j, job.Policy{}, a.reset)
	job.Handle(j, job.Policy{}, a.signUp)
	// A mail server that is down for a day loses nothing: after the first minutes it is
	// asked every half hour, 60 times in all.
	job.Handle(j, job.Policy{
		Timeout: time.Minute, Attempts: 60, Formerly: "account.letter", GivenUp: a.mailGivenUp,
		Backoff: func(failures int) time.Duration {
			return min(10*time.Second<<min(failures-1, 20), 30*time.Minute)
		},
	}, a.deliver)
}

// writeTo queues a mail to the user in the caller's transaction, about what is an owner's: it comes from who sells to the owner, and its
// links lead to the seller's host. Where there is no mail it does nothing.
func (a *Accounts) writeTo(ctx context.Context, tx *db.Tx, u User, owner OwnerID, subject, text string, until db.Time) error {
	return a.writeAs(ctx, tx, u, `SELECT sender, reply_to, host FROM owner_brands WHERE owner_id = $1`, string(owner), subject, text, until)
}

// writeAs is writeTo with the query that finds the seller: sender, reply-to and host. The text's links are those of the installation.
func (a *Accounts) writeAs(
	ctx context.Context, tx *db.Tx, u User, query, whose, subject, body string, until db.Time,
) error {
	if !a.Mails() {
		return nil
	}
	m := mail.Message{ID: db.NewID("let"), To: u.Email, Subject: subject}
	var host string
	err := tx.QueryRow(ctx, query, whose).Scan(&m.From, &m.ReplyTo, &host)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return fmt.Errorf("find sender of mail: %w", err)
	}
	m.Text = strings.ReplaceAll(body, a.site, text.WithHost(a.site, host))
	box, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("write mail: %w", err)
	}
	_, err = job.Enqueue(ctx, tx, Mail{u.ID, a.seal.Seal(box, mailPurpose), until}, job.Options{Queue: MailQueue, Share: string(u.ID)})
	return err
}

// How many mails go to addresses that need not be a user's in 24 hours: nobody can fill a stranger's mailbox through this
// installation.
const (
	maxMailsByOwner   = 200 // and by one user, for all the teams that they made
	maxMailsToAddress = 10  // by all owners
)

// MailAddressTx queues a mail that a caller sends for their owner to an address that need not be a user's, until it is of no
// use any more. path is the page of the dashboard that it leads to. Where there is no mail it does nothing; a Limited fault
// says that there were too many.
func (a *Accounts) MailAddressTx(ctx context.Context, tx *db.Tx, by Caller, email, subject, text, path string, until db.Time) error {
	if !a.Mails() {
		return nil
	}
	sum, now := digest(email), db.Now()
	if _, err := tx.Exec(ctx, `
		DELETE FROM address_mails WHERE at < $1 AND (owner_id IN ($2, $4) OR digest = $3)`,
		now.Add(-24*time.Hour), by.Owner, sum, by.User); err != nil {
		return fmt.Errorf("forget mails: %w", err)
	}
	var byOwner, byUser, toAddress int
	err := tx.QueryRow(ctx, `SELECT
		(SELECT count(*) FROM address_mails WHERE owner_id = $1), (SELECT count(*) FROM address_mails WHERE owner_id = $3),
		(SELECT count(*) FROM address_mails WHERE digest = $2)`, by.Owner, sum, by.User).Scan(&byOwner, &byUser, &toAddress)
	if err != nil {
		return fmt.Errorf("count mails: %w", err)
	}
	if max(byOwner, byUser) >= maxMailsByOwner || toAddress >= maxMailsToAddress {
		return &fault.Error{
			Kind: fault.Limited, Message: "Too many emails", RetryAfter: time.Hour, Code: "too_many_emails",
			Details: fmt.Sprintf("an account or user can send %d invitations and transfers in 24 hours, %d of them to one address",
				maxMailsByOwner, maxMailsToAddress),
		}
	}
	// The second row counts for the user, who may act for many teams.
	for _, row := range [][2]string{{string(by.Owner), sum}, {string(by.User), ""}} {
		if _, err := tx.Exec(ctx, `INSERT INTO address_mails (owner_id, digest, at) VALUES ($1, $2, $3)`, row[0], row[1], now); err != nil {
			return fmt.Errorf("count mail: %w", err)
		}
	}
	return a.writeTo(ctx, tx, User{Email: email}, by.Owner, subject, strings.ReplaceAll(text, "{page}", a.site+path), until)
}

// deliver hands a mail to the mail server. One that is too late, or whose user is gone,
// is dropped; one that the server refuses for good is noted where operators look.
func (a *Accounts) deliver(ctx context.Context, queued Mail, _ int64) error {
	if queued.Until != 0 && db.Now() >= queued.Until {
		a.log.WarnContext(ctx, "mail dropped: expired", "user", queued.User)
		return nil
	}
	if queued.User != "" {
		if _, err := a.User(ctx, queued.User); fault.Is(err, fault.NotFound) {
			return nil
		} else if err != nil {
			return err
		}
	}
	if !a.Mails() {
		return errors.New("mail is not set up on this node")
	}
	m, err := a.open(queued)
	if err != nil {
		return err
	}
	err = a.mail.Send(ctx, m)
	var no *mail.Refused
	if errors.As(err, &no) {
		return a.undelivered(ctx, queued.User, m.To, no.Error())
	}
	return err
}

// open opens a queued mail.
func (a *Accounts) open(queued Mail) (m mail.Message, err error) {
	text, err := a.seal.Open(queued.Box, mailPurpose)
	if err == nil {
		err = json.Unmarshal(text, &m)
	}
	if err != nil {
		return m, fmt.Errorf("open mail: %w", err)
	}
	return m, nil
}

func (a *Accounts) mailGivenUp(ctx context.Context, args []byte, why error) error {
	var l Mail
	if err := json.Unmarshal(args, &l); err != nil {
		return fmt.Errorf("read job arguments: %w", err)
	}
	to := "an unknown address" // the mail can't be opened
	if a.Mails() {
		if m, err := a.open(l); err == nil {
			to = m.To
		}
	}
	return a.undelivered(ctx, l.User, to, why.Error())
}

// undelivered says in the log that a mail to an address was not delivered, and why. It may be a user's.
func (a *Accounts) undelivered(ctx context.Context, user UserID, to, why string) error {
	a.log.WarnContext(ctx, "email not delivered", "user", user, "err", why)
	return a.db.Write(ctx, func(tx *db.Tx) error {
		return a.AuditTx(ctx, tx, audit.Actor{
			Via: "mail server",
		}, audit.Event{Action: "mail.undelivered", Subject: string(user), About: user, Detail: "To " + to + ": " + why})
	})
}

// MailInvitationTx sends an invited user the link. Where there is no mail it does nothing.
func (a *Accounts) MailInvitationTx(ctx context.Context, tx *db.Tx, u User, token string) error {
	return a.writeTo(ctx, tx, u, u.Owner, "You've been invited to Slipway", fmt.Sprintf(`You've been invited to the Slipway installation at %s.

Choose a password within %d days to accept the invite:

%s/setup/%s

The link works once and signs in as %s. Don't share it.
If you didn't expect this invite, you can ignore this email.
`, a.site, int(LinkLife.Hours()/24), a.site, token, u.Email), db.Now().Add(LinkLife))
}

// tellOfPassword tells a user that their password was changed, in case it was not them.
func (a *Accounts) tellOfPassword(ctx context.Context, tx *db.Tx, u User, d Device) error {
	return a.writeTo(
		ctx,
		tx,
		u,
		u.Owner,
		"Your password was changed",
		fmt.Sprintf(`The password of %s at %s was changed on %s UTC, from the address %s.
All other sessions were signed out.

If this was you, no action is needed. If it wasn't, reset your password now:

%s/forgot

Then check your sessions and passkeys under Account > Sign-in and security, check the audit log, and contact the operator.
`, u.Email, a.site, time.Now().UTC().Format("2 January 2006, 15:04"), d.Addr, a.site),
		0,
	)
}
