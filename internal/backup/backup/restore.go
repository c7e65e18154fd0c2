package backup

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sync/errgroup"

	"slipway/internal/backup/repository"
	"slipway/internal/backup/snapshot"
	"slipway/internal/deploy/deployment"
	"slipway/internal/deploy/hold"
	"slipway/internal/platform/blob"
	"slipway/internal/platform/db"
	"slipway/internal/platform/disk"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/job"
	"slipway/internal/platform/panics"
	"slipway/internal/platform/sandbox"
	"slipway/internal/platform/text"
	"slipway/internal/program/placement"
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
	Tables    []string `json:",omitempty"` // of databases, as RestoreTo has them; nil: all
	Site      site.ID  // that is restored to
	New       bool     // it was made for this
	Part      bool     `json:",omitempty"` // of an operation that goes on
}

// Kind names the job.
func (Restore) Kind() string { return "backup.restore" }

// restoreTables is a Restore of some tables. Versions that don't know Tables would restore whole databases, so they must not take it.
type restoreTables struct{ Restore }

// Kind names the job.
func (restoreTables) Kind() string { return "backup.restore_tables" }

// RestoreTo says what to restore, and where to. The zero value restores all of the backup
// to its own site.
type RestoreTo struct {
	Includes []string
	Paths    []string // files and folders of storage folders, such as uploads/2026
	Tables   []string // tables, TABLE or DATABASE/TABLE. With them or Paths, nothing else of the backup is restored.
	Site     site.ID  // Optional: another site of the same owner.
	NewName  string   // Optional: a site that is made for it.
	Part     bool     // of an operation under ChangeKey, which goes on meanwhile
}

// ChangeKey is the key of operations by which other services change a site as a whole, and
// RestoreKey that of restores to it ([operation.NewOperation]): they keep apart.
func ChangeKey(id site.ID) string { return "wordpress/" + string(id) }

// RestoreKey is the key of restores to a site; see ChangeKey.
func RestoreKey(id site.ID) string { return "restore/" + string(id) }

// Restored says what of a backup a transaction brings back.
type Restored struct {
	Settings, Databases bool
	New                 bool // the site was made for it, and has all of it now
}

// some reports whether paths or tables limit the restore.
func (r Restore) some() bool { return len(r.Paths)+len(r.Tables) > 0 }

// maxPaths bounds the paths of one restore, and maxTables its tables.
const (
	maxPaths  = 1000
	maxTables = 200
)

// checkTables says what is wrong with the tables of a restore of a backup of this site.
func checkTables(r Restore, of site.ID) error {
	invalid := func(details, got string) error {
		return fault.New(fault.Invalid, "invalid_tables", "Invalid tables", details).Got(text.Clip(got, 200))
	}
	switch {
	case len(r.Tables) == 0:
		return nil
	case len(r.Tables) > maxTables:
		return invalid(fmt.Sprintf("tables has at most %d entries", maxTables), "")
	case !slices.Contains(r.Includes, Databases):
		return invalid("add database to includes, or omit it", "")
	case r.New:
		return invalid("a restore to a new site can't be limited to some tables", "")
	case r.Site != of && !r.Part:
		return invalid("tables are restored to the backup's own site; a push brings tables of a WordPress to another site", "")
	}
	seen := map[string]bool{}
	for _, t := range r.Tables {
		if seen[t] || strings.TrimSpace(t) == "" || len(t) > 300 || !utf8.ValidString(t) || strings.ContainsFunc(t, unicode.IsControl) {
			return invalid("tables are the names of different tables, such as wp_posts, or of DATABASE/TABLE", t)
		}
		seen[t] = true
	}
	return nil
}

