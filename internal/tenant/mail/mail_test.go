package mail_test

import (
	"bufio"
	"context"
	"crypto/x509"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"slipway/internal/tenant/mail"
	"slipway/internal/tenant/mail/mailtest"
)

func mailer(t *testing.T, c mail.Config) *mail.Mailer {
	t.Helper()
	if c.From == "" {
		c.From = "Slipway <noreply@slipway.test>"
	}
	m, err := mail.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

var hello = mail.Message{
	ID:      "let_1",
	To:      "ada@example.test",
	Subject: "Grüße, Ada",
	Text:    "Dear Ada,\n\n.a line that begins with a dot\nFrom the start\n" + strings.Repeat("long äöü ", 40) + "\n",
}

// An email arrives unchanged over each kind of connection that the server requires.
func TestSend(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		server mailtest.Config
		tls    mail.TLS
		user   string
		secure bool
	}{
		"loopback, in clear": {tls: mail.Auto},
		"STARTTLS":           {server: mailtest.Config{StartTLS: true}, tls: mail.StartTLS, secure: true},
		"implicit TLS":       {server: mailtest.Config{Implicit: true}, tls: mail.Implicit, secure: true},
		"signed in over TLS": {
			server: mailtest.Config{StartTLS: true, User: "slipway", Password: "secret"},
			tls:    mail.StartTLS,
			user:   "slipway",
			secure: true,
		},
		"signed in, implicit": {
			server: mailtest.Config{Implicit: true, User: "slipway", Password: "secret"},
			tls:    mail.Implicit,
			user:   "slipway",
			secure: true,
		},
		"signed in on loopback": {server: mailtest.Config{User: "slipway", Password: "secret"}, tls: mail.Auto, user: "slipway"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := mailtest.New(t, tt.server)
			m := mailer(t, mail.Config{Addr: srv.Addr, TLS: tt.tls, Roots: srv.Roots, User: tt.user, Password: tt.server.Password})
			if err := m.Send(t.Context(), hello); err != nil {
				t.Fatal(err)
			}
			got := srv.Wait(1)[0]
			if got.From != "noreply@slipway.test" || got.To != "ada@example.test" || got.Subject != hello.Subject ||
				got.Text != hello.Text ||
				got.TLS != tt.secure ||
				got.User != tt.user {
				t.Errorf("got %+v", got)
			}
			for header, want := range map[string]string{
				"From":           `"Slipway" <noreply@slipway.test>`,
				"To":             "<ada@example.test>",
				"Message-Id":     "<let_1@slipway.test>",
				"Auto-Submitted": "auto-generated",
				"User-Agent":     "",
				"X-Mailer":       "",
			} {
				if h := got.Header.Get(header); h != want {
					t.Errorf("%s: %q, want %q", header, h, want)
				}
			}
			if _, err := got.Header.Date(); err != nil {
				t.Error(err)
			}
			if says, err := m.Check(t.Context()); err != nil || !strings.Contains(
				says,
				srv.Addr,
			) || strings.Contains(says, "TLS 1.3") != tt.secure {
				t.Errorf("check: %q, %v", says, err)
			}
			if n := len(srv.All()); n != 1 {
				t.Errorf("%d mails arrived", n)
			}
		})
	}
}

// Send tells a server's permanent errors from temporary ones.
func TestRefusals(t *testing.T) {
	t.Parallel()
	srv := mailtest.New(t, mailtest.Config{Refuse: func(to string) error {
		switch {
		case strings.HasPrefix(to, "nobody"):
			return mailtest.Permanent("No such mailbox")
		case strings.HasPrefix(to, "full"):
			return mailtest.Temporary("Come again")
		}
		return nil
	}})
	m := mailer(t, mail.Config{Addr: srv.Addr})
	send := func(to string) error { msg := hello; msg.To = to; return m.Send(t.Context(), msg) }
	var no *mail.Refused
	if err := send("nobody@example.test"); !errors.As(err, &no) || no.Code != 550 || !strings.Contains(no.Text, "No such mailbox") {
		t.Errorf("nobody: %v", err)
	}
	if err := send("full@example.test"); err == nil || errors.As(err, new(*mail.Refused)) || !strings.Contains(err.Error(), "Come again") {
		t.Errorf("full: %v", err)
	}
	if err := send("ada@example.test"); err != nil {
		t.Error(err)
	}
	srv.Stop()
	if err := send("ada@example.test"); err == nil || errors.As(err, new(*mail.Refused)) {
		t.Errorf("a server that is down: %v", err)
	}
}

