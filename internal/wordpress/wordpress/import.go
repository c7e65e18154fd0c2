package wordpress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"slipway/internal/backup/backup"
	"slipway/internal/platform/db"
	"slipway/internal/platform/disk"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/job"
	"slipway/internal/program/database"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/operation"
	"slipway/internal/tenant/site"
	"slipway/internal/wordpress/archive"
)

// Import is an archive of another WordPress: wp-content and one SQL dump. It is on disk here,
// or its job fetches it.
type Import struct {
	File   string // its name in the directory of imports
	Node   string `json:",omitempty"` // which has the file; empty: there is one
	From   string `json:",omitempty"` // the address that it is fetched from, sealed
	SHA256 string `json:",omitempty"` // of what is fetched; empty: not known
}

const (
	maxImportTries = 3              // of unpacking that something cut off
	importTime     = 24 * time.Hour // that an archive which nobody asked for stays
)

// sharedImports is where archives lie in a directory that all nodes mount.
const sharedImports = ".slipway-imports"

func (w *WordPress) importDir() string {
	if w.c.Volume.Shared() {
		return filepath.Join(w.c.Volume.Dir(), sharedImports)
	}
	return w.ownImports()
}

// ownImports is where archives lie that this node alone has.
func (w *WordPress) ownImports() string { return filepath.Join(w.c.Dir, "imports") }

// Receive stores the archive of an import of the owner's site, and says how it begins. The
// site's storage limit bounds it. drop removes it where no import begins.
func (w *WordPress) Receive(ctx context.Context, owner account.OwnerID, id site.ID, body io.Reader) (_ Import, drop func(), err error) {
	s, err := w.c.Sites.Get(ctx, owner, id)
	if err == nil {
		err = w.live(s)
	}
	node := w.c.Places.Self()
	switch {
	case err != nil:
	case w.c.Volume.Shared(): // whichever node has the site finds the archive
		node, err = "", w.c.Volume.Check()
	default:
		err = w.c.Places.Look(ctx, id)
	}
	if err != nil {
		return Import{}, nil, err
	}
	if err := os.MkdirAll(w.importDir(), 0o700); err != nil {
		return Import{}, nil, fmt.Errorf("store import: %w", err)
	}
	w.sweepImports()
	f, err := os.CreateTemp(w.importDir(), "import-")
	if err != nil {
		return Import{}, nil, fmt.Errorf("store import: %w", err)
	}
	remove := func() { _ = os.Remove(f.Name()) }
	defer func() {
		_ = f.Close()
		if err != nil {
			remove()
		}
	}()
	if err = archive.Receive(f, body, s.Run.StorageBytes()); err != nil {
		return Import{}, nil, err
	}
	return Import{File: filepath.Base(f.Name()), Node: node}, remove, nil
}

// sweepImports removes archives that were forgotten.
func (w *WordPress) sweepImports() {
	entries, err := os.ReadDir(w.importDir())
	if err != nil {
		return
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > importTime {
			_ = os.Remove(filepath.Join(w.importDir(), e.Name()))
		}
	}
}

func (w *WordPress) dropImport(x Work) {
	if x.Import == nil {
		return
	}
	_, _ = os.Remove(w.archive(x)), os.Remove(w.archive(x)+".part")
	if dir, err := w.content(x.Site); err == nil && dir != "" {
		next, old := besides(dir)
		_, _ = os.RemoveAll(next), os.RemoveAll(old)
	}
}

// besides are the directories beside a wp-content in which an import puts the new one
// together, and the one that was there away.
func besides(dir string) (next, old string) {
	parent := filepath.Dir(dir)
	return filepath.Join(parent, ".import-next"), filepath.Join(parent, ".import-old")
}

// ImportArchiveTx begins to put another WordPress in the place of the owner's.
func (w *WordPress) ImportArchiveTx(
	ctx context.Context,
	tx *db.Tx,
	owner account.OwnerID,
	id site.ID,
	i Import,
) (operation.Operation, error) {
	s, err := w.c.Sites.LockTx(ctx, tx, owner, id)
	if err == nil {
		err = w.live(s)
	}
	if err == nil {
		_, err = w.get(ctx, tx, id)
	}
	if err != nil {
		return operation.Operation{}, err
	}
	return w.beginTx(ctx, tx, owner, id, Work{What: kindImport, Import: &i})
}

// importSite is one call of an import's job.
func (r *run) importSite(ctx context.Context) error {
	switch r.step.At {
	case atBackup:
		if r.x.Import.From != "" {
			if err := r.download(ctx); err != nil {
				return err
			}
		}
		ready, err := r.backUp(ctx, r.x.Site, &r.step.Backup, "Before an import")
		if err != nil {
			return err
		}
		if !ready {
			return job.Later(waitFor)
		}
		return r.fill(ctx)
	case atChange: // a crash cut the exchange off
		return r.goBack(ctx, interrupted)
	case atCheck:
		return r.imported(ctx)
	}
	return r.goBack(ctx, "")
}

