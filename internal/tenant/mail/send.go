package mail

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/mail"
	"net/textproto"
	"strings"
	"time"

	gomail "github.com/wneessen/go-mail"
	"github.com/wneessen/go-mail/smtp"
)

// compose renders the email.
func (m *Mailer) compose(msg Message) ([]byte, error) {
	to, err := mail.ParseAddress(msg.To)
	if err != nil || to.Name != "" || to.Address != msg.To || broken(msg.To) {
		return nil, fmt.Errorf("the recipient %q is not an email address", msg.To)
	}
	if msg.Subject == "" || broken(msg.Subject) || msg.ID == "" || strings.ContainsAny(msg.ID, " <>@") || broken(msg.ID) {
		return nil, fmt.Errorf("the subject %q or the id %q is not fit for a header", msg.Subject, msg.ID)
	}
	out := gomail.NewMsg(gomail.WithNoDefaultUserAgent())
	from := m.from
	if msg.From != "" {
		if from, err = mail.ParseAddress(msg.From); err != nil || broken(msg.From) {
			return nil, fmt.Errorf("the sender %q is not an email address", msg.From)
		}
	}
	out.FromMailAddress(from)
	if msg.ReplyTo != "" {
		to, err := mail.ParseAddress(msg.ReplyTo)
		if err != nil || broken(msg.ReplyTo) {
			return nil, fmt.Errorf("the address for replies %q is not an email address", msg.ReplyTo)
		}
		out.ReplyToMailAddress(to)
	}
	out.ToMailAddress(to)
	out.Subject(msg.Subject)
	out.SetMessageIDWithValue(msg.ID + "@" + m.from.Address[strings.LastIndexByte(m.from.Address, '@')+1:])
	out.SetDateWithValue(time.Now())
	out.SetGenHeader("Auto-Submitted", "auto-generated") // RFC 3834: no automatic replies
	if msg.Unsubscribe != "" {
		out.SetGenHeader(gomail.HeaderListUnsubscribe, "<"+msg.Unsubscribe+">")
		out.SetGenHeader(gomail.HeaderListUnsubscribePost, "List-Unsubscribe=One-Click")
	}
	out.SetBodyString(gomail.TypeTextPlain, msg.Text)
	var b bytes.Buffer
	if _, err := out.WriteTo(&b); err != nil {
		return nil, fmt.Errorf("compose mail: %w", err)
	}
	return b.Bytes(), nil
}

// conversation is an authenticated connection, ready to send.
type conversation struct{ *smtp.Client }

// line describes the connection's encryption.
func (c *conversation) line() string {
	if state, ok := c.TLSConnectionState(); ok {
		return "over " + tls.VersionName(state.Version)
	}
	return "unencrypted"
}

// talk connects, encrypts, authenticates and calls fn. The connection ends with ctx, with the time limit, or when talk
// returns.
func (m *Mailer) talk(ctx context.Context, fn func(c *conversation) error) error {
	ctx, cancel := context.WithTimeout(ctx, m.c.Timeout)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", m.c.Addr)
	if err != nil {
		return fmt.Errorf("reach mail server: %w", err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	why := func(doing string, err error) error {
		if end := context.Cause(ctx); end != nil { // instead of "use of closed network connection"
			err = fmt.Errorf("no answer from %s: %w", m.c.Addr, end)
		}
		return fmt.Errorf("%s: %w", doing, err)
	}
	secure := &tls.Config{ServerName: m.host, RootCAs: m.c.Roots, MinVersion: tls.VersionTLS12}
	if m.c.TLS == Implicit {
		over := tls.Client(conn, secure)
		if err := over.HandshakeContext(ctx); err != nil {
			return why("start TLS with mail server", err)
		}
		conn = over
	}
	client, err := smtp.NewClient(conn, m.host)
	if err == nil {
		err = client.Hello(m.c.Name)
	}
	if err != nil {
		return why("greet mail server", err)
	}
	if m.c.TLS == StartTLS {
		if ok, _ := client.Extension("STARTTLS"); !ok {
			return errors.New("the mail server does not offer STARTTLS, and nothing is sent unencrypted")
		}
		if err := client.StartTLS(secure); err != nil {
			return why("start TLS with mail server", err)
		}
	}
	if m.c.User != "" {
		auth, err := m.auth(client)
		if err == nil {
			err = client.Auth(auth)
		}
		if err != nil {
			return why("sign in to mail server", err)
		}
	}
	if err := fn(&conversation{client}); err != nil {
		return why("send mail", err)
	}
	client.Quit() // the email is accepted, whatever QUIT returns
	return nil
}

// auth returns the best mechanism that the server offers. New ensured that the connection may carry a password.
func (m *Mailer) auth(client *smtp.Client) (smtp.Auth, error) {
	_, offered := client.Extension("AUTH")
	have := map[string]bool{}
	for name := range strings.FieldsSeq(strings.ToUpper(offered)) {
		have[name] = true
	}
	user, password := m.c.User, m.c.Password
	switch {
	case have["SCRAM-SHA-256"]:
		return smtp.ScramSHA256Auth(user, password), nil
	case have["PLAIN"]:
		return smtp.PlainAuth("", user, password, m.host, true), nil
	case have["LOGIN"]:
		return smtp.LoginAuth(user, password, m.host, true), nil
	case have["CRAM-MD5"]:
		return smtp.CRAMMD5Auth(user, password), nil
	}
	return nil, fmt.Errorf("the mail server offers no supported authentication mechanism (%q)", offered)
}

// hand sends the email. A permanent refusal of the recipient or content is a *Refused; one of the sender may be
// temporary.
func (c *conversation) hand(from, to string, text []byte) error {
	if err := c.Mail((&mail.Address{Address: from}).String()); err != nil {
		return err
	}
	if err := c.Rcpt((&mail.Address{Address: to}).String()); err != nil {
		return forGood(err)
	}
	w, err := c.Data()
	if err != nil {
		return forGood(err)
	}
	if _, err := w.Write(text); err != nil {
		return err
	}
	return forGood(w.Close())
}

func forGood(err error) error {
	var said *textproto.Error
	if errors.As(err, &said) && said.Code >= 500 {
		return &Refused{said.Code, strings.Join(strings.Fields(said.Msg), " ")}
	}
	return err
}