// tablesByDatabase sorts the tables of a restore by the databases of a backup.
func tablesByDatabase(m *snapshot.Manifest, tables []string) (map[string][]string, error) {
	if len(tables) == 0 {
		return nil, nil
	}
	var names []string
	for _, f := range m.Under(snapshot.InDatabase) {
		names = append(names, strings.TrimSuffix(f.Path, ".sql"))
	}
	out := map[string][]string{}
	for _, t := range tables {
		if name, table, ok := strings.Cut(t, "/"); ok && slices.Contains(names, name) {
			out[name] = append(out[name], table)
			continue
		}
		if len(names) != 1 {
			details := "the backup has no database"
			if len(names) > 1 {
				details = "the backup has several databases, " + strings.Join(names, ", ") + ": write DATABASE/TABLE"
			}
			return nil, fault.New(fault.Invalid, "invalid_tables", "Invalid tables", details).Got(text.Clip(t, 200))
		}
		out[names[0]] = append(out[names[0]], t)
	}
	return out, nil
}

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
	p := Plan{backup: b, restore: Restore{
		Backup: id, Paths: to.Paths, Tables: to.Tables, Site: cmp.Or(to.Site, b.Site), New: to.NewName != "", Part: to.Part,
	}}
	if p.restore.Includes, err = checkIncludes(to.Includes); err != nil {
		return Plan{}, err
	}
	if len(to.Paths) > maxPaths {
		return Plan{}, fault.New(fault.Invalid, "invalid_paths", "Too many paths",
			fmt.Sprintf("paths has at most %d entries", maxPaths))
	}
	for _, p := range to.Paths {
		if p == "" || path.Clean("/" + p)[1:] != strings.TrimSuffix(p, "/") {
			return Plan{}, fault.New(fault.Invalid, "invalid_paths", "Invalid path",
				"paths are files and folders of the site's storage, such as uploads/2026").Got(text.Clip(p, 200))
		}
	}
	if err := checkTables(p.restore, b.Site); err != nil {
		return Plan{}, err
	}
	if p.restore.New && to.Site != "" {
		return Plan{}, &fault.Error{
			Kind:    fault.Invalid,
			Message: "Send either siteId or newSite",
			Details: "siteId restores to an existing site, newSite creates one",
		}
	}
	if p.restore.New && len(to.Paths) > 0 {
		return Plan{}, fault.New(fault.Invalid, "invalid_paths", "A restore to a new site can't be limited to some files",
			"omit paths, or restore to an existing site")
	}
	in, err := s.reader(ctx, b)
	if errors.Is(err, repository.ErrDamaged) || errors.Is(err, fs.ErrNotExist) {
		return Plan{}, fault.New(fault.Conflict, "backup_damaged", "The backup is damaged and can't be restored",
			"its list of files can't be read; choose another backup")
	}
	if err != nil {
		return Plan{}, err
	}
	if len(to.Paths) > 0 {
		any := slices.ContainsFunc(in.Manifest.Under(snapshot.InStorage), func(f repository.File) bool { return chosen(to.Paths, f.Path) })
		if !any {
			return Plan{}, fault.New(fault.NotFound, "paths_not_found", "The backup has no such files",
				"paths are files and folders of the site's storage; a release is restored whole")
		}
	}
	if _, err := tablesByDatabase(in.Manifest, to.Tables); err != nil {
		return Plan{}, err
	}
	if p.restore.New {
		if in.Manifest.Config == nil || in.Manifest.Live == nil {
			return Plan{}, fault.New(fault.Conflict, "backup_incomplete", "This backup can't be restored to a new site",
				"it has no configuration or release; restore it to an existing site")
		}
		if in.Manifest.Config.Type == site.WordPress && (in.Manifest.Extra == nil || len(in.Manifest.Places) == 0) {
			return Plan{}, fault.New(fault.Conflict, "backup_incomplete", "This backup can't be restored to a new site",
				"it has no database of its WordPress; restore its files and settings to a site that is there")
		}
		for _, f := range in.Manifest.Under(snapshot.InStorage) {
			if s.c.Storage == nil || in.Manifest.FolderOf(f.Path) == "" {
				return Plan{}, fault.New(fault.Conflict, "storage_missing", "This backup can't be restored to a new site",
					"it has stored files, and not the names of their folders; download it, or restore it to a site that has the same storage "+
						"folders")
			}
		}
		if len(p.restore.Includes) < len(parts) {
			return Plan{}, fault.New(fault.Invalid, "invalid_includes", "A restore to a new site can't be limited to some parts",
				"omit includes, or restore to an existing site")
		}
		n := in.Manifest.Config.NewSite()
		n.Name, n.Unprovisioned = to.NewName, true
		p.made, p.extra = &n, in.Manifest.Extra
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
			return operation.Operation{}, fault.New(fault.Conflict, "site_deleted", "The backup's site was deleted",
				"restore it to a new site with newSite")
		}
		return operation.Operation{}, err
	}
	n := operation.NewOperation{Kind: "backup.restore", Site: r.Site, Unique: RestoreKey(r.Site)}
	if !r.Part {
		n.Apart = ChangeKey(r.Site)
	}
	o, err := s.c.Operations.OpenTx(ctx, tx, owner, n)
	if err != nil {
		return o, err
	}
	r.Operation = o.ID
	var work job.Args = r
	if len(r.Tables) > 0 {
		work = restoreTables{r}
	}
	_, err = job.Enqueue(ctx, tx, work, job.Options{Queue: QueueName, Unique: restoresOf(r.Backup) + string(o.ID), Share: string(owner)})
	return o, err
}

