package backup

import (
	"context"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"slipway/internal/backup/repository"
	"slipway/internal/backup/snapshot"
	"slipway/internal/platform/blob"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/operation"
	"slipway/internal/tenant/site"
)

// full is a backend with room for a limited number of further objects.
type full struct {
	blob.Backend
	room atomic.Int64
	err  error
}

func (f *full) Put(ctx context.Context, name string, r io.Reader, size int64) error {
	if f.room.Add(-1) < 0 {
		return &os.PathError{Op: "write", Path: name, Err: f.err}
	}
	return f.Backend.Put(ctx, name, r, size)
}

// A full backend fails the backup with an error message, at any step, and damages nothing that is stored.
func TestPlaceIsFull(t *testing.T) {
	t.Parallel()
	var place full
	w := newWorld(t, func(c *Config) {
		place.Backend = placeIn(t, c.Scratch)
		place.room.Store(1 << 30)
		c.Repository = repository.New(repository.Config{Backend: &place, Seal: keyIn(t, c.Scratch)})
	})
	s := w.site("big", map[string]string{"index.html": "hello"})
	dir := w.folder(s.ID, map[string]string{"a": strings.Repeat("one ", 100)})
	good := w.backUp(s.ID, NewBackup{})
	objects := func() (n int) {
		for _, err := range place.List(t.Context()) {
			ok(t, err)
			n++
		}
		return n
	}
	before := objects()
	for room := range int64(2) { // for the pack and the list
		ok(t, os.WriteFile(filepath.Join(dir, "a"), []byte(strings.Repeat("two ", 100+int(room))), 0o644))
		place.room.Store(room)
		place.err = []error{syscall.ENOSPC, syscall.EDQUOT}[room]
		if b := w.backUp(s.ID, NewBackup{}); b.Status != Failed || !strings.Contains(b.Error, "The backup storage is full") {
			t.Errorf("room for %d: %+v", room, b)
		}
		if n := objects(); n != before {
			t.Errorf("a failed backup leaves %d objects of its own", n-before)
		}
	}
	place.room.Store(1 << 30)
	if o, _ := w.restoreTo(good.ID, RestoreTo{}); o.Status != operation.Success || contents(t, dir)["a"] != strings.Repeat("one ", 100) {
		t.Errorf("the earlier backup: %+v", o)
	}
}

// If the disk has too little room for a restore, the site stays unchanged and the error says so.
func TestDiskIsFull(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can make a small file system")
	}
	w := newWorld(t)
	s := w.site("big", map[string]string{"index.html": "hello"})
	w.folder(s.ID, map[string]string{"large": strings.Repeat("x", 1<<20), "small": "first"})
	b := w.backUp(s.ID, NewBackup{})
	small := filepath.Join(t.TempDir(), "small")
	ok(t, os.MkdirAll(small, 0o755))
	ok(t, syscall.Mount("tmpfs", small, "tmpfs", 0, "size=256k"))
	t.Cleanup(func() { _ = syscall.Unmount(small, syscall.MNT_DETACH) })
	there := filepath.Join(small, "uploads")
	ok(t, os.MkdirAll(there, 0o755))
	ok(t, os.WriteFile(filepath.Join(there, "small"), []byte("second"), 0o644))
	w.storage[s.ID] = []snapshot.Folder{{Name: "uploads", Dir: there}}
	o, _ := w.restoreTo(b.ID, RestoreTo{})
	if o.Status != operation.Failed || !strings.Contains(o.Error, "enough disk space") {
		t.Errorf("%+v", o)
	}
	if got := contents(t, small); !maps.Equal(got, map[string]string{"uploads/small": "second"}) {
		t.Errorf("the storage holds %q", got)
	}
}

// mails implements account.Mailer.
type mails func(owner account.OwnerID, text string)

// TellOwnerTx implements account.Mailer.
func (m mails) TellOwnerTx(_ context.Context, _ *db.Tx, owner account.OwnerID, _, text, _ string) error {
	m(owner, text)
	return nil
}

// Mails implements account.Mailer.
func (m mails) Mails() bool { return true }

// siteNamed matches the site's name in an email.
var siteNamed = regexp.MustCompile(`"[^"]*"`)

