package fetch

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"slipway/internal/platform/id"

	"slipway/internal/platform/egress"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/panics"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

// ssh opens the way for a deploy key without an ssh program: git speaks its own plain
// protocol (git://, gitprotocol-pack(5)) to a loopback port that lasts as long as the
// request and asks for a random path, and what it says goes on through an SSH session of
// ours. So the key is in no file, the address is checked by egress, and no shell is run.
//
// Host keys are trusted on first use, by each site for itself, and kept in Dir/hosts/<site>
// for as long as the site lasts: what one tenant was shown decides nothing for another.
// Dir/known_hosts is the operator's and goes before. A key that has changed is refused.
func (s *Fetcher) ssh(ctx context.Context, r Request) (*remote, error) {
	b := &bridge{s: s, r: r, secret: "/" + rand.Text()}
	client, hangUp, err := b.dial(ctx)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		client.Close()
		return nil, fmt.Errorf("listen for git: %w", err)
	}
	b.client = client
	var all panics.Background
	all.Go(func() { b.serve(l, &all) })
	u := "git://" + l.Addr().String() + b.secret
	return &remote{
		urls:    []string{u + "/1", u + "/2"}, // with ".git" and without
		env:     []string{"GIT_ALLOW_PROTOCOL=git"},
		secrets: []string{l.Addr().String(), b.secret},
		refused: b.refused,
		said:    b.said,
		private: true,
		close: func() {
			hangUp()
			l.Close()
			client.Close()
			all.Wait()
		},
	}, nil
}

// bridge joins git's connections to sessions of one SSH client.
type bridge struct {
	s      *Fetcher
	r      Request
	secret string
	client *ssh.Client
	mu     sync.Mutex // guards all below
	stderr limited
	moved  int64
	over   bool
}

// dial connects with the deploy key. The connection ends with ctx, unless hangUp was called.
func (b *bridge) dial(ctx context.Context) (client *ssh.Client, hangUp func() bool, err error) {
	signer, err := ssh.ParsePrivateKey([]byte(b.r.Credential.DeployKey))
	if err != nil {
		return nil, nil, fault.New(fault.Invalid, "credential_refused", "The stored deploy key can't be read",
			"a private key in PEM form without a passphrase is needed")
	}
	addr := b.r.Repository.host
	if !strings.Contains(addr, ":") {
		addr += ":22"
	}
	conn, err := b.s.c.Egress.DialContext(ctx, "tcp", addr)
	switch {
	case errors.Is(err, egress.ErrBlocked):
		return nil, nil, blocked(b.r)
	case err != nil && ctx.Err() != nil:
		return nil, nil, fmt.Errorf("connect to %s: %w", addr, ctx.Err())
	case err != nil:
		return nil, nil, unreachable(b.r)
	}
	hangUp = context.AfterFunc(ctx, func() { conn.Close() })
	if client, err = b.handshake(conn, addr, signer); err != nil {
		hangUp()
		conn.Close()
		return nil, nil, err
	}
	return client, hangUp, nil
}

func (b *bridge) handshake(conn net.Conn, addr string, signer ssh.Signer) (*ssh.Client, error) {
	var changed error
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	c, chans, reqs, err := ssh.NewClientConn(conn, addr, &ssh.ClientConfig{
		User: "git",
		Auth: []ssh.AuthMethod{ssh.PublicKeys(signer)},
		HostKeyCallback: func(host string, _ net.Addr, key ssh.PublicKey) error {
			changed = b.s.knownHost(b.r.Site, host, key)
			return changed
		},
		HostKeyAlgorithms: b.s.hostKeyAlgorithms(b.r.Site, addr),
		ClientVersion:     "SSH-2.0-Slipway",
	})
	switch {
	case changed != nil:
		if key := (*knownhosts.KeyError)(nil); errors.As(changed, &key) {
			return nil, fault.New(fault.Forbidden, "host_key_changed",
				fmt.Sprintf("The SSH host key of %s has changed", b.r.Repository.host),
				"if this is expected, the operator removes the old key from known_hosts and hosts/ in the source directory")
		}
		return nil, changed
	case err != nil && strings.Contains(err.Error(), "unable to authenticate"):
		return nil, refusedCredential(b.r)
	case err != nil:
		return nil, unreachable(b.r)
	}
	conn.SetDeadline(time.Time{})
	return ssh.NewClient(c, chans, reqs), nil
}

func (b *bridge) serve(l net.Listener, all *panics.Background) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		all.Go(func() {
			defer c.Close()
			b.session(c)
		})
	}
}

