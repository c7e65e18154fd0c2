// Package mail owns sending plain text emails to the operator's mail server.
//
// Each email uses its own connection with a time limit, encrypted unless the server is on this machine. The SMTP
// protocol, authentication and encoding come from github.com/wneessen/go-mail, because net/smtp is frozen and supports
// neither LOGIN nor SCRAM, which large providers require. Only its lower layer is used, not its client, so that a
// connection always ends with its context. The package stores nothing: callers that must not lose an email send it from
// a job. It never sends a password or email unencrypted unless the operator allows it ([Off]), and a text can't add
// headers.
package mail

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/mail"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// TLS says how connections to the server are encrypted.
type TLS string

// The TLS modes.
const (
	Auto     TLS = "auto"     // Implicit on port 465, Off for a server on this machine, otherwise StartTLS
	Implicit TLS = "implicit" // TLS from the first byte (RFC 8314)
	StartTLS TLS = "starttls" // required: nothing is sent if the server doesn't offer it
	Off      TLS = "off"
)

// Config holds the server's settings. Addr and From are required.
type Config struct {
	Addr     string         // HOST:PORT
	User     string         // Optional: without it, no authentication.
	Password string         // Optional.
	From     string         // sender, with or without a name
	TLS      TLS            // Optional: defaults to Auto.
	Roots    *x509.CertPool // trusted authorities. Optional: defaults to the system's.
	Name     string         // this machine's name for EHLO. Optional: localhost.
	Timeout  time.Duration  // for the whole connection. Optional: 0 means 30s.
}

// Mailer sends emails. It is safe for concurrent use.
type Mailer struct {
	c    Config
	host string
	from *mail.Address

	sent, failed atomic.Int64
}

// New checks the settings without connecting.
func New(c Config) (*Mailer, error) {
	host, port, err := net.SplitHostPort(c.Addr)
	if n, err2 := strconv.Atoi(port); err != nil || err2 != nil || n < 1 || n > 65535 || host == "" {
		return nil, fmt.Errorf("%q is not HOST:PORT", c.Addr)
	}
	from, err := mail.ParseAddress(c.From)
	if err != nil || broken(c.From) {
		return nil, fmt.Errorf("the sender %q is not an email address", c.From)
	}
	own := host == "localhost"
	if a, err := netip.ParseAddr(host); err == nil {
		own = a.Unmap().IsLoopback()
	}
	switch c.TLS = cmp.Or(c.TLS, Auto); {
	case c.TLS != Auto:
	case port == "465":
		c.TLS = Implicit
	case own:
		c.TLS = Off
	default:
		c.TLS = StartTLS
	}
	switch {
	case c.TLS != Implicit && c.TLS != StartTLS && c.TLS != Off:
		return nil, fmt.Errorf("%q must be auto, implicit, starttls or off", c.TLS)
	case c.User == "" && c.Password != "":
		return nil, errors.New("there is a password, but no user")
	case c.User != "" && c.TLS == Off && !own:
		return nil, errors.New("passwords are sent only over TLS: enable it")
	}
	c.Timeout = cmp.Or(c.Timeout, 30*time.Second)
	c.Name = cmp.Or(c.Name, "localhost")
	if a, err := netip.ParseAddr(c.Name); err == nil { // EHLO takes addresses as literals (RFC 5321 §4.1.3)
		c.Name = map[bool]string{true: "[" + a.String() + "]", false: "[IPv6:" + a.String() + "]"}[a.Is4()]
	}
	return &Mailer{c: c, host: host, from: from}, nil
}

// Message is an email to one recipient.
type Message struct {
	ID      string // identifies repeated sends of an email; no spaces
	To      string // address without a name
	Subject string // one line
	Text    string
	From    string // visible sender, with or without a name. Optional: defaults to the Mailer's.
	ReplyTo string // Optional.

	// Unsubscribe is an https URL to which the recipient's mail program can POST (RFC 8058). Optional.
	Unsubscribe string
}

// Refused means that the server permanently refuses this email to this recipient.
type Refused struct {
	Code int    // 500 to 599
	Text string // the server's response
}

func (r *Refused) Error() string { return fmt.Sprintf("%d %s", r.Code, r.Text) }

// Send delivers the email to the server and returns once the server has accepted it. A *Refused in the error chain
// means that a retry won't help; other errors may be temporary.
func (m *Mailer) Send(ctx context.Context, msg Message) error {
	text, err := m.compose(msg)
	if err != nil {
		return err
	}
	if err := m.talk(ctx, func(c *conversation) error { return c.hand(m.from.Address, msg.To, text) }); err != nil {
		m.failed.Add(1)
		return err
	}
	m.sent.Add(1)
	return nil
}

// Counts returns how many mails the server has taken since the start, and how many attempts failed. A nil Mailer sends none.
func (m *Mailer) Counts() (sent, failed int64) {
	if m == nil {
		return 0, 0
	}
	return m.sent.Load(), m.failed.Load()
}

// Check connects and authenticates without sending, and describes the connection.
func (m *Mailer) Check(ctx context.Context) (string, error) {
	says := ""
	err := m.talk(ctx, func(c *conversation) error {
		says = m.c.Addr + " answers, " + c.line()
		if m.c.User != "" {
			says += ", and knows " + m.c.User
		}
		return c.Noop()
	})
	return says, err
}

// broken reports whether s contains line breaks or control characters.
func broken(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool { return r < 0x20 || r >= 0x7f && r < 0xa0 || r == '\u2028' || r == '\u2029' })
}