// restoresOf begins the keys of the jobs that restore a backup, which stays meanwhile.
func restoresOf(id ID) string { return "restore/" + string(id) + "/" }

// restore is safe to repeat. Nothing of the site changes before all that takes its place is
// at hand.
func (s *Backups) restore(ctx context.Context, r Restore, _ int64) error {
	err := s.restoreStep(ctx, r)
	if disk.Full(err) {
		err = fault.New(fault.Unavailable, "disk_full", "The server does not have enough disk space for the restore",
			"nothing was changed; the operator can make room, then restore again")
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
	if slices.Contains(r.Includes, Files) || slices.Contains(r.Includes, Databases) {
		if err := s.c.Places.Here(ctx, r.Site); err != nil {
			return err
		}
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
	config := in.Manifest.Config
	live := in.Manifest.Live
	if !slices.Contains(r.Includes, Files) || r.some() {
		live = nil
	}
	var sealed site.SealedVars
	if !slices.Contains(r.Includes, Settings) || r.some() {
		config = nil
	} else if config != nil && len(config.Env) > 0 {
		if sealed, err = s.c.Sites.SealEnv(r.Site, config.Env); err != nil {
			return err
		}
	}
	data := &data{databases: map[string]snapshot.Loaded{}}
	defer data.drop(ctx)
	if err := s.prepareAll(ctx, r, in, live, data); err != nil {
		return fmt.Errorf("restore %s: %w", r.Site, err)
	}
	// From here on the site changes, and none of its programs runs until that is over. The
	// folders' content first: a crash repeats that, and the transaction is the end.
	release := s.hold(r.Site, !data.empty())
	defer release()
	whole := true
	if before != "" && !data.empty() {
		if whole, err = s.catchUp(ctx, b.Owner, r.Operation, before); err != nil {
			return err
		}
	}
	// Before the folders: the server may refuse it, for instance because a table is in use.
	for name, list := range data.tables {
		if err := data.databases[name].PutTables(ctx, b.Owner, r.Site, name, list); err != nil {
			return err
		}
	}
	if err := snapshot.PutAll(ctx, s.c.Storage, r.Site, data.swaps); err != nil {
		return fmt.Errorf("restore %s: %w", r.Site, err)
	}
	err = s.c.DB.Write(ctx, func(tx *db.Tx) error {
		o, err := s.c.Operations.GetTx(ctx, tx, r.Operation)
		if err != nil || o.CompletedAt != 0 || s.adopted(o) {
			return err
		}
		result := map[string]any{"siteId": r.Site, "restored": r.Backup}
		if len(r.Tables) > 0 {
			result["tables"] = r.Tables
		}
		if len(r.Paths) > 0 {
			result["paths"] = r.Paths
		}
		if before != "" {
			result["backupId"] = before
			if !whole {
				result["backupBehind"] = true
			}
		}
		whole := data.databases
		if len(r.Tables) > 0 {
			whole = nil // the tables are there
		}
		for name, l := range whole {
			if err := l.PutTx(ctx, tx, b.Owner, r.Site, name, in.Manifest.Places[name]); err != nil {
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
			len(whole) > 0,
			r.New,
		}); (of.Settings || of.Databases) && in.Manifest.Extra != nil && s.c.WordPress != nil {
			x, err := s.c.Sites.LockTx(ctx, tx, b.Owner, r.Site)
			if err != nil {
				return err
			}
			if err := s.c.WordPress.ImportTx(ctx, tx, x, in.Manifest.Extra, of); err != nil {
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
		if len(whole) > 0 && r.Site != b.Site && !r.Part && s.c.WordPress != nil {
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
func (s *Backups) prepareAll(ctx context.Context, r Restore, in *snapshot.Reader, live *deployment.Live, d *data) error {
	work, ctx := errgroup.WithContext(ctx)
	own := func() *snapshot.Reader { return snapshot.NewReader(in.Repository, in.Owner, in.Manifest) }
	if live != nil {
		work.Go(panics.Safe(func() error {
			if err := s.putBlobs(ctx, own(), r.Operation); err != nil {
				return err
			}
			return hold.Release(ctx, s.c.DB, live.Release)
		}))
	}
	work.Go(panics.Safe(func() error { return s.prepareDatabases(ctx, r, own(), d) }))
	work.Go(panics.Safe(func() error { return s.prepareFolders(ctx, r, in, d) }))
	return work.Wait()
}

// Drain is how long requests under way have to end before what they write to is replaced: those that come meanwhile wait.
const Drain = 20 * time.Second

// hold keeps a site's programs from writing, where they are to be. Requests under way end first.
func (s *Backups) hold(id site.ID, needed bool) (release func()) {
	if !needed || s.c.Storage == nil {
		return func() {}
	}
	goOn := func() {}
	if s.c.Programs != nil {
		goOn = s.c.Programs.Quiet(id, Drain)
	}
	resume := s.c.Storage.Hold(id)
	return func() { resume(); goOn() }
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
		name, _, _ := strings.Cut(o.Step, " ")
		id = ID(name)
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
			return s.c.Operations.AdvanceTx(ctx, tx, r.Operation, 0.2, o.Step, "Restoring files")
		}
		return nil
	})
	return id, ready, err
}

// putBlobs puts the blobs of the release and the program back into the store, which keeps
// those that it has.
func (s *Backups) putBlobs(ctx context.Context, in *snapshot.Reader, op operation.ID) error {
	for try := 1; ; try++ {
		err := in.PutBlobs(ctx, s.c.Blobs)
		if !errors.Is(err, blob.ErrSwept) || try == 3 {
			return err
		}
	}
}

// data holds what takes the place of a site's storage and databases, ready beside them.
type data struct {
	swaps     []snapshot.Swap
	stored    io.Closer // what the swaps are beside; nil: there are none
	databases map[string]snapshot.Loaded
	tables    map[string][]string // of databases, which alone take the place of the site's; nil: the databases do
}

func (d *data) empty() bool { return len(d.swaps)+len(d.databases) == 0 }

// drop removes what was not put.
func (d *data) drop(ctx context.Context) {
	for _, w := range d.swaps {
		w.Drop()
	}
	for _, l := range d.databases {
		l.Drop(context.WithoutCancel(ctx))
	}
	if d.stored != nil {
		d.stored.Close()
	}
}

// prepareDatabases loads the databases beside the site's.
func (s *Backups) prepareDatabases(ctx context.Context, r Restore, in *snapshot.Reader, d *data) error {
	if !slices.Contains(r.Includes, Databases) || len(r.Paths) > 0 && len(r.Tables) == 0 {
		return nil
	}
	var err error
	if d.tables, err = tablesByDatabase(in.Manifest, r.Tables); err != nil {
		return err
	}
	for _, f := range in.Manifest.Under(snapshot.InDatabase) {
		name := strings.TrimSuffix(f.Path, ".sql")
		if len(r.Tables) > 0 && d.tables[name] == nil {
			continue
		}
		if s.cannotLoad() {
			return noDatabases
		}
		l, err := s.load(ctx, in, f, false)
		if err != nil {
			return err
		}
		d.databases[name] = l
		if list := d.tables[name]; list != nil {
			if err := l.CheckTables(ctx, in.Owner, r.Site, name, list); err != nil {
				return err
			}
		}
	}
	return nil
}

// prepareFolders writes the folders' content beside the site's. It changes nothing of the
// site, but that it has folders, empty ones, where it had none.
func (s *Backups) prepareFolders(ctx context.Context, r Restore, in *snapshot.Reader, d *data) error {
	if !slices.Contains(r.Includes, Files) || len(r.Tables) > 0 && len(r.Paths) == 0 {
		return nil
	}
	if s.c.Storage != nil {
		var err error
		if d.stored, err = s.c.Storage.FetchStorage(ctx, r.Site); err != nil {
			return err
		}
	}
	have, err := snapshot.Folders(s.c.Storage, r.Site)
	if err != nil {
		return err
	}
	if have, err = s.folders(ctx, r, in.Manifest, have); err != nil {
		return err
	}
	if err := s.fitsStorage(ctx, r, in.Manifest); err != nil {
		return err
	}
	for _, f := range have {
		files := in.Manifest.Under(snapshot.InStorage + f.Name + "/")
		if len(r.Paths) > 0 {
			files = slices.DeleteFunc(files, func(x repository.File) bool { return !chosen(r.Paths, path.Join(f.Name, x.Path)) })
			if len(files) == 0 {
				continue
			}
		}
		w, err := snapshot.Prepare(ctx, in, f, files, len(r.Paths) > 0)
		if err != nil {
			return err
		}
		d.swaps = append(d.swaps, w)
	}
	return nil
}

// fitsStorage refuses files that are more than the site's storage may hold. A hard link is a
// file of its own where it is restored, so they can be more than they were.
func (s *Backups) fitsStorage(ctx context.Context, r Restore, m *snapshot.Manifest) error {
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
		if name, stored := strings.CutPrefix(f.Path, snapshot.InStorage); stored && (len(r.Paths) == 0 || chosen(r.Paths, name)) {
			need += m.OnDisk(f)
			files++
		}
	}
	if need = max(need, files*sandbox.PerFile); need > room {
		return fault.New(fault.TooLarge, "storage_full", "The backup's files don't fit into the site's storage",
			fmt.Sprintf(
				"%d files take %d MiB, and the site may store %d MiB; raise run.storageMiB, or restore some paths",
				files,
				(need+1<<20-1)>>20,
				room>>20,
			))
	}
	return nil
}

// folders adds the folders to a site's that it lacks for what is to be restored.
func (s *Backups) folders(ctx context.Context, r Restore, m *snapshot.Manifest, have []snapshot.Folder) ([]snapshot.Folder, error) {
	for _, f := range m.Under(snapshot.InStorage) {
		if len(r.Paths) > 0 && !chosen(r.Paths, f.Path) {
			continue
		}
		if slices.ContainsFunc(have, func(x snapshot.Folder) bool { return strings.HasPrefix(f.Path, x.Name+"/") }) {
			continue
		}
		name := m.FolderOf(f.Path)
		if name == "" || s.c.Storage == nil {
			return nil, fault.New(fault.Conflict, "storage_missing",
				"The site doesn't have the storage folder that the backup's files belong to",
				"nothing of it was restored; the download of the backup holds them, and includes config alone restores settings").
				Got(text.Clip(f.Path, 200))
		}
		if err := s.c.Places.Take(ctx, r.Site, placement.Files); err != nil {
			return nil, s.c.Places.Follow(err)
		}
		dir, err := s.c.Storage.MakeStorage(ctx, r.Site, name)
		if err != nil {
			return nil, err
		}
		have = append(have, snapshot.Folder{Name: name, Dir: dir})
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
		Site:   id,
		Unique: "delete/" + string(id),
	})
	if err != nil {
		return o, err
	}
	b, err := s.createTx(ctx, tx, x, NewBackup{Type: BeforeDelete, Note: "Before the site was deleted"}, o.ID)
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
	return s.c.Operations.EndTx(ctx, tx, b.thenDelete, "The site was deleted", "", map[string]any{"backupId": b.ID})
}

// deletionRetry is how long after a failure a site that is to be deleted is backed up again.
const deletionRetry = time.Hour

// BeforeDeletionTx reports whether a backup of the owner's site was verified that was begun since a moment. If none was begun, or the last
// one failed an hour ago, it begins one, whatever the owner's limit of backups is.
func (s *Backups) BeforeDeletionTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, id site.ID, since db.Time) (bool, error) {
	last, err := scan(tx.QueryRow(ctx, `
		SELECT `+columns+` FROM backups WHERE site_id = $1 AND type = $2 AND created_at >= $3
		ORDER BY verified_at DESC, id DESC LIMIT 1`, id, BeforeDelete, since))
	switch {
	case fault.Is(err, fault.NotFound):
	case err != nil:
		return false, err
	case last.VerifiedAt > 0:
		return true, nil
	case last.Error == "" || last.CreatedAt.Add(deletionRetry) > db.Now(): // it goes on, or failed just now
		return false, nil
	}
	x, err := s.c.Sites.LockTx(ctx, tx, owner, id)
	if err != nil {
		return false, err
	}
	_, err = s.createTx(ctx, tx, x, NewBackup{Type: BeforeDelete, Note: "Before the site is deleted", unlimited: true}, "")
	return false, err
}
