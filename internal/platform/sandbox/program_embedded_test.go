//go:build slipway_init && (amd64 || arm64)

package sandbox

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
)

// The embedded helper runs commands in a sandbox and as plain processes, with a network and a link.
func TestEmbeddedHelper(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	walled, err := New(Config{Dir: filepath.Join(dir, "walled")})
	if err != nil {
		t.Fatal(err)
	}
	plain, err := NewPlain(Config{Dir: filepath.Join(dir, "plain")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { removeParents(walled.engine); removeParents(plain.engine) })
	for name, r := range map[string]Runner{walled.Self: walled, plain.Self: plain} {
		if !strings.HasPrefix(filepath.Base(name), helperName) {
			t.Errorf("the helper is %s", name)
		}
		var out bytes.Buffer
		c := Command{
			Argv: []string{"echo", "hello"}, Work: newWork(t), UID: siteUID(), Limits: small(), Stdout: &out, Stderr: &out,
			Network: Network{Proxy: fakeProxy(t, nil)}, Linked: func(*Link) {},
		}
		if res, err := r.Run(t.Context(), c); err != nil || !res.OK() || out.String() != "hello\n" {
			t.Errorf("%s: %v, %v: %s", name, res, err, out.String())
		}
	}
	got, err := walled.Canary(t.Context(), siteUID())
	if err != nil || len(got) == 0 {
		t.Fatal(got, err)
	}
}
