package setup

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"slipway/internal/operator/admin"
	"slipway/internal/operator/installation"
	"slipway/packaging"
)

// Answers are checked during input and replace the comments in the settings file.
func TestAsk(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	s := Setup{
		File: filepath.Join(t.TempDir(), "server.toml"), New: packaging.Settings, Asking: true, Out: &out,
		In: strings.NewReader("https://no.example\nsites.example.net\nslipway\nhttps://slipway.example.com\nada\nada@example.com\n\ns3://b?endpoint=https://h.example\n"),
	}
	a, text, err := s.Ask()
	if err != nil {
		t.Fatal(err)
	}
	want := Answers{"sites.example.net", "https://slipway.example.com", "ada@example.com", "", "s3://b?endpoint=https://h.example"}
	if a != want {
		t.Errorf("got %+v", a)
	}
	for _, bad := range []string{`"https://no.example" is not a domain name`, `"slipway" is not an address`, `"ada" is not an email address`} {
		if !strings.Contains(out.String(), bad) {
			t.Errorf("it does not say %s:\n%s", bad, out.String())
		}
	}
	for _, line := range []string{
		`site-domain = "sites.example.net"`, `base-url = "https://slipway.example.com"`, `acme-email = "ada@example.com"`,
		`acme-ca = ["https://acme-v02.api.letsencrypt.org/directory"]`, `backup-to = "s3://b?endpoint=https://h.example"`, `backup-every = "24h"`,
		`#smtp = "mail.example.com:587"`, `edge-https = ":443"`,
	} {
		if !strings.Contains(text, "\n"+line+"\n") {
			t.Errorf("no line %s in\n%s", line, text)
		}
	}
	if lines := strings.Count(text, "\n"); lines != strings.Count(packaging.Settings, "\n") {
		t.Errorf("%d lines", lines)
	}
	if _, err := os.Stat(s.File); err == nil {
		t.Error("asking alone has written the file")
	}
}

// Without a terminal, a missing answer is reported by its flag.
func TestAskNobody(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		given  Answers
		asking bool
		flag   string
	}{
		{Answers{}, false, "--site-domain"},
		{Answers{SiteDomain: "a.example"}, false, "--base-url"},
		{Answers{SiteDomain: "a.example", BaseURL: "https://b.example"}, false, "--email"},
		{Answers{}, true, "--site-domain"}, // the input ends
		{Answers{SiteDomain: "a b"}, false, "--site-domain"},
		{Answers{SiteDomain: "a.example", BaseURL: "https://b.example", Email: "a@b.example", SMTP: "mail"}, false, "--smtp"},
		{Answers{SiteDomain: "a.example", BaseURL: "https://b.example", Email: "a@b.example", BackupTo: "backups"}, false, "--backup-to"},
	} {
		s := Setup{File: filepath.Join(t.TempDir(), "server.toml"), Given: c.given, Asking: c.asking, In: strings.NewReader(""), Out: t.Output()}
		_, _, err := s.Ask()
		if err == nil || !strings.Contains(err.Error(), c.flag) {
			t.Errorf("%+v: %v, want one that names %s", c.given, err, c.flag)
		}
		if c.asking && !errors.Is(err, ErrMissing) {
			t.Errorf("%+v: %v", c.given, err)
		}
	}
}

// An existing file keeps its other settings and its mode, and a copy of it is saved. The first user is created once.
func TestFinish(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "etc", "server.toml")
	if err := os.Mkdir(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	const mine = "# mine\nsite-domain = \"old.example\"\nbuilds = 3\nacme-ca = [\"https://ca.internal/acme\"]\nbackup-every = \"6h\"\n"
	if err := os.WriteFile(file, []byte(mine), 0o600); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	s := Setup{File: file, In: strings.NewReader(""), Out: &out, Given: Answers{
		BaseURL: "http://127.0.0.1:8080", Email: "ada@example.com", BackupTo: filepath.Join(dir, "backups"),
	}}
	store := installation.Store{DataDir: filepath.Join(dir, "data")}
	for range 2 {
		a, text, err := s.Ask()
		if err != nil {
			t.Fatal(err)
		}
		if a.SiteDomain != "old.example" {
			t.Errorf("what the file says is not taken: %+v", a)
		}
		if err := s.Finish(t.Context(), store, a, text); err != nil {
			t.Fatal(err)
		}
	}
	now, err := os.ReadFile(file)
	if err != nil || !strings.HasPrefix(string(now), mine) ||
		!strings.Contains(string(now), "\nbase-url = \"http://127.0.0.1:8080\"\n") {
		t.Errorf("%v\n%s", err, now)
	}
	if before, err := os.ReadFile(file + ".before"); err != nil || string(before) != mine {
		t.Errorf("the copy of before: %v\n%s", err, before)
	}
	for _, name := range []string{file, file + ".before"} {
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("the mode of %s: %v", name, err)
		}
	}
	if n := strings.Count(out.String(), "User ada@example.com created"); n != 1 {
		t.Errorf("the first user was made %d times:\n%s", n, out.String())
	}
	if some, err := admin.HasUsers(t.Context(), store); err != nil || !some {
		t.Errorf("there is no user: %v", err)
	}
	if !strings.Contains(out.String(), "ok       backups     every 24 hours to "+filepath.Join(dir, "backups")) {
		t.Errorf("backups are not looked at:\n%s", out.String())
	}
}
