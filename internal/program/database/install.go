package database

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"slipway/internal/platform/disk"
	"slipway/internal/platform/sandbox"
)

// programs that private servers need.
const (
	serverProgram  = "mariadbd"
	installProgram = "mariadb-install-db"
)

// Missing says what private servers need and the host lacks; empty: nothing.
func Missing() string {
	for _, name := range []string{serverProgram, installProgram} {
		if _, err := exec.LookPath(name); err != nil {
			return "MariaDB is not installed: the operator can install it (apt-get install mariadb-server) or name a server with --mariadb"
		}
	}
	return ""
}

// Version names the MariaDB that is installed.
func Version(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, serverProgram, "--version").Output()
	if err != nil {
		return "MariaDB"
	}
	if _, rest, ok := strings.Cut(string(out), "Ver "); ok {
		v, _, _ := strings.Cut(rest, "-")
		return "MariaDB " + v
	}
	return "MariaDB"
}

const newSuffix = ".new" // of what is not whole yet

// install makes the files of a private server that has none: a copy of the template. A crash
// half-way leaves nothing that counts.
func (s *server) install(ctx context.Context) (err error) {
	if info, err := os.Stat(s.dir); err == nil {
		s.uid = ownerOf(info)
		return nil
	}
	template, err := s.d.template(ctx)
	if err != nil {
		return err
	}
	s.d.installing.Lock() // so that no two take the same uid
	defer s.d.installing.Unlock()
	if s.uid, err = s.d.freeUID(); err != nil {
		return err
	}
	fresh := s.dir + newSuffix
	if err := os.RemoveAll(fresh); err != nil {
		return fmt.Errorf("clear new database server: %w", err)
	}
	if err := copyTree(template, fresh); err != nil {
		return fmt.Errorf("make database server: %w", err)
	}
	if err := sandbox.Own(fresh, s.uid); err != nil {
		return err
	}
	if err := disk.RenameTree(fresh, s.dir); err != nil {
		return fmt.Errorf("make database server: %w", err)
	}
	return nil
}

// template returns the files of a server without databases, made when they are needed first:
// that takes seconds, a copy of them a moment.
func (d *Databases) template(ctx context.Context) (string, error) {
	d.installing.Lock()
	defer d.installing.Unlock()
	dir := filepath.Join(d.c.Dir, "template-"+strings.ReplaceAll(Version(ctx), " ", "-")+"-zones")
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	old, _ := filepath.Glob(filepath.Join(d.c.Dir, "template-*")) // the pattern is well formed
	for _, x := range old {
		if err := os.RemoveAll(x); err != nil {
			return "", fmt.Errorf("clear template of database servers: %w", err)
		}
	}
	fresh := dir + newSuffix
	for _, sub := range []string{fresh, filepath.Join(fresh, "run"), filepath.Join(fresh, "tmp")} {
		if err := os.MkdirAll(sub, 0o700); err != nil {
			return "", fmt.Errorf("make template of database servers: %w", err)
		}
	}
	if err := sandbox.Own(fresh, d.c.UID); err != nil {
		return "", err
	}
	var out tail
	limits := (&server{d: d}).limits()
	res, err := d.c.Runner.Run(ctx, sandbox.Command{
		UID: d.c.UID, Work: fresh, Limits: limits, Stdout: &out, Stderr: &out,
		Argv: []string{
			"/bin/sh", "-c", withZones, installProgram,
			"--no-defaults",
			"--basedir=/usr",
			"--datadir=" + inside("data"),
			"--tmpdir=" + inside("tmp"),
			"--skip-test-db", "--skip-name-resolve", "--cross-bootstrap", "--auth-root-authentication-method=socket",
			"--auth-root-socket-user=root",
			"--innodb-log-file-size=" + redoLog,
		},
	})
	if err != nil {
		return "", fmt.Errorf("install database server: %w", err)
	}
	if !res.OK() {
		return "", fmt.Errorf("install database server: %s: %s", res, out.String())
	}
	if err := disk.RenameTree(fresh, dir); err != nil {
		return "", fmt.Errorf("make template of database servers: %w", err)
	}
	return dir, nil
}

// withZones runs the installation with the tables of time zones, by whose names CONVERT_TZ and time_zone know them. It
// leaves out what the machine has twice or thrice, and installs without them if the machine has none.
const withZones = `set -e
cd ` + sandbox.Root + `
mkdir tmp/zones
for zone in /usr/share/zoneinfo/*; do
	case ${zone##*/} in
	posix | right | posixrules | localtime | leapseconds | *.*) ;;
	*) cp -r "$zone" tmp/zones/ ;;
	esac
done 2>/dev/null || true
{ echo "USE mysql;"; mariadb-tzinfo-to-sql --skip-write-binlog tmp/zones 2>/dev/null || true; } >tmp/zones.sql
"$0" "$@" --extra-file=tmp/zones.sql
rm -r tmp/zones tmp/zones.sql`

// freeUID returns a uid of which no server is: what the kernel counts by user is then an
// owner's own.
func (d *Databases) freeUID() (int, error) {
	entries, err := os.ReadDir(d.owners())
	if err != nil {
		return 0, fmt.Errorf("list database servers: %w", err)
	}
	taken := map[int]bool{}
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			taken[ownerOf(info)] = true
		}
	}
	for uid := d.c.FirstUID; uid < d.c.FirstUID+d.c.UIDs; uid++ {
		if !taken[uid] || os.Geteuid() != 0 { // a plain user has but one
			return uid, nil
		}
	}
	return 0, fmt.Errorf("all %d user ids of database servers are taken", d.c.UIDs)
}

func ownerOf(info fs.FileInfo) int {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(st.Uid)
	}
	return os.Geteuid()
}

// copyTree copies folders and files of ours.
func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		at := filepath.Join(to, strings.TrimPrefix(path, from))
		switch {
		case e.IsDir():
			return os.MkdirAll(at, 0o700)
		case !e.Type().IsRegular():
			return nil // a socket
		}
		return copyFile(path, at)
	})
}

func copyFile(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	_, err = io.Copy(out, in)
	return err
}
