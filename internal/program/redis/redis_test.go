package redis

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/big"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"slipway/internal/platform/id"
	"slipway/internal/platform/wait"
)

// server is a real redis-server.
type server struct {
	t    *testing.T
	dir  string
	port string // chosen by the first run
	args []string
	kill func() // ends the server, and returns when it has ended
}

// start runs a server with these further settings until the test ends.
func start(t *testing.T, args ...string) *server {
	t.Helper()
	s := &server{t: t, dir: t.TempDir(), args: args}
	s.run()
	return s
}

// run starts the server, and tries again if another program has taken its port in between.
func (s *server) run() {
	s.t.Helper()
	ended := make(chan struct{})
	close(ended)
	port := s.port
	wait.Until(s.t, "Redis listens", func() bool {
		select {
		case <-ended:
			if s.port == "" {
				port = s.free()
			}
			ended = s.launch(port)
		default:
		}
		c, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	s.port = port
}

func (s *server) free() string {
	s.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

func (s *server) launch(port string) (ended chan struct{}) {
	s.t.Helper()
	args := []string{"--bind", "127.0.0.1", "--save", "", "--dir", s.dir}
	if slices.Contains(s.args, "--tls-port") {
		args = append(args, "--port", "0")
	} else {
		args = append(args, "--port", port)
	}
	for _, a := range s.args {
		if a == "PORT" {
			a = port
		}
		args = append(args, a)
	}
	cmd := exec.Command("redis-server", args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		s.t.Fatalf("Redis is needed: apt-get install redis-server: %v", err)
	}
	ended = make(chan struct{})
	go func() { defer close(ended); _ = cmd.Wait() }()
	s.kill = func() { _ = cmd.Process.Kill(); <-ended }
	s.t.Cleanup(s.kill)
	return ended
}

func (s *server) address(scheme string) string { return scheme + "://:secret@127.0.0.1:" + s.port }

// opened opens the server at this address.
func opened(t *testing.T, address string, logs Logs) *Redis {
	t.Helper()
	r, err := Open(t.Context(), address, logs, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func parsed(t *testing.T, text string) *Server {
	t.Helper()
	s, err := ParseServer(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// notes keeps the messages in the logs of sites.
type notes struct {
	mu   sync.Mutex
	said []string
}

func (n *notes) Note(_ id.Site, text string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.said = append(n.said, text)
}

func (n *notes) all() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return strings.Join(n.said, "; ")
}

// program is a client that connects as programs do.
type program struct {
	t    *testing.T
	path string
}

func (r *Redis) program(t *testing.T, of Client) program {
	t.Helper()
	dir, err := os.MkdirTemp("", "redis-") // short: a unix socket's path must not be longer than 108 bytes
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(context.Background())
	served := make(chan struct{})
	go func() { defer close(served); r.Serve(ctx, of, l) }()
	t.Cleanup(func() { end(); <-served; os.RemoveAll(dir) })
	return program{t, path}
}

func (p program) open() *conn {
	p.t.Helper()
	c, err := net.Dial("unix", p.path)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(2 * time.Minute))
	return &conn{c, bufio.NewReader(c)}
}

// do sends a command over a new connection and returns the answer or the error.
func (p program) do(words ...string) string {
	p.t.Helper()
	c := p.open()
	defer c.Close()
	return c.do(words...)
}

func (c *conn) do(words ...string) string {
	x, err := c.call(words...)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(x)
}

// Sites must find what they have stored, but nothing of other sites, whatever they try. Every command that would show,
// stop or fill more than a site's own keys must be refused.
func TestSitesAreKeptApart(t *testing.T) {
	t.Parallel()
	s := start(t, "--requirepass", "secret")
	r := opened(t, s.address("redis"), &notes{})
	a, b := r.program(t, Client{Site: "site_a"}), r.program(t, Client{Site: "site_b"})
	preview := r.program(t, Client{Site: "site_a", Preview: "p1"})
	for _, x := range [][]string{
		{"OK", "SET", "site_a:k", "of a"},
		{"of a", "GET", "site_a:k"},
		{"1", "HSET", "site_a:h", "f", "1"},
		{"1", "EXPIRE", "site_a:h", "100"},
		{"0", "XLEN", "site_a:none"},
		{"OK", "SELECT", "3"},
	} {
		if got := a.do(x[1:]...); got != x[0] {
			t.Errorf("%v: %q, want %q", x[1:], got, x[0])
		}
	}
	for _, p := range []program{b, preview} {
		for _, x := range [][]string{
			{"GET", "site_a:k"},
			{"SET", "site_a:k", "of b"},
			{"SET", "k", "without a prefix"},
			{"RENAME", "site_b:x", "site_a:k"},
			{"COPY", "site_a:k", "site_b:k"},
			{"MGET", "site_b:k", "site_a:k"},
			{"SUBSCRIBE", "site_a:news"},
			{"PSUBSCRIBE", "*"},
			{"PUBLISH", "site_a:news", "x"},
			{"PUBSUB", "CHANNELS"},
			{"KEYS", "*"},
			{"SCAN", "0"},
			{"RANDOMKEY"},
			{"DBSIZE"},
			{"FLUSHALL"},
			{"FLUSHDB"},
			{"SWAPDB", "0", "1"},
			{"INFO"},
			{"MONITOR"},
			{"CONFIG", "GET", "*"},
			{"CLIENT", "LIST"},
			{"CLIENT", "KILL", "TYPE", "normal"},
			{"CLIENT", "TRACKING", "ON", "BCAST"},
			{"SHUTDOWN"},
			{"SAVE"},
			{"EVAL", "return redis.call('GET', 'site_a:k')", "0"},
			{"FUNCTION", "LIST"},
			{"SCRIPT", "KILL"},
			{"ACL", "LIST"},
			{"ACL", "SETUSER", "slipway.site_b", "allkeys"},
			{"REPLICAOF", "127.0.0.1", "1"},
			{"MODULE", "LIST"},
			{"MEMORY", "STATS"},
			{"SORT", "site_b:x", "BY", "*", "GET", "site_a:*"},
		} {
			if got := p.do(x...); !strings.HasPrefix(got, "NOPERM") {
				t.Errorf("%v: %q, want NOPERM", x, got)
			}
		}
	}
	c := b.open()
	if got := c.do("AUTH", "default", "wrong"); !strings.HasPrefix(got, "WRONGPASS") {
		t.Errorf("AUTH: %q", got)
	}
	if got := c.do("RESET"); got != "RESET" {
		t.Errorf("RESET: %q", got)
	}
	if got := c.do("GET", "site_a:k"); !strings.HasPrefix(got, "NOAUTH") {
		t.Errorf("after RESET: %q", got)
	}
	if got := a.do("GET", "site_a:k"); got != "of a" {
		t.Errorf("in the end a's value is %q", got)
	}
}

// A server that restarts without its users must get them again. If it hangs or is down, the program must get an error,
// and the site's log must say why.
func TestServerRestarts(t *testing.T) {
	t.Parallel()
	s := start(t, "--requirepass", "secret")
	said := &notes{}
	r := opened(t, s.address("redis"), said)
	p := r.program(t, Client{Site: "site_a"})
	if got := p.do("SET", "site_a:k", "1"); got != "OK" {
		t.Fatalf("SET: %q", got)
	}
	s.kill()
	s.run()
	if got := p.do("GET", "site_a:k"); got != "<nil>" {
		t.Errorf("after its restart: %q", got)
	}
	if said.all() != "" {
		t.Errorf("the log says %q", said.all())
	}
	s.kill()
	for range 2 {
		if got := p.do("PING"); got != "ERR the Redis server is not available" {
			t.Errorf("without a server: %q", got)
		}
	}
	s.run()
	if got := p.do("PING"); got != "PONG" {
		t.Errorf("again: %q", got)
	}
	if said.all() != "The Redis server is not available; The Redis server is available again" {
		t.Errorf("the log says %q", said.all())
	}
}

// When a site is deleted, its keys and those of its previews must be deleted in all databases, and its users with them.
// Keys of other sites must stay.
func TestForgetSite(t *testing.T) {
	t.Parallel()
	s := start(t, "--requirepass", "secret")
	r := opened(t, s.address("redis"), &notes{})
	for _, of := range []Client{{Site: "site_a"}, {Site: "site_a", Preview: "p1"}, {Site: "site_ab"}} {
		p := r.program(t, of)
		for _, db := range []string{"0", "2"} {
			c := p.open()
			c.do("SELECT", db)
			for n := range 1500 {
				if got := c.do("SET", fmt.Sprint(of.Prefix(), n), "x"); got != "OK" {
					t.Fatal(got)
				}
			}
		}
	}
	if err := r.ForgetSite(t.Context(), "site_a"); err != nil {
		t.Fatal(err)
	}
	c, err := r.server.dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := r.server.login(c); err != nil {
		t.Fatal(err)
	}
	for _, db := range []string{"0", "2"} {
		c.do("SELECT", db)
		if got := c.do("DBSIZE"); got != "1500" {
			t.Errorf("database %s holds %s keys", db, got)
		}
	}
	if got := c.do("ACL", "USERS"); got != "[default slipway.site_ab]" {
		t.Errorf("the users are %s", got)
	}
	if err := r.ForgetSite(t.Context(), "site_a"); err != nil {
		t.Errorf("again: %v", err)
	}
	s.kill()
	if err := r.ForgetSite(t.Context(), "site_ab"); err == nil {
		t.Error("ForgetSite succeeded without a server")
	}
}

// A server that cannot keep sites apart must be refused with a clear message.
func TestUnsuitable(t *testing.T) {
	t.Parallel()
	acl := filepath.Join(t.TempDir(), "users.acl")
	text := "user default off\nuser few on >secret ~* +@all -acl\nuser all on >secret ~* &* +@all\n"
	if err := os.WriteFile(acl, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	open, closed, users := start(t, "--protected-mode", "no"), start(t, "--requirepass", "secret"), start(t, "--aclfile", acl)
	for _, x := range []struct{ address, want string }{
		{"redis://all:secret@127.0.0.1:" + users.port, ""},
		{"redis://few:secret@127.0.0.1:" + users.port, "it refuses few: NOPERM"},
		{"redis://:wrong@127.0.0.1:" + closed.port, "it refuses default: WRONGPASS"},
		{open.address("redis"), "its default user needs no password"},
	} {
		err := parsed(t, x.address).Check(t.Context())
		var unsuitable Unsuitable
		if x.want == "" && err != nil || x.want != "" && (!errors.As(err, &unsuitable) || !strings.Contains(err.Error(), x.want)) {
			t.Errorf("%s: %v, want %q", x.address, err, x.want)
		}
	}
	if _, err := Open(t.Context(), open.address("redis"), &notes{}, nil); err == nil || !strings.Contains(err.Error(), "can't be used: its default") {
		t.Errorf("the server was accepted: %v", err)
	}
	r := &Redis{ // as if the server had lost its password later
		server: parsed(t, open.address("redis")), logs: &notes{}, log: slog.New(slog.DiscardHandler), connected: map[id.Owner]int{},
	}
	if got := r.program(t, Client{Site: "site_a"}).do("PING"); got != "ERR the Redis server is not available" {
		t.Errorf("a server whose default user needs no password answers a program: %q", got)
	}
	var unsuitable Unsuitable
	if err := parsed(t, "redis://:secret@127.0.0.1:1").Check(t.Context()); err == nil || errors.As(err, &unsuitable) {
		t.Errorf("a server that is away: %v", err)
	}
}

// Over TLS, the server's certificate must be verified.
func TestTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "redis"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{
		"cert.pem": {Type: "CERTIFICATE", Bytes: der}, "key.pem": {Type: "PRIVATE KEY", Bytes: private},
	} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ca := filepath.Join(dir, "cert.pem")
	s := start(t, "--requirepass", "secret", "--tls-port", "PORT", "--tls-cert-file", ca, "--tls-key-file", filepath.Join(dir, "key.pem"),
		"--tls-auth-clients", "no")
	with := s.address("rediss") + "?ca=" + url.QueryEscape(ca)
	r := opened(t, with, &notes{})
	p := r.program(t, Client{Site: "site_a"})
	value := strings.Repeat("x", 1<<20)
	c := p.open()
	if got := c.do("SET", "site_a:k", value); got != "OK" {
		t.Errorf("SET: %q", got)
	}
	if got := c.do("STRLEN", "site_a:k"); got != "1048576" {
		t.Errorf("its length is %s", got)
	}
	if err := parsed(t, s.address("rediss")).Check(t.Context()); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("an authority that nobody knows: %v", err)
	}
	if err := parsed(t, s.address("redis")).Check(t.Context()); err == nil {
		t.Error("a TLS server was accepted without TLS")
	}
}

// A program must not have more connections than the limit.
func TestBounds(t *testing.T) {
	t.Parallel()
	s := start(t, "--requirepass", "secret")
	r := opened(t, s.address("redis"), &notes{})
	p := r.program(t, Client{Site: "site_a"})
	for range maxConns {
		if got := p.open().do("PING"); got != "PONG" {
			t.Fatalf("PING: %q", got)
		}
	}
	if got := p.do("PING"); !strings.Contains(got, "128 connections") {
		t.Errorf("a connection over the limit: %q", got)
	}
}

func TestParseServer(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"redis://:secret@10.0.0.1":                   "",
		"redis://user:secret@10.0.0.1:7000/":         "",
		"rediss://user:secret@[2001:db8::1]:7000":    "",
		"redis://10.0.0.1":                           "no password",
		"redis://user@10.0.0.1":                      "no password",
		"http://:secret@10.0.0.1":                    "must be redis[s]://",
		"redis://:secret@":                           "must be redis[s]://",
		"redis://:secret@10.0.0.1/3":                 "must be redis[s]://",
		"redis://:secret@10.0.0.1?ca=/x":             "begins with rediss://",
		"rediss://:secret@10.0.0.1?tls=no":           "no parameter tls",
		"rediss://:secret@10.0.0.1?ca=/missing.file": "read ca",
	} {
		s, err := ParseServer(text)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the error tells the password", text)
		}
		if s != nil && (s.password != "secret" || !strings.Contains(s.addr, ":")) {
			t.Errorf("%s: %+v", text, s)
		}
	}
}

// A password that programs may guess must be reported, but not one of the kind that the documentation recommends.
func TestGuessable(t *testing.T) {
	t.Parallel()
	for password, weak := range map[string]bool{
		"secret": true, strings.Repeat("x", MinPassword-1): true, strings.Repeat("x", MinPassword): false, strings.Repeat("0f", 32): false,
	} {
		if got := parsed(t, "redis://:"+password+"@10.0.0.1").Guessable(); (got != "") != weak || strings.Contains(got, password) {
			t.Errorf("%q: %q", password, got)
		}
	}
	const perSecond, year = 19_000, 365.25 * 24 * 3600
	if years := math.Pow(62, MinPassword) / 2 / perSecond / year; years < 1e23 {
		t.Errorf("random letters and digits of the least length last %g years", years)
	}
}

// The programs of one owner must leave connections for those of others.
func TestOwnersShare(t *testing.T) {
	t.Parallel()
	r := &Redis{connected: map[id.Owner]int{}}
	for range maxOwner {
		if !r.enter("ada") {
			t.Fatal("a connection within the limit was refused")
		}
	}
	if r.enter("ada") || !r.enter("eve") {
		t.Error("an owner has more connections than the limit, or another owner none")
	}
	r.leave("ada")
	r.leave("eve")
	if !r.enter("ada") || len(r.connected) != 1 {
		t.Errorf("what has ended still counts: %v", r.connected)
	}
}
