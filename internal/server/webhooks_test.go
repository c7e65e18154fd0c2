package server

import (
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"slipway/internal/account"
	"slipway/internal/db"
	"slipway/internal/dbtest"
	"slipway/internal/job"
	"slipway/internal/mail"
	"slipway/internal/mail/mailtest"
	"slipway/internal/seal"
	"slipway/internal/webhook"
)

// The owner of a webhook gets a mail when it has failed for a day, when it is disabled for
// failing, and when its endpoint said that it is gone, each with the way to its page.
func TestMailsOfWebhooks(t *testing.T) {
	t.Parallel()
	d, srv := dbtest.New(t), mailtest.New(t, mailtest.Config{})
	s, err := seal.Load(filepath.Join(t.TempDir(), "key"))
	if err != nil {
		t.Fatal(err)
	}
	m, err := mail.New(mail.Config{Addr: srv.Addr, From: "noreply@slipway.test"})
	if err != nil {
		t.Fatal(err)
	}
	accounts := account.New(account.Config{DB: d, HashMemory: 64, Seal: s, Mail: m, Site: "https://slipway.test"})
	ada, err := accounts.CreateUser(t.Context(), "ada@example.test", "correct horse battery", false)
	if err != nil {
		t.Fatal(err)
	}
	h := &node{db: d, accounts: accounts}
	hook := webhook.Webhook{ID: "hook_1", URL: "https://example.test/in", FailingSince: db.At(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))}
	failing, gone := hook, hook
	failing.Reason, gone.Reason = "failing", "gone"
	if err := d.Write(t.Context(), func(tx *db.Tx) error {
		for _, n := range []webhook.Notice{{Webhook: hook}, {Webhook: failing, Disabled: true}, {Webhook: gone, Disabled: true}} {
			if err := h.tellOfWebhook(t.Context(), tx, ada.Owner, n); err != nil {
				return err
			}
		}
		return h.tellOfWebhook(t.Context(), tx, "own_somebodyelse", webhook.Notice{Webhook: hook})
	}); err != nil {
		t.Fatal(err)
	}
	j := job.New(job.Config{DB: d, Log: slog.New(slog.DiscardHandler), Queues: map[string]int{"default": 1, account.MailQueue: 1}, Poll: 20 * time.Millisecond})
	accounts.Work(j)
	ended := make(chan error, 1)
	go func() { ended <- j.Run(t.Context()) }()
	t.Cleanup(func() { <-ended })
	var all strings.Builder
	for _, m := range srv.Wait(3) {
		if m.To != "ada@example.test" || !strings.Contains(m.Text, "https://slipway.test/webhooks/hook_1") || !strings.Contains(m.Text, hook.URL) {
			t.Errorf("to %s: %s", m.To, m.Text)
		}
		all.WriteString(m.Subject + "\n" + m.Text + "\n")
	}
	for _, want := range []string{"A webhook is failing", "have failed since 2026-01-02T03:04:05.000Z", "A webhook was disabled", "all deliveries to it have failed for 5 days", "its endpoint answered 410 Gone"} {
		if !strings.Contains(all.String(), want) {
			t.Errorf("no mail says %q:\n%s", want, &all)
		}
	}
}
