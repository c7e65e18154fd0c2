package backup

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"slipway/internal/platform/id"

	"filippo.io/age"

	"slipway/internal/backup/repository"
	"slipway/internal/platform/blob"
	"slipway/internal/platform/blob/s3test"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/seal"
	"slipway/internal/tenant/site"
)

// A running installation is copied: content of the last copy isn't stored again, a sweep deletes nothing of a copy, and
// an age identity alone can restore all of it.
func TestInstallation(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	identity, err := age.GenerateX25519Identity()
	ok(t, err)
	at, err := blob.Dir(filepath.Join(w.dir, "elsewhere"))
	ok(t, err)
	repo := repository.New(repository.Config{Backend: at, Seal: w.seal, Recipients: []age.Recipient{identity.Recipient()}})
	s := w.site("blog", map[string]string{"index.html": "hello", "big.bin": strings.Repeat("some text of a page ", 1<<16)})
	dir := w.folder(s.ID, map[string]string{"cat.jpg": "meow", "2026/dog.jpg": "woof"})
	w.backUp(s.ID, NewBackup{})
	ok(t, os.WriteFile(filepath.Join(w.dir, "file"), []byte("a key"), 0o600))
	control := "the database, first"
	source := Source{
		Blobs:   w.blobs,
		Scratch: w.dir,
		Version: "test",
		Files:   map[string]string{"secrets.key": filepath.Join(w.dir, "file"), "mariadb/id": filepath.Join(w.dir, "none")},
		Objects: w.place,
		Control: everything{func(path string) (string, error) {
			return "sqlite", os.WriteFile(path, []byte(control), 0o600)
		}, []site.ID{s.ID, "site_gone"}},
		Storage: w.c.Storage,
		Databases: &databaseServer{of: func(id site.ID) ([]dumped, error) {
			if id != s.ID {
				return nil, fault.Missing("site")
			}
			return []dumped{{
				Name: "db_1",
				Dump: func(_ context.Context, out io.Writer) error { _, err := io.WriteString(out, "rows"); return err },
			}}, nil
		}},
	}
	first, err := TakeCopy(t.Context(), repo, source, false)
	ok(t, err)
	control = "the database, second"
	second, err := TakeCopy(t.Context(), repo, source, true)
	ok(t, err)
	if len(first.Problems)+len(second.Problems) > 0 || first.Size < 1<<20 || second.Stored*2 > first.Stored {
		t.Errorf("first %+v, second %+v", first, second)
	}
	old := time.Now().Add(-48 * time.Hour)
	ok(t, filepath.WalkDir(filepath.Join(w.dir, "elsewhere"), func(p string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			err = os.Chtimes(p, old, old)
		}
		return err
	}))
	ok(t, w.SweepPlace(t.Context(), repo))

	alone := repository.New(repository.Config{Backend: at, Identities: []age.Identity{identity}, ReadOnly: true})
	list, err := Copies(t.Context(), alone)
	ok(t, err)
	if len(list) != 2 || list[0].ID != second.ID || !list[0].VerifiedAt.IsZero() {
		t.Fatalf("%+v", list)
	}
	c, err := OpenCopy(t.Context(), alone, "")
	ok(t, err)
	ok(t, c.Check(t.Context(), func(int64, int64) {}))
	to := t.TempDir()
	ok(t, c.Files(t.Context(), to))
	ok(t, c.Storage(t.Context(), func(site, folder string) (string, error) {
		return filepath.Join(to, "storage", site, folder), nil
	}))
	if dialect, err := c.Control(t.Context(), filepath.Join(to, "slipway.db")); err != nil || dialect != "sqlite" {
		t.Errorf("%s, %v", dialect, err)
	}
	got := contents(t, to)
	want := map[string]string{"secrets.key": "a key", "slipway.db": "the database, second"}
	for name, text := range contents(t, dir) {
		want["storage/"+string(s.ID)+"/uploads/"+name] = text
	}
	for name, text := range contents(t, w.place) {
		if !strings.HasPrefix(name, "tmp/") {
			want["backups/"+name] = text
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("came back: %q, want %q", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
	}
	other, err := blob.OpenDir(filepath.Join(to, "blobs"))
	ok(t, err)
	ok(t, c.PutBlobs(t.Context(), other))
	n, m := 0, 0
	for d, err := range w.blobs.List(t.Context()) {
		ok(t, err)
		n++
		if _, err := other.ReadAll(t.Context(), d, 1<<30); err != nil {
			t.Error(err)
		}
	}
	for _, err := range other.List(t.Context()) {
		ok(t, err)
		m++
	}
	if n == 0 || n != m {
		t.Errorf("%d files of releases of %d", m, n)
	}
	loaded := map[id.Database]string{}
	ok(t, c.LoadDatabases(t.Context(), func(id id.Database, r io.Reader) error {
		b, err := io.ReadAll(r)
		loaded[id] = string(b)
		return err
	}))
	if !maps.Equal(loaded, map[id.Database]string{"db_1": "rows"}) {
		t.Errorf("databases: %q", loaded)
	}
	mine, err := OpenCopy(t.Context(), repo, second.ID)
	ok(t, err)
	ok(t, mine.Verified(t.Context(), true))
	if list, err = Copies(t.Context(), alone); err != nil || list[0].VerifiedAt.IsZero() || !list[1].VerifiedAt.IsZero() {
		t.Errorf("%+v, %v", list, err)
	}

	// Without the key it can't be opened, and an empty directory isn't a repository.
	if _, err := Copies(t.Context(), repository.New(repository.Config{
		Backend:    at,
		Identities: nil,
		Seal:       newSeal(t),
		ReadOnly:   true,
	})); !errors.Is(err, repository.ErrNoKey) {
		t.Errorf("another key: %v", err)
	}
	empty, err := blob.Dir(t.TempDir())
	ok(t, err)
	if _, err := Copies(t.Context(), repository.New(repository.Config{
		Backend:  empty,
		Seal:     w.seal,
		ReadOnly: true,
	})); !fault.Is(err, fault.NotFound) {
		t.Errorf("an empty place: %v", err)
	}
	// The same works in a bucket.
	cloud, _, err := blob.OpenBackend(s3test.New(t).Bucket(t), blob.Options{Cache: t.TempDir(), Opaque: true})
	ok(t, err)
	defer cloud.Close()
	far := repository.New(repository.Config{Backend: cloud, Seal: w.seal})
	_, err = TakeCopy(t.Context(), far, source, false)
	ok(t, err)
	c, err = OpenCopy(t.Context(), far, "")
	ok(t, err)
	ok(t, c.Check(t.Context(), func(int64, int64) {}))

	// Scheduled copies are pruned by the schedule, manual ones are kept.
	for range 2 {
		_, err := TakeCopy(t.Context(), repo, source, true)
		ok(t, err)
	}
	gone, err := PruneCopies(t.Context(), repo, Keep{Daily: 1})
	ok(t, err)
	if list, err = Copies(t.Context(), repo); err != nil || gone != 2 || len(list) != 2 || list[1].ID != first.ID {
		t.Errorf("pruned %d: %+v, %v", gone, list, err)
	}
}

// The installation is backed up at the operator's interval, by the first node that finds it due, and not while a backup
// is running.
func TestInstallationIsDue(t *testing.T) {
	t.Parallel()
	at, err := blob.Dir(filepath.Join(t.TempDir(), "elsewhere"))
	ok(t, err)
	var repo *repository.Repository
	w := newWorld(t, func(c *Config) {
		repo = repository.New(repository.Config{Backend: at, Seal: keyIn(t, c.Scratch)})
		c.Every = 24 * time.Hour
		c.Installation = opens(func(to string) (*repository.Repository, Source, error) {
			if to != "" {
				t.Errorf("a scheduled backup goes to %q", to)
			}
			return repo, Source{
				Blobs: c.Blobs, Scratch: c.Scratch, Version: "test",
				Control: everything{copy: func(path string) (string, error) {
					return "sqlite", os.WriteFile(path, []byte("x"), 0o600)
				}},
			}, nil
		})
	})
	taken := func() int {
		list, err := Copies(t.Context(), repo)
		ok(t, err)
		for _, c := range list {
			if !c.Scheduled {
				t.Errorf("a backup without a request isn't marked as scheduled: %+v", c)
			}
		}
		return len(list)
	}
	count := func(where string) (n int) {
		ok(t, w.db.QueryRow(t.Context(), `SELECT count(*) FROM operations WHERE kind = 'installation.backup' AND `+where).Scan(&n))
		return n
	}
	begun := time.Now()
	want := 0
	for _, tt := range []struct {
		after time.Duration
		due   bool
	}{
		{0, true},
		{time.Minute, false},
		{23 * time.Hour, false},
		{24*time.Hour + time.Second, true},
		{25 * time.Hour, false},
		{100 * time.Hour, true},
		{101 * time.Hour, false},
	} {
		for range 3 { // as three nodes would
			ok(t, w.installationDue(t.Context(), begun.Add(tt.after)))
		}
		if tt.due {
			want++
		}
		w.until("the backup has ended", func() bool { return count("completed_at = 0") == 0 })
		if n := count("error = ''"); n != want {
			t.Errorf("after %s there were %d backups, want %d", tt.after, n, want)
		}
	}
	if n := taken(); n != 1 { // all of them are from today
		t.Errorf("%d backups stay", n)
	}
}

func newSeal(t *testing.T) *seal.Sealer {
	t.Helper()
	s, err := seal.Load(filepath.Join(t.TempDir(), "key"))
	ok(t, err)
	return s
}

// If a database server is unavailable or slow for a moment, the copy reads the site again. For a server that stays
// unavailable it waits once, not for every site.
func TestInstallationWaitsForDatabases(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	at, err := blob.Dir(filepath.Join(w.dir, "elsewhere"))
	ok(t, err)
	repo := repository.New(repository.Config{Backend: at, Seal: w.seal})
	away := &fault.Error{Kind: fault.Unavailable, Message: "The database server is not available", Code: "database_unavailable"}
	slow := &fault.Error{Kind: fault.Unavailable, Message: "The database server is too slow", Code: "database_slow"}
	var answers map[site.ID][]error // of consecutive dumps; the last one repeats
	source := Source{
		Blobs: w.blobs, Scratch: w.dir, Version: "test", Pause: time.Millisecond,
		Control: everything{func(path string) (string, error) {
			return "sqlite", os.WriteFile(path, []byte("x"), 0o600)
		}, []site.ID{"site_1", "site_2"}},
		Databases: &databaseServer{of: func(id site.ID) ([]dumped, error) {
			return []dumped{{Name: "db_of_" + string(id), Dump: func(_ context.Context, out io.Writer) error {
				answer := answers[id][0]
				if len(answers[id]) > 1 {
					answers[id] = answers[id][1:]
				}
				if answer != nil {
					return answer
				}
				_, err := io.WriteString(out, "rows of "+string(id))
				return err
			}}}, nil
		}},
	}
	answers = map[site.ID][]error{"site_1": {away, slow, nil}, "site_2": {slow, nil}}
	c, err := TakeCopy(t.Context(), repo, source, false)
	ok(t, err)
	if len(c.Problems) > 0 {
		t.Errorf("problems: %q", c.Problems)
	}
	read, err := OpenCopy(t.Context(), repo, c.ID)
	ok(t, err)
	loaded := map[id.Database]string{}
	ok(t, read.LoadDatabases(t.Context(), func(id id.Database, r io.Reader) error {
		b, err := io.ReadAll(r)
		loaded[id] = string(b)
		return err
	}))
	if !maps.Equal(loaded, map[id.Database]string{"db_of_site_1": "rows of site_1", "db_of_site_2": "rows of site_2"}) {
		t.Errorf("databases: %q", loaded)
	}

	answers = map[site.ID][]error{"site_1": {away}, "site_2": {away, nil}}
	c, err = TakeCopy(t.Context(), repo, source, false)
	ok(t, err)
	if len(c.Problems) != 2 || !strings.Contains(c.Problems[1], "site_2: The database server is not available") {
		t.Errorf("problems: %q", c.Problems)
	}
}
