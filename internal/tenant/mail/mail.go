// Package mail owns sending plain text emails to the operator's mail server, which delivers
// them.
//
// Each email uses its own connection with a time limit, encrypted unless the server is on
// this machine. The protocol, authentication and the encoding of headers and text come from
// github.com/wneessen/go-mail, because the standard library's net/smtp is frozen and supports
// neither LOGIN nor SCRAM, which big providers require. Its client is not used, only the layer
// below it, so that a connection always ends with its context. The package stores nothing:
// callers that must not lose an email send it from a job. It never sends a password or an
// email over an unencrypted connection unless the operator allows it (Off), and a text can't
// add headers.
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
	"time"
)

// TLS says how the line to the server is encrypted.
type TLS string

// The ways there are.
const (
	Auto     TLS = "auto"     // Implicit on port 465, Off on this very machine, else StartTLS
	Implicit TLS = "implicit" // from the first byte (RFC 8314)
	StartTLS TLS = "starttls" // required: a server that does not offer it gets nothing
	Off      TLS = "off"
)

// Config names the server. Addr and From are required.
type Config struct {
	Addr     string         // HOST:PORT
	User     string         // Optional: without it nobody signs in.
	Password string         // Optional.
	From     string         // the sender's address, with a name or without
	TLS      TLS            // Optional: Auto.
	Roots    *x509.CertPool // who vouches for the server. Optional: the system's.
	Name     string         // of this machine, for the server's log. Optional: localhost.
	Timeout  time.Duration  // for the whole exchange. Optional: 0 means 30s.
}

// Mailer sends mails. It is safe for concurrent use.
type Mailer struct {
	c    Config
	host string
	from *mail.Address
}

// New checks the settings. It talks to nobody.
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
	if a, err := netip.ParseAddr(c.Name); err == nil { // an address is written as a literal (RFC 5321 §4.1.3)
		c.Name = map[bool]string{true: "[" + a.String() + "]", false: "[IPv6:" + a.String() + "]"}[a.Is4()]
	}
	return &Mailer{c, host, from}, nil
}

// Message is one mail to one person.
type Message struct {
	ID      string // tells a mail that is sent twice; a word without spaces
	To      string // an address without a name
	Subject string // one line
	Text    string
	From    string // the sender that people see, with a name or without. Optional: the Mailer's.
	ReplyTo string // Optional.

	// Unsubscribe is an https address that takes a POST from the recipient's mail program
	// (RFC 8058). Optional.
	Unsubscribe string
}

// Refused says that the server will never take this mail for this person.
type Refused struct {
	Code int    // 500 to 599
	Text string // the server's words
}

func (r *Refused) Error() string { return fmt.Sprintf("%d %s", r.Code, r.Text) }

// Send hands the mail to the server and returns when the server has taken it on. A
// *Refused in the chain says that trying again is of no use; everything else may pass.
func (m *Mailer) Send(ctx context.Context, msg Message) error {
	text, err := m.compose(msg)
	if err != nil {
		return err
	}
	return m.talk(ctx, func(c *conversation) error { return c.hand(m.from.Address, msg.To, text) })
}

// Check connects and signs in, sends nothing, and says what it found.
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

// broken reports whether a text would not stay on its line.
func broken(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool { return r < 0x20 || r >= 0x7f && r < 0xa0 || r == '\u2028' || r == '\u2029' })
}