// session answers one "git-upload-pack <path> NUL host=… NUL [NUL version=2 NUL]".
func (b *bridge) session(c net.Conn) {
	c.SetReadDeadline(time.Now().Add(10 * time.Second))
	var size [4]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		return
	}
	n, err := strconv.ParseUint(string(size[:]), 16, 16)
	if err != nil || n < 5 || n > 1024 {
		return
	}
	line := make([]byte, n-4)
	if _, err := io.ReadFull(c, line); err != nil {
		return
	}
	c.SetReadDeadline(time.Time{})
	request, rest, _ := bytes.Cut(line, []byte{0})
	path := b.r.Repository.path
	switch {
	case equal(request, "git-upload-pack "+b.secret+"/1"):
		path += ".git"
	case equal(request, "git-upload-pack "+b.secret+"/2"):
	default:
		return // another process of this machine
	}
	session, err := b.client.NewSession()
	if err != nil {
		return
	}
	defer session.Close()
	if bytes.Contains(rest, []byte("\x00version=2\x00")) {
		session.Setenv("GIT_PROTOCOL", "version=2") // a server may decline; then it speaks the old one
	}
	in, err := session.StdinPipe()
	if err != nil {
		return
	}
	session.Stdout = &counted{c, b}
	session.Stderr = &complaint{b}
	// The far side has a shell of its own: ParseRepository lets no quote through.
	if err := session.Start("git-upload-pack '" + path + "'"); err != nil {
		return
	}
	// uncaught: copies bytes
	go func() { // ends with the connection, which the caller closes
		io.Copy(&counted{in, b}, c)
		in.Close()
	}()
	session.Wait()
}

func equal(a []byte, b string) bool { return subtle.ConstantTimeCompare(a, []byte(b)) == 1 }

func (b *bridge) refused() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over {
		return egress.ErrQuota
	}
	return nil
}

func (b *bridge) said() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.stderr.String()
}

// counted holds both directions to MaxPack.
type counted struct {
	io.Writer
	b *bridge
}

func (c *counted) Write(p []byte) (int, error) {
	c.b.mu.Lock()
	c.b.moved += int64(len(p))
	over := c.b.moved > c.b.s.c.MaxPack
	c.b.over = c.b.over || over
	c.b.mu.Unlock()
	if over {
		c.b.client.Close() // or the far side would wait for us to read on
		return 0, egress.ErrQuota
	}
	return c.Writer.Write(p)
}

// complaint keeps what the far side writes to stderr.
type complaint struct{ b *bridge }

func (c *complaint) Write(p []byte) (int, error) {
	c.b.mu.Lock()
	defer c.b.mu.Unlock()
	c.b.stderr.max = 16 << 10
	return c.b.stderr.Write(p)
}

// maxKnown bounds the file of one site: a name that answers with a new key each time
// would let it grow.
const maxKnown = 64 << 10

// knownHost accepts a host's first key and remembers it for the site; *knownhosts.KeyError
// for another.
func (s *Fetcher) knownHost(site id.Site, host string, key ssh.PublicKey) error {
	s.known.Lock()
	defer s.known.Unlock()
	check, own, err := s.knownHosts(site)
	if err != nil {
		return err
	}
	err = check(host, nowhere(host), key)
	k := (*knownhosts.KeyError)(nil)
	if !errors.As(err, &k) || len(k.Want) > 0 {
		return err
	}
	f, err := os.OpenFile(own, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("open known hosts: %w", err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || info.Size() > maxKnown {
		return errors.Join(err, fmt.Errorf("too many hosts are known for site %s", site))
	}
	if _, err := f.WriteString(knownhosts.Line([]string{knownhosts.Normalize(host)}, key) + "\n"); err != nil {
		return fmt.Errorf("write known hosts: %w", err)
	}
	return f.Sync()
}

// forgetHosts removes what a site knows of hosts.
func (s *Fetcher) forgetHosts(site id.Site) error {
	s.known.Lock()
	defer s.known.Unlock()
	if err := os.Remove(s.path("hosts", string(site))); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// knownHosts reads the operator's keys and the site's own. The caller holds s.known.
func (s *Fetcher) knownHosts(site id.Site) (check ssh.HostKeyCallback, own string, err error) {
	own = s.path("hosts", string(site))
	var files []string
	for _, f := range []string{s.path("known_hosts"), own} {
		if _, err := os.Stat(f); err == nil {
			files = append(files, f)
		}
	}
	if check, err = knownhosts.New(files...); err != nil {
		return nil, "", fmt.Errorf("read known hosts: %w", err)
	}
	return check, own, nil
}

// hostKeyAlgorithms asks for the kinds of key that are known of a host, so that a server
// with several doesn't show one we have never seen; nil for a new host.
func (s *Fetcher) hostKeyAlgorithms(site id.Site, addr string) []string {
	s.known.Lock()
	defer s.known.Unlock()
	check, _, err := s.knownHosts(site)
	if err != nil {
		return nil
	}
	var k *knownhosts.KeyError
	if !errors.As(check(addr, nowhere(addr), nobody{}), &k) {
		return nil
	}
	var out []string
	for _, want := range k.Want {
		switch t := want.Key.Type(); t {
		case ssh.KeyAlgoRSA:
			out = append(out, ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256)
		default:
			out = append(out, t)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// nowhere keeps addresses out of the question: hosts are known by name.
type nowhere string

func (n nowhere) Network() string { return "tcp" }
func (n nowhere) String() string  { return string(n) }

// nobody is a key that no host has.
type nobody struct{}

func (nobody) Type() string                        { return "none" }
func (nobody) Marshal() []byte                     { return []byte("none") }
func (nobody) Verify([]byte, *ssh.Signature) error { return errors.New("no key") }
