package backup

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"slipway/internal/backup/repository"
	"slipway/internal/deploy/deployment"
	"slipway/internal/deploy/hold"
	"slipway/internal/platform/blob"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/job"
	"slipway/internal/platform/sandbox"
	"slipway/internal/platform/text"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/operation"
	"slipway/internal/tenant/site"
)

// Restore is the job that brings a site back from a backup.
type Restore struct {
	Operation operation.ID
	Backup    ID
	Includes  []string
	Paths     []string // of storage; nil: all
	Site      site.ID  // that is restored to
	New       bool     // it was made for this
	Part      bool     `json:",omitempty"` // of an operation that goes on
}

// Kind names the job.
func (Restore) Kind() string { return "backup.restore" }

// RestoreTo says what to restore, and where to. The zero value restores all of the backup
// to its own site.
type RestoreTo struct {
	Includes []string
	Paths    []string // files and folders of storage folders, such as uploads/2026
	Site     site.ID  // Optional: another site of the same owner.
	NewName  string   // Optional: a site that is made for it.
	Part     bool     // of an operation under ChangeKey, which goes on meanwhile
}

// ChangeKey is the key of operations by which other services change a site as a whole, and
// RestoreKey that of restores to it (operation.NewOperation): they keep apart.
func ChangeKey(id site.ID) string { return "wordpress/" + string(id) }

// RestoreKey is the key of restores to a site; see ChangeKey.
func RestoreKey(id site.ID) string { return "restore/" + string(id) }

// Restored says what of a backup a transaction brings back.
type Restored struct {
	Settings, Databases bool
	New                 bool // the site was made for it, and has all of it now
}

// maxPaths bounds the paths of one restore.
const maxPaths = 1000

// Plan is a restore that was checked against its backup and can begin.
type Plan struct {
	restore Restore
	backup  Backup
	made    *site.NewSite // the site to make; nil: it is there
	extra   json.RawMessage
}

// PlanRestore checks what a restore of the owner's backup needs. It reads the backup's list
// of files, so it is for before the transaction.
func (s *Backups) PlanRestore(ctx context.Context, owner account.OwnerID, id ID, to RestoreTo) (Plan, error) {
	b, err := s.owned(ctx, s.c.DB, owner, id)
	if err != nil {
		return Plan{}, err
	}
	p := Plan{backup: b, restore: Restore{Backup: id, Paths: to.Paths, Site: cmp.Or(to.Site, b.Site), New: to.NewName != "", Part: to.Part}}
	if p.restore.Includes, err = checkIncludes(to.Includes); err != nil {
		return Plan{}, err
	}
	if len(to.Paths) > maxPaths {
		return Plan{}, &fault.Error{
			Kind:    fault.Invalid,
			Message: "Too many paths",
			Details: fmt.Sprintf("paths has at most %d entries", maxPaths),
			Code:    "invalid_paths",
		}
	}
	for _, p := range to.Paths {
		if p == "" || path.Clean("/" + p)[1:] != strings.TrimSuffix(p, "/") {
			return Plan{}, &fault.Error{
				Kind:     fault.Invalid,
				Message:  "Invalid path",
				Details:  "paths are files and folders of the site's storage, such as uploads/2026",
				Received: text.Clip(p, 200),
				Code:     "invalid_paths",
			}
		}
	}
	if p.restore.New && to.Site != "" {
		return Plan{}, &fault.Error{
			Kind:    fault.Invalid,
			Message: "Send either siteId or newSite",
			Details: "siteId restores to an existing site, newSite creates one",
		}
	}
	if p.restore.New && len(to.Paths) > 0 {
		return Plan{}, &fault.Error{
			Kind:    fault.Invalid,
			Message: "A restore to a new site can't be limited to some files",
			Details: "omit paths, or restore to an existing site",
			Code:    "invalid_paths",
		}
	}
	in, err := s.reader(ctx, b)
	if errors.Is(err, repository.ErrDamaged) || errors.Is(err, fs.ErrNotExist) {
		return Plan{}, &fault.Error{
			Kind:    fault.Conflict,
			Message: "The backup is damaged and can't be restored",
			Details: "its list of files can't be read; choose another backup",
			Code:    "backup_damaged",
		}
	}
	if err != nil {
		return Plan{}, err
	}
	if len(to.Paths) > 0 {
		any := slices.ContainsFunc(in.m.under(inStorage), func(f repository.File) bool { return chosen(to.Paths, f.Path) })
		if !any {
			return Plan{}, &fault.Error{
				Kind:    fault.NotFound,
				Message: "The backup has no such files",
				Details: "paths are files and folders of the site's storage; a release is restored whole",
				Code:    "paths_not_found",
			}
		}
	}
	if p.restore.New {
		if in.m.Config == nil || in.m.Live == nil {
			return Plan{}, &fault.Error{
				Kind:    fault.Conflict,
				Message: "This backup can't be restored to a new site",
				Details: "it has no configuration or release; restore it to an existing site",
				Code:    "backup_incomplete",
			}
		}
		if in.m.Config.Type == site.WordPress && (in.m.Extra == nil || len(in.m.Places) == 0) {
			return Plan{}, &fault.Error{
				Kind:    fault.Conflict,
				Message: "This backup can't be restored to a new site",
				Details: "it has no database of its WordPress; restore its files and settings to a site that is there",
				Code:    "backup_incomplete",
			}
		}
		for _, f := range in.m.under(inStorage) {
			if s.c.Storage == nil || in.m.folderOf(f.Path) == "" {
				return Plan{}, &fault.Error{
					Kind:    fault.Conflict,
					Message: "This backup can't be restored to a new site",
					Details: "it has stored files, and not the names of their folders; download it, or restore it to a site that has the same storage folders",
					Code:    "storage_missing",
				}
			}
		}
		if len(p.restore.Includes) < len(parts) {
			return Plan{}, &fault.Error{
				Kind:    fault.Invalid,
				Message: "A restore to a new site can't be limited to some parts",
				Details: "omit includes, or restore to an existing site",
				Code:    "invalid_includes",
			}
		}
		n := in.m.Config.NewSite()
		n.Name, n.Unprovisioned = to.NewName, true
		p.made, p.extra = &n, in.m.Extra
	}
	return p, nil
}

