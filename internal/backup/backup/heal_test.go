package backup

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"slipway/internal/backup/repository"
	"slipway/internal/backup/snapshot"
	"slipway/internal/platform/blob"
	"slipway/internal/platform/db"
	"slipway/internal/platform/job"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/operation"
)

// damages are the kinds of damage to an object.
var damages = map[string]func(path string) error{
	"missing":   os.Remove,
	"cut off":   func(path string) error { return os.Truncate(path, 5) },
	"shortened": func(path string) error { return os.Truncate(path, 100) },
	"one bit": func(path string) error {
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		b[len(b)/2] ^= 1
		return os.WriteFile(path, b, 0o600)
	},
}

// object returns the path of an object's file.
func object(t *testing.T, place, name string) (path string) {
	t.Helper()
	ok(t, filepath.WalkDir(place, func(p string, e fs.DirEntry, err error) error {
		if err == nil && e.Name() == name {
			path = p
		}
		return err
	}))
	if path == "" {
		t.Fatalf("no object %s", name)
	}
	return path
}

// whole returns an error unless a backup of the installation can be read completely.
func whole(t *testing.T, repo *repository.Repository, id ID) error {
	t.Helper()
	c, err := OpenCopy(t.Context(), repo, id)
	if err != nil {
		return err
	}
	return c.Check(t.Context(), func(int64, int64) {})
}

// A backup of the installation detects missing or damaged objects that it builds on and stores their content again. The
// new backup is complete, and so are earlier ones whose content still exists.
func TestInstallationHeals(t *testing.T) {
	t.Parallel()
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			place := filepath.Join(w.dir, "elsewhere")
			at, err := blob.Dir(place)
			ok(t, err)
			repo := repository.New(repository.Config{Backend: at, Seal: w.seal})
			w.site("blog", map[string]string{"index.html": "hello", "big.bin": strings.Repeat("some text of a page ", 1<<16)})
			control := "the database, first"
			source := Source{Blobs: w.blobs, Scratch: w.dir, Version: "test", Control: everything{copy: func(path string) (string, error) {
				return "sqlite", os.WriteFile(path, []byte(control), 0o600)
			}}}
			first, err := TakeCopy(t.Context(), repo, source, false)
			ok(t, err)
			m, err := snapshot.Load(t.Context(), repo, first.Manifest)
			ok(t, err)
			ok(t, damage(object(t, place, m.Packs[0])))
			if err := whole(t, repo, first.ID); !isBad(err) {
				t.Fatalf("it isn't damaged: %v", err)
			}
			second, err := TakeCopy(t.Context(), repo, source, false)
			ok(t, err)
			if second.Damage != 1 || whole(t, repo, second.ID) != nil || whole(t, repo, first.ID) != nil {
				t.Errorf("found %d, second: %v, first: %v", second.Damage, whole(t, repo, second.ID), whole(t, repo, first.ID))
			}

			// Changed content can't be restored: its backup is listed as damaged, and the new one is complete.
			m, err = snapshot.Load(t.Context(), repo, second.Manifest)
			ok(t, err)
			for _, p := range m.Packs {
				ok(t, damage(object(t, place, p)))
			}
			control = "another database"
			third, err := TakeCopy(t.Context(), repo, source, false)
			ok(t, err)
			if third.Damage != len(m.Packs) || whole(t, repo, third.ID) != nil {
				t.Errorf("found %d, third: %v", third.Damage, whole(t, repo, third.ID))
			}
			list, err := Copies(t.Context(), repo)
			ok(t, err)
			for _, c := range list {
				if c.Damaged != (c.ID == second.ID) || c.Damaged != (whole(t, repo, c.ID) != nil) {
					t.Errorf("%s (second: %v) is listed as damaged: %v; read: %v", c.ID, c.ID == second.ID, c.Damaged, whole(t, repo, c.ID))
				}
			}
			for _, f := range []string{"mend-*", "control-*"} {
				if left, _ := filepath.Glob(filepath.Join(w.dir, f)); len(left) > 0 {
					t.Errorf("left: %v", left)
				}
			}
			if third.Proven().Before(first.At) {
				t.Errorf("all was read, and it is said to be of %s", third.Proven())
			}
		})
	}
}

// Large content is checked in turns: each backup reads a part, and after one round all of it is verified.
func TestExamineInTurns(t *testing.T) {
	t.Parallel()
	at, err := blob.Dir(t.TempDir())
	ok(t, err)
	repo := repository.New(repository.Config{Backend: at, Seal: newSeal(t)})
	var names []string
	for _, text := range []string{"one", "two", "three", "four", "five"} {
		name, _, err := repo.Put(t.Context(), []byte(text))
		ok(t, err)
		names = append(names, name)
	}
	from, turns := "", 0
	for turns == 0 || from != "" {
		bad, reached, err := repo.Examine(t.Context(), names, from, 60)
		ok(t, err)
		if len(bad) > 0 || turns > 10 {
			t.Fatalf("turn %d: %v", turns, bad)
		}
		from, turns = reached, turns+1
	}
	if turns < 2 || turns > 4 {
		t.Errorf("%d turns; want each to read a part", turns)
	}
}