// fill unpacks beside what is there, loads the database beside what is there, and puts both
// in place.
func (r *run) fill(ctx context.Context) error {
	s, err := r.site(ctx)
	if err != nil {
		return err
	}
	if r.c.Host != nil {
		stored, err := r.c.Host.FetchStorage(ctx, s.ID)
		if err != nil {
			return err
		}
		defer stored.Close()
	}
	dir, err := r.content(s.ID)
	if err != nil {
		return err
	}
	next, old := besides(dir)
	for _, d := range []string{next, old} { // of a run that a crash ended
		if err := os.RemoveAll(d); err != nil {
			return fmt.Errorf("import: %w", err)
		}
	}
	defer func() { _ = os.RemoveAll(next); _ = os.RemoveAll(old) }()
	if err := os.Mkdir(next, 0o755); err != nil {
		return fmt.Errorf("import: %w", err)
	}
	if r.step.Tries++; r.step.Tries > maxImportTries { // what ends the process is not tried for ever
		return fault.New(fault.Conflict, "import_interrupted", "The archive can't be imported",
			"the server stopped each time while it was unpacked or loaded; nothing of the site was changed")
	}
	if err := r.to(ctx, atBackup, 0.2, "Unpacking"); err != nil {
		return err
	}
	var loaded *database.Scratch
	defer func() {
		if loaded != nil {
			loaded.Drop(context.WithoutCancel(ctx))
		}
	}()
	var tables archive.Prefixes
	load := func(sql io.Reader) (err error) {
		loaded, err = r.c.Databases.Load(ctx, s.Owner, io.TeeReader(sql, &tables), database.LoadOptions{Foreign: true})
		return err
	}
	told := func(part float64) { _ = r.to(ctx, atBackup, 0.2+0.5*part, "Unpacking") }
	if err := archive.Unpack(ctx, r.archive(r.x), next, s.Run.StorageBytes(), load, told); err != nil {
		return err
	}
	prefix, err := tables.Found()
	if err != nil {
		return err
	}
	if err := archive.OwnLike(next, dir); err != nil {
		return fmt.Errorf("import: %w", err)
	}
	if err := r.to(ctx, atChange, 0.7, "Putting it in place"); err != nil {
		return err
	}
	goOn := r.c.Programs.Quiet(s.ID, backup.Drain)
	resume := r.c.Host.Hold(s.ID)
	release := func() { resume(); goOn() }
	whole, err := r.c.Backups.CatchUp(ctx, r.step.Backup, func(*db.Tx, bool) error { return nil })
	if err != nil {
		release()
		return err
	}
	if !whole {
		r.step.Result = map[string]any{"backupBehind": true}
	}
	err = r.exchange(ctx, dir, next, old, func(tx *db.Tx) error {
		if _, err := loaded.PutTx(ctx, tx, s.Owner, s.ID, DatabaseName, 0); err != nil {
			return err
		}
		network := ""
		if tables.Network() {
			network = Subfolder // its database says whether that is so
		}
		_, err := tx.Exec(ctx, `UPDATE wordpress_sites SET table_prefix = $2, network = $3 WHERE site_id = $1`, s.ID, prefix, network)
		return err
	})
	if err == nil {
		r.c.Programs.Renew(s.ID) // before they go on: they know the old database
	}
	release()
	if err != nil {
		return err
	}
	return r.imported(ctx)
}

// exchange puts the new wp-content and the new database in place. Programs of the site are
// held meanwhile.
func (r *run) exchange(ctx context.Context, dir, next, old string, put func(tx *db.Tx) error) error {
	if err := errors.Join(disk.SyncAll(next), os.Mkdir(old, 0o700)); err != nil {
		return fmt.Errorf("import: %w", err)
	}
	for _, d := range [][2]string{{dir, old}, {next, dir}} { // the folder stays: running programs see it, not its name
		entries, err := os.ReadDir(d[0])
		if err != nil {
			return fmt.Errorf("import: %w", err)
		}
		for _, e := range entries { // all are directories of ours: no link is on the way
			if err := os.Rename(filepath.Join(d[0], e.Name()), filepath.Join(d[1], e.Name())); err != nil {
				return fmt.Errorf("import: %w", err)
			}
		}
	}
	if err := r.c.Host.KeepStorage(ctx, r.x.Site); err != nil {
		return err
	}
	return r.to(ctx, atCheck, 0.75, "Rewriting addresses", put)
}

// imported makes the database the site's own, and sees that the site answers.
func (r *run) imported(ctx context.Context) error {
	s, err := r.site(ctx)
	if err != nil {
		return err
	}
	if err := r.adopt(ctx, s, nil, site.Site{}); err != nil {
		return err
	}
	r.purgeAll(ctx, s.ID)
	pages, err := r.look(ctx, s, []string{"/", "/wp-login.php"})
	if err != nil {
		return err
	}
	for _, p := range pages {
		if p.Status == 0 || p.Status >= 500 {
			return r.goBack(ctx, fmt.Sprintf("The imported site does not work: %s answers with status %d", p.Path, p.Status))
		}
	}
	return r.end(ctx, "Imported", "", r.result())
}
