package wpcli

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"slipway/internal/platform/fault"
)

// site serves text as a release, and counts the requests.
func site(t *testing.T, text string, status int) (*http.Client, string, *atomic.Int64) {
	t.Helper()
	asked := &atomic.Int64{}
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.WriteHeader(status)
		_, _ = w.Write([]byte(text))
	}))
	t.Cleanup(s.Close)
	return s.Client(), s.URL, asked
}

func sumOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "#sha256=" + hex.EncodeToString(sum[:])
}

// The release must be downloaded only once, however many ask for it at the same time, and another process must use the
// same file.
func TestDownloadedOnce(t *testing.T) {
	t.Parallel()
	const text = "#!/usr/bin/env php\n<?php echo 1;"
	client, address, asked := site(t, text, http.StatusOK)
	c := Config{Source: address + "/wp.phar" + sumOf(text), Dir: filepath.Join(t.TempDir(), "wp-cli"), Out: client}
	x := New(c)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			at, err := x.Program(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			if b, err := os.ReadFile(at); err != nil || string(b) != text {
				t.Errorf("%q %v", b, err)
			}
			if info, err := os.Stat(at); err != nil || info.Mode().Perm() != 0o755 {
				t.Errorf("%v %v", info, err)
			}
		})
	}
	all.Wait()
	at, err := New(c).Program(t.Context())
	if err != nil || asked.Load() != 1 {
		t.Errorf("downloaded %d times, %v", asked.Load(), err)
	}
	// A file that was deleted meanwhile must be downloaded again.
	if err := os.Remove(at); err != nil {
		t.Fatal(err)
	}
	if at, err = x.Program(t.Context()); err != nil || asked.Load() != 2 {
		t.Errorf("downloaded %d times, %v", asked.Load(), err)
	}
	// A file that was damaged in the meantime must not be run.
	if err := os.WriteFile(at, []byte("<?php evil();"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := New(c).Program(t.Context()); err != nil || asked.Load() != 3 {
		t.Errorf("downloaded %d times, %v", asked.Load(), err)
	}
	if b, _ := os.ReadFile(at); string(b) != text {
		t.Errorf("the damaged file is still %q", b)
	}
}

// A file that is not the release must be refused with a message that says what to do, and must leave nothing behind.
func TestRefused(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		text   string
		status int
		want   string
	}{
		"another file": {"<?php evil();", http.StatusOK, "checksum"},
		"empty":        {"", http.StatusOK, "checksum"},
		"not found":    {"wp", http.StatusNotFound, "404"},
		"too large":    {strings.Repeat("x", maxBytes+1), http.StatusOK, "too large"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, address, asked := site(t, tt.text, tt.status)
			dir := t.TempDir()
			address = strings.Replace(address, "https://", "https://user:hidden@", 1) + "/private/"
			x := New(Config{Source: address + sumOf("wp"), Dir: dir, Out: client})
			at, err := x.Program(t.Context())
			f := fault.As(err)
			if at != "" || f == nil || f.Code != "wp_cli_unavailable" || !strings.Contains(f.Details, tt.want) ||
				!strings.Contains(f.Details, "--wp-cli") || strings.Contains(f.Details, "hidden") || strings.Contains(f.Details, "private") {
				t.Fatalf("%q %v", at, err)
			}
			if _, err := x.Program(t.Context()); err == nil || asked.Load() != 1 {
				t.Errorf("asked %d times within a minute, %v", asked.Load(), err)
			}
			x.failedAt = time.Now().Add(-2 * askAgain)
			if _, err := x.Program(t.Context()); err == nil || asked.Load() != 2 {
				t.Errorf("asked %d times, %v", asked.Load(), err)
			}
			if left, _ := os.ReadDir(dir); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

// The operator's own program must be preferred to a download.
func TestOperators(t *testing.T) {
	t.Parallel()
	wp := filepath.Join(t.TempDir(), "wp")
	if err := os.WriteFile(wp, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if got, err := New(Config{Source: wp}).Program(t.Context()); got != wp || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	for source, good := range map[string]bool{
		"": true, wp: true, wp + "2": false, "wp": false, "/": false, "https://wp.test/wp.phar": false,
		"https://wp.test/wp.phar#sha256=" + strings.Repeat("a", 64): true, "https://wp.test/wp.phar#sha256=" + strings.Repeat("g", 64): false,
		"http://wp.test/wp.phar#sha256=" + strings.Repeat("a", 64): false,
	} {
		if err := CheckSource(source); (err == nil) != good {
			t.Errorf("%q: %v", source, err)
		}
	}
}
