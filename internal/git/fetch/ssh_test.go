package fetch

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"slipway/internal/platform/fault"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

// key returns a user's or host's key pair, with the private key as PEM.
func key(t *testing.T) (ssh.Signer, string) {
	t.Helper()
	_, priv, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(priv)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(priv, "")
	if err != nil {
		t.Fatal(err)
	}
	return signer, string(pem.EncodeToMemory(block))
}

// sshHost serves the repositories below root to one deploy key.
func sshHost(t *testing.T, root string, hostKey ssh.Signer, user ssh.PublicKey, addr string) string {
	t.Helper()
	c := &ssh.ServerConfig{PublicKeyCallback: func(m ssh.ConnMetadata, k ssh.PublicKey) (*ssh.Permissions, error) {
		if m.User() == "git" && string(k.Marshal()) == string(user.Marshal()) {
			return nil, nil
		}
		return nil, os.ErrPermission
	}}
	c.AddHostKey(hostKey)
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, chans, reqs, err := ssh.NewServerConn(conn, c)
				if err != nil {
					return
				}
				go ssh.DiscardRequests(reqs)
				for ch := range chans {
					channel, requests, _ := ch.Accept()
					go upload(root, channel, requests)
				}
			}()
		}
	}()
	return l.Addr().String()
}

func upload(root string, ch ssh.Channel, requests <-chan *ssh.Request) {
	defer ch.Close()
	env := os.Environ()
	for r := range requests {
		switch r.Type {
		case "env":
			var v struct{ Name, Value string }
			ssh.Unmarshal(r.Payload, &v)
			env = append(env, v.Name+"="+v.Value)
			r.Reply(true, nil)
		case "exec":
			var v struct{ Command string }
			ssh.Unmarshal(r.Payload, &v)
			r.Reply(true, nil)
			if path, ok := strings.CutPrefix(v.Command, "git-lfs-authenticate '"); ok {
				answer, err := os.ReadFile(filepath.Join(root, strings.TrimSuffix(path, "' download"), "lfs.json"))
				if err != nil {
					ch.SendRequest("exit-status", false, ssh.Marshal(struct{ N uint32 }{1}))
					return
				}
				ch.Write(answer)
				ch.SendRequest("exit-status", false, ssh.Marshal(struct{ N uint32 }{0}))
				return
			}
			path, ok := strings.CutPrefix(v.Command, "git-upload-pack '")
			dir := filepath.Join(root, strings.TrimSuffix(path, "'"))
			if _, err := os.Stat(filepath.Join(dir, "HEAD")); err != nil || !ok {
				io.WriteString(ch.Stderr(), "ERROR: Repository not found.\n")
				ch.SendRequest("exit-status", false, ssh.Marshal(struct{ N uint32 }{1}))
				return
			}
			cmd := exec.Command("git", "upload-pack", dir)
			cmd.Env, cmd.Stdout, cmd.Stderr = env, ch, ch.Stderr()
			in, _ := cmd.StdinPipe()
			go func() { io.Copy(in, ch); in.Close() }()
			cmd.Run()
			ch.SendRequest("exit-status", false, ssh.Marshal(struct{ N uint32 }{0}))
			return
		default:
			r.Reply(false, nil)
		}
	}
}

func TestDeployKey(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	commit := h.commit(t, "acme/site", "trunk", map[string]string{"x": random(200 << 10)})
	hostKey, _ := key(t)
	user, userPEM := key(t)
	_, otherPEM := key(t)
	addr := sshHost(t, h.root, hostKey, user.PublicKey(), "127.0.0.1:0")
	s := open(t, nil, allowLoopback(t))
	r := Request{
		Site:       "s",
		Repository: repo(t, "ssh://git@"+addr+"/acme/site.git"),
		Credential: &Credential{DeployKey: userPEM, Token: token},
	}
	for range 2 { // the second time the host key is known
		if tree := fetch(t, s, r); tree.Commit != commit || tree.Branch != "trunk" || len(contents(t, tree)["x"]) != 200<<10 {
			t.Errorf("got %+v", tree)
		}
	}
	for name, tt := range map[string]struct {
		r    Request
		kind fault.Kind
		code string
	}{
		"another key": {
			Request{Site: "s", Repository: r.Repository, Credential: &Credential{DeployKey: otherPEM}},
			fault.Forbidden,
			"credential_refused",
		},
		"no repository": {
			Request{Site: "s", Repository: repo(t, addr+"/acme/absent"), Credential: r.Credential},
			fault.NotFound,
			codeMissing,
		},
		"no branch": {
			Request{Site: "s", Repository: r.Repository, Branch: "nope", Credential: r.Credential},
			fault.NotFound,
			"branch_not_found",
		},
		"nobody there": {
			Request{Site: "s", Repository: repo(t, "127.0.0.1:1/acme/site"), Credential: r.Credential},
			fault.Unavailable,
			"host_unreachable",
		},
	} {
		_, err := s.Fetch(t.Context(), tt.r)
		if f := fault.As(err); f == nil || f.Kind != tt.kind || f.Code != tt.code {
			t.Errorf("%s: %v (%+v)", name, err, f)
		}
	}
	if found := leaks(t, s.c.Dir, strings.Split(userPEM, "\n")[2]); found != nil {
		t.Errorf("files hold the key: %v", found)
	}
	// A private address is refused before any byte is sent, unless the operator allows it.
	if _, err := open(t, nil, nil).Fetch(t.Context(), r); fault.As(err) == nil || fault.As(err).Code != "host_blocked" {
		t.Errorf("private address: %v", err)
	}
	// The limit on packs applies, too.
	small := open(t, nil, func(c *Config) { allowLoopback(t)(c); c.MaxPack = 50 << 10 })
	if _, err := small.Fetch(t.Context(), r); !fault.Is(err, fault.TooLarge) {
		t.Errorf("over the limit: %v", err)
	}
}