// RestoreTx begins a planned restore. Unless the site is new, its present state is backed
// up first.
func (s *Backups) RestoreTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, p Plan) (operation.Operation, error) {
	r := p.restore
	if _, err := s.owned(ctx, tx, owner, r.Backup); err != nil { // it was deleted since it was planned
		return operation.Operation{}, err
	}
	if p.made != nil {
		x, err := s.c.Sites.CreateTx(ctx, tx, owner, *p.made)
		if err != nil {
			return operation.Operation{}, err
		}
		if p.extra != nil && s.c.WordPress != nil {
			if err := s.c.WordPress.ImportTx(ctx, tx, x, p.extra, Restored{Settings: true}); err != nil {
				return operation.Operation{}, err
			}
		}
		if err := s.c.Sites.ProvisioningTx(ctx, tx, x); err != nil {
			return operation.Operation{}, err
		}
		r.Site = x.ID
	} else if _, err := s.c.Sites.LockTx(ctx, tx, owner, r.Site); err != nil {
		if fault.Is(err, fault.NotFound) && r.Site == p.backup.Site {
			return operation.Operation{}, &fault.Error{
				Kind:    fault.Conflict,
				Message: "The backup's site was deleted",
				Details: "restore it to a new site with newSite",
				Code:    "site_deleted",
			}
		}
		return operation.Operation{}, err
	}
	n := operation.NewOperation{Kind: "backup.restore", Site: string(r.Site), Unique: RestoreKey(r.Site)}
	if !r.Part {
		n.Apart = ChangeKey(r.Site)
	}
	o, err := s.c.Operations.OpenTx(ctx, tx, owner, n)
	if err != nil {
		return o, err
	}
	r.Operation = o.ID
	_, err = job.Enqueue(ctx, tx, r, job.Options{Queue: QueueName, Unique: restoresOf(r.Backup) + string(o.ID), Share: string(owner)})
	return o, err
}

