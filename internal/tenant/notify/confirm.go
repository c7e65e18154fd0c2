package notify

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/job"
	"slipway/internal/platform/text"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/mail"
)

// ConfirmLife is the lifetime of a confirmation link.
const ConfirmLife = 7 * 24 * time.Hour

// Limits of confirmation emails per 24 hours. They keep users from flooding a mailbox.
const (
	maxAskedByOwner   = 20
	maxAskedOfAddress = 3 // over all owners
)

// confirming is the event of confirmation emails.
const confirming = "confirm"

const (
	confirmPurpose = "notify/confirm"
	stopPurpose    = "notify/stop"
)

// Unconfirmed reports whether the channel still waits for its recipient's confirmation. Until then it sends nothing
// else.
func (c *Channel) Unconfirmed() bool {
	return c.Kind == Mail && c.Address != "" && c.ConfirmedAt == 0
}

func digest(address string) string {
	sum := sha256.Sum256([]byte(address))
	return hex.EncodeToString(sum[:])
}

// askTx enqueues the confirmation email to the channel's recipient. by names the requester in it. It refuses recipients
// who declined, and returns a Limited fault after too many emails.
func (n *Notifications) askTx(ctx context.Context, tx *db.Tx, c Channel, by string) error {
	sum, now := digest(c.Address), db.At(n.now())
	day := now.Add(-24 * time.Hour)
	if _, err := tx.Exec(ctx, `DELETE FROM notify_asked WHERE at < $1`, day); err != nil {
		return fmt.Errorf("ask recipient: %w", err)
	}
	var no, byOwner, ofAddress int
	err := tx.QueryRow(ctx, `SELECT
		(SELECT count(*) FROM notify_refused WHERE owner_id = $1 AND digest = $2),
		(SELECT count(*) FROM notify_asked WHERE owner_id = $1),
		(SELECT count(*) FROM notify_asked WHERE digest = $2)`, c.Owner, sum).Scan(&no, &byOwner, &ofAddress)
	switch {
	case err != nil:
		return fmt.Errorf("ask recipient: %w", err)
	case no > 0:
		return fault.New(fault.Conflict, "recipient_unsubscribed", "This recipient has unsubscribed",
			"only they can change that, by the link in an email that they have")
	case byOwner >= maxAskedByOwner || ofAddress >= maxAskedOfAddress:
		return &fault.Error{
			Kind:       fault.Limited,
			Message:    "Too many confirmation emails",
			Details:    fmt.Sprintf("at most %d a day, %d to one address", maxAskedByOwner, maxAskedOfAddress),
			Code:       "too_many_confirmations",
			RetryAfter: time.Hour,
		}
	}
	_, err = tx.Exec(ctx, `INSERT INTO notify_asked (id, owner_id, digest, at) VALUES ($1, $2, $3, $4)`, db.NewID("nca"), c.Owner, sum, now)
	if err != nil {
		return fmt.Errorf("ask recipient: %w", err)
	}
	_, err = job.Enqueue(ctx, tx, Send{c.ID, Message{Event: confirming, Text: by}}, job.Options{Queue: QueueName, Share: string(c.Owner)})
	return err
}

// AskAgainTx sends a channel's confirmation email again.
func (n *Notifications) AskAgainTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, id ID, by string) (Channel, error) {
	c, err := n.Get(ctx, tx, owner, id)
	if err != nil {
		return c, err
	}
	if !c.Unconfirmed() {
		return c, fault.New(fault.Conflict, "already_confirmed", "There is nothing to confirm",
			"only email to an address other than the account's is confirmed, and once")
	}
	return c, n.askTx(ctx, tx, c, by)
}

// email renders a message to a channel's recipient. number makes the email's ID unique.
func (n *Notifications) email(c Channel, m Message, number int64) mail.Message {
	out := mail.Message{ID: fmt.Sprintf("%s-%d", c.ID, number), To: c.Address}
	out.Unsubscribe = n.c.Base + "/notifications/stop/" + n.c.Seal.Seal([]byte(string(c.Owner)+" "+digest(c.Address)), stopPurpose)
	if m.Event == confirming {
		until := strconv.FormatInt(n.now().Add(ConfirmLife).Unix(), 10)
		link := n.c.Base + "/notifications/confirm/" + n.c.Seal.Seal([]byte(string(c.ID)+" "+until+" "+digest(c.Address)), confirmPurpose)
		out.Subject = confirmSubject + "Slipway"
		out.Text = fmt.Sprintf(`%s wants to send notifications about their sites at %s to this address, %s.

If you want them, confirm within %d days:

%s

If you don't, ignore this email: you won't get any. To get no more requests from them either:

%s
`, m.Text, n.c.Base, c.Address, int(ConfirmLife.Hours()/24), link, out.Unsubscribe)
		return out
	}
	out.Subject = m.Title
	out.Text = strings.TrimSpace(m.Title+"\n\n"+m.Text) + "\n\n" + n.c.Base + m.Path + "\n\n-- \nUnsubscribe: " + out.Unsubscribe + "\n"
	return out
}