// An owner with a schedule gets one email when a site has had no verified backup for too long.
func TestAlarm(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex // guards told
	var told []string
	w := newWorld(t, func(c *Config) {
		c.Mail = mails(func(owner account.OwnerID, text string) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, string(owner)+" "+siteNamed.FindString(text))
		})
	})
	s := w.site("blog", map[string]string{"index.html": "hello"})
	b := w.backUp(s.ID, NewBackup{})
	every := "daily"
	ok(t, w.db.Write(t.Context(), func(tx *db.Tx) error {
		_, err := w.ScheduleTx(t.Context(), tx, anna, s.ID, SchedulePatch{Every: &every})
		return err
	}))
	for _, after := range []time.Duration{time.Hour, 2 * 24 * time.Hour} {
		ok(t, w.warn(t.Context(), b.VerifiedAt.Time().Add(after)))
	}
	if len(told) != 0 {
		t.Errorf("told too early: %q", told)
	}
	for range 2 {
		ok(t, w.warn(t.Context(), b.VerifiedAt.Time().Add(3*24*time.Hour+time.Minute)))
	}
	if len(told) != 1 || told[0] != `usr_anna "blog"` {
		t.Errorf("told %q", told)
	}
	b = w.backUp(s.ID, NewBackup{}) // a verified backup ends the alarm
	ok(t, w.warn(t.Context(), b.VerifiedAt.Time().Add(3*24*time.Hour+time.Minute)))
	if len(told) != 2 {
		t.Errorf("told %q", told)
	}
}

// The operator sets the time without a verified backup. A new schedule isn't late because of an old backup, but one
// whose backups never start is late even without any backup.
func TestAlarmIsSet(t *testing.T) {
	t.Parallel()
	told := map[string]int{}
	w := newWorld(t, func(c *Config) {
		c.Alarm = 36 * time.Hour
		c.Mail = mails(func(_ account.OwnerID, text string) { told[strings.Trim(siteNamed.FindString(text), `"`)]++ })
	})
	old, never := w.site("old", map[string]string{"index.html": "x"}), w.site("never", map[string]string{"index.html": "x"})
	w.backUp(old.ID, NewBackup{})
	ok(t, w.db.Admin(t.Context(), "UPDATE backups SET created_at = 1000, verified_at = 1000"))
	begun := time.Now()
	every := "weekly"
	for _, s := range []site.Site{old, never} {
		ok(t, w.db.Write(t.Context(), func(tx *db.Tx) error {
			_, err := w.ScheduleTx(t.Context(), tx, anna, s.ID, SchedulePatch{Every: &every})
			return err
		}))
	}
	for _, tt := range []struct {
		after time.Duration
		want  int
	}{{time.Minute, 0}, {35 * time.Hour, 0}, {36*time.Hour + time.Minute, 1}, {60 * time.Hour, 1}} {
		ok(t, w.warn(t.Context(), begun.Add(tt.after)))
		if told["old"] != tt.want || told["never"] != tt.want {
			t.Errorf("after %s: told %v, want %d each", tt.after, told, tt.want)
		}
	}
	at := "04:00" // a change other than of the interval doesn't restart the time
	ok(t, w.db.Write(t.Context(), func(tx *db.Tx) error {
		_, err := w.ScheduleTx(t.Context(), tx, anna, old.ID, SchedulePatch{At: &at})
		return err
	}))
	ok(t, w.warn(t.Context(), begun.Add(37*time.Hour)))
	if told["old"] != 2 {
		t.Errorf("after a change of the hour: told %v", told)
	}
}

