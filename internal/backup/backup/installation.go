package backup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"slipway/internal/backup/repository"
	"slipway/internal/backup/snapshot"
	"slipway/internal/platform/blob"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/site"
)

// Folders of a manifest of an installation, besides inBlobs, inStorage and inDatabase.
const (
	inFiles    = "files/"   // of the data directory: the key, and what names the database server
	inObjects  = "objects/" // of the repository of sites' backups
	inControl  = "control/" // the installation's own database
	controlSQL = "slipway.db"
	controlPG  = "slipway.sql"
)

// The most that one backup of an installation holds.
const (
	maxCopyFiles = 4_000_000
	maxCopyNames = 256 << 20 // bytes
	maxCopyBytes = 64 << 40
)

// Source says what an installation consists of. It goes on while it is read.
type Source struct {
	Blobs   *blob.Store
	Scratch string // directory for the copy of the database
	Version string

	Files     map[string]string // paths on this host, by their paths in the data directory
	Objects   string            // directory of the repository of sites' backups, where that must be copied too. Optional.
	Control   Control
	Storage   snapshot.Storage        // nil: this node runs no programs
	Databases snapshot.DatabaseServer // nil: there are none

	All      bool                           // every object that backups need is read, and damage repaired as far as possible
	Progress func(text string, bytes int64) // is told now and then. Optional.
	// before a site is read again whose database server was away or slow; the second time twice as long.
	// Optional: 0 means 2s.
	Pause time.Duration
	Log   *slog.Logger
}

// Control is the installation's own database.
type Control interface {
	// CopyTo writes it to a file and says in which dialect.
	CopyTo(ctx context.Context, path string) (dialect string, err error)
	// Sites lists the sites that may have storage and databases.
	Sites(ctx context.Context) ([]site.ID, error)
}

// TakeCopy backs a whole installation up, on top of the newest backup of it that is there.
// Each site's storage and databases are of one moment; the installation's own database is a
// snapshot, and every file that it refers to is there. What is wrong with a single site is
// among the copy's problems and stops nothing else.
func TakeCopy(ctx context.Context, r *repository.Repository, s Source, scheduled bool) (c Copy, err error) {
	begun := time.Now()
	c = Copy{ID: newCopyID(), At: begun.UTC(), Version: s.Version, Scheduled: scheduled}
	s.Log, s.Pause = cmp.Or(s.Log, slog.New(slog.DiscardHandler)), cmp.Or(s.Pause, 2*time.Second)
	w := repository.NewWriter(ctx, r)
	listed := false
	defer func() {
		if err != nil && !listed {
			err = errors.Join(err, w.Abandon())
		}
	}()
	earlier, broken, err := copies(ctx, r)
	if err != nil {
		return c, err
	}
	if s.All { // what their backups held is not known any more
		for _, name := range broken {
			if err := r.DeleteObject(ctx, name); err != nil {
				return c, err
			}
		}
		c.Damage += len(broken)
	}
	base, err := newestCopy(ctx, r, earlier, s.Log)
	if err != nil {
		return c, err
	}
	affected, err := s.examine(ctx, r, w, base, earlier, &c)
	if err != nil {
		return c, err
	}
	if base != nil {
		w.Adopt(&base.Contents)
	}
	m := &snapshot.Manifest{ID: c.ID, At: begun.UTC()}
	var databases snapshot.DatabaseServer
	if s.Databases != nil {
		databases = snapshot.OfAll{DatabaseServer: s.Databases}
	}
	t := &taking{
		Source: s, copy: &c,
		Collection: snapshot.Collection{
			Storage:   s.Storage,
			Databases: databases,
			Writer:    w,
			Manifest:  m,
			Base:      base,
			Most:      maxCopyFiles,
			MostBytes: maxCopyBytes,
			MostNames: maxCopyNames,
		},
	}
	w.OnRead(t.tick)
	// Files before the database that refers to them, and again what came meanwhile: a file is
	// stored before anything refers to it, and deleted after nothing does.
	seen := map[blob.Digest]bool{}
	for _, step := range []func(context.Context) error{
		func(ctx context.Context) error { return t.blobs(ctx, seen) },
		t.control,
		func(ctx context.Context) error { return t.blobs(ctx, seen) },
		t.files, t.sites, t.objects,
	} {
		if err := step(ctx); err != nil {
			return c, err
		}
	}
	if err := w.Close(); err != nil {
		return c, err
	}
	if err := noteDamage(ctx, r, affected, w.Bad()); err != nil {
		return c, err
	}
	w.List(&m.Contents)
	raw, err := m.Encode()
	if err != nil {
		return c, err
	}
	name, n, err := r.Put(ctx, raw)
	if err != nil {
		return c, fmt.Errorf("store manifest: %w", err)
	}
	c.Manifest, c.Size, c.Stored, c.Took = name, m.Size(), w.Stored()+n, time.Since(begun).Seconds()
	listed = true // or may be, whatever PutNamed returns
	return c, r.PutNamed(ctx, copyKind, string(c.ID), c)
}

