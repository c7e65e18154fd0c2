//go:build browser

package browser

import (
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"flag"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"slipway/e2e/world"
)

var binary string

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(world.Main(m, &binary))
}

const (
	email    = "ada@example.test"
	password = "correct horse battery staple 9"
)

// harness is a new installation without an account, and a browser.
type harness struct {
	*world.World
	t        *testing.T
	chromium *Browser
}

// newHarness starts a new installation, and a browser that trusts the certificates of the given sites.
func newHarness(t *testing.T, name string, sites ...string) *harness {
	t.Helper()
	w, err := world.New(binary, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the program's last words:\n%s", w.Log(3000))
		}
	})
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	h := &harness{World: w, t: t}
	h.chromium = Start(t, Config{Name: name, Trust: h.trust(sites)})
	return h
}

// window opens a window on the dashboard.
func (h *harness) window() *Window { return h.chromium.Window("http://" + h.Listen) }

var setupLink = regexp.MustCompile(`http://\S+/setup/\S+`)

// setupLink returns the setup link that the first start printed.
func (h *harness) setupLink() string {
	h.t.Helper()
	link := setupLink.FindString(h.Log(1 << 16))
	if link == "" {
		h.t.Fatalf("the first start prints no setup link:\n%s", h.Log(4000))
	}
	return link
}

// trust returns the keys of the sites' certificates, after checking each certificate against the root that `slipway ca
// export` prints. Chromium's command line accepts single keys; it reads roots only from the user's own store.
func (h *harness) trust(sites []string) []string {
	h.t.Helper()
	roots, err := h.Trust()
	if err != nil {
		h.t.Fatal(err)
	}
	var keys []string
	for _, name := range sites {
		c, err := tls.Dial("tcp", h.HTTPS, &tls.Config{RootCAs: roots, ServerName: name + ".localhost"})
		if err != nil {
			h.t.Fatalf("the certificate of %s is not from the exported root: %v", name, err)
		}
		sum := sha256.Sum256(c.ConnectionState().PeerCertificates[0].RawSubjectPublicKeyInfo)
		keys = append(keys, base64.StdEncoding.EncodeToString(sum[:]))
		c.Close()
	}
	return keys
}

// commit commits files to a repository's main branch as its complete tree.
func (h *harness) commit(repo, message string, files map[string]string) {
	h.t.Helper()
	dir := h.t.TempDir()
	if err := world.WriteFiles(dir, files); err != nil {
		h.t.Fatal(err)
	}
	if _, err := h.Git.Commit(repo, "main", dir, message); err != nil {
		h.t.Fatal(err)
	}
}

// project returns a repository that npm builds. In its program, pass('x') waits until the test calls open("x").
func (h *harness) project(program string) map[string]string {
	return map[string]string{
		"package.json": `{ "name": "harbor", "private": true, "type": "module", "scripts": { "build": "node build.js" } }` + "\n",
		"build.js": `import { existsSync, mkdirSync, writeFileSync } from 'node:fs'

const pass = async (gate) => { while (!existsSync('gate-' + gate)) await new Promise((go) => setTimeout(go, 20)) }
const page = (text) => { mkdirSync('dist', { recursive: true }); writeFileSync('dist/index.html', '<!doctype html><html lang="en"><title>Harbor</title><link rel="icon" href="data:,"><h1>' + text + '</h1>') }

` + program,
	}
}

// open lets a build continue that waits at a gate. Builds can only reach public addresses, so the signal is a file
// beside the build's program.
func (h *harness) open(gate string) {
	h.t.Helper()
	opened := 0
	err := filepath.WalkDir(h.Data, func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) || err == nil && e.Name() != "build.js" {
			return nil // the program deletes files here at the same time
		}
		if err == nil {
			opened++
			err = os.WriteFile(filepath.Join(filepath.Dir(path), "gate-"+gate), nil, 0o644)
		}
		return err
	})
	if err != nil || opened == 0 {
		h.t.Fatalf("%d builds wait at gate %s: %v", opened, gate, err)
	}
}

// port returns the port of the sites.
func (h *harness) port() string {
	_, port, _ := net.SplitHostPort(h.HTTPS)
	return port
}