// A restore interrupted at any step leaves nothing half-done, and the next attempt completes it.
func TestRestoreIsInterrupted(t *testing.T) {
	t.Parallel()
	stopped := errors.New("the process is gone")
	for _, point := range []string{"load", "folders", "tx", "renew"} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			var d memory
			var on atomic.Bool
			once := func(at string) error {
				if at == point && on.CompareAndSwap(true, false) {
					return stopped
				}
				return nil
			}
			w := newWorld(t, d.wire, func(c *Config) {
				server, p := c.Databases.(*databaseServer), c.Programs.(*programs)
				load, renew, list := server.load, p.renew, c.Storage.(*stored).list
				server.load = func(owner account.OwnerID, in io.Reader, check bool) (snapshot.Loaded, error) {
					if err := once("load"); err != nil {
						_, _ = io.CopyN(io.Discard, in, 3)
						return nil, err
					}
					l, err := load(owner, in, check)
					if err != nil {
						return nil, err
					}
					x := l.(*scratch)
					put := x.put
					x.put = func(ctx context.Context, tx *db.Tx, owner account.OwnerID, id site.ID, name string, place int64) error {
						if err := put(ctx, tx, owner, id, name, place); err != nil {
							return err
						}
						return once("tx")
					}
					return l, nil
				}
				c.Storage.(*stored).list = func(id site.ID) ([]snapshot.Folder, error) {
					have, err := list(id)
					return have, errors.Join(err, once("folders"))
				}
				p.renew = func(id site.ID) error { return errors.Join(renew(id), once("renew")) }
			})
			s := w.site("data", map[string]string{"index.html": "hello"})
			dir := w.folder(s.ID, map[string]string{"cat.jpg": "meow"})
			d.text[s.ID] = "rows v1"
			b := w.backUp(s.ID, NewBackup{})
			before := w.backUp(s.ID, NewBackup{}) // the restore itself takes another one first
			d.text[s.ID] = "rows v2"
			ok(t, os.WriteFile(filepath.Join(dir, "cat.jpg"), []byte("purr"), 0o640))
			o, r := w.begun(b.ID)
			w.until("the backup before the restore is there", func() bool {
				_, ready, err := w.backUpFirst(t.Context(), r, anna)
				if err != nil {
					t.Fatal(err)
				}
				return ready
			})
			on.Store(true)
			if err := w.restore(t.Context(), r, 1); err == nil {
				t.Fatal("it was not interrupted")
			}
			if point != "renew" && d.text[s.ID] != "rows v2" {
				t.Errorf("the database holds %q before the end", d.text[s.ID])
			}
			ok(t, w.restore(t.Context(), r, 2))
			if o, _ := w.operation(o.ID); o.Status != operation.Success || d.text[s.ID] != "rows v1" || contents(
				t,
				dir,
			)["cat.jpg"] != "meow" || d.scratch != 0 {
				t.Errorf("%+v: %q, %q, %d are left", o, d.text, contents(t, dir), d.scratch)
			}
			if got, err := w.Get(t.Context(), anna, before.ID); err != nil || got.Status != Completed {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
}

// begun opens a restore's operation without its job, so that the test can do the job's work.
func (w *world) begun(id ID) (operation.Operation, Restore) {
	w.t.Helper()
	p, err := w.PlanRestore(w.t.Context(), anna, id, RestoreTo{})
	ok(w.t, err)
	var o operation.Operation
	ok(w.t, w.db.Write(w.t.Context(), func(tx *db.Tx) (err error) {
		o, err = w.c.Operations.OpenTx(w.t.Context(), tx, anna, operation.NewOperation{
			Kind: "backup.restore",
			Site: p.restore.Site,
		})
		return err
	}))
	r := p.restore
	r.Operation = o.ID
	return o, r
}

// A dump that doesn't start fails the backup after three attempts, and each attempt pauses the site's writes only for a
// limited time.
func TestDumpDoesNotBegin(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *Config) {
		c.Databases = &databaseServer{of: func(site.ID) ([]dumped, error) {
			return []dumped{{Name: "main", Dump: func(ctx context.Context, _ io.Writer) error { <-ctx.Done(); return ctx.Err() }}}, nil
		}}
	})
	s := w.site("data", map[string]string{"index.html": "hello"})
	if b := w.backUp(s.ID, NewBackup{}); b.Status != Failed || !strings.Contains(b.Error, "too slow") || w.held != 3003 {
		t.Errorf("%+v, held %d", b, w.held)
	}
}

// A backup can't be deleted while it is being restored, to any site, but afterwards it can. A restore of a deleted
// backup fails and creates no site.
func TestDeleteWhileRestored(t *testing.T) {
	t.Parallel()
	hold, held := make(chan struct{}), make(chan struct{})
	var once sync.Once
	w := newWorld(t, func(c *Config) {
		d := c.Storage.(*stored)
		before := d.hold
		d.hold = func(id site.ID) func() {
			once.Do(func() { close(held); <-hold })
			return before(id)
		}
	})
	s, other := w.site("one", map[string]string{"index.html": "one"}), w.site("two", map[string]string{"index.html": "two"})
	b, idle := w.backUp(s.ID, NewBackup{}), w.backUp(s.ID, NewBackup{})
	w.folder(other.ID, map[string]string{"a": "a"})
	w.folder(s.ID, map[string]string{"a": "a"})
	remove := func(id ID) error {
		return w.db.Write(t.Context(), func(tx *db.Tx) error { return w.DeleteTx(t.Context(), tx, anna, id) })
	}
	p, err := w.PlanRestore(t.Context(), anna, b.ID, RestoreTo{Site: other.ID})
	ok(t, err)
	var o operation.Operation
	ok(t, w.db.Write(t.Context(), func(tx *db.Tx) (err error) {
		o, err = w.RestoreTx(t.Context(), tx, anna, p)
		return err
	}))
	<-held // the restore takes a backup first
	if err := remove(b.ID); !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), "being restored") {
		t.Errorf("deleted while restored: %v", err)
	}
	ok(t, remove(idle.ID))
	close(hold)
	if o, _ := w.operation(o.ID); o.Status != operation.Success {
		t.Errorf("%+v", o)
	}
	p, err = w.PlanRestore(t.Context(), anna, b.ID, RestoreTo{NewName: "Three"})
	ok(t, err)
	w.until("its job has ended", func() bool { return remove(b.ID) == nil })
	err = w.db.Write(t.Context(), func(tx *db.Tx) error { _, err := w.RestoreTx(t.Context(), tx, anna, p); return err })
	if !fault.Is(err, fault.NotFound) {
		t.Errorf("a backup that is gone: %v", err)
	}
}
