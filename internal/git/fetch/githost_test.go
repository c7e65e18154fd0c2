package fetch

import (
	"crypto/subtle"
	"io"
	"io/fs"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"slipway/internal/platform/egress"
)

const token = "tok_7Jx9secret"

// host is git http-backend over HTTP. Repositories named private need the token.
type host struct {
	*httptest.Server
	root      string
	backend   string
	requests  atomic.Int64
	intercept atomic.Pointer[http.HandlerFunc]
}

func newHost(t testing.TB) *host {
	t.Helper()
	h := &host{root: t.TempDir()}
	h.backend = strings.TrimSpace(run(t, ".", "git", "--exec-path")) + "/git-http-backend"
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.requests.Add(1)
		if f := h.intercept.Load(); f != nil {
			(*f)(w, r)
			return
		}
		h.pass(w, r)
	}))
	t.Cleanup(h.Close)
	return h
}

// pass serves a request without interception.
func (h *host) pass(w http.ResponseWriter, r *http.Request) {
	if strings.Contains(r.URL.Path, "/private") {
		if _, p, ok := r.BasicAuth(); !ok || subtle.ConstantTimeCompare([]byte(p), []byte(token)) != 1 {
			w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
			http.Error(w, "authenticate", http.StatusUnauthorized)
			return
		}
	}
	env := []string{
		"GIT_PROJECT_ROOT=" + h.root, "GIT_HTTP_EXPORT_ALL=1", "PATH_INFO=" + r.URL.Path,
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*", "GIT_PROTOCOL=" + r.Header.Get("Git-Protocol"),
	}
	(&cgi.Handler{Path: h.backend, Env: env, Root: "/", Stderr: io.Discard}).ServeHTTP(w, r)
}

// commit writes files to a repository's branch, and creates the repository if needed. A value that starts with "-> " is
// a symbolic link; "" removes the file.
func (h *host) commit(t testing.TB, repo, branch string, files map[string]string) string {
	t.Helper()
	bare, work := filepath.Join(h.root, repo+".git"), filepath.Join(h.root, repo+".work")
	if _, err := os.Stat(bare); err != nil {
		run(t, ".", "git", "init", "-q", "--bare", "-b", branch, bare)
		run(t, ".", "git", "init", "-q", "-b", branch, work)
		run(t, work, "git", "remote", "add", "origin", bare)
	}
	run(t, work, "git", "checkout", "-q", "-B", branch)
	for name, text := range files {
		p := filepath.Join(work, name)
		os.MkdirAll(filepath.Dir(p), 0o755)
		os.Remove(p)
		var err error
		switch to, link := strings.CutPrefix(text, "-> "); {
		case link:
			err = os.Symlink(to, p)
		case text != "":
			err = os.WriteFile(p, []byte(text), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	run(t, work, "git", "add", "-A", "-f")
	run(t, work, "git", "commit", "-q", "--allow-empty", "-m", "Say hello\n\nin two lines")
	run(t, work, "git", "push", "-q", "-f", "origin", branch)
	return strings.TrimSpace(run(t, work, "git", "rev-parse", "HEAD"))
}

func run(t testing.TB, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	cmd.Env = append(
		os.Environ(),
		"GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=Ada Lovelace",
		"GIT_AUTHOR_EMAIL=ada@example.test", "GIT_COMMITTER_NAME=Ada", "GIT_COMMITTER_EMAIL=ada@example.test",
		"GIT_CONFIG_COUNT=2", "GIT_CONFIG_KEY_0=protocol.file.allow", "GIT_CONFIG_VALUE_0=always",
		"GIT_CONFIG_KEY_1=gc.auto", "GIT_CONFIG_VALUE_1=0",
	)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// open returns a Fetcher that reaches the host as git.test.
func open(t testing.TB, h *host, change func(*Config)) *Fetcher {
	t.Helper()
	e, err := egress.New(egress.Config{})
	if err != nil {
		t.Fatal(err)
	}
	c := Config{Dir: t.TempDir(), Egress: e}
	if h != nil {
		c.Hosts = map[string]string{"git.test": h.URL, "files.test": "file://" + h.root}
	}
	if change != nil {
		change(&c)
	}
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func repo(t testing.TB, s string) Repository {
	t.Helper()
	r, err := ParseRepository(s)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func fetch(t testing.TB, s *Fetcher, r Request) *Tree {
	t.Helper()
	tree, err := s.Fetch(t.Context(), r)
	if err != nil {
		t.Fatalf("fetch %s: %v", r.Repository, err)
	}
	t.Cleanup(func() { tree.Close() })
	return tree
}

func contents(t testing.TB, tree *Tree) map[string]string {
	t.Helper()
	files, err := tree.Files(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	err = tree.Read(t.Context(), files, func(f File, r io.Reader) error {
		b, err := io.ReadAll(r)
		if f.Mode == ModeSymlink {
			b = append([]byte("-> "), b...)
		}
		got[f.Path] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func allowLoopback(t testing.TB) func(*Config) {
	t.Helper()
	e, err := egress.New(egress.Config{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	if err != nil {
		t.Fatal(err)
	}
	return func(c *Config) { c.Egress = e }
}

// leaks returns the files below dir that contain a secret.
func leaks(t testing.TB, dir, secret string) (found []string) {
	t.Helper()
	filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if b, err := os.ReadFile(p); err == nil && strings.Contains(string(b), secret) {
				found = append(found, p)
			}
		}
		return nil
	})
	return found
}
