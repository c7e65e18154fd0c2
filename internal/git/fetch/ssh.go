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

// ssh connects with a deploy key, without an ssh program. Git speaks its plain protocol (git://, gitprotocol-pack(5))
// to a loopback port and a random path that exist only for the request, and the bridge forwards it through an SSH
// session. So no file holds the key, egress checks the address, and no shell runs.
//
// Each site trusts a host's key on first use and keeps it in Dir/hosts/<site>, so that one tenant's first use decides
// nothing for another. The operator's Dir/known_hosts takes precedence. A changed key is refused.
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

// bridge connects git's connections to sessions of one SSH client.
type bridge struct {
	s      *Fetcher
	r      Request
	secret string
	client *ssh.Client
	mu     sync.Mutex // guards the following fields
	stderr limited
	moved  int64
	over   bool
}

// dial connects with the deploy key. The connection is closed when ctx ends, unless hangUp was called.
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

// session serves one "git-upload-pack <path> NUL host=… NUL [NUL version=2 NUL]" request.
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
		return // from another process of this machine
	}
	session, err := b.client.NewSession()
	if err != nil {
		return
	}
	defer session.Close()
	if bytes.Contains(rest, []byte("\x00version=2\x00")) {
		session.Setenv("GIT_PROTOCOL", "version=2") // a server may ignore it, and then uses the old version
	}
	in, err := session.StdinPipe()
	if err != nil {
		return
	}
	session.Stdout = &counted{c, b}
	session.Stderr = &complaint{b}
	// The remote shell can't be tricked with quotes: ParseRepository refuses them.
	if err := session.Start("git-upload-pack '" + path + "'"); err != nil {
		return
	}
	// uncaught: copies bytes
	go func() { // ends when the caller closes the connection
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

// counted ends the connection when both directions together exceed MaxPack.
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
		c.b.client.Close() // else the remote would wait for us to read
		return 0, egress.ErrQuota
	}
	return c.Writer.Write(p)
}

// complaint keeps the remote's stderr.
type complaint struct{ b *bridge }

func (c *complaint) Write(p []byte) (int, error) {
	c.b.mu.Lock()
	defer c.b.mu.Unlock()
	c.b.stderr.max = 16 << 10
	return c.b.stderr.Write(p)
}

// maxKnown caps the bytes of one site's known hosts: a host could send a new key each time.
const maxKnown = 64 << 10

// knownHost accepts a host's first key and stores it for the site. A different key later is a *knownhosts.KeyError.
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

// forgetHosts removes the host keys of a site.
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

// hostKeyAlgorithms returns the algorithms of a host's known keys, so that a server with several keys presents a known
// one; nil for a new host.
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

// nowhere is an address without an IP: hosts are known by name.
type nowhere string

func (n nowhere) Network() string { return "tcp" }
func (n nowhere) String() string  { return string(n) }

// nobody is a key that no host has.
type nobody struct{}

func (nobody) Type() string                        { return "none" }
func (nobody) Marshal() []byte                     { return []byte("none") }
func (nobody) Verify([]byte, *ssh.Signature) error { return errors.New("no key") }