// restoresOf begins the keys of the jobs that restore a backup, which stays meanwhile.
func restoresOf(id ID) string { return "restore/" + string(id) + "/" }

// restore is safe to repeat. Nothing of the site changes before all that takes its place is
// at hand.
func (s *Backups) restore(ctx context.Context, r Restore, _ int64) error {
	err := s.restoreStep(ctx, r)
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		err = &fault.Error{
			Kind:    fault.Unavailable,
			Message: "The server does not have enough disk space for the restore",
			Details: "nothing was changed; the operator can make room, then restore again",
			Code:    "disk_full",
		}
	}
	switch {
	case err == nil:
		return nil
	case fault.As(err) != nil || errors.Is(err, repository.ErrDamaged) || errors.Is(err, blob.ErrCorrupt):
		return s.endRestore(ctx, r, words(err), nil)
	case errors.Is(err, fs.ErrNotExist):
		s.c.Log.ErrorContext(ctx, "backup can't be restored", "backup", r.Backup, "err", err)
		return s.endRestore(ctx, r, "A stored file is missing", nil)
	}
	return err
}

// lookAgain is how soon it is looked whether the backup that is taken first is completed.
const lookAgain = 50 * time.Millisecond

func (s *Backups) restoreStep(ctx context.Context, r Restore) error {
	b, err := scan(s.c.DB.QueryRow(ctx, `SELECT `+columns+` FROM backups WHERE id = $1`, r.Backup))
	if err != nil {
		return err
	}
	o, err := s.c.Operations.Get(ctx, b.Owner, r.Operation)
	if err != nil {
		return err
	}
	if s.adopted(o) {
		return s.renew(ctx, r.Site)
	}
	before, ready, err := s.backUpFirst(ctx, r, b.Owner)
	if err != nil {
		return err
	}
	if !ready {
		return job.Later(lookAgain)
	}
	in, err := s.reader(ctx, b)
	if err != nil {
		return err
	}
	config := in.m.Config
	live := in.m.Live
	if !slices.Contains(r.Includes, Files) || len(r.Paths) > 0 {
		live = nil
	}
	var sealed site.SealedVars
	if !slices.Contains(r.Includes, Settings) || len(r.Paths) > 0 {
		config = nil
	} else if config != nil && len(config.Env) > 0 {
		if sealed, err = s.c.Sites.SealEnv(r.Site, config.Env); err != nil {
			return err
		}
	}
	data := &data{databases: map[string]Loaded{}}
	defer data.drop(ctx)
	if err := s.prepareAll(ctx, r, in, live, data); err != nil {
		return fmt.Errorf("restore %s: %w", r.Site, err)
	}
	// From here on the site changes, and none of its programs runs until that is over. The
	// folders' content first: a crash repeats that, and the transaction is the end.
	release := s.hold(r.Site, !data.empty())
	defer release()
	if err := data.putFolders(); err != nil {
		return fmt.Errorf("restore %s: %w", r.Site, err)
	}
	err = s.c.DB.Write(ctx, func(tx *db.Tx) error {
		o, err := s.c.Operations.GetTx(ctx, tx, r.Operation)
		if err != nil || o.CompletedAt != 0 || s.adopted(o) {
			return err
		}
		result := map[string]any{"siteId": r.Site, "restored": r.Backup}
		if before != "" {
			result["backupId"] = before
		}
		for name, l := range data.databases {
			if err := l.PutTx(ctx, tx, b.Owner, r.Site, name, in.m.Places[name]); err != nil {
				return err
			}
		}
		if config != nil {
			if err := s.c.Sites.ImportTx(ctx, tx, b.Owner, r.Site, *config, sealed); err != nil {
				return err
			}
		}
		if of := (Restored{
			config != nil,
			len(data.databases) > 0,
			r.New,
		}); (of.Settings || of.Databases) && in.m.Extra != nil && s.c.WordPress != nil {
			x, err := s.c.Sites.LockTx(ctx, tx, b.Owner, r.Site)
			if err != nil {
				return err
			}
			if err := s.c.WordPress.ImportTx(ctx, tx, x, in.m.Extra, of); err != nil {
				return err
			}
		}
		if live != nil {
			x, err := s.c.Deployments.RestoreTx(
				ctx,
				tx,
				b.Owner,
				r.Site,
				*live,
				fmt.Sprintf("Restored from the backup %s of %s", b.ID, b.CreatedAt),
			)
			if err != nil {
				return err
			}
			result["deploymentId"] = x.ID
		}
		if len(data.databases) > 0 && r.Site != b.Site && !r.Part && s.c.WordPress != nil {
			x, err := s.c.Sites.LockTx(ctx, tx, b.Owner, r.Site)
			if err != nil {
				return err
			}
			if begun, err := s.c.WordPress.AdoptTx(ctx, tx, x, b.Site, r.Operation, result); begun || err != nil {
				return err
			}
		}
		return s.c.Operations.EndTx(ctx, tx, r.Operation, "Restored", "", result)
	})
	if err != nil || data.empty() {
		return err
	}
	return s.renew(ctx, r.Site)
}

