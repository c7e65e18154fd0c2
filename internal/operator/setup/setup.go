// Package setup owns the first hour of an installation: it asks what the settings can't know, looks at what can be seen from here
// (names, ports, where backups go), writes the file of settings, and makes the first user.
//
// Nothing is written before every answer holds, and what the file says beside the answers stays as it is.
package setup

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/mail"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/BurntSushi/toml"
	"golang.org/x/sys/unix"

	"slipway/internal/operator/admin"
	"slipway/internal/operator/config"
	"slipway/internal/operator/installation"
	"slipway/internal/platform/blob"
	"slipway/internal/platform/disk"
)

// Answers are what setup asks for.
type Answers struct {
	SiteDomain string // sites live below it
	BaseURL    string // of dashboard and API
	Email      string // of the first user, and for the certificate authority
	SMTP       string // HOST:PORT; empty: no mail
	BackupTo   string // empty: on this machine alone
}

// Setup is one run: Ask, and then Finish.
type Setup struct {
	File   string    // of settings
	New    string    // what it says where there is none
	Given  Answers   // what needs no asking
	Asking bool      // whether somebody is there to answer
	In     io.Reader // what they type
	Out    io.Writer
}

// ErrMissing is an answer that nobody is there to give.
var ErrMissing = errors.New("nobody is there to ask")

// question is one thing that setup asks.
type question struct {
	key, flag, text, example string
	answer                   *string
	optional                 bool
	check                    func(string) error
}

func (s *Setup) questions(a *Answers) []question {
	return []question{
		{"site-domain", "--site-domain", "Domain of sites: each gets a name below it", "sites.example.net", &a.SiteDomain, false, isDomain},
		{"base-url", "--base-url", "Address of the dashboard, on another domain", "https://slipway.example.com", &a.BaseURL, false, isAddress},
		{
			"acme-email", "--email", "Your email address: you sign in with it, and the certificate authority writes to it", "you@example.com",
			&a.Email, false, isEmail,
		},
		{"smtp", "--smtp", "Mail server for invitations and notices; empty: no mail", "mail.example.com:587", &a.SMTP, true, isHostPort},
		{
			"backup-to", "--backup-to", "Where backups go beside this machine; empty: nowhere", "s3://bucket?endpoint=https://host", &a.BackupTo,
			true, isPlace,
		},
	}
}

// Ask returns the answers, and the text of settings that they make. Nothing is written yet.
func (s *Setup) Ask() (Answers, string, error) {
	text, err := s.settings()
	if err == nil {
		err = writable(s.File)
	}
	if err != nil {
		return Answers{}, "", err
	}
	var have map[string]any
	if _, err := toml.Decode(text, &have); err != nil {
		return Answers{}, "", fmt.Errorf("read %s: %w", s.File, err)
	}
	a := s.Given
	if err := s.ask(&a, have); err != nil {
		return Answers{}, "", err
	}
	return a, a.write(text, have), nil
}

// Finish tells what can be seen of the answers from here, writes the settings, and makes the first user.
func (s *Setup) Finish(ctx context.Context, store installation.Store, a Answers, text string) error {
	s.look(ctx, a, store)
	if err := save(s.File, text); err != nil {
		return err
	}
	fmt.Fprintf(s.Out, "\nWritten: %s\n", s.File)
	return s.firstUser(ctx, store, a)
}

// writable returns an error if this user can't write a file, before anything is asked.
func writable(file string) error {
	dir := filepath.Dir(file)
	for ; ; dir = filepath.Dir(dir) { // it is made with the folders that are missing
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) || dir == filepath.Dir(dir) {
			break
		}
	}
	if err := unix.Access(dir, unix.W_OK|unix.X_OK); err != nil {
		return &fs.PathError{Op: "write", Path: file, Err: err}
	}
	return nil
}

// settings returns the file as it is, or that of a new installation.
func (s *Setup) settings() (string, error) {
	f, err := os.Open(s.File)
	if errors.Is(err, fs.ErrNotExist) {
		return s.New, nil
	}
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, 1<<20))
	return string(b), err
}

// ask fills in what is not given. What the file has is proposed.
func (s *Setup) ask(a *Answers, have map[string]any) error {
	in := bufio.NewReader(io.LimitReader(s.In, 64<<10))
	for _, q := range s.questions(a) {
		if *q.answer != "" {
			if err := q.check(*q.answer); err != nil {
				return fmt.Errorf("%s: %w", q.flag, err)
			}
			continue
		}
		before, _ := have[q.key].(string)
		switch {
		case s.Asking:
			if err := s.askOne(in, q, before); err != nil {
				return err
			}
		case before != "":
			*q.answer = before
		case !q.optional:
			return fmt.Errorf("%w: give %s", ErrMissing, q.flag)
		}
	}
	return nil
}

func (s *Setup) askOne(in *bufio.Reader, q question, before string) error {
	for {
		fmt.Fprintf(s.Out, "%s\n  [%s] ", q.text, cmp.Or(before, "such as "+q.example))
		line, err := in.ReadString('\n')
		if line = cmp.Or(strings.TrimSpace(line), before); line == "" && q.optional {
			return nil
		}
		bad := q.check(line)
		if bad == nil {
			*q.answer = line
			return nil
		}
		if err != nil {
			return fmt.Errorf("%w: give %s", ErrMissing, q.flag)
		}
		fmt.Fprintf(s.Out, "  %v\n", bad)
	}
}

