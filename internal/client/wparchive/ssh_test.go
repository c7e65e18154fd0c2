package wparchive

import (
	"archive/tar"
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// elsewhere is the remote machine, made of fake ssh, mariadb-dump and tar programs.
type elsewhere struct {
	t    *testing.T
	dir  string // of the fakes and their records
	root string // of the WordPress
}

// machine puts the fake programs first in PATH. The fake ssh runs its script locally, with the real program where no
// fake exists.
func machine(t *testing.T, config string) *elsewhere {
	t.Helper()
	m := &elsewhere{t, t.TempDir(), filepath.Join(t.TempDir(), "it's here")}
	t.Setenv("PATH", m.dir+":"+os.Getenv("PATH"))
	t.Setenv("ELSEWHERE", m.dir)
	m.program("ssh", `printf '%s\n' "$@" >> "$ELSEWHERE/args"; case "$*" in "-O exit "*) exit 0;; esac; exec sh -s`)
	m.program("mariadb-dump", `cat "${1#--defaults-extra-file=}" > "$ELSEWHERE/options"; printf '%s\n' "$@" > "$ELSEWHERE/dumped"; cat "$ELSEWHERE/dump.sql"`)
	m.file(filepath.Join(m.dir, "dump.sql"), sql("qx_"))
	m.file(filepath.Join(m.root, "wp-config.php"), config)
	for name, text := range map[string]string{
		"index.php": "<?php", "uploads/2026/a pier.png": "picture", "themes/sea/style.css": "body{}", "cache/page.html": "old", "updraft/b.zip": "PK",
	} {
		m.file(filepath.Join(m.root, "wp-content", name), text)
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(m.root, "wp-content/uploads/link")); err != nil {
		t.Fatal(err)
	}
	return m
}

func (m *elsewhere) program(name, script string) {
	m.t.Helper()
	if err := os.WriteFile(filepath.Join(m.dir, name), []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
		m.t.Fatal(err)
	}
}

func (m *elsewhere) file(name, text string) {
	m.t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, []byte(text), 0o600)); err != nil {
		m.t.Fatal(err)
	}
}

func (m *elsewhere) noted(name string) string {
	m.t.Helper()
	text, err := os.ReadFile(filepath.Join(m.dir, name))
	if err != nil {
		m.t.Fatal(err)
	}
	return string(text)
}

// take reads the remote WordPress.
func (m *elsewhere) take() (map[string]string, Plan, error) {
	m.t.Helper()
	a, err := OpenSSH(m.t.Context(), "ssh://ada@old.example:2222"+strings.ReplaceAll(m.root, " ", "%20"), false)
	if err != nil {
		return nil, Plan{}, err
	}
	defer a.Close()
	looked, err := a.Plan(m.t.Context())
	if err != nil || looked.Files != 5 || looked.Prefix != "qx_" {
		m.t.Errorf("the look tells %+v, %v", looked, err)
	}
	f, err := os.Create(filepath.Join(m.t.TempDir(), "out.tar.gz"))
	if err != nil {
		m.t.Fatal(err)
	}
	defer f.Close()
	p, err := a.Convert(m.t.Context(), f)
	if err != nil {
		return nil, p, err
	}
	return packed(m.t, f), p, nil
}

const plainConfig = `<?php
/* define( 'DB_NAME', 'another' ); */
// define( 'DB_USER', 'another' );
define( 'DB_NAME', 'harbor' );
define('DB_USER', "ada");
define( 'DB_PASSWORD', 'it\'s "a\\b" #1' );
define( 'DB_HOST', '127.0.0.1:3307' );
$table_prefix = 'qx_';
`

// A remote WordPress becomes the archive that servers accept, and its password is in no program's arguments.
func TestSSH(t *testing.T) {
	m := machine(t, plainConfig)
	files, p, err := m.take()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"database.sql.gz": sql("qx_"), "wp-content/index.php": "<?php", "wp-content/uploads/2026/a pier.png": "picture", "wp-content/themes/sea/style.css": "body{}",
	}
	for name, text := range want {
		if files[name] != text {
			t.Errorf("%s holds %q", name, files[name])
		}
	}
	if len(files) != len(want) || p.Files != 3 || p.Home != "https://old.example" || !strings.Contains(strings.Join(p.Left, "; "), "links between files (1)") {
		t.Errorf("got %d files, %+v", len(files), p)
	}
	if got, want := m.noted("options"), "[client]\nuser=\"ada\"\npassword=\"it's \"a\\\\b\" #1\"\nhost=\"127.0.0.1\"\nport=\"3307\"\n"; got != want {
		t.Errorf("the dump is told %q, want %q", got, want)
	}
	args := m.noted("args")
	if strings.Contains(args+m.noted("dumped"), "#1") || !strings.Contains(args, "-l\nada\n-p\n2222\n--\nold.example\n") || !strings.Contains(args, "BatchMode=yes") {
		t.Errorf("ssh is run with %q, the dump with %q", args, m.noted("dumped"))
	}
	if !strings.Contains(args, "-O\nexit\n") {
		t.Error("the connection isn't closed")
	}
}

