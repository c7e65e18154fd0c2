package mail

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/mail"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/emersion/go-smtp"

	"slipway/internal/platform/fair"
)

// Limits of the relay: the size of an email, connections per program, and recipients per sender within relayWindow.
const (
	maxRelayed    = 10 << 20
	maxRecipients = 100 // of an email, which is sent to all of them or not at all
	relayConns    = 4
	relayWindow   = time.Hour
	relayedMost   = 200
	maxHeader     = 64 << 10
	maxSenders    = 100_000
)

// relayPlaces caps the emails in transit, each a file of up to maxRelayed bytes. relayTime limits how long a program
// may take to send one, and relayWait how long it waits for a place.
const (
	relayPlaces = 24
	relayTime   = 2 * time.Minute
	relayWait   = 30 * time.Second
)

// Relay receives programs' emails by SMTP without authentication and forwards them to the operator's server. It sets
// the operator's sender; replies go to the address that the program named. It is safe for concurrent use.
type Relay struct {
	c      RelayConfig
	places *fair.Pool

	mu    sync.Mutex // guards the fields below
	since time.Time
	// share: total the sites that sent mail in this hour; owner 200 recipients of each site; edge the mail is refused, and its site's log says so
	sent map[string]int
}

// RelayConfig holds what a Relay needs.
type RelayConfig struct {
	Mailer  *Mailer
	Dir     string // directory for emails in transit. Optional: defaults to the system's temporary directory.
	Senders Senders
}

// Senders are the sites whose programs send email.
type Senders interface {
	// Note tells a sender why an email was refused.
	Note(sender, line string)
	// OwnerOf returns the owner of a sender.
	OwnerOf(ctx context.Context, sender string) string
}

func NewRelay(c RelayConfig) *Relay {
	// share: total 24 mails on disk, 10 MiB each; owner 6, site 4; edge the program waits 30 s, then gets 451
	places := fair.New(fair.Config{Places: relayPlaces, Owner: relayPlaces / 4, Site: relayConns})
	return &Relay{c: c, places: places, sent: map[string]int{}}
}

// Serve receives email from one sender's program on l until ctx ends. It closes l.
func (r *Relay) Serve(ctx context.Context, sender string, l net.Listener) {
	srv := smtp.NewServer(smtp.BackendFunc(func(c *smtp.Conn) (smtp.Session, error) {
		return &relayed{r: r, ctx: ctx, sender: sender, conn: c.Conn()}, nil
	}))
	srv.Domain, srv.EnableSMTPUTF8 = "localhost", true
	srv.MaxMessageBytes, srv.MaxLineLength = maxRelayed, 4096
	srv.ReadTimeout, srv.WriteTimeout = time.Minute, time.Minute
	srv.ErrorLog = log.New(io.Discard, "", 0)
	stop := context.AfterFunc(ctx, func() { _ = srv.Close() })
	defer stop()
	// share: total 4 connections of one program; owner its own alone; edge the program waits
	_ = srv.Serve(&few{Listener: l, slots: make(chan struct{}, relayConns)})
	_ = l.Close()
}

// few limits the concurrent connections of a listener.
type few struct {
	net.Listener
	slots chan struct{}
}

func (f *few) Accept() (net.Conn, error) {
	f.slots <- struct{}{}
	c, err := f.Listener.Accept()
	if err != nil {
		<-f.slots
		return nil, err
	}
	return &slotted{Conn: c, free: sync.OnceFunc(func() { <-f.slots })}, nil
}

type slotted struct {
	net.Conn
	free func()
}

func (s *slotted) Close() error {
	defer s.free()
	return s.Conn.Close()
}

// relayed is a program's SMTP session.
type relayed struct {
	r      *Relay
	ctx    context.Context
	sender string
	conn   net.Conn
	to     []string
	over   bool // it has more recipients than may be
}

func (x *relayed) Reset()                               { x.to, x.over = nil, false }
func (x *relayed) Logout() error                        { return nil }
func (x *relayed) Mail(string, *smtp.MailOptions) error { return nil }

func (x *relayed) Rcpt(to string, _ *smtp.RcptOptions) error {
	a, err := mail.ParseAddress(to)
	if err != nil || broken(to) {
		return &smtp.SMTPError{Code: 553, EnhancedCode: smtp.EnhancedCode{5, 1, 3}, Message: "The recipient is not an email address"}
	}
	if len(x.to) == maxRecipients {
		x.over = true
		return &smtp.SMTPError{Code: 452, EnhancedCode: smtp.EnhancedCode{4, 5, 3}, Message: tooManyRecipients}
	}
	x.to = append(x.to, a.Address)
	return nil
}

var tooManyRecipients = fmt.Sprintf("A mail may have %d recipients", maxRecipients)

