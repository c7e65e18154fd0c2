package world

import (
	"bytes"
	"cmp"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// GitHost serves bare repositories over HTTP with Git's own server, as host git.test.
type GitHost struct {
	URL    string
	root   string
	server *httptest.Server

	mu     sync.Mutex        // guards the following fields, and serializes commits
	tokens map[string]string // repository → required password; public if missing
	last   map[string]string // repository → newest commit
}

func newGitHost(root string) (*GitHost, error) {
	if err := os.MkdirAll(root, 0o700); err != nil {
		return nil, err
	}
	g := &GitHost{root: root, tokens: map[string]string{}, last: map[string]string{}}
	g.server = httptest.NewServer(http.HandlerFunc(g.serve))
	g.URL = g.server.URL
	return g, nil
}

// Close stops the server.
func (g *GitHost) Close() { g.server.CloseClientConnections(); g.server.Close() }

// Private makes a repository require a token as the password of any user.
func (g *GitHost) Private(name, token string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.tokens[name] = token
}

// backend is Git's own HTTP server.
var backend = sync.OnceValues(func() (string, error) {
	dir, err := git(".", nil, "--exec-path")
	return filepath.Join(dir, "git-http-backend"), err
})

func (g *GitHost) serve(w http.ResponseWriter, r *http.Request) {
	parts := strings.SplitN(strings.TrimPrefix(r.URL.Path, "/"), "/", 3)
	if len(parts) != 3 {
		http.NotFound(w, r)
		return
	}
	name := parts[0] + "/" + strings.TrimSuffix(parts[1], ".git")
	g.mu.Lock()
	token, private := g.tokens[name]
	g.mu.Unlock()
	if private {
		_, password, _ := r.BasicAuth()
		if subtle.ConstantTimeCompare([]byte(password), []byte(token)) != 1 {
			w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
			http.Error(w, "credentials, please", http.StatusUnauthorized)
			return
		}
	}
	backend, err := backend()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	env := []string{
		"GIT_PROJECT_ROOT=" + g.root,
		"GIT_HTTP_EXPORT_ALL=1",
		"PATH_INFO=/" + name + ".git/" + parts[2],
		"HOME=/nonexistent", "GIT_CONFIG_COUNT=2", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*",
		"GIT_CONFIG_KEY_1=uploadpack.allowFilter", "GIT_CONFIG_VALUE_1=true",
	}
	if v := r.Header.Get("Git-Protocol"); v != "" {
		env = append(env, "GIT_PROTOCOL="+v)
	}
	(&cgi.Handler{
		Path:   backend,
		Env:    env,
		Root:   "/",
		Stderr: io.Discard,
	}).ServeHTTP(w, r)
}

// Commit makes the tree of a repository's branch equal to dir, with a new commit on top of the newest commit of any
// branch, and returns the commit's id. It creates the repository if it doesn't exist.
func (g *GitHost) Commit(name, branch, dir, message string) (string, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	bare, last := g.Path(name), g.last[name]
	if last == "" {
		if err := os.MkdirAll(bare, 0o700); err != nil {
			return "", err
		}
		if _, err := git(bare, nil, "init", "--quiet", "--bare", "--initial-branch="+branch); err != nil {
			return "", err
		}
	}
	stream, err := commitStream(branch, dir, message, last)
	if err != nil {
		return "", err
	}
	// fast-import is one process, whereas add, commit and push take a dozen, and tests commit hundreds of times.
	id, err := git(bare, stream, "-c", "fastimport.unpackLimit=0", "fast-import", "--quiet", "--force")
	if err != nil {
		return "", err
	}
	g.last[name] = id
	hook := exec.Command(filepath.Join(bare, "hooks", "post-receive")) // as after a push
	hook.Dir = bare
	hook.Stdin = strings.NewReader(fmt.Sprintf("%s %s refs/heads/%s\n", cmp.Or(last, strings.Repeat("0", len(id))), id, branch))
	if out, err := hook.CombinedOutput(); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("post-receive: %w: %s", err, out)
	}
	return id, nil
}

// commitStream returns the input with which git fast-import makes a commit and prints its id.
func commitStream(branch, dir, message, parent string) (io.Reader, error) {
	var b bytes.Buffer
	data := func(text []byte) { fmt.Fprintf(&b, "data %d\n%s\n", len(text), text) }
	fmt.Fprintf(&b, "commit refs/heads/%s\nmark :1\ncommitter Test <test@example.test> %d +0000\n", branch, time.Now().Unix())
	data([]byte(message + "\n"))
	if parent != "" {
		fmt.Fprintf(&b, "from %s\n", parent)
	}
	b.WriteString("deleteall\n")
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		var text []byte
		mode := "100644"
		switch {
		case info.Mode().Type() == fs.ModeSymlink:
			mode = "120000"
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			text = []byte(target)
		case info.Mode().Perm()&0o100 != 0:
			mode = "100755"
			fallthrough
		default:
			if text, err = os.ReadFile(path); err != nil {
				return err
			}
		}
		fmt.Fprintf(&b, "M %s inline \"%s\"\n", mode, strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(name))
		data(text)
		return nil
	})
	b.WriteString("\nget-mark :1\n")
	return &b, err
}

// Path returns a repository's path on disk.
func (g *GitHost) Path(name string) string { return filepath.Join(g.root, name+".git") }

func git(dir string, stdin io.Reader, args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Stdin = dir, stdin
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("git %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out)), nil
}

// WriteFiles writes files (path → content) below dir.
func WriteFiles(dir string, files map[string]string) error {
	for name, content := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(content), fs.FileMode(0o600)); err != nil {
			return err
		}
	}
	return nil
}

// postReceive sends each pushed ref to a URL, in GitHub's format.
const postReceive = `#!/bin/sh
set -e
while read -r before after ref; do
	body="{\"ref\":\"$ref\",\"before\":\"$before\",\"after\":\"$after\",\"repository\":{\"clone_url\":\"https://git.test/NAME.git\",\"default_branch\":\"main\"},\"head_commit\":{\"id\":\"$after\",\"message\":\"$(git log -1 --format=%s "$after")\",\"author\":{\"name\":\"Test\"}},\"commits\":[]}"
	signature=$(printf %s "$body" | openssl dgst -sha256 -hmac 'SECRET' -r | cut -d' ' -f1)
	printf %s "$body" | curl -sS --fail-with-body -H "X-GitHub-Event: push" -H "X-GitHub-Delivery: $after" -H "X-Hub-Signature-256: sha256=$signature" --data-binary @- 'URL'
done
`

// Tell makes a repository call a URL after each push, signed with a secret.
func (g *GitHost) Tell(name, url, secret string) error {
	script := strings.NewReplacer("NAME", name, "SECRET", secret, "URL", url).Replace(postReceive)
	dir := filepath.Join(g.Path(name), "hooks")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "post-receive"), []byte(script), 0o700)
}