// A remote failure is an error without control characters, and creates no archive.
func TestSSHFails(t *testing.T) {
	var bomb bytes.Buffer
	w := tar.NewWriter(&bomb)
	if err := errors.Join(w.WriteHeader(&tar.Header{Name: "./../../wp-config.php", Typeflag: tar.TypeReg, Mode: 0o600}), w.Close()); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		config, program, script string
		want                    string
	}{
		"host key":    {plainConfig, "ssh", `printf 'Host key verification \033[2Jfailed.\r\n' >&2; exit 255`, "Host key verification [2Jfailed."},
		"half a dump": {plainConfig, "mariadb-dump", `head -c 20 "$ELSEWHERE/dump.sql"; echo 'Lost connection' >&2; exit 2`, "Lost connection"},
		"breaks off":  {plainConfig, "tar", `head -c 700 /dev/zero | tr '\0' x; exit 2`, "can't be read"},
		"cut":         {plainConfig, "tar", `printf x; exit 0`, "damaged or cut off"},
		"leads out":   {plainConfig, "tar", `cat "$ELSEWHERE/bomb.tar"`, "is not allowed"},
		"no wp-cli":   {"<?php\ndefine('DB_NAME', getenv('DB'));\n$table_prefix = 'qx_';\n", "wpx", "", "there is no wp-cli"},
	} {
		t.Run(name, func(t *testing.T) {
			m := machine(t, tt.config)
			m.file(filepath.Join(m.dir, "bomb.tar"), bomb.String())
			m.program(tt.program, tt.script)
			if files, _, err := m.take(); err == nil || !strings.Contains(err.Error(), tt.want) || strings.ContainsAny(err.Error(), "\x1b\r") {
				t.Errorf("it is read as %v, %v", files, err)
			}
		})
	}
}

// If wp-config.php reads the environment, wp-cli on the remote machine makes the dump.
func TestSSHByCommandLine(t *testing.T) {
	m := machine(t, "<?php\ndefine('DB_NAME', getenv('DB'));\n$table_prefix = 'qx_';\n")
	m.program("wp", `test "$1 $2 $3" = "db export -" && cat "$ELSEWHERE/dump.sql"`)
	if files, _, err := m.take(); err != nil || files["database.sql.gz"] != sql("qx_") {
		t.Errorf("got %v, %v", files, err)
	}
}

// An address must name a folder and can't contain an ssh flag or a password.
func TestSSHAddresses(t *testing.T) {
	t.Parallel()
	for _, address := range []string{
		"ssh://old.example", "ssh://old.example/", "ssh:///var/www", "ssh://ada:secret@old.example/w", "ssh://-oProxyCommand=x/w", "ssh://-l@old.example/w",
		"ssh://old.example/w?x=1", "ssh://old.example/a%0ab", "ssh://a%20b/w", "ssh://old.example:x/w",
	} {
		if r, err := parseSSH(address); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s is %v, %v", address, r, err)
		}
	}
	for address, want := range map[string]string{"ssh://[::1]/var/www": "/var/www", "ssh://ada@old.example/~/public_html": "./public_html"} {
		if r, err := parseSSH(address); err != nil || r.root != want {
			t.Errorf("%s: %+v, %v", address, r, err)
		}
	}
}

func FuzzParseConfig(f *testing.F) {
	f.Add(plainConfig)
	f.Add("<?php\ndefine(\"DB_NAME\", \"a\\\"b\\$c\");")
	// No wp-config.php can add a line to the dump's script or end one of its words.
	f.Fuzz(func(t *testing.T, php string) {
		c := parseConfig(php)
		if script := c.dump(); c.whole && (strings.Count(script, "\n") > 12 || strings.Count(script, "\nSLIPWAY\n") != 1) {
			t.Errorf("%q", script)
		}
	})
}