func (s *Backups) renew(ctx context.Context, id site.ID) error {
	if s.c.Programs == nil {
		return nil
	}
	return s.c.Programs.Renew(ctx, id)
}

// adopted reports whether all is restored and AdoptTx's work goes on: its steps are objects,
// where a restore's are the ids of backups.
func (s *Backups) adopted(o operation.Operation) bool { return strings.HasPrefix(o.Step, "{") }

// prepareAll makes all ready that a restore puts in place: files, databases and what is
// served at the same time, because each waits for something else.
func (s *Backups) prepareAll(ctx context.Context, r Restore, in *reader, live *deployment.Live, d *data) error {
	work, ctx := errgroup.WithContext(ctx)
	own := func() *reader { return newReader(in.repo, in.owner, in.m) }
	if live != nil {
		work.Go(func() error {
			if err := s.putBlobs(ctx, own(), r.Operation); err != nil {
				return err
			}
			return hold.Release(ctx, s.c.DB, live.Release)
		})
	}
	work.Go(func() error { return s.prepareDatabases(ctx, r, own(), d) })
	work.Go(func() error { return s.prepareFolders(ctx, r, in, d) })
	return work.Wait()
}

// hold keeps a site's programs from writing, where they are to be.
func (s *Backups) hold(id site.ID, needed bool) (release func()) {
	if !needed || s.c.Storage == nil {
		return func() {}
	}
	return s.c.Storage.Hold(string(id))
}

// backUpFirst has the site's present state backed up, and says whether that is done.
func (s *Backups) backUpFirst(ctx context.Context, r Restore, owner account.OwnerID) (id ID, ready bool, err error) {
	if r.New {
		return "", true, nil
	}
	err = s.c.DB.Write(ctx, func(tx *db.Tx) error {
		o, err := s.c.Operations.GetTx(ctx, tx, r.Operation)
		if err != nil {
			return err
		}
		if o.Step == "" {
			x, err := s.c.Sites.LockTx(ctx, tx, owner, r.Site)
			if err != nil {
				return err
			}
			b, err := s.createTx(ctx, tx, x, NewBackup{
				Type:     BeforeRestore,
				Includes: r.Includes,
				Note:     "Before the restore of " + string(r.Backup),
			}, "")
			if err != nil {
				return err
			}
			id = b.ID
			return s.c.Operations.AdvanceTx(ctx, tx, r.Operation, 0, string(b.ID), "Backing up what is there now")
		}
		id = ID(o.Step)
		b, err := scan(tx.QueryRow(ctx, `SELECT `+columns+` FROM backups WHERE id = $1`, id))
		switch {
		case err != nil:
			return err
		case b.Status == Failed:
			return &fault.Error{
				Kind:    fault.Conflict,
				Message: "Nothing was restored, because the site could not be backed up first",
				Details: b.Error,
			}
		case b.Status == Completed:
			ready = true
			return s.c.Operations.AdvanceTx(ctx, tx, r.Operation, 0.2, string(b.ID), "Restoring files")
		}
		return nil
	})
	return id, ready, err
}

