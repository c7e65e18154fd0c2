package try

import (
	"bytes"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"slipway/internal/operator/installation"
)

// A second start finds the first one's settings. Only the owner can read the key.
func TestMemory(t *testing.T) {
	t.Parallel()
	c := Config{Store: installation.Store{DataDir: t.TempDir()}}
	first := &try{Config: c}
	if err := os.MkdirAll(first.path(""), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := first.recall(); err != nil || first.memory != (memory{}) {
		t.Errorf("before the first time: %+v, %v", first.memory, err)
	}
	first.memory = memory{Password: "p", Key: "slw_k", Request: "r", Site: "site_x"}
	if err := first.remember(); err != nil {
		t.Fatal(err)
	}
	second := &try{Config: c}
	if err := second.recall(); err != nil || second.memory != first.memory {
		t.Errorf("got %+v, %v", second.memory, err)
	}
	if info, err := os.Stat(first.path("memory.json")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("its file: %v, %v", info.Mode(), err)
	}
	if err := os.WriteFile(first.path("memory.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := second.recall(); err == nil {
		t.Error("a damaged memory was read")
	}
}

// A port in use is reported in one line with the setting that changes it.
func TestPortsAreFree(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c := Config{Listen: "127.0.0.1:0", HTTP: "127.0.0.1:0", HTTPS: "127.0.0.1:0"}
	if err := c.portsAreFree(); err != nil {
		t.Error(err)
	}
	c.HTTP = l.Addr().String()
	err = c.portsAreFree()
	if err == nil || !strings.Contains(err.Error(), c.HTTP) || !strings.Contains(err.Error(), "SLIPWAY_EDGE_HTTP=") || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %v", err)
	}
}

func TestReachable(t *testing.T) {
	t.Parallel()
	for listen, want := range map[string]string{
		":8080": "127.0.0.1:8080", "0.0.0.0:8080": "127.0.0.1:8080", "[::]:8080": "127.0.0.1:8080", "127.0.0.2:1": "127.0.0.2:1",
	} {
		if got := reachable(listen); got != want {
			t.Errorf("%s: got %s, want %s", listen, got, want)
		}
	}
}

// The example is copied once. Later starts keep the user's changes.
func TestFolder(t *testing.T) {
	t.Parallel()
	x := &try{Config: Config{
		Store: installation.Store{DataDir: t.TempDir()}, Out: io.Discard, Example: fstest.MapFS{"index.html": {Data: []byte("hello"), Mode: 0o444}},
	}}
	if err := os.MkdirAll(x.path(""), 0o700); err != nil {
		t.Fatal(err)
	}
	page := filepath.Join(x.path("hello"), "index.html")
	for _, want := range []string{"hello", "mine"} {
		if err := x.folder(); err != nil {
			t.Fatal(err)
		}
		if text, err := os.ReadFile(page); err != nil || string(text) != want {
			t.Errorf("the page is %q, %v, want %q", text, err, want)
		}
		if err := os.WriteFile(page, []byte("mine"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// The log file has all lines, and the screen those since it was shown.
func TestLog(t *testing.T) {
	t.Parallel()
	var file, screen bytes.Buffer
	l := &log{file: &file}
	io.WriteString(l, "early\n")
	l.show(&screen)
	io.WriteString(l, "late\n")
	if file.String() != "early\nlate\n" || screen.String() != "late\n" {
		t.Errorf("file %q, screen %q", file.String(), screen.String())
	}
}