func (x *relayed) Data(in io.Reader) error {
	if x.over { // a program that goes on after a refused recipient would send to some
		x.r.c.Senders.Note(x.sender, "Mail not sent to anybody: "+tooManyRecipients)
		return &smtp.SMTPError{Code: 554, EnhancedCode: smtp.EnhancedCode{5, 5, 3}, Message: tooManyRecipients + "; nothing was sent"}
	}
	wait, cancel := context.WithTimeout(x.ctx, relayWait)
	defer cancel()
	done, err := x.r.places.Take(wait, fair.Who{Owner: x.r.c.Senders.OwnerOf(wait, x.sender), Site: x.sender})
	if err != nil {
		x.r.c.Senders.Note(x.sender, "Mail not sent: too many mails are being sent at once")
		return &smtp.SMTPError{Code: 451, EnhancedCode: smtp.EnhancedCode{4, 3, 2}, Message: "Too many mails at once"}
	}
	defer done()
	text, err := x.receive(in)
	if err != nil {
		return err
	}
	defer text.Close()
	if !x.r.take(x.sender, len(x.to)) {
		x.r.c.Senders.Note(x.sender, fmt.Sprintf("Mail not sent: a site may send to %d recipients within an hour", relayedMost))
		return &smtp.SMTPError{Code: 450, EnhancedCode: smtp.EnhancedCode{4, 7, 1}, Message: "Too many mails within an hour"}
	}
	ours, err := x.r.c.Mailer.ours(text)
	if err == nil {
		err = x.r.c.Mailer.talk(x.ctx, func(c *conversation) error { return c.handAll(x.r.c.Mailer.from.Address, x.to, ours) })
	}
	if refused := new(Refused); errors.As(err, &refused) {
		x.r.c.Senders.Note(x.sender, "Mail not sent: the mail server refuses it: "+refused.Error())
		return &smtp.SMTPError{Code: 554, EnhancedCode: smtp.EnhancedCode{5, 0, 0}, Message: "The mail server refuses the mail"}
	}
	if err != nil {
		x.r.c.Senders.Note(x.sender, "Mail not sent: "+err.Error())
		return &smtp.SMTPError{Code: 451, EnhancedCode: smtp.EnhancedCode{4, 0, 0}, Message: "The mail could not be sent"}
	}
	return nil
}

// receive stores an email in an unlinked temporary file and rewinds it.
func (x *relayed) receive(in io.Reader) (_ *os.File, err error) {
	f, err := os.CreateTemp(x.r.c.Dir, "mail-")
	if err != nil {
		return nil, fmt.Errorf("store mail: %w", err)
	}
	defer func() {
		if err != nil {
			_ = f.Close()
		}
	}()
	if err := os.Remove(f.Name()); err != nil {
		return nil, fmt.Errorf("store mail: %w", err)
	}
	late := time.AfterFunc(relayTime, func() { _ = x.conn.Close() })
	_, err = io.Copy(f, in)
	late.Stop()
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	return f, err
}

// take counts a sender's emails and reports whether it may send them.
func (r *Relay) take(sender string, n int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := time.Now(); now.Sub(r.since) > relayWindow || len(r.sent) > maxSenders {
		r.since, r.sent = now, map[string]int{}
	}
	if r.sent[sender]+n > relayedMost {
		return false
	}
	r.sent[sender] += n
	return true
}

// ours replaces the sender of a program's email with the operator's, since mail servers reject other senders as forged.
// Replies go to the original sender.
func (m *Mailer) ours(text io.Reader) (io.Reader, error) {
	in := bufio.NewReaderSize(text, maxHeader)
	var out, field bytes.Buffer
	name, from, replies, size := "", "", false, 0
	end := func() {
		switch strings.ToLower(name) {
		case "", "sender", "return-path", "bcc", "dkim-signature", "resent-from", "resent-sender":
		case "from":
			from = strings.TrimSpace(strings.NewReplacer("\r", " ", "\n", " ").Replace(field.String()[len("from:"):]))
		case "reply-to":
			replies = true
			out.Write(field.Bytes())
		default:
			out.Write(field.Bytes())
		}
		name = ""
		field.Reset()
	}
	for {
		read, err := in.ReadSlice('\n')
		line := string(read)
		size += len(line)
		if size > maxHeader || errors.Is(err, bufio.ErrBufferFull) {
			return nil, errors.New("its header is too long")
		}
		text := strings.TrimRight(line, "\r\n")
		if text == "" {
			end()
			break
		}
		if text[0] != ' ' && text[0] != '\t' {
			end()
			key, _, ok := strings.Cut(text, ":")
			if !ok || key == "" || strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
				return nil, errors.New("its header can't be read")
			}
			name = key
		}
		field.WriteString(text + "\r\n")
		if err != nil {
			end()
			break
		}
	}
	sender := *m.from
	if a, err := mail.ParseAddress(from); err == nil {
		if a.Name != "" && !broken(a.Name) {
			sender.Name = a.Name
		}
		if !replies && a.Address != m.from.Address && !broken(a.Address) {
			out.WriteString("Reply-To: " + (&mail.Address{Address: a.Address}).String() + "\r\n")
		}
	}
	var whole bytes.Buffer
	whole.WriteString("From: " + sender.String() + "\r\n")
	whole.Write(out.Bytes())
	whole.WriteString("\r\n")
	return io.MultiReader(&whole, in), nil
}

// handAll sends an email to several recipients.
func (c *conversation) handAll(from string, to []string, text io.Reader) error {
	if err := c.Mail((&mail.Address{Address: from}).String()); err != nil {
		return err
	}
	for _, a := range to {
		if err := c.Rcpt((&mail.Address{Address: a}).String()); err != nil {
			return forGood(err)
		}
	}
	w, err := c.Data()
	if err != nil {
		return forGood(err)
	}
	if _, err := io.Copy(w, text); err != nil {
		return err
	}
	return forGood(w.Close())
}
