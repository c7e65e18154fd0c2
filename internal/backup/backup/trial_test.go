package backup

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"slipway/internal/backup/snapshot"
	"slipway/internal/build/bundle"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/site"
)

// stage is a fake place for trials that records its calls.
type stage struct {
	dir string

	mu      sync.Mutex // guards what follows
	folders map[string]string
	ran     []string // files and databases that each program found
	open    int
	answer  string
	fails   error
	full    bool
}

func (s *stage) wire(d *memory) func(c *Config) {
	return func(c *Config) {
		d.wire(c)
		c.WordPress = extra{text: `{}`}
		c.Programs.(*programs).trial = func() (Trial, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.open++
			s.folders = map[string]string{}
			return staged{s, d}, nil
		}
	}
}

// staged is a trial on a stage.
type staged struct {
	*stage
	d *memory
}

func (s staged) Folder(ctx context.Context, name string) (snapshot.Folder, error) {
	return s.folder(ctx, name)
}
func (s staged) Answer(_ context.Context, t Tried) (string, error) { return s.run(s.d, t) }
func (s staged) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open--
}

func (s *stage) folder(_ context.Context, name string) (snapshot.Folder, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.full {
		return snapshot.Folder{}, &os.PathError{Op: "write", Path: name, Err: syscall.ENOSPC}
	}
	dir, err := os.MkdirTemp(s.dir, "trial-")
	s.folders[name] = dir
	return snapshot.Folder{Name: name, Dir: dir}, err
}

func (s *stage) run(d *memory, t Tried) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d.mu.Lock()
	loaded := d.scratch
	d.mu.Unlock()
	found := fmt.Sprintf("%s of %s, %d databases of %d loaded", t.Live.Bundle, t.Site, len(t.Databases), loaded)
	for name, dir := range s.folders {
		err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
			if err == nil && e.Type().IsRegular() {
				text, _ := os.ReadFile(path)
				rel, _ := filepath.Rel(dir, path)
				found += fmt.Sprintf(", %s/%s=%s", name, rel, text)
			}
			return err
		})
		if err != nil {
			return "", err
		}
	}
	s.ran = append(s.ran, found)
	return s.answer, s.fails
}

// Before a backup counts as verified, its program runs with its files and databases in isolation. A WordPress must
// answer, an application may need services outside, and without enough room or time the result says so.
func TestTrial(t *testing.T) {
	t.Parallel()
	var d memory
	st := &stage{dir: t.TempDir(), answer: "Restored copy: GET / returned 200"}
	w := newWorld(t, st.wire(&d))
	s := w.site("shop", map[string]string{"index.html": "hello"})
	w.folder(s.ID, map[string]string{"cat.jpg": "meow"})
	d.text[s.ID] = "rows"
	if b := w.backUp(s.ID, NewBackup{}); b.VerifiedAt == 0 || b.Answer != "The front page is whole" || len(st.ran) != 0 {
		t.Errorf("of files: %+v, ran %q", b, st.ran)
	}

	id := w.program(s)
	b := w.backUp(s.ID, NewBackup{})
	want := fmt.Sprintf("%s of %s, 1 databases of 1 loaded, uploads/cat.jpg=meow", id, s.ID)
	if b.VerifiedAt == 0 || b.Answer != st.answer || len(st.ran) != 1 || st.ran[0] != want || st.open != 0 || d.scratch != 0 {
		t.Fatalf("%+v: ran %q, want %q; %d open, %d databases left", b, st.ran, want, st.open, d.scratch)
	}

	st.fails = &fault.Error{Kind: fault.Invalid, Message: "It answers / with 500", Details: "it printed: no table"}
	if b = w.backUp(s.ID, NewBackup{}); b.VerifiedAt == 0 || b.Error != "" ||
		b.Answer != "It did not answer when it ran without a network: It answers / with 500: it printed: no table" {
		t.Errorf("an application that doesn't answer: %+v", b)
	}
	ok(t, w.db.Admin(t.Context(), fmt.Sprintf("UPDATE sites SET type = 'wordpress' WHERE id = '%s'", s.ID)))
	if b = w.backUp(s.ID, NewBackup{}); b.VerifiedAt != 0 || !strings.Contains(
		b.Error,
		"WordPress doesn't answer from them: It answers / with 500: it printed: no table",
	) || st.open != 0 || d.scratch != 0 {
		t.Errorf("a WordPress that doesn't: %+v; %d open, %d databases left", b, st.open, d.scratch)
	}
	st.fails = &fault.Error{Kind: fault.Unavailable, Message: "Too many applications are running on this server"}
	if _, err := w.check(t.Context(), b, 1); err == nil || fault.As(err) != nil {
		t.Errorf("a busy server at first: %v", err)
	}
	if answer, err := w.check(
		t.Context(),
		b,
		trialAttempts,
	); err != nil || answer != "Not run: Too many applications are running on this server" {
		t.Errorf("a busy server at last: %q, %v", answer, err)
	}
	st.fails, st.full = nil, true
	n := len(st.ran)
	if b = w.backUp(s.ID, NewBackup{}); b.VerifiedAt == 0 || b.Answer != noRoom || len(st.ran) != n || st.open != 0 {
		t.Errorf("a full disk: %+v", b)
	}
	st.full = false

	// Blobs that the store has lost are restored before the program runs.
	ok(t, filepath.WalkDir(filepath.Join(w.dir, "blobs"), func(path string, e os.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			err = os.Remove(path)
		}
		return err
	}))
	if answer, err := w.check(t.Context(), b, 1); err != nil || answer != st.answer {
		t.Errorf("after the store was lost: %q, %v", answer, err)
	}
	bundles, err := bundle.New(bundle.Config{Blobs: w.blobs, Dir: t.TempDir()})
	ok(t, err)
	got := map[string]string{}
	for f, err := range bundles.Files(t.Context(), id) {
		ok(t, err)
		got[f.Path] = "there"
		if _, err := w.blobs.ReadAll(t.Context(), f.Digest, 1<<20); err != nil {
			t.Errorf("%s: %v", f.Path, err)
		}
	}
	if !maps.Equal(got, map[string]string{"server.js": "there"}) {
		t.Errorf("the program's files: %q", got)
	}
}

// program turns what a site serves into a program, as a deployment does.
func (w *world) program(s site.Site) bundle.ID {
	w.t.Helper()
	dir := w.t.TempDir()
	ok(w.t, os.WriteFile(filepath.Join(dir, "server.js"), []byte("serve()"), 0o644))
	root, err := os.OpenRoot(dir)
	ok(w.t, err)
	defer root.Close()
	bundles, err := bundle.New(bundle.Config{Blobs: w.blobs, Dir: w.t.TempDir()})
	ok(w.t, err)
	stored, err := bundles.Store(w.t.Context(), root, nil)
	ok(w.t, err)
	ok(
		w.t,
		w.db.Admin(
			w.t.Context(),
			fmt.Sprintf(
				`UPDATE deployments SET bundle = '%s', runtime = 'node', plan = '{"runtime": "node", "start": {}}' WHERE id = '%s'`,
				stored.ID,
				s.LiveDeployment,
			),
		),
	)
	return stored.ID
}
