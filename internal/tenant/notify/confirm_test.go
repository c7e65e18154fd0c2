package notify

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/mail/mailtest"
)

// token returns the last part of an email's first link whose path contains word.
func token(t *testing.T, m mailtest.Mail, word string) string {
	t.Helper()
	part := regexp.MustCompile(`https://slipway\.test/notifications/` + word + `/(\S+)`).FindStringSubmatch(m.Text)
	if part == nil {
		t.Fatalf("no link to %s in %q", word, m.Text)
	}
	return part[1]
}

// A new recipient gets one email that asks for consent, and notifications only after confirming and until declining.
// The account can't undo a recipient's refusal.
func TestRecipientsAreAsked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.channel(NewChannel{Kind: Mail, URL: "Carla@Example.test", By: "anna@example.test"})
	if !c.Unconfirmed() || c.Address != "carla@example.test" {
		t.Fatalf("a new channel: %+v", c)
	}
	failed := Message{Event: DeploymentFailed, Title: "Deployment of Shop failed", Path: "/sites/site_1"}
	w.tell("site_1", failed)
	w.drain()
	got := w.inbox.Wait(1)
	if len(got) != 1 || got[0].To != "carla@example.test" || !strings.Contains(
		got[0].Text,
		"anna@example.test",
	) || strings.Contains(got[0].Text, "Shop") {
		t.Fatalf("the first mails: %+v", got)
	}
	if err := w.db.Write(t.Context(), func(tx *db.Tx) error {
		_, err := w.TestTx(t.Context(), tx, anna, c.ID)
		return err
	}); fault.As(err) == nil || fault.As(err).Code != "not_confirmed" {
		t.Errorf("a test before the yes: %v", err)
	}
	yes, no := token(t, got[0], "confirm"), token(t, got[0], "stop")
	if _, err := w.Confirmation(t.Context(), w.db, yes); err != nil {
		t.Errorf("opening the link: %v", err)
	}
	if now, err := w.Get(t.Context(), w.db, anna, c.ID); err != nil || !now.Unconfirmed() {
		t.Errorf("opening the link confirmed it: %+v, %v", now, err)
	}
	for range 2 { // confirming twice changes nothing
		w.write(func(tx *db.Tx) error { _, err := w.ConfirmTx(t.Context(), tx, yes); return err })
	}
	w.tell("site_1", failed)
	w.drain()
	got = w.inbox.Wait(2)
	if len(got) != 2 || got[1].Subject != failed.Title || !strings.Contains(got[1].Text, "https://slipway.test/sites/site_1") ||
		got[1].Header.Get("List-Unsubscribe") != "<https://slipway.test/notifications/stop/"+token(
			t,
			got[1],
			"stop",
		)+">" || got[1].Header.Get("List-Unsubscribe-Post") != "List-Unsubscribe=One-Click" {
		t.Fatalf("after the yes: %+v", got)
	}
	if now, err := w.Get(t.Context(), w.db, anna, c.ID); err != nil || now.SentAt == 0 || now.Error != "" {
		t.Errorf("the channel after a mail: %+v, %v", now, err)
	}

	w.tell("site_1", failed) // queued before the recipient declines
	w.write(func(tx *db.Tx) error { _, err := w.StopTx(t.Context(), tx, no); return err })
	w.tell("site_1", failed)
	w.drain()
	for name, fn := range map[string]func(tx *db.Tx) error{
		"again": func(tx *db.Tx) error {
			_, err := w.AskAgainTx(t.Context(), tx, anna, c.ID, "anna@example.test")
			return err
		},
		"another channel": func(tx *db.Tx) error {
			_, err := w.CreateTx(t.Context(), tx, anna, NewChannel{Kind: Mail, URL: "carla@example.test", Sites: []string{"site_2"}})
			return err
		},
	} {
		if err := w.db.Write(t.Context(), fn); fault.As(err) == nil || fault.As(err).Code != "recipient_unsubscribed" {
			t.Errorf("asked after a no, %s: %v", name, err)
		}
	}
	w.drain()
	if got := w.inbox.All(); len(got) != 2 {
		t.Errorf("%d mails after a no", len(got)-2)
	}
	w.write(func(tx *db.Tx) error { // the recipient can undo it
		_, err := w.ConfirmTx(t.Context(), tx, yes)
		return err
	})
	w.tell("site_1", failed)
	w.drain()
	w.inbox.Wait(3)
}

