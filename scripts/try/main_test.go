package main

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A second start knows the first; the key is for its owner's eyes alone.
func TestMemory(t *testing.T) {
	t.Parallel()
	first := &try{data: t.TempDir()}
	if err := os.MkdirAll(first.path(""), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := first.recall(); err != nil || first.memory != (memory{}) {
		t.Errorf("before the first time: %+v, %v", first.memory, err)
	}
	first.memory = memory{Email: email, Password: "p", Key: "slw_k", Request: "r", Site: "site_x"}
	if err := first.remember(); err != nil {
		t.Fatal(err)
	}
	second := &try{data: first.data}
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

// A port that somebody else has is named, with the setting that chooses another.
func TestPortsAreFree(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	free := "127.0.0.1:0"
	if err := (&try{listen: free, http: free, https: free}).portsAreFree(); err != nil {
		t.Error(err)
	}
	err = (&try{listen: free, http: l.Addr().String(), https: free}).portsAreFree()
	if err == nil || !strings.Contains(
		err.Error(),
		l.Addr().String(),
	) || !strings.Contains(err.Error(), "SLIPWAY_EDGE_HTTP=") || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %v", err)
	}
}

// The example becomes a repository once; afterwards it is the user's own.
func TestRepository(t *testing.T) {
	t.Parallel()
	example := t.TempDir()
	if err := os.WriteFile(filepath.Join(example, "index.html"), []byte("hello"), 0o644); err != nil {
		t.Fatal(err)
	}
	x := &try{data: t.TempDir(), paint: func(_, text string) string { return text }}
	if err := x.repository(example); err != nil {
		t.Fatal(err)
	}
	page := x.path("you/hello/index.html")
	if err := os.WriteFile(page, []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := x.repository(example); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(page); err != nil || string(text) != "mine" {
		t.Errorf("the user's page is %q, %v", text, err)
	}
	if _, err := os.Stat(x.path("you/hello/.git/refs/heads/main")); err != nil {
		t.Error("there is no commit on main:", err)
	}
}

// The log is in its file from the first line, on the screen from when it is shown, and
// the last line is at hand.
func TestLog(t *testing.T) {
	t.Parallel()
	file, err := os.Create(filepath.Join(t.TempDir(), "serve.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	l := &log{file: file}
	say := func(s string) {
		if _, err := l.Write([]byte(s)); err != nil {
			t.Fatal(err)
		}
	}
	say(strings.Repeat("long ", 2000) + "\nearly\n")
	var screen bytes.Buffer
	l.show(&screen)
	say("late\n")
	text, err := os.ReadFile(file.Name())
	if err != nil || !strings.HasSuffix(string(text), "\nearly\nlate\n") || screen.String() != "late\n" || l.last() != "late" {
		t.Errorf("file ends %q, screen %q, last %q, %v", text[max(0, len(text)-20):], screen.String(), l.last(), err)
	}
}
