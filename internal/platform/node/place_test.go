package node

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
)

// start starts a node with its storage in shared and its files in files, both optional. It returns the node or the
// error.
func start(t *testing.T, d *db.DB, shared, files string, with func(*Config)) (*Self, error) {
	t.Helper()
	storage, err := Storage(t.Context(), d, shared)
	if err != nil {
		return nil, err
	}
	var blobs *Place
	if files != "" {
		if blobs, err = Files(t.Context(), d, files, "", named(false, false)); err != nil {
			return nil, err
		}
	}
	s := open(t, d, func(c *Config) {
		c.Storage, c.Files, c.Roles = storage, blobs, []string{"worker"}
		if with != nil {
			with(c)
		}
	})
	return s, s.Join(t.Context())
}

// restart is start, after which the node leaves again.
func restart(t *testing.T, d *db.DB, shared, files string) error {
	t.Helper()
	s, err := start(t, d, shared, files, nil)
	if err == nil {
		s.leave(t.Context())
	}
	return err
}

func named(named, found bool) func() (bool, bool, error) {
	return func() (bool, bool, error) { return named, found, nil }
}

func wants(t *testing.T, err error, want string) {
	t.Helper()
	if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
		t.Errorf("got %v, want %q", err, want)
	}
}

func names(t *testing.T, dir string) (names string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names += e.Name() + " "
	}
	return strings.TrimSpace(names)
}

