package mail

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/emersion/go-smtp"

	"slipway/internal/platform/wait"
	"slipway/internal/tenant/mail/mailtest"
)

// A program's email is sent with the operator's sender and the program's sender as Reply-To, and nothing of it can
// inject a header.
func TestRelay(t *testing.T) {
	t.Parallel()
	server := mailtest.New(t, mailtest.Config{Refuse: func(to string) error {
		if to == "gone@example.test" {
			return mailtest.Permanent("no such user")
		}
		return nil
	}})
	m, err := New(Config{Addr: server.Addr, From: "Slipway <noreply@operator.test>"})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var said []string
	r := NewRelay(RelayConfig{Mailer: m, Dir: t.TempDir(), Senders: senders{func(sender, line string) {
		mu.Lock()
		defer mu.Unlock()
		said = append(said, sender+": "+line)
	}, func(string) string { return "anna" }}})
	path := filepath.Join(t.TempDir(), "mail.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	go r.Serve(t.Context(), "site_1", l)
	send := func(to []string, text string) error {
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		return smtp.NewClient(c).SendMail("wordpress@blog.test", to, strings.NewReader(strings.ReplaceAll(text, "\n", "\r\n")))
	}
	if err := send([]string{
		"ada@example.test",
		"bob@example.test",
	}, "From: My blog <wordpress@blog.test>\nTo: ada@example.test\nBcc: bob@example.test\nSender: x@y.test\nSubject: New\n comment\n\nHello\n"); err != nil {
		t.Fatal(err)
	}
	got := server.Wait(1)[0]
	if got.From != "noreply@operator.test" || got.Header.Get("From") != `"My blog" <noreply@operator.test>` ||
		got.Header.Get("Reply-To") != "<wordpress@blog.test>" {
		t.Errorf("the sender is %s, %q, replies to %q", got.From, got.Header.Get("From"), got.Header.Get("Reply-To"))
	}
	if got.Header.Get("Bcc") != "" || got.Header.Get("Sender") != "" || got.Header.Get("Subject") != "New comment" || !strings.Contains(
		got.Text,
		"Hello",
	) {
		t.Errorf("it arrived as %v %q", got.Header, got.Text)
	}
	if err := send([]string{"gone@example.test"}, "Subject: x\n\nx\n"); err == nil {
		t.Error("a refused mail was taken")
	}
	if err := send([]string{"a@example.test"}, "no header at all\n\nx\n"); err == nil {
		t.Error("a mail without a header was taken")
	}
	for i := range 10 { // 100 recipients each
		var many []string
		for range maxRecipients {
			many = append(many, "ada@example.test")
		}
		if err := send(many, "Subject: spam\n\nx\n"); err != nil {
			break
		}
		if i == 9 {
			t.Error("a site may send without end")
		}
	}
	mu.Lock()
	defer mu.Unlock()
	all := strings.Join(said, "\n")
	if !strings.Contains(
		all,
		"site_1: Mail not sent: the mail server refuses it: 550",
	) || !strings.Contains(all, "recipients within an hour") {
		t.Errorf("the site's log has %s", all)
	}
}

// An email with too many recipients is sent to none of them, even if the program continues after the first refusal.
func TestMailToManyIsWhole(t *testing.T) {
	t.Parallel()
	server := mailtest.New(t, mailtest.Config{})
	m, err := New(Config{Addr: server.Addr, From: "noreply@operator.test"})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var said []string
	r := NewRelay(RelayConfig{Mailer: m, Dir: t.TempDir(), Senders: senders{
		func(_, line string) { mu.Lock(); defer mu.Unlock(); said = append(said, line) }, func(string) string { return "own" },
	}})
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	go r.Serve(t.Context(), "site_1", l)
	send := func(n int) error {
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		c := smtp.NewClient(conn)
		defer c.Close()
		if err := c.Mail("a@b.test", nil); err != nil {
			t.Fatal(err)
		}
		for i := range n {
			if err := c.Rcpt(fmt.Sprintf("user-%d@example.test", i), nil); err != nil && i < maxRecipients {
				t.Fatal(err)
			}
		}
		w, err := c.Data()
		if err != nil {
			return err
		}
		_, err = io.WriteString(w, "From: a@b.test\r\nSubject: News\r\n\r\nHello\r\n")
		return errors.Join(err, w.Close())
	}
	if err := send(55); err != nil || len(server.All()) != 1 {
		t.Errorf("55 recipients: %v, %d mails", err, len(server.All()))
	}
	if err := send(maxRecipients + 5); err == nil || len(server.All()) != 1 {
		t.Errorf("too many recipients: %v, %d mails", err, len(server.All()))
	}
	mu.Lock()
	defer mu.Unlock()
	if len(said) != 1 || !strings.Contains(said[0], "A mail may have 100 recipients") {
		t.Errorf("the site's log has %q", said)
	}
}

// One owner's programs that hold relay connections open use only the owner's share.
func TestRelayIsShared(t *testing.T) {
	t.Parallel()
	server := mailtest.New(t, mailtest.Config{})
	m, err := New(Config{Addr: server.Addr, From: "noreply@operator.test"})
	if err != nil {
		t.Fatal(err)
	}
	r := NewRelay(RelayConfig{
		Mailer:  m,
		Dir:     t.TempDir(),
		Senders: senders{func(string, string) {}, func(sender string) string { return sender[:4] }},
	})
	connect := map[string]func() *smtp.Client{}
	for _, sender := range []string{"anna1", "anna2", "benn1"} {
		path := filepath.Join(t.TempDir(), "s")
		l, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		go r.Serve(t.Context(), sender, l)
		connect[sender] = func() *smtp.Client {
			c, err := net.Dial("unix", path)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close() })
			return smtp.NewClient(c)
		}
	}
	for i := range 2 * relayConns { // each begins an email and then sends nothing
		c := connect[[]string{"anna1", "anna2"}[i%2]]()
		if err := errors.Join(c.Mail("a@b.test", nil), c.Rcpt("ada@example.test", nil)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Data(); err != nil {
			t.Fatal(err)
		}
	}
	wait.Until(t, "an owner's share of mails is on its way, and the others wait", func() bool {
		held, waiting := r.places.Held()
		return held == relayPlaces/4 && waiting == 2*relayConns-relayPlaces/4
	})
	if err := connect["benn1"]().SendMail("x@y.test", []string{"ada@example.test"}, strings.NewReader("Subject: x\r\n\r\nhello\r\n")); err != nil {
		t.Error(err)
	}
	if got := server.Wait(1)[0]; !strings.Contains(got.Text, "hello") {
		t.Errorf("%q", got.Text)
	}
}

// senders calls note for a sender's log lines and owner for a sender's owner.
type senders struct {
	note  func(sender, line string)
	owner func(sender string) string
}

func (s senders) Note(sender, line string)                        { s.note(sender, line) }
func (s senders) OwnerOf(_ context.Context, sender string) string { return s.owner(sender) }
