package refill

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"slipway/internal/backup/backup"
	"slipway/internal/backup/repository"
	"slipway/internal/platform/blob"
	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/job"
	"slipway/internal/platform/seal"
	"slipway/internal/platform/wait"
	"slipway/internal/tenant/operation"
	"slipway/internal/tenant/site"
	"slipway/internal/tenant/webhook"
)

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// world is an installation of sites with storage in volumes: the directories here are copies, and changes that aren't
// kept are lost.
type world struct {
	t     *testing.T
	db    *db.DB
	ops   *operation.Operations
	repo  *repository.Repository
	dir   string
	sites []site.ID

	lost, full site.ID // lost has no storage left, full can't have any
	held       int
	kept       []site.ID
	renewed    []site.ID
	newest     map[site.ID]*backup.Stored
	renews     func(id site.ID) error // nil: success
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, db: dbtest.New(t), dir: t.TempDir()}
	w.ops = operation.New(operation.Config{DB: w.db})
	key, err := seal.Load(filepath.Join(w.dir, "key"))
	ok(t, err)
	at, err := blob.Dir(filepath.Join(w.dir, "backups"))
	ok(t, err)
	w.repo = repository.New(repository.Config{Backend: at, Seal: key})
	sites := site.New(site.Config{DB: w.db, Hooks: webhook.New(webhook.Config{DB: w.db, Seal: key}), Seal: key, Domain: "sites.test"})
	for range 5 {
		s, err := sites.Create(t.Context(), "usr_anna", site.NewSite{Name: "A site", Type: "static", Repository: "git.test/acme/none"})
		ok(t, err)
		w.sites = append(w.sites, s.ID)
	}
	slices.Sort(w.sites)
	for _, id := range w.sites {
		w.write(id, map[string]string{"a": "of " + string(id), "sub/b": "as it was"})
	}
	return w
}

func (w *world) folder(id site.ID) string {
	return filepath.Join(w.dir, "storage", string(id), "uploads")
}

func (w *world) write(id site.ID, files map[string]string) {
	w.t.Helper()
	for name, text := range files {
		at := filepath.Join(w.folder(id), name)
		ok(w.t, os.MkdirAll(filepath.Dir(at), 0o755))
		ok(w.t, os.WriteFile(at, []byte(text), 0o640))
	}
}

func (w *world) has(id site.ID) map[string]string {
	w.t.Helper()
	got := map[string]string{}
	ok(w.t, filepath.WalkDir(w.folder(id), func(p string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := os.ReadFile(p)
		name, _ := filepath.Rel(w.folder(id), p)
		got[name] = string(text)
		return err
	}))
	return got
}

func (w *world) FetchStorage(context.Context, site.ID) (io.Closer, error) {
	return io.NopCloser(nil), nil
}

func (w *world) KeepStorage(_ context.Context, id site.ID) error {
	if w.held != 1 {
		return fmt.Errorf("%d sites are held", w.held)
	}
	w.kept = append(w.kept, id)
	return nil
}

func (w *world) StorageFolders(id site.ID) (map[string]string, error) {
	if id == w.lost || id == w.full {
		return nil, nil
	}
	return map[string]string{"uploads": w.folder(id)}, nil
}

func (w *world) MakeStorage(_ context.Context, id site.ID, name string) (string, error) {
	if id == w.full || name != "uploads" {
		return "", &fault.Error{Kind: fault.Unavailable, Message: "There is no room for " + name}
	}
	return w.folder(id), os.MkdirAll(w.folder(id), 0o755)
}

func (w *world) Hold(site.ID) func() {
	w.held++
	return func() { w.held-- }
}

func (w *world) Renew(_ context.Context, id site.ID) error {
	if w.held != 1 {
		w.t.Errorf("%d sites are held while their programs end", w.held)
	}
	w.renewed = append(w.renewed, id)
	if w.renews != nil {
		return w.renews(id)
	}
	return nil
}

func (w *world) Read(from string) (*repository.Repository, func(), error) {
	if from != "the place" {
		return nil, nil, errors.New("--from: there is no " + from)
	}
	return w.repo, func() {}, nil
}

func (w *world) NewestStored(_ context.Context, id site.ID) (*backup.Stored, error) {
	return w.newest[id], nil
}

// CopyTo and Sites implement the installation's source.
func (w *world) CopyTo(_ context.Context, path string) (string, error) {
	return "sqlite", os.WriteFile(path, []byte("x"), 0o600)
}
func (w *world) Sites(context.Context) ([]site.ID, error) { return w.sites, nil }