// putBlobs puts the blobs of the release and the program back into the store, which keeps
// those that it has.
func (s *Backups) putBlobs(ctx context.Context, in *reader, op operation.ID) error {
	for try := 1; ; try++ {
		err := in.putBlobs(ctx, s.c.Blobs)
		if !errors.Is(err, blob.ErrSwept) || try == 3 {
			return err
		}
	}
}

// putBlobs puts all blobs of a backup into a store.
func (in *reader) putBlobs(ctx context.Context, store *blob.Store) error {
	batch := store.Batch(ctx)
	for _, f := range in.m.under(inBlobs) {
		want, err := blob.ParseDigest(f.Path)
		if err != nil {
			return fmt.Errorf("%s: %w", f.Path, repository.ErrDamaged)
		}
		var got blob.Digest
		f.Path = inBlobs + f.Path
		err = in.pipe(ctx, f, func(r io.Reader) (err error) {
			got, _, err = batch.Put(r)
			return err
		})
		if err != nil {
			return errors.Join(err, batch.Flush())
		}
		if got != want {
			return errors.Join(fmt.Errorf("%s: %w", f.Path, repository.ErrDamaged), batch.Flush())
		}
	}
	return batch.Flush()
}

// data holds what takes the place of a site's storage and databases, ready beside them.
type data struct {
	swaps     []swap
	databases map[string]Loaded
}

func (d *data) empty() bool { return len(d.swaps)+len(d.databases) == 0 }

// drop removes what was not put.
func (d *data) drop(ctx context.Context) {
	for _, w := range d.swaps {
		w.drop()
	}
	for _, l := range d.databases {
		l.Drop(context.WithoutCancel(ctx))
	}
}

func (d *data) putFolders() error {
	for _, w := range d.swaps {
		if err := w.put(); err != nil {
			return err
		}
	}
	return nil
}

// prepareDatabases loads the databases beside the site's.
func (s *Backups) prepareDatabases(ctx context.Context, r Restore, in *reader, d *data) error {
	if !slices.Contains(r.Includes, Databases) || len(r.Paths) > 0 {
		return nil
	}
	for _, f := range in.m.under(inDatabase) {
		if s.cannotLoad() {
			return noDatabases
		}
		l, err := s.load(ctx, in, f, false)
		if err != nil {
			return err
		}
		d.databases[strings.TrimSuffix(f.Path, ".sql")] = l
	}
	return nil
}

// prepareFolders writes the folders' content beside the site's. It changes nothing of the
// site, but that it has folders, empty ones, where it had none.
func (s *Backups) prepareFolders(ctx context.Context, r Restore, in *reader, d *data) error {
	if !slices.Contains(r.Includes, Files) {
		return nil
	}
	have, err := folders(s.c.Storage, r.Site)
	if err != nil {
		return err
	}
	if have, err = s.folders(ctx, r, in.m, have); err != nil {
		return err
	}
	if err := s.fitsStorage(ctx, r, in.m); err != nil {
		return err
	}
	for _, f := range have {
		files := in.m.under(inStorage + f.Name + "/")
		if len(r.Paths) > 0 {
			files = slices.DeleteFunc(files, func(x repository.File) bool { return !chosen(r.Paths, path.Join(f.Name, x.Path)) })
			if len(files) == 0 {
				continue
			}
		}
		w, err := prepare(ctx, in, f, files, len(r.Paths) > 0)
		if err != nil {
			return err
		}
		d.swaps = append(d.swaps, w)
	}
	return nil
}

// fitsStorage refuses files that are more than the site's storage may hold. A hard link is a
// file of its own where it is restored, so they can be more than they were.
func (s *Backups) fitsStorage(ctx context.Context, r Restore, m *Manifest) error {
	if s.c.Programs == nil || s.c.Storage == nil {
		return nil
	}
	room, err := s.c.Programs.Room(ctx, r.Site, m.Live)
	if err != nil {
		return err
	}
	if c := m.Config; c != nil && c.Run.StorageMiB != nil && slices.Contains(r.Includes, Settings) && len(r.Paths) == 0 {
		room = max(room, int64(*c.Run.StorageMiB)<<20)
	}
	var need, files int64
	for _, f := range m.Files {
		if name, stored := strings.CutPrefix(f.Path, inStorage); stored && (len(r.Paths) == 0 || chosen(r.Paths, name)) {
			need += m.OnDisk(f)
			files++
		}
	}
	if need = max(need, files*sandbox.PerFile); need > room {
		return &fault.Error{
			Kind:    fault.TooLarge,
			Message: "The backup's files don't fit into the site's storage",
			Details: fmt.Sprintf(
				"%d files take %d MiB, and the site may store %d MiB; raise run.storageMiB, or restore some paths",
				files,
				(need+1<<20-1)>>20,
				room>>20,
			),
			Code: "storage_full",
		}
	}
	return nil
}

