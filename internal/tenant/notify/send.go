package notify

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"slipway/internal/platform/id"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/job"
	"slipway/internal/platform/text"
	"slipway/internal/tenant/account"
)

// Message is the content of a notification.
type Message struct {
	Event string
	Good  bool   // whether it is good news
	Title string // one line
	Text  string // more detail. Optional.
	Path  string // path of the relevant dashboard page
}

// Send is the job that sends one message to one channel. A crash before the result is stored sends it twice.
type Send struct {
	Channel ID
	Message Message
}

// Kind implements [job.Args].
func (Send) Kind() string { return "notify.send" }

// QueueName is the queue of messages. It is separate so that a slow service delays no other jobs.
const QueueName = "notify"

// Work registers this service's jobs. An unavailable service is retried for about a day.
func (n *Notifications) Work(j *job.Jobs) {
	job.Handle(j, job.Policy{Timeout: time.Minute, Attempts: 20, Backoff: func(failures int) time.Duration {
		return job.Jitter(min(5*time.Second<<min(failures-1, 20), 2*time.Hour))
	}, GivenUp: func(context.Context, []byte, error) error { return nil }}, n.send) // the error is stored with the channel
}

// TellTx notifies all of the owner's channels that cover the event and site, once the caller's transaction commits.
func (n *Notifications) TellTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, site id.Site, m Message) error {
	m.Title, m.Text = text.Line(m.Title, 200), text.Line(m.Text, 500)
	rows, err := tx.Query(ctx, `SELECT `+columns+` FROM notify_channels WHERE owner_id = $1 AND active ORDER BY id`, owner)
	list, err := db.Collect(rows, err, n.scan)
	if err != nil {
		return fmt.Errorf("find notification channels: %w", err)
	}
	told := map[string]bool{} // targets that already got the message
	for _, c := range list {
		if c.Unconfirmed() || !c.tells(site) || !slices.Contains(c.Events, m.Event) {
			continue
		}
		to, err := n.target(c)
		if err != nil {
			return err
		}
		if told[to] {
			continue
		}
		told[to] = true
		err = n.queueTx(ctx, tx, c, m)
		if fault.Is(err, fault.Limited) {
			_, err = tx.Exec(ctx, `UPDATE notify_channels SET error = $2 WHERE id = $1`, c.ID, errTooMany.Message+"; some were not sent")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Limits of an owner's messages per minute.
const (
	maxPerMinute = 30  // to one host
	maxInAll     = 120 // to all hosts, since several names may be one host
)

// place is an owner's target: a host, or an email address ("" for the account's). "*" stands for all targets.
type place struct {
	owner account.OwnerID
	host  string
}

var errTooMany = &fault.Error{
	Kind:       fault.Limited,
	Message:    "Too many messages in a minute",
	Code:       "too_many_messages",
	RetryAfter: time.Minute,
}

// count counts a message or returns errTooMany, so that an account can't flood a host, regardless of its channels and
// failures.
func (n *Notifications) count(p place, now time.Time) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if minute := now.Unix() / 60; minute != n.minute || n.sent == nil {
		n.minute, n.sent = minute, map[place]int{}
	}
	all := place{p.owner, "*"}
	if n.sent[p] >= maxPerMinute || n.sent[all] >= maxInAll {
		return errTooMany
	}
	n.sent[p]++
	n.sent[all]++
	return nil
}

// TestTx sends a test message to one of the owner's channels.
func (n *Notifications) TestTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, id ID) (Channel, error) {
	c, err := n.Get(ctx, tx, owner, id)
	if err != nil {
		return c, err
	}
	if c.Unconfirmed() {
		return c, fault.New(fault.Conflict, "not_confirmed", "The recipient hasn't confirmed yet",
			"ask them to follow the link in the confirmation email")
	}
	return c, n.queueTx(ctx, tx, c, Message{
		Event: "test",
		Good:  true,
		Title: "Test notification from Slipway",
		Text:  "This channel works.",
		Path:  "/account/notifications",
	})
}

func (n *Notifications) queueTx(ctx context.Context, tx *db.Tx, c Channel, m Message) error {
	if err := n.count(place{c.Owner, strings.ToLower(c.Host) + c.Address}, n.now()); err != nil {
		return err
	}
	if c.Kind == Mail && c.Address == "" {
		if n.c.Owners == nil {
			return nil
		}
		if err := n.c.Owners.TellOwnerTx(ctx, tx, c.Owner, m.Title, strings.TrimSpace(m.Title+"\n\n"+m.Text), m.Path); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `UPDATE notify_channels SET sent_at = $2 WHERE id = $1`, c.ID, db.Now())
		return err
	}
	_, err := job.Enqueue(ctx, tx, Send{c.ID, m}, job.Options{Queue: QueueName, Share: string(c.Owner)})
	return err
}