func (w *world) take() backup.ID {
	w.t.Helper()
	store, err := blob.Open(filepath.Join(w.dir, "blobs"), blob.Options{})
	ok(w.t, err)
	c, err := backup.TakeCopy(w.t.Context(), w.repo, backup.Source{Blobs: store, Scratch: w.dir, Version: "test", Control: w, Storage: w}, false)
	ok(w.t, err)
	if len(c.Problems) > 0 {
		w.t.Fatal(c.Problems)
	}
	w.held, w.kept = 0, nil
	return c.ID
}

func (w *world) refills() *Refills {
	return New(Config{DB: w.db, Operations: w.ops, Storage: w, Programs: w, Sites: w, Copies: w})
}

// ended waits for an operation's end and returns its result.
func (w *world) ended(id operation.ID) (d Done, failed string) {
	w.t.Helper()
	var o operation.Operation
	wait.Until(w.t, "the operation has ended", func() bool {
		var err error
		o, err = w.ops.Get(w.t.Context(), backup.OfInstallation, id)
		ok(w.t, err)
		return o.CompletedAt != 0
	})
	ok(w.t, json.Unmarshal(o.Result, &d))
	return d, o.Error
}

func (w *world) begin(from string, id backup.ID) (d Done, failed string) {
	w.t.Helper()
	jobs := job.New(job.Config{DB: w.db, Queues: map[string]int{backup.QueueName: 1}, Poll: 20 * time.Millisecond})
	w.refills().Work(jobs)
	ctx, stop := context.WithCancel(w.t.Context())
	done := make(chan struct{})
	go func() { defer close(done); jobs.Run(ctx) }()
	defer func() { stop(); <-done }()
	var o operation.Operation
	ok(w.t, w.db.Write(w.t.Context(), func(tx *db.Tx) (err error) {
		o, err = BeginTx(w.t.Context(), tx, w.ops, from, id)
		return err
	}))
	return w.ended(o.ID)
}

// Storage is restored from a backup of the whole installation for every site that still exists, including sites whose
// storage is gone. A site that can't be restored is reported and doesn't affect the others.
func TestFromInstallation(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first, lost, gone, full, last := w.sites[0], w.sites[1], w.sites[2], w.sites[3], w.sites[4]
	taken, was := w.take(), w.has(first)
	for _, id := range w.sites {
		w.write(id, map[string]string{"a": "another", "new": "and more"})
	}
	newer, changed := w.take(), w.has(first)
	w.lost, w.full = lost, full
	ok(t, os.RemoveAll(filepath.Dir(w.folder(lost))))
	ok(t, w.db.Admin(t.Context(), `UPDATE sites SET deleted_at = 1 WHERE id = '`+string(gone)+`'`))

	d, failed := w.begin("the place", taken)
	if failed != "" || d.Copy != taken || d.Sites != 3 || d.Without != 0 || len(d.Problems) != 2 || d.After != "" ||
		!strings.HasPrefix(d.Problems[0], "Site "+string(gone)+": ") || !strings.Contains(d.Problems[1], string(full)+": ") ||
		!strings.Contains(strings.ToLower(d.Problems[1]), "there is no room for uploads") {
		t.Errorf("%+v, %s", d, failed)
	}
	if got := w.has(first); !maps.Equal(got, was) {
		t.Errorf("a site has %v", got)
	}
	if got := w.has(lost); got["a"] != "of "+string(lost) || len(got) != 2 {
		t.Errorf("a site whose storage was lost has %v", got)
	}
	for _, id := range []site.ID{gone, full} {
		if got := w.has(id); got["a"] != "another" || len(got) != 3 {
			t.Errorf("storage that isn't restored has %v", got)
		}
	}
	if want := []site.ID{first, lost, last}; !slices.Equal(w.kept, want) || !slices.Equal(w.renewed, want) || w.held != 0 {
		t.Errorf("kept %v, renewed %v, want %v; held %d", w.kept, w.renewed, want, w.held)
	}

	// Without an ID the newest backup is used. A site without backups is an error that says so.
	if d, failed = w.begin("the place", ""); failed != "" || d.Copy != newer {
		t.Errorf("the newest: %+v, %s", d, failed)
	}
	if got := w.has(first); !maps.Equal(got, changed) {
		t.Errorf("a site has %v", got)
	}
	if _, failed = w.begin("the place", "bkp_none"); !strings.Contains(failed, "bkp_none") {
		t.Errorf("a backup that isn't there: %s", failed)
	}
	if _, failed = w.begin("nowhere", ""); failed != "--from: there is no nowhere" {
		t.Errorf("a place that isn't there: %s", failed)
	}

	// A restarted service continues with the site where it stopped, from the same backup.
	var o operation.Operation
	step, err := json.Marshal(Done{Copy: taken, Sites: 1, After: first, Problems: []string{"one"}})
	ok(t, err)
	ok(t, w.db.Write(t.Context(), func(tx *db.Tx) error {
		if o, err = w.ops.OpenTx(t.Context(), tx, backup.OfInstallation, operation.NewOperation{Kind: "installation.refill"}); err != nil {
			return err
		}
		return w.ops.AdvanceTx(t.Context(), tx, o.ID, 0.2, string(step), "")
	}))
	x := Refill{Operation: o.ID, From: "the place"}
	stopped, stop := context.WithCancel(t.Context())
	stop()
	if err := w.refills().refill(stopped, x, 1); err == nil {
		t.Error("a service that stops has put all back")
	}
	ok(t, w.refills().refill(t.Context(), x, 2))
	if d, failed = w.ended(o.ID); d.Copy != taken || d.Sites != 3 || len(d.Problems) != 3 || failed != "" {
		t.Errorf("went on: %+v, %s", d, failed)
	}
	if got := w.has(first); !maps.Equal(got, changed) {
		t.Errorf("the site that was done already has %v", got)
	}
	if got := w.has(last); got["a"] != "of "+string(last) {
		t.Errorf("the last site has %v", got)
	}
	before := len(w.kept)
	ok(t, w.refills().refill(t.Context(), x, 3))
	if len(w.kept) != before {
		t.Error("what has ended was done again")
	}
}