// folders adds the folders to a site's that it lacks for what is to be restored.
func (s *Backups) folders(ctx context.Context, r Restore, m *Manifest, have []Folder) ([]Folder, error) {
	for _, f := range m.under(inStorage) {
		if len(r.Paths) > 0 && !chosen(r.Paths, f.Path) {
			continue
		}
		if slices.ContainsFunc(have, func(x Folder) bool { return strings.HasPrefix(f.Path, x.Name+"/") }) {
			continue
		}
		name := m.folderOf(f.Path)
		if name == "" || s.c.Storage == nil {
			return nil, &fault.Error{
				Kind:     fault.Conflict,
				Message:  "The site doesn't have the storage folder that the backup's files belong to",
				Details:  "nothing of it was restored; the download of the backup holds them, and includes config alone restores settings",
				Received: text.Clip(f.Path, 200),
				Code:     "storage_missing",
			}
		}
		dir, err := s.c.Storage.MakeStorage(ctx, string(r.Site), name)
		if err != nil {
			return nil, err
		}
		have = append(have, Folder{name, dir})
	}
	return have, nil
}

// chosen reports whether a file is one of the paths, or below one.
func chosen(paths []string, name string) bool {
	return slices.ContainsFunc(paths, func(p string) bool {
		p = strings.TrimSuffix(p, "/")
		return name == p || strings.HasPrefix(name, p+"/")
	})
}

// swap is a storage folder's new content, ready beside it.
type swap struct {
	folder    Folder
	next, old string // directories beside it, on the same file system: of what comes, and of what goes
	merge     bool   // what is not in next stays
}

func (w swap) drop() {
	os.RemoveAll(w.next)
	if w.old != "" {
		os.RemoveAll(w.old)
	}
}

// prepare writes files beside the folder, owned as it is.
func prepare(ctx context.Context, in *reader, f Folder, files []repository.File, merge bool) (w swap, err error) {
	defer func() {
		if err != nil {
			w.drop()
		}
	}()
	beside := filepath.Join(filepath.Dir(f.Dir), ".restore-"+filepath.Base(f.Dir))
	w = swap{folder: f, next: beside, old: beside + "-old", merge: merge}
	if err := errors.Join(os.RemoveAll(w.next), os.RemoveAll(w.old)); err != nil { // of an attempt that a crash ended
		return w, err
	}
	if err := os.MkdirAll(w.next, 0o755); err != nil {
		return w, fmt.Errorf("restore storage: %w", err)
	}
	disk, err := os.Open(w.next)
	if err != nil {
		return w, err
	}
	defer disk.Close()
	early := &flusher{dir: disk, turn: make(chan struct{}, 1)}
	defer early.wait()
	if err := in.write(ctx, w.next, f.Dir, files, early.wrote); err != nil {
		return w, err
	}
	if err := ownLike(w.next, f.Dir); err != nil {
		return w, err
	}
	return w, syncAll(w.next)
}

// flusher has what was written go to the disk while more is written, so that the sync at the
// end is short.
type flusher struct {
	dir  *os.File
	n    int64         // bytes since the last one
	turn chan struct{} // holds one while the disk writes
}

const flushEvery = 64 << 20

func (f *flusher) wrote(n int64) {
	if f.n += n; f.n < flushEvery {
		return
	}
	select {
	case f.turn <- struct{}{}:
		f.n = 0
		go func() {
			_ = unix.Syncfs(int(f.dir.Fd())) // the one at the end says what is wrong
			<-f.turn
		}()
	default:
	}
}