// write puts the answers into the text of settings, in the place of what stands there for them, also as a comment. What follows from
// an answer without having been asked for is only set where the file doesn't have it.
func (a Answers) write(text string, have map[string]any) string {
	set := func(key, value string) {
		line := regexp.MustCompile(`(?m)^#?[ \t]*` + regexp.QuoteMeta(key) + `[ \t]*=.*$`)
		with := key + " = " + value
		if at := line.FindStringIndex(text); at != nil {
			text = text[:at[0]] + with + text[at[1]:]
			return
		}
		text = strings.TrimRight(text, "\n") + "\n" + with + "\n"
	}
	follows := func(key, value string) {
		if _, ok := have[key]; !ok {
			set(key, value)
		}
	}
	set("site-domain", strconv.Quote(a.SiteDomain))
	set("base-url", strconv.Quote(a.BaseURL))
	if !config.Local(a.SiteDomain) {
		follows("acme-ca", `["https://acme-v02.api.letsencrypt.org/directory"]`)
		set("acme-email", strconv.Quote(a.Email))
	}
	if a.SMTP != "" {
		set("smtp", strconv.Quote(a.SMTP))
		follows("smtp-from", strconv.Quote("Slipway <"+a.Email+">"))
	}
	if a.BackupTo != "" {
		set("backup-to", strconv.Quote(a.BackupTo))
		follows("backup-every", `"24h"`)
	}
	return text
}

// look tells what of the answers can be seen from here. What can't be, such as names that are pointed here tomorrow, is no error.
func (s *Setup) look(ctx context.Context, a Answers, store installation.Store) {
	say := func(ok bool, name, format string, args ...any) {
		mark := "ok     "
		if !ok {
			mark = "not yet"
		}
		fmt.Fprintf(s.Out, "%s  %-10s  %s\n", mark, name, fmt.Sprintf(format, args...))
	}
	fmt.Fprintln(s.Out)
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	u, _ := url.Parse(a.BaseURL)
	for _, host := range []string{u.Hostname(), "any-site." + a.SiteDomain} {
		if at, err := net.DefaultResolver.LookupHost(ctx, host); err != nil {
			say(false, "DNS", "%s leads nowhere: point %s to this machine", host, strings.Replace(host, "any-site.", "*.", 1))
		} else {
			say(true, "DNS", "%s leads to %s", host, strings.Join(at, ", "))
		}
	}
	if _, serves := store.Serving(); !serves {
		for _, port := range []string{"80", "443"} {
			l, err := net.Listen("tcp", ":"+port)
			if err != nil {
				say(false, "ports", "port %s is taken or not allowed: %v", port, err)
				continue
			}
			l.Close()
			say(true, "ports", "port %s is free", port)
		}
	}
	if a.SMTP != "" {
		c, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, "tcp", a.SMTP)
		if err != nil {
			say(false, "mail", "%s does not answer: %v", a.SMTP, err)
		} else {
			c.Close()
			say(true, "mail", "%s answers; its password goes to SLIPWAY_SMTP_PASSWORD in /etc/default/slipway", a.SMTP)
		}
	}
	switch {
	case a.BackupTo == "":
		say(false, "backups", "they stay on this machine, and are lost with it")
	case store.Inside(a.BackupTo):
		say(false, "backups", "%s lies in the data directory, and is lost with it", a.BackupTo)
	default:
		where, err := blob.Open(a.BackupTo, blob.Options{})
		if err == nil {
			err = where.Probe(ctx)
		}
		if err != nil {
			say(false, "backups", "%v", err)
		} else {
			say(true, "backups", "every 24 hours to %s", a.BackupTo)
		}
	}
}

// firstUser makes the operator's account where there is none.
func (s *Setup) firstUser(ctx context.Context, store installation.Store, a Answers) error {
	some, err := admin.HasUsers(ctx, store)
	if err != nil || some {
		return err
	}
	return admin.CreateUser(ctx, store, admin.NewUser{Email: a.Email, Admin: true, BaseURL: a.BaseURL}, s.Out)
}

// save replaces the file, whole or not at all, and keeps the one before beside it.
func save(file, text string) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	mode := fs.FileMode(0o640)
	before, err := os.ReadFile(file)
	if err == nil {
		if string(before) == text {
			return nil
		}
		// A link has the owner and the mode of the file, which may hold secrets.
		if err := os.Remove(file + ".before"); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := os.Link(file, file+".before"); err != nil {
			return err
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(file), ".server-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.WriteString(text)
	if info, statErr := os.Stat(file); statErr == nil { // its group may read it
		mode = info.Mode().Perm()
		err = errors.Join(err, ownedAs(f, info))
	}
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	return disk.Rename(f.Name(), file)
}

func isDomain(s string) error {
	u, err := url.Parse("https://" + s + "/")
	if err != nil || s == "" || u.Hostname() != s || u.Port() != "" || net.ParseIP(s) != nil || strings.HasPrefix(s, ".") ||
		strings.ToLower(s) != s {
		return fmt.Errorf("%q is not a domain name", s)
	}
	return nil
}

func isAddress(s string) error {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || u.Path != "" && u.Path != "/" || u.RawQuery != "" {
		return fmt.Errorf("%q is not an address such as https://slipway.example.com", s)
	}
	return nil
}

func isEmail(s string) error {
	if a, err := mail.ParseAddress(s); err != nil || a.Address != s {
		return fmt.Errorf("%q is not an email address", s)
	}
	return nil
}

func isHostPort(s string) error {
	if host, port, err := net.SplitHostPort(s); err != nil || host == "" || port == "" {
		return fmt.Errorf("%q is not HOST:PORT", s)
	}
	return nil
}

func isPlace(s string) error {
	if strings.HasPrefix(s, "s3://") {
		_, err := blob.ParseS3(s, func(string) string { return "given later" }) // credentials come with the service's environment
		return err
	}
	if !filepath.IsAbs(strings.TrimPrefix(s, "file://")) {
		return fmt.Errorf("%q is neither s3://… nor an absolute directory", s)
	}
	return nil
}