// newestCopy returns the newest backup of the installation that can be read, nil where there
// is none.
func newestCopy(ctx context.Context, r *repository.Repository, list []Copy, log *slog.Logger) (*snapshot.Manifest, error) {
	for _, c := range list {
		m, err := snapshot.Load(ctx, r, c.Manifest)
		if errors.Is(err, repository.ErrDamaged) || errors.Is(err, fs.ErrNotExist) {
			log.WarnContext(ctx, "an earlier backup can't be built upon", "backup", c.ID, "err", err)
			continue
		}
		return m, err
	}
	return nil, nil
}

// taking is one backup of an installation being filled.
type taking struct {
	Source
	snapshot.Collection
	copy *Copy

	read  int64
	step  string
	shown time.Time
	away  bool // the database server stayed away: no other site waits for it as long
}

func (t *taking) tick(n int64) {
	t.read += n
	if t.Progress != nil && time.Since(t.shown) > time.Second {
		t.shown = time.Now()
		t.Progress(t.step, t.read)
	}
}

func (t *taking) problem(format string, args ...any) {
	if len(t.copy.Problems) < 100 {
		t.copy.Problems = append(t.copy.Problems, fmt.Sprintf(format, args...))
	}
}

func (t *taking) blobs(ctx context.Context, seen map[blob.Digest]bool) error {
	t.step = "Reading files of releases"
	for d, err := range t.Source.Blobs.List(ctx) {
		if err != nil {
			return err
		}
		if seen[d] {
			continue
		}
		seen[d] = true
		name := d.String()
		err := t.File(snapshot.InBlobs+name, name, 0, func() (io.ReadCloser, error) {
			r, _, err := t.Source.Blobs.Open(ctx, d)
			return r, err
		})
		switch {
		case errors.Is(err, fs.ErrNotExist): // deleted meanwhile
		case errors.Is(err, blob.ErrCorrupt):
			t.problem("The file %s of a release is damaged and was left out", name)
		case err != nil:
			return err
		}
	}
	return nil
}

func (t *taking) control(ctx context.Context) error {
	t.step = "Reading the installation's database"
	dir, err := os.MkdirTemp(t.Scratch, "control-")
	if err != nil {
		return fmt.Errorf("make scratch directory: %w", err)
	}
	defer os.RemoveAll(dir)
	at := filepath.Join(dir, "copy")
	dialect, err := t.Control.CopyTo(ctx, at)
	if err != nil {
		return err
	}
	name := controlSQL
	if dialect != "sqlite" {
		name = controlPG
	}
	return t.File(inControl+name, "", 0o600, func() (io.ReadCloser, error) { return os.Open(at) })
}