// Without an installation's backup, each site is restored from its own newest backup, and sites without one are
// counted.
func TestFromOwnBackups(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c, err := backup.OpenCopy(t.Context(), w.repo, w.take())
	ok(t, err)
	w.newest, err = c.Stored()
	ok(t, err)
	without, empty := w.sites[1], w.sites[2]
	delete(w.newest, without)
	w.newest[empty] = &backup.Stored{}
	for _, id := range w.sites {
		w.write(id, map[string]string{"a": "another"})
	}
	d, failed := w.begin("", "")
	if failed != "" || d.Copy != "" || d.Sites != 3 || d.Without != 1 || len(d.Problems) != 0 {
		t.Errorf("%+v, %s", d, failed)
	}
	for _, id := range w.sites {
		want := "of " + string(id)
		if id == without || id == empty {
			want = "another"
		}
		if got := w.has(id); got["a"] != want {
			t.Errorf("%s has %v, want %s", id, got, want)
		}
	}
}

// open opens an operation that restores or changes a site.
func (w *world) open(n operation.NewOperation) (operation.ID, error) {
	var o operation.Operation
	err := w.db.Write(w.t.Context(), func(tx *db.Tx) (err error) {
		o, err = w.ops.OpenTx(w.t.Context(), tx, "usr_anna", n)
		return err
	})
	return o.ID, err
}

func (w *world) end(id operation.ID) {
	w.t.Helper()
	ok(w.t, w.db.Write(w.t.Context(), func(tx *db.Tx) error { return w.ops.EndTx(w.t.Context(), tx, id, "", "", nil) }))
}

// refill runs one attempt of the job from where the last one stopped.
func (w *world) refill(x Refill) (Done, error) {
	w.t.Helper()
	err := w.refills().refill(w.t.Context(), x, 1)
	done, err2 := w.refills().done(w.t.Context(), x)
	ok(w.t, err2)
	return done, err
}