// A confirmation link is valid for one address of one channel, for a week.
func TestConfirmationLinks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	now := time.Now()
	w.now = func() time.Time { return now }
	c := w.channel(NewChannel{Kind: Mail, URL: "carla@example.test"})
	w.drain()
	yes := token(t, w.inbox.Wait(1)[0], "confirm")
	refused := func(name, token string) {
		t.Helper()
		err := w.db.Write(t.Context(), func(tx *db.Tx) error { _, err := w.ConfirmTx(t.Context(), tx, token); return err })
		if !fault.Is(err, fault.NotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
	refused("nonsense", "x")
	refused("another purpose", token(t, w.inbox.All()[0], "stop"))
	refused("cut", yes[:len(yes)-1])
	now = now.Add(ConfirmLife)
	refused("after a week", yes)
	now = now.Add(-ConfirmLife)

	// If the account changes the channel's address, the first recipient's confirmation doesn't apply to the second.
	mallory := "mallory@example.test"
	w.write(func(tx *db.Tx) error {
		c, err := w.UpdateTx(t.Context(), tx, anna, c.ID, Patch{URL: &mallory})
		if err == nil && (!c.Unconfirmed() || c.Address != mallory) {
			t.Errorf("at another address: %+v", c)
		}
		return err
	})
	refused("the first address", yes)
	w.drain()
	second := token(t, w.inbox.Wait(2)[1], "confirm")
	w.write(func(tx *db.Tx) error { _, err := w.ConfirmTx(t.Context(), tx, second); return err })
	carla := "carla@example.test"
	w.write(func(tx *db.Tx) error {
		c, err := w.UpdateTx(t.Context(), tx, anna, c.ID, Patch{URL: &carla})
		if err == nil && !c.Unconfirmed() {
			t.Errorf("the second recipient's yes counts for the first: %+v", c)
		}
		return err
	})
	own := ""
	w.write(func(tx *db.Tx) error {
		c, err := w.UpdateTx(t.Context(), tx, anna, c.ID, Patch{URL: &own})
		if err == nil && (c.Unconfirmed() || c.Address != "") {
			t.Errorf("back at the account's address: %+v", c)
		}
		return err
	})
	w.tell("site_1", Message{Event: DomainFailed, Title: "x"})
	if len(w.mails) != 1 {
		t.Errorf("%d mails to the account", len(w.mails))
	}
	w.write(func(tx *db.Tx) error { return w.DeleteTx(t.Context(), tx, anna, c.ID) })
	refused("a deleted channel", second)
}

// An address gets at most 3 confirmation requests a day over all accounts and re-created channels, and an account sends
// at most 20.
func TestConfirmationsAreBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	now := time.Now()
	w.now = func() time.Time { return now }
	ask := func(owner account.OwnerID, address string) error {
		return w.db.Write(t.Context(), func(tx *db.Tx) error {
			c, err := w.CreateTx(t.Context(), tx, owner, NewChannel{Kind: Mail, URL: address})
			if err != nil {
				return err
			}
			return w.DeleteTx(t.Context(), tx, owner, c.ID)
		})
	}
	for i, owner := range []account.OwnerID{anna, anna, bert} {
		if err := ask(owner, "carla@example.test"); err != nil {
			t.Fatalf("request %d: %v", i, err)
		}
	}
	if err := ask(bert, "carla@example.test"); !fault.Is(err, fault.Limited) {
		t.Errorf("a fourth request to one address: %v", err)
	}
	for i := range maxAskedByOwner - 2 {
		if err := ask(anna, string(rune('a'+i))+"@example.test"); err != nil {
			t.Fatalf("address %d: %v", i, err)
		}
	}
	if err := ask(anna, "z@example.test"); !fault.Is(err, fault.Limited) {
		t.Errorf("request %d of an account: %v", maxAskedByOwner+1, err)
	}
	now = now.Add(24*time.Hour + time.Second)
	if err := ask(anna, "carla@example.test"); err != nil {
		t.Errorf("a day later: %v", err)
	}
}

// A mail server's refusal is shown on the channel.
func TestRecipientRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.channel(NewChannel{Kind: Mail, URL: "nobody@example.test"})
	w.drain()
	if now, err := w.Get(t.Context(), w.db, anna, c.ID); err != nil || !strings.Contains(now.Error, "no such mailbox") {
		t.Errorf("a mailbox that doesn't exist: %+v, %v", now, err)
	}
}
