//go:build linux

package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"slipway/internal/operator/flags"
)

// parse reads a command line as main does, without running it.
func parse(t *testing.T, args ...string) (commands, error) {
	t.Helper()
	var c commands
	p, err := kong.New(&c, kong.Name("slipway"), kong.DefaultEnvars("SLIPWAY"), kong.Configuration(flags.TOML))
	if err != nil {
		t.Fatal(err)
	}
	_, err = p.Parse(args)
	return c, err
}

func file(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "slipway.toml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// A flag wins over the environment, and the environment over the file.
func TestSettingsComeInThatOrder(t *testing.T) {
	config := file(t, `
site-domain = "file.test"
listen = "127.0.0.1:1"
rate-limit = 7
git-host = ["a.test=http://127.0.0.1:1", "b.test=file:///srv/git"]
`)
	t.Setenv("SLIPWAY_LISTEN", "127.0.0.1:2")
	t.Setenv("SLIPWAY_SITE_DOMAIN", "env.test")
	c, err := parse(t, "serve", "--config", config, "--site-domain", "flag.test")
	if err != nil {
		t.Fatal(err)
	}
	if s := c.Serve; s.SiteDomain != "flag.test" || s.Listen != "127.0.0.1:2" || s.RateLimit != 7 ||
		!slices.Equal(s.GitHost, []string{"a.test=http://127.0.0.1:1", "b.test=file:///srv/git"}) {
		t.Errorf("got %q %q %d %q", s.SiteDomain, s.Listen, s.RateLimit, s.GitHost)
	}
}

func TestConfigFileRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"listne = \"x\"":           `unknown setting "listne"`,
		"listen = {a = 1}":         "listen must be",
		"git-host = [1]":           "git-host contains a value",
		"listen = ":                "--config",
		"outbound-allow=[\"a,b\"]": "outbound-allow contains a value",
	} {
		if _, err := parse(t, "serve", "--config", file(t, text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
}

// SLIPWAY_KEY is the API key that people export for curl and the webhook listener: the commands
// that open backups don't take it for the path of secrets.key.
func TestAPIKeyInTheEnvironmentIsNoSecretsKey(t *testing.T) {
	t.Setenv("SLIPWAY_KEY", "slw_exported")
	for _, args := range [][]string{{"backup", "list"}, {"backup", "verify"}, {"backup", "restore"}} {
		c, err := parse(t, append(args, "--from", t.TempDir())...)
		if err != nil {
			t.Fatal(args, err)
		}
		if b := c.Backup; b.List.Key+b.Verify.Key+b.Restore.Key != "" {
			t.Errorf("%v opens backups with %q", args, b.List.Key+b.Verify.Key+b.Restore.Key)
		}
	}
	if c, err := parse(t, "webhooks", "listen", "--base-url", "http://127.0.0.1:1"); err != nil || c.Webhooks.Listen.Key != "slw_exported" {
		t.Errorf("the listener's key is %q, %v", c.Webhooks.Listen.Key, err)
	}
}

// The settings that packages install are settings, those in comments too.
func TestPackagedSettings(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../packaging/deb/server.toml")
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(string(text)) {
		if bare, ok := strings.CutPrefix(line, "#"); ok && !strings.HasPrefix(bare, " ") {
			line = bare
		}
		lines = append(lines, line)
	}
	c, err := parse(t, "serve", "--config", file(t, strings.Join(lines, "")))
	if err != nil {
		t.Fatal(err)
	}
	if s := c.Serve; s.DataDir != "/var/lib/slipway" || *s.EdgeHTTPS != ":443" || s.SiteDomain != "sites.example.net" || s.BackupEvery == 0 {
		t.Errorf("%q %q %q %v", s.DataDir, *s.EdgeHTTPS, s.SiteDomain, s.BackupEvery)
	}
}
