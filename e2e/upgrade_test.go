package e2e

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"slipway/e2e/world"
)

// An upgrade under load fails no request, and neither does one whose program does not start: the old one serves again, with what
// was written meanwhile.
func TestUpgradeUnderLoad(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), world.Patience(4*time.Minute))
	defer cancel()
	dir := t.TempDir()
	program, err := os.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	installed := filepath.Join(dir, "bin", "slipway")
	if err := os.MkdirAll(filepath.Dir(installed), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(installed, program, 0o755); err != nil {
		t.Fatal(err)
	}
	w, err := world.New(installed, dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	key, err := w.User("ada@example.test")
	if err != nil {
		t.Fatal(err)
	}
	for _, addr := range []string{w.Listen, w.HTTP, w.HTTPS} {
		w.Sockets = append(w.Sockets, passed(t, addr))
	}
	if err := w.Start(ctx); err != nil {
		t.Fatal(err)
	}
	site := newSite(ctx, t, w, key)
	manager := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/restart" {
			http.Error(rw, "not asked for here", http.StatusBadRequest)
			return
		}
		_ = w.Stop(ctx) // one that ended by itself can't be stopped
		if err := w.Launch(); err != nil {
			http.Error(rw, err.Error(), http.StatusInternalServerError)
		}
	}))
	t.Cleanup(manager.Close)
	upgrade := func(program []byte, patience string) (string, error) {
		t.Helper()
		archive, sum := release(t, program)
		c := exec.CommandContext(ctx, installed, "upgrade", archive, "--sha256", sum, "--data-dir", filepath.Join(dir, "data"),
			"--listen", w.Listen, "--edge-https", w.HTTPS, "--ready-within", patience, "--watch", "2s",
			"--service-command", "curl --fail --silent --show-error "+manager.URL+"/ACTION")
		out, err := c.CombinedOutput()
		return string(out), err
	}
	v := visit(ctx, t, w, site)
	v.more(ctx, t)
	first := w.PID()
	if out, err := upgrade(append(program, "\nanother build"...), "2m"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	now, err := os.Stat(installed)
	if err != nil || now.Size() == int64(len(program)) || w.PID() == first {
		t.Errorf("the new program is not what serves: %v", err)
	}
	v.more(ctx, t)
	if err := w.Call(ctx, key, "POST", "/sites", map[string]string{"name": "Between", "type": "static", "source": "upload"}, nil); err != nil {
		t.Fatal(err)
	}
	about, err := exec.Command(installed, "version", "--json").Output()
	if err != nil {
		t.Fatal(err)
	}
	out, err := upgrade([]byte("#!/bin/sh\nif [ \"$1\" = version ]; then echo '"+strings.TrimSpace(string(about))+"'; exit; fi\necho panic >&2\nexit 2\n"), "5s")
	if err == nil || !strings.Contains(out, "serves again") {
		t.Errorf("a program that does not start: %v\n%s", err, out)
	}
	if back, err := os.Stat(installed); err != nil || back.Size() != now.Size() {
		t.Errorf("the program of before is not back: %v", err)
	}
	v.more(ctx, t)
	var sites struct{ Data []struct{ Name string } }
	if err := w.Call(ctx, key, "GET", "/sites", nil, &sites); err != nil || len(sites.Data) != 2 {
		t.Errorf("the sites are %+v, %v; want both", sites, err)
	}
	t.Logf("%d requests over an upgrade and one that was taken back", v.end())
}

// release writes an archive as releases have it, and returns its path and SHA-256.
func release(t *testing.T, program []byte) (archive, sum string) {
	t.Helper()
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	if err != nil {
		t.Fatal(err)
	}
	tw := tar.NewWriter(z)
	if err := tw.WriteHeader(&tar.Header{Name: "slipway_9.9.9/slipway", Mode: 0o755, Size: int64(len(program))}); err != nil {
		t.Fatal(err)
	}
	if _, err := tw.Write(program); err != nil {
		t.Fatal(err)
	}
	if err := tw.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	archive = filepath.Join(t.TempDir(), fmt.Sprintf("slipway_9.9.9_linux_%s.tar.gz", runtime.GOARCH))
	if err := os.WriteFile(archive, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	digest := sha256.Sum256(b.Bytes())
	return archive, hex.EncodeToString(digest[:])
}
