package toolchain

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"slipway/internal/platform/fault"
	"slipway/internal/platform/sandbox"
)

// sandboxPath is where a sandbox finds programs of the host. A Node elsewhere, in
// somebody's home say, does not exist for builds.
var sandboxPath = []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"}

// host holds what the server itself offers.
type host struct {
	node    version
	npm     version
	npmPath string
	engines versions // the Nodes on which that npm runs
}

func (h host) npmRunsOn(node version) bool { return h.engines.has(node) }

func errNoNPM() error {
	return fault.New(fault.Unavailable, "toolchain_unavailable",
		"Builds need Node.js and npm, which are not installed on this server",
		"The operator installs it in /usr or /usr/local (apt-get install nodejs npm)")
}

// lookHost reads which Node and npm the host has, again whenever the files changed.
func (t *Toolchain) lookHost(ctx context.Context) (host, error) {
	node, npm := t.lookPath("node"), t.lookPath("npm")
	if node == "" || npm == "" {
		return host{}, errNoNPM()
	}
	manifest, text, err := npmManifest(npm)
	if err != nil {
		return host{}, errNoNPM()
	}
	st, err := os.Stat(node)
	if err != nil {
		return host{}, fmt.Errorf("inspect the host's Node: %w", err)
	}
	seen := fmt.Sprint(node, st.Size(), st.ModTime().UnixNano(), npm, string(text))
	t.mu.Lock()
	known, h := t.seen == seen, t.host
	t.mu.Unlock()
	if known {
		return h, nil
	}

	h = host{npmPath: npm}
	var ok1, ok2 bool
	if h.npm, ok1 = parseVersion(manifest.Version); !ok1 {
		return host{}, errNoNPM()
	}
	if h.engines, ok2 = parseRange(manifest.Engines.Node); !ok2 {
		h.engines = nil
	}
	err = t.locks.Once(ctx, "host", func(ctx context.Context) error {
		var out string
		out, err := t.try(ctx, "host", Tools{}, []string{node, "--version"})
		if err != nil {
			return err
		}
		v, ok := parseVersion(out)
		if !ok {
			return errNoNPM()
		}
		h.node = v
		t.mu.Lock()
		t.host, t.seen = h, seen
		t.mu.Unlock()
		return nil
	})
	if err != nil {
		return host{}, fmt.Errorf("inspect the host's Node: %w", err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.host, nil
}

func (t *Toolchain) lookPath(name string) string {
	for _, dir := range t.search {
		p := filepath.Join(dir, name)
		if st, err := os.Stat(p); err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
			return p
		}
	}
	return ""
}

type manifest struct {
	Name    string
	Version string
	Engines struct{ Node string }
	Bin     json.RawMessage
}

// npmManifest finds the package.json that belongs to the program.
func npmManifest(npm string) (m manifest, text []byte, err error) {
	real, err := filepath.EvalSymlinks(npm)
	if err != nil {
		return m, nil, err
	}
	for dir := filepath.Dir(real); dir != "/"; dir = filepath.Dir(dir) {
		text, err = os.ReadFile(filepath.Join(dir, "package.json"))
		if err == nil && json.Unmarshal(text, &m) == nil && m.Name == "npm" {
			return m, text, nil
		}
	}
	return m, nil, fmt.Errorf("no package.json of npm around %s", real)
}

// try runs a program that should print its version and returns what it printed. It has
// no network, an empty directory, and the uid that owns nothing. The caller holds the
// lock of key.
func (t *Toolchain) try(ctx context.Context, key string, with Tools, argv []string) (string, error) {
	work, err := t.workDir(key)
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(filepath.Dir(work))
	var out, errs bytes.Buffer
	res, err := t.c.Sandbox.Run(ctx, sandbox.Command{
		Argv: argv, Work: work, UID: t.c.UID, Binds: with.Binds,
		Env:    []string{"PATH=" + strings.Join(append(with.Path[:len(with.Path):len(with.Path)], sandboxPath...), ":")},
		Limits: sandbox.Limits{Wall: time.Minute, Disk: 64 << 20, Files: 1000, Output: 64 << 10}, Stdout: &out, Stderr: &errs,
	})
	if err != nil {
		return "", err
	}
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	if !res.OK() {
		return "", fmt.Errorf("try %s: %s: %s", filepath.Base(argv[0]), res, tail(errs.Bytes()))
	}
	return strings.TrimSpace(out.String()), nil
}

// tail is the end of a program's complaint, on one line.
func tail(b []byte) string {
	s := strings.Join(strings.Fields(strings.ToValidUTF8(string(b), "?")), " ")
	if len(s) > 500 {
		s = "…" + strings.ToValidUTF8(s[len(s)-500:], "")
	}
	return s
}