func (f *flusher) wait() { f.turn <- struct{}{} }

// write writes files and links into an empty directory. Its files are owned as like is, or by
// who runs this where that isn't there; ownLike does it for the rest. wrote hears how much;
// optional.
func (in *reader) write(ctx context.Context, dir, like string, files []repository.File, wrote func(n int64)) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	owner, err := os.Stat(like)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	at := &openFolders{root: root}
	defer at.close()
	for _, x := range files {
		if x.Link != "" {
			continue
		}
		folder, err := at.of(path.Dir(x.Path))
		if err != nil {
			return fmt.Errorf("restore storage: %w", err)
		}
		out, err := folder.OpenFile(path.Base(x.Path), os.O_WRONLY|os.O_CREATE|os.O_EXCL, fs.FileMode(x.Mode)&0o777|0o600)
		if err != nil {
			return fmt.Errorf("restore storage: %w", err)
		}
		to := repository.NewSparse(out)
		if err := errors.Join(fileLike(out, owner), in.Copy(ctx, to, x), to.Close(), out.Close()); err != nil {
			return err
		}
		if wrote != nil {
			wrote(x.Size)
		}
	}
	for _, x := range files { // last, so that nothing is written through one
		if x.Link == "" {
			continue
		}
		if err := root.MkdirAll(path.Dir(x.Path), 0o755); err != nil {
			return fmt.Errorf("restore storage: %w", err)
		}
		if err := root.Symlink(x.Link, x.Path); err != nil {
			return fmt.Errorf("restore storage: %w", err)
		}
	}
	return nil
}

// openFolders opens the folders of files that come in the order of their paths: a folder is
// made and opened once for all that it holds.
type openFolders struct {
	root *os.Root
	name string
	last *os.Root // nil: none yet
}

func (o *openFolders) of(name string) (*os.Root, error) {
	if name == "." {
		return o.root, nil
	}
	if o.last != nil && o.name == name {
		return o.last, nil
	}
	o.close()
	if err := o.root.MkdirAll(name, 0o755); err != nil {
		return nil, err
	}
	last, err := o.root.OpenRoot(name)
	o.name, o.last = name, last
	return last, err
}

func (o *openFolders) close() {
	if o.last != nil {
		_ = o.last.Close()
	}
	o.last = nil
}

// syncAll returns when all that was written to the file system of dir is on disk: once for
// thousands of files.
func syncAll(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := unix.Syncfs(int(d.Fd())); err != nil {
		return fmt.Errorf("write to disk: %w", err)
	}
	return nil
}

// put exchanges the folder's content, not the folder, which running programs see. A crash
// in the middle is mended by the job's next attempt.
func (w swap) put() error {
	if err := os.MkdirAll(w.folder.Dir, 0o755); err != nil {
		return fmt.Errorf("restore storage: %w", err)
	}
	if !w.merge {
		return w.replace()
	}
	// Its files are the site's, which may have put links anywhere: each is written inside.
	from, err := os.OpenRoot(w.next)
	if err != nil {
		return fmt.Errorf("restore storage: %w", err)
	}
	defer from.Close()
	to, err := os.OpenRoot(w.folder.Dir)
	if err != nil {
		return fmt.Errorf("restore storage: %w", err)
	}
	defer to.Close()
	return fs.WalkDir(from.FS(), ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		info, err := from.Lstat(name)
		if err != nil {
			return err
		}
		if !e.IsDir() {
			if err := to.RemoveAll(name); err != nil {
				return err
			}
		}
		switch {
		case e.IsDir():
			err = to.MkdirAll(name, 0o755)
		case e.Type() == fs.ModeSymlink:
			var target string
			if target, err = from.Readlink(name); err == nil {
				err = to.Symlink(target, name)
			}
		default:
			err = copyFile(from, to, name, info.Mode().Perm())
		}
		if err != nil {
			return fmt.Errorf("restore storage: %w", err)
		}
		return chownLike(to, name, info)
	})
}