func TestHostKeyChanged(t *testing.T) {
	t.Parallel()
	s := open(t, nil, nil)
	one, _ := key(t)
	two, _ := key(t)
	for i, tt := range []struct {
		host string
		key  ssh.Signer
		ok   bool
	}{
		{"git.test:22", one, true},
		{"git.test:22", one, true},
		{"git.test:22", two, false},
		{"git.test:2222", two, true},
		{"other.test:22", two, true},
	} {
		if err := s.knownHost("one", tt.host, tt.key.PublicKey()); (err == nil) != tt.ok {
			t.Errorf("%d: %s: %v", i, tt.host, err)
		}
	}
	if got := s.hostKeyAlgorithms("one", "git.test:22"); len(got) != 1 || got[0] != ssh.KeyAlgoED25519 {
		t.Errorf("algorithms of a known host: %v", got)
	}
	if got := s.hostKeyAlgorithms("one", "new.test:22"); got != nil {
		t.Errorf("algorithms of a new host: %v", got)
	}
}

// A connection without the request's secret path gets nothing.
func TestBridgeNeedsItsSecret(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.commit(t, "acme/site", "main", map[string]string{"x": "1"})
	hostKey, _ := key(t)
	user, userPEM := key(t)
	addr := sshHost(t, h.root, hostKey, user.PublicKey(), "127.0.0.1:0")
	s := open(t, nil, allowLoopback(t))
	m, err := s.connect(t.Context(), Request{
		Site:       "s",
		Repository: repo(t, addr+"/acme/site"),
		Credential: &Credential{DeployKey: userPEM},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer m.close()
	for _, line := range []string{"0027git-upload-pack /acme/site.git\x00h=x\x00", "zzzz", "0000", "ffff", ""} {
		c, err := net.Dial("tcp", strings.TrimPrefix(strings.Split(m.urls[0], m.secrets[1])[0], "git://"))
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(c, line)
		c.(*net.TCPConn).CloseWrite()
		if b, _ := io.ReadAll(c); len(b) != 0 {
			t.Errorf("%q: %q", line, b)
		}
		c.Close()
	}
}

// Known host keys are per site and are deleted with the site. The operator's keys take precedence.
func TestHostKeysAreKnownPerSite(t *testing.T) {
	t.Parallel()
	s := open(t, nil, nil)
	real, _ := key(t)
	forged, _ := key(t)
	if err := s.knownHost("attacker", "git.test:22", forged.PublicKey()); err != nil {
		t.Fatal(err)
	}
	if err := s.knownHost("victim", "git.test:22", real.PublicKey()); err != nil {
		t.Errorf("another site's key decides: %v", err)
	}
	if err := s.knownHost("victim", "git.test:22", forged.PublicKey()); err == nil {
		t.Error("a changed key was accepted")
	}
	if err := s.Forget(t.Context(), "victim"); err != nil {
		t.Fatal(err)
	}
	if err := s.knownHost("victim", "git.test:22", forged.PublicKey()); err != nil {
		t.Errorf("a forgotten site remembers: %v", err)
	}
	line := knownhosts.Line([]string{"git.test"}, real.PublicKey()) + "\n"
	if err := os.WriteFile(s.path("known_hosts"), []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.knownHost("third", "git.test:22", forged.PublicKey()); err == nil {
		t.Error("a key that is not the operator's was accepted")
	}
	for n := range 2000 { // a host name with ever new ports can't fill the disk
		if s.knownHost("greedy", fmt.Sprintf("git.test:%d", 1000+n), real.PublicKey()) != nil {
			break
		}
	}
	if info, err := os.Stat(s.path("hosts", "greedy")); err != nil || info.Size() > maxKnown+1024 {
		t.Errorf("the site's file: %v, %v", info, err)
	}
}
