// Package mailtest owns an SMTP server on loopback that records what it receives, for tests.
package mailtest

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"mime"
	"mime/quotedprintable"
	"net"
	"net/http/httptest"
	"net/mail"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"
)

// Config sets the server's behavior. All fields are optional.
type Config struct {
	Addr     string // listen address; empty: a free port of 127.0.0.1
	Implicit bool   // TLS from the first byte
	StartTLS bool   // offer STARTTLS
	User     string // require authentication as this user
	Password string
	Refuse   func(to string) error // returns an error to refuse a recipient, see Permanent and Temporary; nil accepts all
}

// Permanent returns a 550 response to a recipient.
func Permanent(text string) error {
	return &smtp.SMTPError{Code: 550, EnhancedCode: smtp.EnhancedCode{5, 1, 1}, Message: text}
}

// Temporary returns a 451 response to a recipient.
func Temporary(text string) error {
	return &smtp.SMTPError{Code: 451, EnhancedCode: smtp.EnhancedCode{4, 3, 0}, Message: text}
}

// Mail is a received email.
type Mail struct {
	From, To string // envelope
	Header   mail.Header
	Subject  string // decoded
	Text     string // decoded, with \n
	Raw      string
	TLS      bool
	User     string // authenticated user
}

// Server is an SMTP server.
type Server struct {
	Addr  string         // HOST:PORT
	Roots *x509.CertPool // trusts its certificate

	t      testing.TB
	mu     sync.Mutex // guards got and tried
	got    []Mail
	tried  int
	change chan struct{}
	stop   func()
}

// New starts a server that stops with the test.
func New(t testing.TB, c Config) *Server {
	t.Helper()
	// httptest has a certificate for 127.0.0.1.
	certified := httptest.NewTLSServer(nil)
	certified.Close()
	s := &Server{t: t, Roots: x509.NewCertPool(), change: make(chan struct{}, 1)}
	s.Roots.AddCert(certified.Certificate())
	l, err := net.Listen("tcp", cmp.Or(c.Addr, "127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	s.Addr = l.Addr().String()
	srv := smtp.NewServer(smtp.BackendFunc(func(conn *smtp.Conn) (smtp.Session, error) { return &session{s: s, c: c, conn: conn}, nil }))
	srv.Domain, srv.AllowInsecureAuth, srv.EnableSMTPUTF8 = "mail.test", true, true
	srv.MaxMessageBytes, srv.ReadTimeout, srv.WriteTimeout = 1<<20, 20*time.Second, 20*time.Second
	srv.ErrorLog = log.New(io.Discard, "", 0)
	secure := &tls.Config{Certificates: certified.TLS.Certificates}
	if c.StartTLS {
		srv.TLSConfig = secure
	}
	if c.Implicit {
		l = tls.NewListener(l, secure)
	}
	done := make(chan struct{})
	go func() { defer close(done); srv.Serve(l) }()
	s.stop = sync.OnceFunc(func() { srv.Close(); l.Close(); <-done })
	t.Cleanup(s.stop)
	return s
}

// Stop closes the server's port.
func (s *Server) Stop() { s.stop() }

// Tried returns how many recipients clients have named.
func (s *Server) Tried() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tried
}

// All returns the messages received, oldest first.
func (s *Server) All() []Mail {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Mail(nil), s.got...)
}

// Wait waits until n emails have arrived and returns them.
func (s *Server) Wait(n int) []Mail {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 20*time.Second)
	defer cancel()
	for {
		if all := s.All(); len(all) >= n {
			return all
		}
		select {
		case <-s.change:
		case <-ctx.Done():
			s.t.Fatalf("%d mails arrived, want %d", len(s.All()), n)
		}
	}
}

type session struct {
	s    *Server
	c    Config
	conn *smtp.Conn
	mail Mail
	user string
}

var errUser = &smtp.SMTPError{Code: 535, EnhancedCode: smtp.EnhancedCode{5, 7, 8}, Message: "Wrong user or password"}

func (x *session) AuthMechanisms() []string {
	if x.c.User == "" {
		return nil
	}
	return []string{sasl.Plain}
}

func (x *session) Auth(mech string) (sasl.Server, error) {
	check := func(user, password string) error {
		if user != x.c.User || password != x.c.Password {
			return errUser
		}
		x.user = user
		return nil
	}
	if mech == sasl.Plain {
		return sasl.NewPlainServer(func(_, user, password string) error { return check(user, password) }), nil
	}
	return nil, errors.New("no such mechanism")
}

func (x *session) Mail(from string, _ *smtp.MailOptions) error {
	if x.c.User != "" && x.user == "" {
		return smtp.ErrAuthRequired
	}
	_, secure := x.conn.TLSConnectionState()
	x.mail = Mail{From: from, User: x.user, TLS: secure}
	return nil
}

func (x *session) Rcpt(to string, _ *smtp.RcptOptions) error {
	x.s.mu.Lock()
	x.s.tried++
	x.s.mu.Unlock()
	if x.c.Refuse != nil {
		if err := x.c.Refuse(to); err != nil {
			return err
		}
	}
	x.mail.To = to
	return nil
}

func (x *session) Data(r io.Reader) error {
	raw, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	m, err := mail.ReadMessage(strings.NewReader(string(raw)))
	if err != nil {
		return err
	}
	var body io.Reader = m.Body
	if strings.EqualFold(m.Header.Get("Content-Transfer-Encoding"), "quoted-printable") {
		body = quotedprintable.NewReader(body)
	}
	text, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	got := x.mail
	got.Raw, got.Header, got.Text = string(raw), m.Header, strings.ReplaceAll(string(text), "\r\n", "\n")
	if got.Subject, err = new(mime.WordDecoder).DecodeHeader(m.Header.Get("Subject")); err != nil {
		return err
	}
	x.s.mu.Lock()
	x.s.got = append(x.s.got, got)
	x.s.mu.Unlock()
	select {
	case x.s.change <- struct{}{}:
	default:
	}
	return nil
}

func (x *session) Reset()        {}
func (x *session) Logout() error { return nil }