// Neither an email nor a password is sent over a connection that isn't as secure as configured.
func TestNothingInTheClear(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		server mailtest.Config
		client mail.Config
		want   string
	}{
		"no STARTTLS": {
			mailtest.Config{User: "u", Password: "p"},
			mail.Config{TLS: mail.StartTLS, User: "u", Password: "p"},
			"does not offer STARTTLS",
		},
		"a stranger's server": {
			mailtest.Config{StartTLS: true},
			mail.Config{TLS: mail.StartTLS, Roots: x509.NewCertPool()},
			"certificate",
		},
		"one with TLS at once": {
			mailtest.Config{Implicit: true},
			mail.Config{TLS: mail.Implicit, Roots: x509.NewCertPool()},
			"certificate",
		},
		"clear, wanted TLS": {mailtest.Config{}, mail.Config{TLS: mail.Implicit}, "start TLS"},
		"a wrong password": {
			mailtest.Config{StartTLS: true, User: "u", Password: "p"},
			mail.Config{TLS: mail.StartTLS, User: "u", Password: "wrong"},
			"sign in to mail server: 535",
		},
		"no sign-in to be had": {
			mailtest.Config{StartTLS: true},
			mail.Config{TLS: mail.StartTLS, User: "u", Password: "p"},
			"no supported authentication",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := mailtest.New(t, tt.server)
			tt.client.Addr, tt.client.Timeout = srv.Addr, 10*time.Second
			if tt.client.Roots == nil {
				tt.client.Roots = srv.Roots
			}
			m := mailer(t, tt.client)
			_, check := m.Check(t.Context())
			for what, err := range map[string]error{"send": m.Send(t.Context(), hello), "check": check} {
				if err == nil || !strings.Contains(err.Error(), tt.want) || errors.As(err, new(*mail.Refused)) {
					t.Errorf("%s: %v, want %q", what, err, tt.want)
				}
			}
			if srv.Tried() > 0 {
				t.Error("a recipient was sent anyway")
			}
		})
	}
}

// Text that would inject another header, recipient or SMTP command is refused.
func TestInjection(t *testing.T) {
	t.Parallel()
	srv := mailtest.New(t, mailtest.Config{})
	m := mailer(t, mail.Config{Addr: srv.Addr})
	for _, to := range []string{
		"", "ada", "ada@example.test\r\nBcc: eve@example.test", "ada@example.test>\r\nRCPT TO:<eve@example.test",
		"ada@example.test, eve@example.test", "Ada <ada@example.test>", "<ada@example.test>", "ada@example.test\x00",
		"ada\u2028@example.test", "ada@example.test SIZE=1",
	} {
		msg := hello
		msg.To = to
		if err := m.Send(t.Context(), msg); err == nil {
			t.Errorf("recipient %q is taken", to)
		}
	}
	for _, subject := range []string{"", "Hello\r\nBcc: eve@example.test", "Hello\nX: y", "Hello\rX: y", "a\x00b", "a\u0085b"} {
		msg := hello
		msg.Subject = subject
		if err := m.Send(t.Context(), msg); err == nil {
			t.Errorf("subject %q is taken", subject)
		}
	}
	if srv.Tried() != 0 {
		t.Error("the server heard of it")
	}
	msg := hello
	msg.Text = "a\r\n.\r\nMAIL FROM:<eve@example.test>\r\n.\n.\n"
	msg.Subject = "=?utf-8?q?x=0D=0ABcc:_eve@example.test?="
	if err := m.Send(t.Context(), msg); err != nil {
		t.Fatal(err)
	}
	if got := srv.Wait(1); len(got) != 1 || got[0].Text != "a\n.\nMAIL FROM:<eve@example.test>\n.\n.\n" || got[0].Header.Get("Bcc") != "" {
		t.Errorf("got %+v", got)
	}
}

// A server that doesn't answer, or never ends its answer, costs only the time limit. Canceling the context ends Send at
// once.
func TestSlowServers(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				conn.Write([]byte("220 slow\r\n"))
				bufio.NewReader(conn).ReadString('\n')
				conn.Read(make([]byte, 1)) // until the client gives up
			}()
		}
	}()
	begun := time.Now()
	err = mailer(t, mail.Config{Addr: l.Addr().String(), Timeout: 300 * time.Millisecond}).Send(t.Context(), hello)
	if took := time.Since(begun); err == nil || !errors.Is(
		err,
		context.DeadlineExceeded,
	) || took < 300*time.Millisecond || took > time.Minute {
		t.Errorf("%v after %s", err, took)
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, cancel)
	if err := mailer(t, mail.Config{Addr: l.Addr().String()}).Send(ctx, hello); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller who gave up: %v", err)
	}
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	const from = "a@b.test"
	for want, c := range map[string]mail.Config{
		`"mail.test" is not HOST:PORT`:        {Addr: "mail.test", From: from},
		`":25" is not HOST:PORT`:              {Addr: ":25", From: from},
		`"mail.test:0" is not HOST:PORT`:      {Addr: "mail.test:0", From: from},
		"is not an email address":             {Addr: "mail.test:25", From: "nobody"},
		"must be auto":                        {Addr: "mail.test:25", From: from, TLS: "maybe"},
		"a password, but no user":             {Addr: "mail.test:25", From: from, Password: "x"},
		"only over TLS":                       {Addr: "mail.test:25", From: from, User: "u", Password: "x", TLS: mail.Off},
		"\\r\\nBcc: c@d.test>\" is not an em": {Addr: "mail.test:25", From: "A <a@b.test\r\nBcc: c@d.test>"},
	} {
		if _, err := mail.New(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