// A storage directory is marked once for an installation. From then on, an unmounted or another installation's
// directory, or none, is rejected, unless an operator removes the mark. A crash between the writes is repaired.
func TestSharedStorageIsKnown(t *testing.T) {
	t.Parallel()
	d, dir := dbtest.New(t), t.TempDir()
	wants(t, restart(t, d, "", ""), "")
	wants(t, restart(t, d, filepath.Join(dir, "missing"), ""), "is not a directory")
	wants(t, restart(t, d, dir, ""), "")
	mark, err := ReadMark(dir)
	if err != nil {
		t.Fatal(err)
	}
	if shared, err := SharedMark(t.Context(), d); err != nil || mark == "" || shared != mark || names(t, dir) != MarkFile {
		t.Fatalf("%q in the database, %q in the directory (%s), %v", shared, mark, names(t, dir), err)
	}
	wants(t, restart(t, d, dir, ""), "")
	if again, err := ReadMark(dir); err != nil || again != mark {
		t.Errorf("got %q, %v", again, err)
	}
	empty := t.TempDir()
	wants(t, restart(t, d, empty, ""), "is it mounted")
	wants(t, restart(t, d, "", ""), "--storage is missing")
	if left := names(t, empty); left != "" {
		t.Errorf("refused, it left %s", left)
	}
	// The process was killed before its proposal became the mark.
	if err := os.Rename(filepath.Join(dir, MarkFile), storageKind.proposal(dir, mark)); err != nil {
		t.Fatal(err)
	}
	wants(t, restart(t, d, dir, ""), "")
	if names(t, dir) != MarkFile {
		t.Errorf("a proposal stays one: %s", names(t, dir))
	}
	if err := os.WriteFile(filepath.Join(dir, MarkFile), []byte("another\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	wants(t, restart(t, d, dir, ""), "belongs to another installation")
	if err := AcceptStorage(t.Context(), d, dir); err != nil {
		t.Fatal(err)
	}
	wants(t, restart(t, d, dir, ""), "")
	if again, err := ReadMark(dir); err != nil || again == mark || again == "another" {
		t.Errorf("after it was accepted: %q, %v", again, err)
	}
	err = d.Write(t.Context(), func(tx *db.Tx) error { // as a killed process of an earlier version left it
		_, err := tx.Exec(t.Context(), `UPDATE storage_marks SET placed = FALSE`)
		return err
	})
	if err = errors.Join(err, os.Remove(filepath.Join(dir, MarkFile))); err != nil {
		t.Fatal(err)
	}
	wants(t, restart(t, d, dir, ""), "")
	if err := AcceptStorage(t.Context(), d, ""); err != nil {
		t.Fatal(err)
	}
	wants(t, restart(t, d, "", ""), "")
	wants(t, restart(t, d, dir, ""), "belongs to another installation")
}

// A directory for files without its mark is rejected, such as an empty mount point. If there is no mark yet, as after
// an upgrade, the directory must have the files that the database names.
func TestFilesAreKnown(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	join := func(dir, remote string, there func() (bool, bool, error)) error {
		t.Helper()
		p, err := Files(t.Context(), d, dir, remote, there)
		if err != nil {
			return err
		}
		s := open(t, d, func(c *Config) { c.Files = p })
		defer s.leave(t.Context())
		return s.Join(t.Context())
	}
	dir, other := t.TempDir(), t.TempDir()
	wants(t, join(other, "", named(true, false)), "has none of the files")
	if left := names(t, other); left != "" {
		t.Errorf("refused, it left %s", left)
	}
	wants(t, join(dir, "", named(true, true)), "") // after an upgrade
	wants(t, join(dir, "", named(true, false)), "")
	wants(t, join(other, "", named(false, false)), "is it mounted")
	wants(t, join(other, "", named(true, true)), "is it mounted")
	wants(t, join(filepath.Join(dir, "missing"), "", named(false, false)), "is it mounted")
	if err := AcceptFiles(t.Context(), d, other, ""); err != nil {
		t.Fatal(err)
	}
	wants(t, join(other, "", named(true, false)), "")
	wants(t, join(dir, "", named(true, true)), "belongs to another installation")
	// The files move to a bucket, and back.
	const bucket = "s3://bucket/ at s3.test"
	wants(t, join("", bucket, named(true, false)), "has none of the files")
	wants(t, join("", bucket, func() (bool, bool, error) { return true, false, errors.New("no answer") }), "no answer")
	wants(t, join("", bucket, named(true, true)), "")
	wants(t, join("", bucket, named(true, false)), "")
	wants(t, join("", "s3://another/ at s3.test", named(true, false)), "has none of the files")
	wants(t, join(t.TempDir(), "", named(true, true)), "")
	if err := Unmark(t.Context(), d); err != nil { // as after restoring the database
		t.Fatal(err)
	}
	wants(t, join(other, "", named(true, false)), "belongs to another installation")
	wants(t, join(other, "", named(true, true)), "")
}

// A rejected node leaves no mark, so that running nodes can start again.
func TestRefusedStartChangesNothing(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	if d.Single() {
		t.Skip("SQLite has one node")
	}
	if _, err := Secrets(t.Context(), d, filepath.Join(t.TempDir(), "secrets.key")); err != nil {
		t.Fatal(err)
	}
	healthy := t.TempDir()
	if _, err := start(t, d, "", "", func(c *Config) { c.Dir = healthy }); err != nil {
		t.Fatal(err)
	}
	dir, files := t.TempDir(), t.TempDir()
	_, err := start(t, d, dir, files, nil)
	wants(t, err, "runs without it")
	_, err = start(t, d, "", files, func(c *Config) { c.SiteDomain = "other.test" })
	wants(t, err, "--site-domain")
	if names(t, dir) != "" || names(t, files) != "" || len(list(t, d)) != 1 {
		t.Errorf("refused nodes left %q, %q and are listed: %v", names(t, dir), names(t, files), list(t, d))
	}
	if _, err := start(t, d, "", t.TempDir(), func(c *Config) { c.Dir = healthy }); err != nil {
		t.Errorf("a healthy node doesn't start again: %v", err)
	}
}

// Nodes that start concurrently with the same directory all join. With different directories, only one does.
func TestPlacesAtOnce(t *testing.T) {
	t.Parallel()
	for _, same := range []bool{true, false} {
		d := dbtest.New(t)
		if d.Single() {
			t.Skip("SQLite has one node")
		}
		if _, err := Secrets(t.Context(), d, filepath.Join(t.TempDir(), "secrets.key")); err != nil {
			t.Fatal(err)
		}
		const nodes = 6
		var all [nodes]*Self
		dirs := make([]string, nodes)
		for n := range nodes {
			dirs[n] = t.TempDir()
			if same {
				dirs[n] = dirs[0]
			}
			place, err := Storage(t.Context(), d, dirs[n]) // before any node has joined
			if err != nil {
				t.Fatal(err)
			}
			all[n] = open(t, d, func(c *Config) { c.Storage, c.Roles = place, []string{"worker"} })
		}
		var joined [nodes]error
		var joining sync.WaitGroup
		for n, s := range all {
			joining.Go(func() { joined[n] = s.Join(context.WithoutCancel(t.Context())) })
		}
		joining.Wait()
		mark, err := SharedMark(t.Context(), d)
		if err != nil {
			t.Fatal(err)
		}
		ok := 0
		for n, err := range joined {
			want := ""
			if err == nil {
				ok, want = ok+1, MarkFile
			}
			if is, _ := ReadMark(dirs[n]); names(t, dirs[n]) != want || err == nil && (is != mark || all[n].c.Storage.Mark() != mark) {
				t.Errorf("node %d (%v): %s has %s with %q, want %q", n, err, dirs[n], names(t, dirs[n]), is, mark)
			}
		}
		if same && ok != nodes || !same && ok != 1 || len(list(t, d)) != ok {
			t.Errorf("with one directory (%v), %d joined and %d are listed: %v", same, ok, len(list(t, d)), joined)
		}
	}
}