// brand gives an email the sender, name and host of the owner's reseller, if any.
func (n *Notifications) brand(ctx context.Context, owner account.OwnerID, m *mail.Message) error {
	var name, host string
	err := n.c.DB.QueryRow(ctx, `SELECT name, sender, reply_to, host FROM owner_brands WHERE owner_id = $1`, owner).Scan(
		&name, &m.From, &m.ReplyTo, &host)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("find sender of notification: %w", err)
	}
	base := text.WithHost(n.c.Base, host)
	m.Text, m.Unsubscribe = strings.ReplaceAll(m.Text, n.c.Base, base), strings.ReplaceAll(m.Unsubscribe, n.c.Base, base)
	if m.Subject == confirmSubject+"Slipway" {
		m.Subject = confirmSubject + name
	}
	return nil
}

// confirmSubject is followed by the name of the dashboard.
const confirmSubject = "Confirm notifications from "

// mailTo sends an email and returns the results of post.
func (n *Notifications) mailTo(ctx context.Context, m mail.Message) (again time.Duration, why string) {
	if n.c.Mail == nil {
		return -1, "Email is not configured on this installation"
	}
	err := n.c.Mail.Send(ctx, m)
	var no *mail.Refused
	switch {
	case err == nil:
		return 0, ""
	case errors.As(err, &no):
		return -1, text.Line("The mail server answered "+no.Error(), 300)
	}
	return 0, "The mail server couldn't be reached"
}

var errLink = fault.New(fault.NotFound, "invalid_link", "This link doesn't work any more",
	"it has expired, or the channel was deleted or sends to another address now")

// words returns the parts of a sealed link, or errLink.
func (n *Notifications) words(token, purpose string, count int) ([]string, error) {
	plain, err := n.c.Seal.Open(token, purpose)
	if err != nil {
		return nil, errLink
	}
	if words := strings.Fields(string(plain)); len(words) == count {
		return words, nil
	}
	return nil, errLink
}

// Confirmation returns the channel of a confirmation link, or a NotFound fault.
func (n *Notifications) Confirmation(ctx context.Context, r db.Reader, token string) (Channel, error) {
	words, err := n.words(token, confirmPurpose, 3)
	if err != nil {
		return Channel{}, err
	}
	until, err := strconv.ParseInt(words[1], 10, 64)
	if err != nil || n.now().Unix() >= until {
		return Channel{}, errLink
	}
	c, err := n.scan(r.QueryRow(ctx, `SELECT `+columns+` FROM notify_channels WHERE id = $1`, words[0]))
	if fault.Is(err, fault.NotFound) || err == nil && digest(c.Address) != words[2] {
		return Channel{}, errLink
	}
	return c, err
}

// ConfirmTx records the recipient's confirmation. Repeating it changes nothing.
func (n *Notifications) ConfirmTx(ctx context.Context, tx *db.Tx, token string) (Channel, error) {
	c, err := n.Confirmation(ctx, tx, token)
	if err != nil || !c.Unconfirmed() {
		return c, err
	}
	c.ConfirmedAt = db.At(n.now())
	if _, err = tx.Exec(ctx, `UPDATE notify_channels SET confirmed_at = $2, error = '' WHERE id = $1`, c.ID, c.ConfirmedAt); err != nil {
		return c, fmt.Errorf("confirm notification channel: %w", err)
	}
	if _, err := tx.Exec(ctx, `DELETE FROM notify_refused WHERE owner_id = $1 AND digest = $2`, c.Owner, digest(c.Address)); err != nil {
		return c, fmt.Errorf("confirm notification channel: %w", err)
	}
	return c, nil
}

// StopLink returns a NotFound fault unless token is an unsubscribe link.
func (n *Notifications) StopLink(token string) error {
	_, err := n.words(token, stopPurpose, 2)
	return err
}

// StopTx records that the recipient declined: the owner's channels send them no more messages or confirmation emails.
// It returns those channels.
func (n *Notifications) StopTx(ctx context.Context, tx *db.Tx, token string) ([]Channel, error) {
	words, err := n.words(token, stopPurpose, 2)
	if err != nil {
		return nil, err
	}
	owner, sum := account.OwnerID(words[0]), words[1]
	list, err := n.List(ctx, tx, owner)
	if err != nil {
		return nil, err
	}
	var theirs []Channel
	for _, c := range list {
		if c.Kind != Mail || c.Address == "" || digest(c.Address) != sum {
			continue
		}
		theirs = append(theirs, c)
		if _, err := tx.Exec(ctx,
			`UPDATE notify_channels SET confirmed_at = 0, error = 'The recipient unsubscribed' WHERE id = $1`,
			c.ID); err != nil {
			return nil, fmt.Errorf("unsubscribe recipient: %w", err)
		}
	}
	_, err = tx.Exec(ctx,
		`INSERT INTO notify_refused (owner_id, digest, at) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`, owner, sum,
		db.At(n.now()))
	if err != nil {
		return nil, fmt.Errorf("unsubscribe recipient: %w", err)
	}
	return theirs, nil
}
