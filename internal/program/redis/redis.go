// Package redis owns the way from sites' programs to the Redis server that the operator names.
//
// A program finds a socket of its own and needs no password. Slipway connects to the server, over TLS where its address says so,
// logs in as the site's user, and then copies bytes. The server itself keeps sites apart: each one's user may use keys and channels
// that begin with the site's prefix, and no command that reaches further. Nothing is stored here: a user that the server doesn't know
// (any more) is made by the connection that needs it.
package redis

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"slipway/internal/platform/id"
)

// Server is a Redis server of the operator's. It holds a password.
type Server struct {
	addr           string
	user, password string
	tls            *tls.Config // nil: connections are plain
}

const form = "redis[s]://USER:PASSWORD@HOST:PORT"

// ParseServer reads the address of an operator's server: redis://user:password@host:port, where the user may be left out ("default").
// With rediss:// connections are encrypted and the server's certificate is verified, against the authorities in the PEM file
// that ?ca= names or the system's.
func ParseServer(text string) (*Server, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "redis" && u.Scheme != "rediss" || u.Hostname() == "" || u.Path != "" && u.Path != "/" || u.Fragment != "" {
		return nil, errors.New("the address must be " + form)
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, errors.New("the address must be " + form + "?ca=FILE")
	}
	for key, values := range query {
		if key != "ca" || len(values) != 1 {
			return nil, fmt.Errorf("the address has no parameter %s: only ?ca=FILE, if the server's authority isn't one of the system's", key)
		}
	}
	s := &Server{addr: net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "6379")), user: "default"}
	if u.User != nil {
		s.user = cmp.Or(u.User.Username(), s.user)
		s.password, _ = u.User.Password()
	}
	if s.password == "" {
		return nil, errors.New("the address has no password: a server that asks for none can't keep sites apart (set requirepass)")
	}
	if u.Scheme == "redis" {
		if query.Has("ca") {
			return nil, errors.New("with ?ca= the address begins with rediss://")
		}
		return s, nil
	}
	s.tls = &tls.Config{ServerName: u.Hostname(), MinVersion: tls.VersionTLS12}
	if !query.Has("ca") {
		return s, nil
	}
	pem, err := os.ReadFile(query.Get("ca"))
	if err != nil {
		return nil, fmt.Errorf("read ca: %w", err)
	}
	s.tls.RootCAs = x509.NewCertPool()
	if !s.tls.RootCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s holds no certificate in PEM", query.Get("ca"))
	}
	return s, nil
}

// MinPassword is the least length of the operator's password. Programs of sites can send AUTH for any user over their own connection,
// which no ACL forbids: about 19,000 guesses a second were counted. 8 random lower-case letters last 64 days on average, 20 random
// letters and digits (119 bits) last 6 × 10²³ years.
const MinPassword = 20

// Guessable says in words that the operator's password is so short that programs may guess it; empty: it isn't.
func (s *Server) Guessable() string {
	if len(s.password) >= MinPassword {
		return ""
	}
	return fmt.Sprintf("its password has fewer than %d characters, and programs of sites can try 19,000 a second: set a random one "+
		"(openssl rand -hex 32)", MinPassword)
}

// Logs take lines for the logs of sites; package app's Apps are one.
type Logs interface {
	Note(site id.Site, text string)
}

// Redis leads programs to the server. It is safe for concurrent use. Nil has nothing to forget.
type Redis struct {
	server *Server
	logs   Logs
	log    *slog.Logger

	mu sync.Mutex // guards connected
	// share: total the connections that the server takes; owner 1,024 on this node; edge the connection is refused
	connected map[id.Owner]int
}

// Open returns the way to the server at an operator's address; nil: the address is empty. A server that can't keep sites apart is
// refused. One that doesn't answer isn't, since sites work without.
func Open(ctx context.Context, address string, logs Logs, log *slog.Logger) (*Redis, error) {
	if address == "" {
		return nil, nil
	}
	s, err := ParseServer(address)
	if err != nil {
		return nil, fmt.Errorf("--redis: %w", err)
	}
	err = s.Check(ctx)
	var unsuitable Unsuitable
	if errors.As(err, &unsuitable) {
		return nil, fmt.Errorf("--redis: this server can't be used: %w", err)
	}
	log = cmp.Or(log, slog.New(slog.DiscardHandler))
	if err != nil {
		log.WarnContext(ctx, "the Redis server (--redis) does not answer", "err", err)
	}
	if weak := s.Guessable(); weak != "" {
		log.WarnContext(ctx, "programs may guess the password of the Redis server (--redis)", "why", weak)
	}
	return &Redis{server: s, logs: logs, log: log, connected: map[id.Owner]int{}}, nil
}

// Client says whose programs reach the server: a site's own, or those of one of its previews.
type Client struct {
	Owner   id.Owner // whose connections these are
	Site    id.Site
	Preview string // Optional: empty means the site's own. Letters and digits.
}

func (c Client) name() string {
	if c.Preview == "" {
		return string(c.Site)
	}
	return string(c.Site) + "." + c.Preview
}

// Prefix returns what all keys and channels of a client begin with.
func (c Client) Prefix() string { return c.name() + ":" }

