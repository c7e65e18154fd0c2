package fetch

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"slipway/internal/platform/egress"
	"slipway/internal/platform/fault"
)

// base is the actual location of one host's repositories.
type base struct {
	url  string // "http://127.0.0.1:3000/prefix", without a slash at the end
	addr string // host:port; "" for a directory
	root string // directory, for file
}

func parseBase(s string) (base, error) {
	u, err := url.Parse(s)
	if err != nil || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return base{}, errors.New("use http://host:port, https://host or file:///directory")
	}
	switch port := u.Port(); {
	case u.Scheme == "file" && u.Host == "" && filepath.IsAbs(u.Path):
		return base{root: filepath.Clean(u.Path)}, nil
	case u.Scheme == "http" && u.Hostname() != "":
		return base{
			url:  "http://" + u.Host + strings.TrimRight(u.EscapedPath(), "/"),
			addr: net.JoinHostPort(u.Hostname(), cmp.Or(port, "80")),
		}, nil
	case u.Scheme == "https" && u.Hostname() != "":
		return base{
			url:  "https://" + u.Host + strings.TrimRight(u.EscapedPath(), "/"),
			addr: net.JoinHostPort(u.Hostname(), cmp.Or(port, "443")),
		}, nil
	}
	return base{}, errors.New("use http://host:port, https://host or file:///directory")
}

// remote is the connection to one repository during one request.
type remote struct {
	urls    []string // tried in order: some hosts require ".git" at the end, some don't accept it
	env     []string
	config  [][2]string
	header  string // Authorization for these urls only; "" for none
	secrets []string
	refused func() error  // what the proxy refused, or nil
	said    func() string // error messages of the remote beside git's own stderr
	close   func()
	private bool     // a credential is in use
	show    []string // directories that git must read
	ours    bool     // only our uid may read them
}

// try runs fn for each address until one exists, and keeps that one.
func (r *remote) try(fn func(config [][2]string) error) (err error) {
	for i, u := range r.urls {
		config := append(slices.Clone(r.config), [2]string{"remote.slipway.url", u})
		if r.header != "" {
			config = append(config, [2]string{"http." + u + ".extraHeader", r.header})
		}
		e := fn(config)
		if e == nil {
			r.urls = r.urls[i : i+1]
			return nil
		}
		if err == nil || !missing(e) {
			err = e
		}
		if !missing(e) {
			return err
		}
	}
	return err
}

func missing(err error) bool {
	f := fault.As(err)
	return f != nil && f.Code == codeMissing
}

// connect prepares the connection: a directory, an SSH session for a deploy key, or an HTTP proxy that connects to one
// host and port only.
func (s *Fetcher) connect(ctx context.Context, r Request) (*remote, error) {
	b := s.base[r.Repository.host]
	switch {
	case b.root != "":
		return s.directory(r, b.root)
	case r.Credential != nil && r.Credential.DeployKey != "":
		return s.ssh(ctx, r)
	}
	pc := egress.ProxyConfig{User: "git", Password: rand.Text(), Quota: s.c.MaxPack, Conns: 16, Log: nil}
	if b.addr != "" {
		pc.Direct = map[string]string{b.addr: b.addr}
	} else {
		b.url, b.addr = "https://"+r.Repository.host, r.Repository.host
		if !strings.Contains(b.addr, ":") {
			b.addr += ":443"
		}
		pc.Hosts = []string{b.addr}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for git: %w", err)
	}
	p := s.c.Egress.Proxy(pc)
	pctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	// uncaught: accepts; net/http catches
	go func() { // ends with close
		defer close(done)
		p.Serve(pctx, l)
	}()
	u := b.url + "/" + r.Repository.path
	m := &remote{
		urls:    []string{u + ".git", u},
		env:     []string{"GIT_ALLOW_PROTOCOL=" + u[:strings.Index(u, ":")]},
		config:  [][2]string{{"http.proxy", "http://git:" + pc.Password + "@" + l.Addr().String()}},
		secrets: []string{pc.Password, l.Addr().String(), b.url},
		refused: p.Refused,
		said:    func() string { return "" },
		close:   func() { cancel(); <-done },
	}
	if c := r.Credential; c != nil && c.Token != "" {
		if strings.ContainsFunc(c.Token+c.User, func(r rune) bool { return r < ' ' || r == 0x7f }) || strings.Contains(c.User, ":") {
			m.close()
			return nil, refusedCredential(r)
		}
		code := base64.StdEncoding.EncodeToString([]byte(cmp.Or(c.User, tokenUser(r.Repository.host)) + ":" + c.Token))
		m.header, m.private = "Authorization: Basic "+code, true
		m.secrets = append(m.secrets, code, c.Token)
	}
	return m, nil
}

// tokenUser returns the user name that a host expects with a token. Most accept any.
func tokenUser(host string) string {
	switch {
	case strings.HasPrefix(host, "bitbucket."):
		return "x-token-auth"
	case strings.HasPrefix(host, "gitlab."):
		return "oauth2"
	}
	return "x-access-token"
}

// directory finds a repository below one of the operator's root directories; links can't lead out of it.
func (s *Fetcher) directory(r Request, root string) (*remote, error) {
	root, err := filepath.EvalSymlinks(root)
	if err != nil {
		return nil, fmt.Errorf("git directory: %w", err)
	}
	for _, p := range []string{r.Repository.path + ".git", r.Repository.path + "/.git", r.Repository.path} {
		dir, err := filepath.EvalSymlinks(filepath.Join(root, filepath.FromSlash(p)))
		if err != nil || !strings.HasPrefix(dir, root+string(filepath.Separator)) {
			continue
		}
		// A .git file can point anywhere, so only a repository's own directory is accepted.
		if head, err := os.Lstat(filepath.Join(dir, "HEAD")); err != nil || !head.Mode().IsRegular() {
			continue
		}
		if objects, err := os.Lstat(filepath.Join(dir, "objects")); err != nil || !objects.IsDir() {
			continue
		}
		return &remote{
			urls:    []string{"file://" + dir},
			show:    []string{dir},
			ours:    !readable(dir),
			env:     []string{"GIT_ALLOW_PROTOCOL=file"},
			secrets: []string{dir, root},
			refused: func() error { return nil },
			said:    func() string { return "" },
			close:   func() {},
		}, nil
	}
	return nil, absent(r)
}