// installation configures a backup of the world's installation and returns the backup's directory.
func (w *world) installation(t *testing.T, c *Config) (place string) {
	t.Helper()
	place = filepath.Join(c.Scratch, "elsewhere")
	at, err := blob.Dir(place)
	ok(t, err)
	key := keyIn(t, c.Scratch)
	c.Every = time.Hour
	c.Installation = opens(func(string) (*repository.Repository, Source, error) {
		return repository.New(repository.Config{Backend: at, Seal: key}), Source{
			Blobs: c.Blobs, Scratch: c.Scratch, Version: "test",
			Control: everything{copy: func(path string) (string, error) { return "sqlite", os.WriteFile(path, []byte("x"), 0o600) }},
		}, nil
	})
	return place
}

// told collects messages to operators.
type told struct{ subjects []string }

func (o *told) TellOperatorsTx(_ context.Context, _ *db.Tx, subject, text, path string) error {
	o.subjects = append(o.subjects, subject)
	return nil
}

// While the installation's backups fail, are late or are damaged, doctor, the metrics, an email to operators and the
// audit log say so.
func TestStanding(t *testing.T) {
	t.Parallel()
	var broken error
	var mail told
	var place string
	w := newWorld(t, func(c *Config) {
		place = (&world{}).installation(t, c)
		open := c.Installation.(opens)
		c.Installation = opens(func(to string) (*repository.Repository, Source, error) {
			r, s, err := open(to)
			return r, s, errors.Join(err, broken)
		})
		c.Operators = &mail
	})
	run := func(b BackUpInstallation) {
		t.Helper()
		ok(t, w.db.Write(t.Context(), func(tx *db.Tx) error {
			_, err := beginInstallationTx(t.Context(), tx, w.c.Operations, b)
			return err
		}))
		w.until("the backup has ended", func() (ended bool) {
			_, err := w.c.Operations.Open(t.Context(), OfInstallation, installationBackup)
			return err != nil
		})
	}
	logged := func(action string) int {
		list, err := audit.List(t.Context(), w.db, audit.Filter{Action: action})
		ok(t, err)
		return len(list)
	}
	standing := func() Standing {
		x, err := StandingOf(t.Context(), w.db)
		ok(t, err)
		return x
	}
	now := db.Now()
	ok(t, w.tendInstallation(t.Context(), now))
	if x := standing(); x.Every != time.Hour || len(x.Problems(now)) != 0 || len(x.Problems(now.Add(4*time.Hour))) != 1 {
		t.Errorf("before the first: %+v, %q", x, x.Problems(now.Add(4*time.Hour)))
	}
	broken = errors.New("the bucket is gone")
	run(BackUpInstallation{})
	if x := standing(); !x.Failing() || !strings.Contains(strings.Join(x.Problems(now), ""), "the bucket is gone") {
		t.Errorf("after a failure: %+v", x)
	}
	run(BackUpInstallation{})
	if n := logged("installation.backup_failed"); len(mail.subjects) != 1 || n != 1 {
		t.Errorf("told of a failure that lasts: %q, and %d times in the audit log; want once a day", mail.subjects, n)
	}
	ok(t, w.tendInstallation(t.Context(), db.Now().Add(25*time.Hour)))
	if len(mail.subjects) != 2 {
		t.Errorf("a day later: %q", mail.subjects)
	}
	broken = nil
	run(BackUpInstallation{})
	if x := standing(); len(x.Problems(db.Now())) != 0 || len(mail.subjects) != 3 || logged("installation.backup_recovered") != 1 {
		t.Errorf("it works again: %+v, %q", x, mail.subjects)
	}
	x := standing()
	if !x.Overdue(x.Succeeded.Add(4*time.Hour)) || x.Overdue(x.Succeeded.Add(2*time.Hour)) {
		t.Error("late after two intervals and an hour")
	}
	if x.Proven == 0 || !strings.Contains(strings.Join(x.Problems(x.Proven.Add(31*24*time.Hour)), ""), "not read") {
		t.Errorf("content that isn't read: %+v", x)
	}

	// Repair reads all content and finds a damaged earlier backup.
	repo, _, err := w.c.Installation.Open("")
	ok(t, err)
	list, err := Copies(t.Context(), repo)
	ok(t, err)
	ok(t, os.Remove(object(t, place, list[0].Manifest)))
	run(BackUpInstallation{Repair: true})
	if x := standing(); len(x.Damaged) != 1 || x.Damaged[0] != string(list[0].ID) ||
		!strings.Contains(strings.Join(x.Problems(db.Now()), ""), string(list[0].ID)) {
		t.Errorf("after repair: %+v", x)
	}
}