// FailedTx records that something of a site failed. [Notifications.RecoveredTx] records that it works again.
func (n *Notifications) FailedTx(ctx context.Context, tx *db.Tx, site id.Site, subject string) error {
	_, err := tx.Exec(ctx,
		`INSERT INTO notify_failing (site_id, subject, since) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`, site,
		subject, db.Now())
	if err != nil {
		return fmt.Errorf("note failure: %w", err)
	}
	return nil
}

// RecoveredTx deletes the record of FailedTx and reports whether there was one.
func (n *Notifications) RecoveredTx(ctx context.Context, tx *db.Tx, site id.Site, subject string) (bool, error) {
	k, err := tx.Exec(ctx, `DELETE FROM notify_failing WHERE site_id = $1 AND subject = $2`, site, subject)
	if err != nil {
		return false, fmt.Errorf("note recovery: %w", err)
	}
	return k > 0, nil
}

func (n *Notifications) send(ctx context.Context, s Send, number int64) error {
	c, err := n.scan(n.c.DB.QueryRow(ctx, `SELECT `+columns+` FROM notify_channels WHERE id = $1`, s.Channel))
	if fault.Is(err, fault.NotFound) || err == nil && !c.Active && s.Message.Event != "test" {
		return nil
	}
	if err != nil {
		return err
	}
	// Skip the message if the mail channel's address has changed since, or if its recipient has confirmed or declined.
	if ask := s.Message.Event == confirming; c.Kind == Mail && (c.Address == "" || c.Unconfirmed() != ask) {
		return nil
	}
	again, why, err := n.hand(ctx, c, s.Message, number)
	if err != nil {
		return err
	}
	err = n.c.DB.Write(ctx, func(tx *db.Tx) error {
		if why == "" && s.Message.Event == confirming {
			return nil
		}
		if why == "" {
			_, err := tx.Exec(ctx, `UPDATE notify_channels SET error = '', sent_at = $2 WHERE id = $1`, c.ID, db.Now())
			return err
		}
		_, err := tx.Exec(ctx, `UPDATE notify_channels SET error = $2 WHERE id = $1`, c.ID, why)
		return err
	})
	if err != nil || why == "" {
		return err
	}
	n.c.Log.WarnContext(ctx, "notification not delivered", "channel", c.ID, "err", why)
	if again > 0 {
		return job.Later(again)
	}
	if again == 0 {
		return errors.New(why)
	}
	return nil // a retry would fail too; the error is stored with the channel
}

// hand sends a message to a channel and returns the results of post.
func (n *Notifications) hand(ctx context.Context, c Channel, m Message, number int64) (again time.Duration, why string, err error) {
	if c.Kind == Mail {
		out := n.email(c, m, number)
		if err := n.brand(ctx, c.Owner, &out); err != nil {
			return 0, "", err
		}
		again, why = n.mailTo(ctx, out)
		return again, why, nil
	}
	address, err := n.open(c)
	if err != nil {
		return 0, "", err
	}
	again, why = n.post(ctx, address, body(c.Kind, m, n.c.Base+m.Path))
	return again, why, nil
}

// post sends a message. why is empty if the service accepted it. again is the delay before the next attempt: negative
// for none, 0 for the queue's default.
func (n *Notifications) post(ctx context.Context, address string, body any) (again time.Duration, why string) {
	encoded, err := json.Marshal(body)
	if err != nil {
		return -1, "The message can't be encoded"
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(encoded))
	if err != nil {
		return -1, "The URL can't be used"
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "Slipway")
	res, err := n.c.Out.Do(r)
	if err != nil { // its text may contain the secret URL
		return 0, "The service couldn't be reached"
	}
	defer res.Body.Close()
	b, _ := io.ReadAll(io.LimitReader(res.Body, 2000))
	if res.StatusCode >= 200 && res.StatusCode < 300 {
		return 0, ""
	}
	why = text.Line(fmt.Sprintf("%s answered %d: %s", r.URL.Hostname(), res.StatusCode, b), 300)
	switch {
	case res.StatusCode == http.StatusTooManyRequests || res.StatusCode >= 500:
		if secs, err := time.ParseDuration(res.Header.Get("Retry-After") + "s"); err == nil && secs > 0 {
			return min(secs, time.Hour), why
		}
		return 0, why
	}
	return -1, why
}