// The job waits for a site that is being restored or changed, and blocks such operations while it restores the site's
// storage. A crash leaves no operation that would block the site forever. A site that stays busy delays the others only
// for a limited time.
func TestOneAtATime(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first, second := w.sites[0], w.sites[1]
	was := w.has(first)
	w.take()
	for _, id := range w.sites {
		w.write(id, map[string]string{"a": "another"})
	}
	restore := func(id site.ID) operation.NewOperation {
		return operation.NewOperation{Kind: "backup.restore", Site: id, Unique: backup.RestoreKey(id)}
	}
	change := operation.NewOperation{Kind: "wordpress.import", Site: first, Unique: backup.ChangeKey(first), Apart: backup.RestoreKey(first)}
	var o operation.Operation
	ok(t, w.db.Write(t.Context(), func(tx *db.Tx) (err error) {
		o, err = BeginTx(t.Context(), tx, w.ops, "the place", "")
		return err
	}))
	x := Refill{Operation: o.ID, From: "the place"}

	for _, other := range []operation.NewOperation{restore(first), change} {
		id, err := w.open(other)
		ok(t, err)
		for range 2 {
			if done, err := w.refill(x); err != job.Later(again) || done.After != "" || len(w.kept) != 0 {
				t.Fatalf("beside %s: %v, %+v, kept %v", other.Kind, err, done, w.kept)
			}
		}
		w.end(id)
	}

	broken := errors.New("the database is away")
	w.renews = func(id site.ID) error { // during the restore of the first site
		for _, other := range []operation.NewOperation{restore(first), change} {
			if _, err := w.open(other); !fault.Is(err, fault.Conflict) {
				t.Errorf("%s begins beside it: %v", other.Kind, err)
			}
		}
		return broken
	}
	done, err := w.refill(x)
	if !errors.Is(err, broken) || done.Site != first || done.Operation == "" || done.Failed != 0 {
		t.Fatalf("a crash in the middle: %v, %+v", err, done)
	}
	op := done.Operation
	w.renews = nil
	busy, err := w.open(restore(second))
	ok(t, err)
	if done, err = w.refill(x); err != job.Later(again) || done.After != first || done.Operation != "" || done.Waits == 0 {
		t.Fatalf("the second site: %v, %+v", err, done)
	}
	if got := w.has(first); !maps.Equal(got, was) {
		t.Errorf("the first has %v", got)
	}
	if of, err := w.ops.Get(t.Context(), "usr_anna", op); err != nil || of.Status != operation.Success {
		t.Errorf("the first one's operation: %+v, %v", of, err)
	}

	// Move the start of the wait back by the whole waiting time.
	done.Waits -= db.Time(patience / time.Millisecond)
	step, err := json.Marshal(done)
	ok(t, err)
	ok(t, w.db.Write(t.Context(), func(tx *db.Tx) error { return w.ops.AdvanceTx(t.Context(), tx, o.ID, 0, string(step), "") }))
	_, err = w.refill(x)
	ok(t, err)
	d, failed := w.ended(o.ID)
	if failed != "" || d.Sites != 4 || d.Failed != 1 || !strings.Contains(d.Problems[0], string(second)+": ") {
		t.Errorf("%+v, %s", d, failed)
	}
	if got := w.has(second); got["a"] != "another" {
		t.Errorf("the busy one has %v", got)
	}
	w.end(busy)
	for _, id := range w.sites {
		if _, err := w.open(restore(id)); err != nil {
			t.Errorf("%s is kept from its own restores: %v", id, err)
		}
	}
}

// The site's operation also ends when the job is given up or the site is deleted meanwhile.
func TestNothingStaysOpen(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]func(w *world, x Refill){
		"given up": func(w *world, x Refill) {
			done, err := w.refills().done(t.Context(), x)
			ok(t, err)
			ok(t, w.refills().end(t.Context(), x, "it was tried too often", &done))
		},
		"deleted": func(w *world, x Refill) {
			ok(t, w.db.Admin(t.Context(), `UPDATE sites SET deleted_at = 1 WHERE id = '`+string(w.sites[0])+`'`))
			w.renews = nil
			_, err := w.refill(x)
			ok(t, err)
		},
	} {
		w := newWorld(t)
		c, err := backup.OpenCopy(t.Context(), w.repo, w.take())
		ok(t, err)
		w.newest, err = c.Stored()
		ok(t, err)
		var o operation.Operation
		ok(t, w.db.Write(t.Context(), func(tx *db.Tx) (err error) {
			o, err = BeginTx(t.Context(), tx, w.ops, "", "")
			return err
		}))
		x := Refill{Operation: o.ID}
		w.renews = func(site.ID) error { return errors.New("the database is away") }
		if done, err := w.refill(x); err == nil || done.Operation == "" {
			t.Fatalf("%s: %v, %+v", name, err, done)
		}
		stop(w, x)
		list, _, err := w.ops.List(t.Context(), "usr_anna", w.sites[0], 1, 10)
		if err != nil || len(list) != 1 || list[0].Status != operation.Failed || list[0].Error == "" {
			t.Errorf("%s: %+v, %v", name, list, err)
		}
		w.ended(o.ID)
	}
}