// rules are what a site's user may do beside its keys and channels: use every type of data, and nothing that sees, stops or fills
// more than its own keys. Scripts are left out, since one that doesn't end stops the server for everybody.
const rules = "-@all +@string +@hash +@list +@set +@sortedset +@bitmap +@hyperloglog +@geo +@stream +@transaction +@connection +@pubsub" +
	" +del +unlink +exists +expire +expireat +pexpire +pexpireat +expiretime +pexpiretime +ttl +pttl +persist +type +rename +renamenx" +
	" +touch +copy +object +dump +time" +
	" -@dangerous -@admin -@scripting -pubsub -lcs -client|tracking -client|caching"

// safe are the names that can stand in a rule as they are.
var safe = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,100}$`)

// userOf returns the name and the password of a client's user, and the command that makes it. The password is another one when the
// rules are others: then the server doesn't know it, and the user is made anew. Programs never hear it.
func (s *Server) userOf(of Client) (name, password string, make []string, err error) {
	if !safe.MatchString(of.name()) {
		return "", "", nil, fmt.Errorf("no user of Redis can be called %q", of.name())
	}
	name = userPrefix + of.name()
	mac := hmac.New(sha256.New, []byte(s.password))
	fmt.Fprintf(mac, "slipway/redis/1\n%s\n%s", name, rules)
	password = hex.EncodeToString(mac.Sum(nil))
	digest := sha256.Sum256([]byte(password))
	make = append([]string{
		"ACL", "SETUSER", name, "reset", "on", "#" + hex.EncodeToString(digest[:]), "~" + of.Prefix() + "*", "&" + of.Prefix() + "*",
	}, strings.Fields(rules)...)
	return name, password, make, nil
}

// userPrefix begins the names of the users that are ours.
const userPrefix = "slipway."

// patience bounds everything up to the login, and each command of ours.
const patience = 5 * time.Second

// open returns a connection of a client, which is logged in.
func (r *Redis) open(ctx context.Context, of Client) (*conn, error) {
	name, password, makeUser, err := r.server.userOf(of)
	if err != nil {
		return nil, err
	}
	c, err := r.server.dial(ctx)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	_, err = c.call("AUTH", name, password)
	var refused Refusal
	if errors.As(err, &refused) && strings.HasPrefix(string(refused), "WRONGPASS") { // it is new here, or the server has forgotten it
		err = r.server.login(c)
		if err == nil {
			err = suits(c)
		}
		if err == nil {
			_, err = c.call(makeUser...)
		}
		if err == nil {
			_, err = c.call("AUTH", name, password)
		}
	}
	if err == nil {
		err = c.handOver()
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func (s *Server) login(c *conn) error {
	_, err := c.call("AUTH", s.user, s.password)
	return err
}

// Unsuitable says in words why a server can't be used.
type Unsuitable string

func (u Unsuitable) Error() string { return string(u) }

// suits returns an Unsuitable where the server of c, to which the operator's user is logged in, can't keep sites apart.
func suits(c *conn) error {
	about, err := c.call("INFO", "server")
	if err != nil {
		return err
	}
	text, _ := about.(string)
	if major, _ := strconv.Atoi(field(text, "redis_version", ".")); major < 7 {
		return Unsuitable("it is Redis " + cmp.Or(field(text, "redis_version", "\r"), "of an unknown version") + "; Redis 7 or Valkey is needed")
	}
	if field(text, "redis_mode", "\r") == "cluster" {
		return Unsuitable("it is a node of a cluster; a single server is needed")
	}
	flags, err := c.call("ACL", "GETUSER", "default")
	if err != nil {
		return err
	}
	on, open := false, false
	list, _ := flags.([]any)
	for i := 0; i+1 < len(list); i += 2 {
		if list[i] == "flags" {
			values, _ := list[i+1].([]any)
			for _, v := range values {
				on, open = on || v == "on", open || v == "nopass"
			}
		}
	}
	if on && open {
		return Unsuitable("its default user needs no password, so every program could become it; set requirepass in redis.conf")
	}
	return nil
}

// field returns the value of a line name:value of INFO, up to an end.
func field(text, name, end string) string {
	_, rest, _ := strings.Cut("\n"+text, "\n"+name+":")
	line, _, _ := strings.Cut(rest, "\n")
	value, _, _ := strings.Cut(line, end)
	return strings.TrimSpace(value)
}

// Check reports whether the server answers and can keep sites apart; if it can't, the error is an Unsuitable. It makes a user and
// deletes it.
func (s *Server) Check(ctx context.Context) error {
	c, err := s.dial(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	if err = s.login(c); err == nil {
		err = suits(c)
	}
	if err == nil {
		var makeUser []string
		name := ""
		name, _, makeUser, err = s.userOf(Client{Site: "check"})
		if err == nil {
			_, err = c.call(makeUser...)
		}
		if err == nil {
			_, err = c.call("ACL", "DELUSER", name)
		}
	}
	var refused Refusal
	if errors.As(err, &refused) {
		return Unsuitable("it refuses " + s.user + ": " + refused.Error())
	}
	return err
}