func (t *taking) files(context.Context) error {
	for _, name := range slices.Sorted(maps.Keys(t.Files)) {
		err := t.File(inFiles+name, "", 0o600, func() (io.ReadCloser, error) { return os.Open(t.Files[name]) })
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func (t *taking) sites(ctx context.Context) error {
	t.step = "Reading sites' storage and databases"
	list, err := t.Control.Sites(ctx)
	if err != nil {
		return err
	}
	for _, id := range list {
		err := t.site(ctx, id)
		for try := int64(1); passing(err, try) && !t.away; try++ {
			t.Log.InfoContext(ctx, "site is read again", "site", id, "err", err)
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(time.Duration(try) * t.Pause):
			}
			err = t.site(ctx, id)
		}
		if err := t.Writer.Err(); err != nil { // nothing can be stored any more
			return err
		}
		switch f := fault.As(err); {
		case err == nil || fault.Is(err, fault.NotFound): // deleted meanwhile
		case f != nil:
			t.away = t.away || f.Code == "database_unavailable"
			t.problem("Site %s: %s", id, words(err))
			t.Log.WarnContext(ctx, "site not in the backup", "site", id, "err", err)
		default:
			t.problem("Site %s: its storage or its databases can't be read", id)
			t.Log.ErrorContext(ctx, "site not in the backup", "site", id, "err", err)
		}
	}
	return nil
}

// site adds a site's storage and databases, all of them or nothing.
func (t *taking) site(ctx context.Context, id site.ID) error {
	part := t.Collection
	part.Manifest, part.Counts = &snapshot.Manifest{}, snapshot.Counts{}
	part.Most, part.MostBytes, part.MostNames = 0, 0, 0 // a site has no more of a copy than of a backup of its own
	part.Inside = string(id) + "/"
	if err := part.Moment(ctx, id, true, true); err != nil {
		return err
	}
	if err := t.Fits(0); err != nil || t.Bytes+part.Bytes > maxCopyBytes || t.Seen+part.Seen > maxCopyFiles ||
		t.Names+part.Names > maxCopyNames {
		return &fault.Error{
			Kind:    fault.TooLarge,
			Message: "The backup of the installation is full",
			Details: fmt.Sprintf("it has at most %d files with %d MiB of names", maxCopyFiles, maxCopyNames>>20),
		}
	}
	t.Manifest.Files = append(t.Manifest.Files, part.Manifest.Files...)
	t.Bytes, t.Seen, t.Names = t.Bytes+part.Bytes, t.Seen+part.Seen, t.Names+part.Names
	for _, f := range part.Manifest.Folders {
		t.Manifest.Folders = append(t.Manifest.Folders, string(id)+"/"+f)
	}
	return nil
}

// objects copies the repository of sites' backups, whose names never stand for other bytes.
func (t *taking) objects(ctx context.Context) error {
	t.step = "Reading sites' backups"
	if t.Objects == "" {
		return nil
	}
	root, err := os.OpenRoot(t.Objects)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer root.Close()
	return fs.WalkDir(root.FS(), ".", func(name string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) || err == nil && (!e.Type().IsRegular() || strings.HasPrefix(name, "tmp/")) {
			return nil
		}
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return nil
		}
		err = t.File(inObjects+name, snapshot.StampOf(info), 0o600, func() (io.ReadCloser, error) { return root.Open(name) })
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return errors.Join(err, ctx.Err())
	})
}

// PruneCopies forgets the backups of the installation that a schedule doesn't keep: those
// that were taken by hand stay. It returns how many.
func PruneCopies(ctx context.Context, r *repository.Repository, keep Keep) (int, error) {
	list, err := Copies(ctx, r)
	if err != nil {
		return 0, err
	}
	var taken []Backup
	for _, c := range list {
		if c.Scheduled {
			taken = append(taken, Backup{ID: c.ID, Status: Completed, CreatedAt: db.At(c.At)})
		}
	}
	stays, gone := Schedule{Every: "daily", Keep: keep}.kept(taken, time.Now()), 0
	for _, b := range taken {
		if !stays[b.ID] {
			if err := forget(ctx, r, b.ID); err != nil {
				return gone, err
			}
			gone++
		}
	}
	return gone, nil
}