// When a job of the installation's backup is given up, its operation ends, so that the next backup isn't refused.
func TestInstallationGivenUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *Config) { (&world{}).installation(t, c) })
	var o operation.Operation
	ok(t, w.db.Write(t.Context(), func(tx *db.Tx) (err error) {
		o, err = w.c.Operations.OpenTx(t.Context(), tx, OfInstallation, operation.NewOperation{Kind: installationBackup, Unique: installationBackup})
		return err
	}))
	for range 2 { // it may be called twice
		ok(t, w.installationGivenUp(t.Context(), BackUpInstallation{Operation: o.ID}, errors.New("too often")))
	}
	o, err := w.c.Operations.Get(t.Context(), OfInstallation, o.ID)
	ok(t, err)
	x, err := StandingOf(t.Context(), w.db)
	ok(t, err)
	if o.Error != "too often" || !x.Failing() {
		t.Errorf("%+v, %+v", o, x)
	}
}

// The next backup of a site stores missing or damaged content of earlier ones again. Until then their pages say what
// can't be restored.
func TestSiteHeals(t *testing.T) {
	t.Parallel()
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			s := w.site("blog", map[string]string{"index.html": "hello"})
			w.folder(s.ID, map[string]string{"cat.jpg": strings.Repeat("meow", 1000)})
			first := w.backUp(s.ID, NewBackup{})
			verified := func(id ID) (b Backup) {
				w.until("it is verified", func() bool {
					var n int
					ok(t, w.db.QueryRow(t.Context(), `SELECT count(*) FROM jobs WHERE kind = $1`, Verify{}.Kind()).Scan(&n))
					b = w.ended(id)
					return n == 0
				})
				return b
			}
			if b := verified(first.ID); b.VerifiedAt == 0 {
				t.Fatalf("%+v", b)
			}
			b, err := scan(w.db.QueryRow(t.Context(), `SELECT `+columns+` FROM backups WHERE id = $1`, first.ID))
			ok(t, err)
			m, err := snapshot.Load(t.Context(), w.c.Repository, b.manifest)
			ok(t, err)
			for _, p := range m.Packs {
				ok(t, damage(object(t, w.place, p)))
			}
			// Damage that only reading detects is found by a verification, such as the one that repair starts.
			ok(t, w.db.Write(t.Context(), func(tx *db.Tx) error {
				_, err := job.Enqueue(t.Context(), tx, Verify{Backup: first.ID}, job.Options{Queue: VerifyQueue})
				return err
			}))
			if b := verified(first.ID); b.VerifiedAt != 0 || b.Error == "" {
				t.Fatalf("damaged: %+v", b)
			}
			second := w.backUp(s.ID, NewBackup{})
			if b := verified(second.ID); b.VerifiedAt == 0 || b.Error != "" {
				t.Errorf("the next backup: %+v", b)
			}
			if b := verified(first.ID); b.VerifiedAt == 0 || b.Error != "" {
				t.Errorf("the first, whose content is still there: %+v", b)
			}
			if n, err := w.repairSites(t.Context()); n != 0 || err != nil {
				t.Errorf("repair finds %d, %v", n, err)
			}
			ok(t, damage(object(t, w.place, m.Packs[0])))
			if n, err := w.repairSites(t.Context()); n == 0 || err != nil {
				t.Errorf("repair finds %d, %v", n, err)
			}
		})
	}
}

// A backup that nothing can mend isn't verified again after each later one.
func TestSiteCannotHeal(t *testing.T) {
	t.Parallel()
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			s := w.site("blog", map[string]string{"index.html": "hello"})
			w.folder(s.ID, map[string]string{"cat.jpg": strings.Repeat("meow", 1000)})
			first := w.backUp(s.ID, NewBackup{})
			done := func() {
				w.until("all is verified", func() bool {
					var n int
					ok(t, w.db.QueryRow(t.Context(), `SELECT count(*) FROM jobs WHERE kind = $1`, Verify{}.Kind()).Scan(&n))
					return n == 0
				})
			}
			done()
			b, err := scan(w.db.QueryRow(t.Context(), `SELECT `+columns+` FROM backups WHERE id = $1`, first.ID))
			ok(t, err)
			m, err := snapshot.Load(t.Context(), w.c.Repository, b.manifest)
			ok(t, err)
			for _, p := range m.Packs {
				ok(t, damage(object(t, w.place, p)))
			}
			ok(t, w.db.Write(t.Context(), func(tx *db.Tx) error {
				_, err := job.Enqueue(t.Context(), tx, Verify{Backup: first.ID}, job.Options{Queue: VerifyQueue})
				return err
			}))
			done()
			w.folder(s.ID, map[string]string{"cat.jpg": strings.Repeat("purr", 1000)}) // what was there is gone for good
			for i := range 3 {
				later := w.backUp(s.ID, NewBackup{})
				done()
				if b := w.ended(later.ID); b.VerifiedAt == 0 || b.Error != "" {
					t.Errorf("backup %d: %+v", i, b)
				}
				b := w.ended(first.ID)
				if b.VerifiedAt != 0 || b.Error == "" || i > 0 && b.Error != "not looked at" {
					t.Errorf("after backup %d, the first: %+v", i, b)
				}
				ok(t, w.db.Write(t.Context(), func(tx *db.Tx) error {
					_, err := tx.Exec(t.Context(), `UPDATE backups SET error = 'not looked at' WHERE id = $1`, first.ID)
					return err
				}))
			}
		})
	}
}