// replace moves the folder's content out and the new one in: the site is held meanwhile, so
// what was there is deleted later.
func (w swap) replace() error {
	if err := os.Mkdir(w.old, 0o700); err != nil {
		return fmt.Errorf("restore storage: %w", err)
	}
	old, err := os.ReadDir(w.folder.Dir)
	if err != nil {
		return fmt.Errorf("restore storage: %w", err)
	}
	for _, e := range old { // a link among them is moved, not followed
		if err := os.Rename(filepath.Join(w.folder.Dir, e.Name()), filepath.Join(w.old, e.Name())); err != nil {
			return fmt.Errorf("restore storage: %w", err)
		}
	}
	entries, err := os.ReadDir(w.next)
	if err != nil {
		return fmt.Errorf("restore storage: %w", err)
	}
	for _, e := range entries { // both are directories of ours: no link is on the way
		if err := os.Rename(filepath.Join(w.next, e.Name()), filepath.Join(w.folder.Dir, e.Name())); err != nil {
			return fmt.Errorf("restore storage: %w", err)
		}
	}
	return nil
}

func copyFile(from, to *os.Root, name string, mode fs.FileMode) error {
	in, err := from.Open(name)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := to.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Sync(), out.Close())
}

// ownLike gives a tree that write has written to the owner of dir: its folders and links, for
// the files have theirs.
func ownLike(tree, dir string) error {
	info, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(tree)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := os.Chmod(tree, info.Mode().Perm()); err != nil {
		return err
	}
	return fs.WalkDir(root.FS(), ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.Type().IsRegular() {
			return err
		}
		return chownLike(root, name, info)
	})
}

func chownLike(root *os.Root, name string, like fs.FileInfo) error {
	st, ok := like.Sys().(*syscall.Stat_t)
	if !ok || os.Geteuid() != 0 {
		return nil // everything is ours
	}
	return root.Lchown(name, int(st.Uid), int(st.Gid))
}

// fileLike is chownLike of an open file; like may be nil.
func fileLike(f *os.File, like fs.FileInfo) error {
	if like == nil || os.Geteuid() != 0 {
		return nil
	}
	st, ok := like.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	return f.Chown(int(st.Uid), int(st.Gid))
}

// endRestore writes the end of a restore that failed, or of one that was given up.
func (s *Backups) endRestore(ctx context.Context, r Restore, why string, result any) error {
	return s.c.DB.Write(ctx, func(tx *db.Tx) error {
		if r.New {
			if err := s.c.Sites.FailTx(ctx, tx, r.Site, "The restore failed: "+why); err != nil && !fault.Is(err, fault.NotFound) {
				return err
			}
		}
		return s.c.Operations.EndTx(ctx, tx, r.Operation, "", why, result)
	})
}

// DeleteSiteTx has the owner's site backed up, and deleted once that is completed.
func (s *Backups) DeleteSiteTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, id site.ID) (operation.Operation, error) {
	x, err := s.c.Sites.LockTx(ctx, tx, owner, id)
	if err != nil {
		return operation.Operation{}, err
	}
	if err := s.possible(); err != nil {
		return operation.Operation{}, err
	}
	o, err := s.c.Operations.OpenTx(ctx, tx, owner, operation.NewOperation{
		Kind:   "site.delete",
		Site:   string(id),
		Unique: "delete/" + string(id),
	})
	if err != nil {
		return o, err
	}
	b, err := s.createTx(ctx, tx, x, NewBackup{Type: BeforeDelete, Note: "Before the site was deleted"}, string(o.ID))
	if err != nil {
		return o, err
	}
	return o, s.c.Operations.AdvanceTx(ctx, tx, o.ID, -1, string(b.ID), "Backing up the site")
}

// deleteSiteTx deletes the site whose last backup is completed.
func (s *Backups) deleteSiteTx(ctx context.Context, tx *db.Tx, b Backup) error {
	if b.thenDelete == "" {
		return nil
	}
	if err := s.c.Sites.DeleteTx(ctx, tx, b.Owner, b.Site); err != nil && !fault.Is(err, fault.NotFound) {
		return err
	}
	return s.c.Operations.EndTx(ctx, tx, operation.ID(b.thenDelete), "The site was deleted", "", map[string]any{"backupId": b.ID})
}
