package backup

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"slipway/internal/backup/repository"
	"slipway/internal/deploy/deployment"
	"slipway/internal/platform/blob"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/job"
	"slipway/internal/tenant/notify"
	"slipway/internal/tenant/webhook"
)

// QueueName is the queue of this package's jobs: they read and write gigabytes, so few run
// at once.
const QueueName = "backup"

// VerifyQueue is the queue of verifications, which hold up no backup and no restore.
const VerifyQueue = "verify"

// Take is the job that takes a backup.
type Take struct{ Backup ID }

// Kind names the job.
func (Take) Kind() string { return "backup.take" }

// maxHold is how long a site's writes may be held.
const maxHold = 2 * time.Second

// Bounds of one backup.
const (
	maxFiles = 1_000_000
	maxBytes = 256 << 30
	maxNames = 32 << 20 // bytes of all paths and links: they are held in memory
	maxPath  = 4096     // bytes of one
	inFolder = 4096     // entries of a folder that are read at once
)

// Work registers this service's jobs.
func (s *Backups) Work(j *job.Jobs) {
	policy := func(givenUp func(ctx context.Context, args []byte, why error) error) job.Policy {
		return job.Policy{
			Timeout:  6 * time.Hour,
			Attempts: 4,
			Backoff:  func(n int) time.Duration { return time.Duration(n) * 2 * time.Second },
			GivenUp:  givenUp,
		}
	}
	job.Handle(j, policy(func(ctx context.Context, args []byte, why error) error {
		var t Take
		if err := json.Unmarshal(args, &t); err != nil {
			return err
		}
		return s.fail(ctx, t.Backup, words(why))
	}), s.take)
	job.Handle(j, policy(func(ctx context.Context, args []byte, why error) error {
		var v Verify
		if err := json.Unmarshal(args, &v); err != nil {
			return err
		}
		return s.verified(ctx, v, "", words(why))
	}), s.verify)
	job.Handle(j, policy(func(ctx context.Context, args []byte, why error) error {
		var r Restore
		if err := json.Unmarshal(args, &r); err != nil {
			return err
		}
		return s.endRestore(ctx, r, words(why), nil)
	}), s.restore)
	job.Handle(j, job.Policy{
		Timeout:  24 * time.Hour,
		Attempts: 20,
		Backoff:  func(int) time.Duration { return 10 * time.Second },
	}, s.backUpInstallation)
	job.Handle(j, job.Policy{Timeout: time.Hour, Attempts: 1 << 30}, s.tend)
}

// words returns what an owner reads of an error: its own where it is meant for them.
func words(err error) string {
	if f := fault.As(err); f != nil {
		if f.Details != "" {
			return f.Message + ": " + f.Details
		}
		return f.Message
	}
	if errors.Is(err, repository.ErrDamaged) || errors.Is(err, blob.ErrCorrupt) {
		return "A stored file is damaged"
	}
	return "Internal error; try again"
}

// take is safe to repeat: what an attempt stored is found again by the next one.
func (s *Backups) take(ctx context.Context, t Take, attempt int64) error {
	b, err := s.begin(ctx, t.Backup)
	if err != nil || b.Status != Running {
		return err
	}
	m, w, err := s.collect(ctx, b)
	if (fault.As(err) != nil || errors.Is(err, blob.ErrCorrupt)) && !passing(err, attempt) {
		return s.fail(ctx, b.ID, words(err))
	}
	if err != nil {
		return fmt.Errorf("back up %s: %w", b.Site, err)
	}
	return s.complete(ctx, b, m, w)
}

// passing reports whether an error is a database server's that is away, and started again, or
// that had no time for a moment: the first attempts are not the last word.
func passing(err error, attempt int64) bool {
	f := fault.As(err)
	return f != nil && (f.Code == "database_unavailable" && attempt < 4 || f.Code == "database_slow" && attempt < 3)
}

// builtOn is how many earlier backups one looks into for what is stored already: after a
// restore the newest may hold little of what is there again.
const builtOn = 3

// begin marks a backup as running, on top of the newest that its site has.
func (s *Backups) begin(ctx context.Context, id ID) (b Backup, err error) {
	err = s.c.DB.Write(ctx, func(tx *db.Tx) error {
		if b, err = scan(tx.QueryRow(ctx, `SELECT `+columns+` FROM backups WHERE id = $1`, id)); err != nil {
			if fault.Is(err, fault.NotFound) {
				return nil
			}
			return err
		}
		if b.Status == Completed || b.Status == Failed {
			return nil
		}
		rows, err := tx.Query(
			ctx,
			`SELECT manifest FROM backups WHERE site_id = $1 AND status = 'completed' ORDER BY id DESC LIMIT $2`,
			b.Site,
			builtOn,
		)
		names, err := db.Collect(rows, err, func(s db.Scanner) (name string, err error) { return name, s.Scan(&name) })
		if err != nil {
			return fmt.Errorf("find earlier backups of %s: %w", id, err)
		}
		base := strings.Join(names, ",")
		b.Status, b.base = Running, base
		tx.Notify(b.Owner.Topic())
		_, err = tx.Exec(ctx, `UPDATE backups SET status = 'running', base = $2, progress = 0 WHERE id = $1`, id, base)
		return err
	})
	return b, err
}

// collect reads all that the backup is to hold, stores what is new, and returns the list, and
// what has stored it. Where that fails, nothing of it stays.
func (s *Backups) collect(ctx context.Context, b Backup) (_ *Manifest, w *repository.Writer, err error) {
	config, err := s.c.Sites.Export(ctx, b.Site)
	if fault.Is(err, fault.NotFound) {
		return nil, nil, &fault.Error{Kind: fault.Conflict, Message: "The site was deleted"}
	}
	if err != nil {
		return nil, w, err
	}
	w = repository.NewWriter(ctx, s.c.Repository)
	defer func() {
		if err != nil {
			err = errors.Join(err, w.Abandon())
		}
	}()
	base, err := s.buildOn(ctx, b, w)
	if err != nil {
		return nil, w, err
	}
	read, stop := s.report(ctx, b.ID)
	defer stop()
	w.OnRead(func(n int64) { read.Add(n) })
	m := &Manifest{ID: b.ID, Site: b.Site, Includes: b.Includes}
	if slices.Contains(b.Includes, Settings) {
		m.Config = &config
	}
	if s.c.WordPress != nil && (m.Config != nil || slices.Contains(b.Includes, Databases)) {
		if m.Extra, err = s.c.WordPress.Export(ctx, b.Site); err != nil {
			return nil, w, err
		}
	}
	c := &collection{s: s, w: w, m: m, base: base}
	// What can change is of one moment; the release and the program never change, so they
	// come after it, whatever has been deployed since.
	if slices.Contains(b.Includes, Files) {
		if m.Live, err = s.c.Deployments.LiveOf(ctx, b.Site); err != nil {
			return nil, w, err
		}
	}
	if err := c.moment(ctx, b); err != nil {
		return nil, w, err
	}
	if m.Live != nil {
		if err := c.blobs(ctx, *m.Live); err != nil {
			return nil, w, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, w, err
	}
	w.List(&m.Contents)
	return m, w, nil
}

// buildOn lets the writer use what the site's last backups hold, and returns the newest of
// them that can be read; nil where there is none.
func (s *Backups) buildOn(ctx context.Context, b Backup, w *repository.Writer) (newest *Manifest, err error) {
	if b.base == "" {
		return nil, nil
	}
	names := strings.Split(b.base, ",")
	list := make([]*Manifest, len(names))
	loads, ctx := errgroup.WithContext(ctx)
	for i, name := range names {
		loads.Go(func() (err error) {
			list[i], err = load(ctx, s.c.Repository, name)
			if errors.Is(err, repository.ErrDamaged) || errors.Is(err, fs.ErrNotExist) {
				s.c.Log.WarnContext(ctx, "earlier backup not reused", "backup", b.ID, "err", err)
				return nil // what it has is stored anew
			}
			return err
		})
	}
	if err := loads.Wait(); err != nil {
		return nil, err
	}
	for _, m := range list {
		if m != nil {
			w.Adopt(&m.Contents)
			newest = cmp.Or(newest, m)
		}
	}
	return newest, nil
}

// report writes how much was read, while it is being read.
func (s *Backups) report(ctx context.Context, id ID) (read *atomic.Int64, stop func()) {
	read = &atomic.Int64{}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for last := int64(0); ; {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if n := read.Load(); n != last {
				last = n
				err := s.c.DB.Write(ctx, func(tx *db.Tx) error {
					_, err := tx.Exec(ctx, `UPDATE backups SET progress = $2 WHERE id = $1 AND status = 'running'`, id, n)
					return err
				})
				if err != nil && ctx.Err() == nil {
					s.c.Log.WarnContext(ctx, "progress of backup not noted", "err", err)
				}
			}
		}
	}()
	return read, func() { cancel(); <-done }
}

// collection is one backup being filled.
type collection struct {
	s    *Backups
	w    *repository.Writer
	m    *Manifest
	base *Manifest
	counts

	brief     *brief // nil: no look that may be given up
	inside    string // folder of storage and databases, which ends with a slash. Optional.
	most      int    // files. Optional: 0 means maxFiles.
	mostBytes int64  // Optional: 0 means maxBytes.
	mostNames int    // bytes. Optional: 0 means maxNames.
}

// counts holds how much was collected.
type counts struct {
	bytes int64
	names int64 // bytes of the paths and links
	seen  int   // files, links and folders
	holes int64 // bytes of files that no disk holds
}

// file adds what open returns under a path, or what the base has under it with the same stamp.
func (c *collection) file(name, stamp string, mode uint32, open func() (io.ReadCloser, error)) error {
	if err := c.fits(len(name)); err != nil {
		return err
	}
	if c.base != nil && stamp != "" {
		if old, ok := c.base.File(name); ok && old.Stamp == stamp {
			old.Mode = mode
			c.m.Files = append(c.m.Files, old) // the writer's pieces begin with the base's
			c.bytes += old.Size
			return nil
		}
	}
	r, err := open()
	if err != nil {
		return err
	}
	defer r.Close()
	list, sum, size, err := c.w.Add(r)
	if err != nil {
		return err
	}
	c.add(repository.File{Path: name, Size: size, Mode: mode, Stamp: stamp, Sum: sum, Pieces: list})
	return nil
}

// fits counts one more file, link or folder with so many bytes of names, and refuses it where
// a backup has as much as it may have.
func (c *collection) fits(names int) error {
	most, mostBytes := cmp.Or(c.most, maxFiles), cmp.Or(c.mostBytes, maxBytes)
	c.seen++
	c.names += int64(names)
	if mostNames := int64(cmp.Or(c.mostNames, maxNames)); c.names > mostNames || names > 2*maxPath {
		return &fault.Error{
			Kind: fault.TooLarge, Message: "The site's file names are too long for a backup",
			Details: fmt.Sprintf(
				"all paths together have at most %d MiB, one has at most %d bytes; shorten them, or delete some files",
				mostNames>>20,
				maxPath,
			),
		}
	}
	if c.seen > most || c.bytes > mostBytes {
		return &fault.Error{
			Kind:    fault.TooLarge,
			Message: "The site is too large for a backup",
			Details: fmt.Sprintf("a backup has at most %d files and %d GiB", most, mostBytes>>30),
		}
	}
	return nil
}

func (c *collection) add(f repository.File) {
	c.bytes += f.Size
	c.m.Files = append(c.m.Files, f)
}

// blobs adds what a release and a bundle consist of.
func (c *collection) blobs(ctx context.Context, l deployment.Live) error {
	seen := map[blob.Digest]bool{}
	add := func(d blob.Digest) error {
		if seen[d] {
			return nil
		}
		seen[d] = true
		name := d.String()
		return c.file(inBlobs+name, name, 0, func() (io.ReadCloser, error) {
			r, _, err := c.s.c.Blobs.Open(ctx, d)
			if errors.Is(err, fs.ErrNotExist) {
				return nil, &fault.Error{
					Kind:    fault.Conflict,
					Message: "A file of the site is missing in the store",
					Details: "deploy the site again, then back it up",
				}
			}
			return r, err
		})
	}
	if l.Release != "" {
		for d, err := range c.s.releases(c.s.c.Blobs).Digests(ctx, l.Release) {
			if err == nil {
				err = add(d)
			}
			if err != nil {
				return err
			}
		}
	}
	if l.Bundle == "" {
		return nil
	}
	if err := c.w.Share(); err != nil { // a program that many sites have is stored once
		return err
	}
	bundles, done, err := c.s.scratchBundles(c.s.c.Blobs)
	if err != nil {
		return err
	}
	defer done()
	for d, err := range bundles.Blobs(ctx, l.Bundle) {
		if err == nil {
			err = add(d)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// moment adds storage and databases as they are together at one moment. Where little has
// changed since the base, one look at the files does, the site's writes held. Else they are
// read while the site runs, and then, held, those that changed meanwhile.
func (c *collection) moment(ctx context.Context, b Backup) (err error) {
	var stored []Folder
	var databases []Database
	if slices.Contains(b.Includes, Files) {
		if stored, err = folders(c.s.c.Storage, b.Site); err != nil {
			return err
		}
	}
	if slices.Contains(b.Includes, Databases) && c.s.c.Databases != nil {
		if databases, err = c.s.c.Databases.OfSite(ctx, b.Site); err != nil {
			return err
		}
	}
	c.m.At = time.Now().UTC()
	if len(stored)+len(databases) == 0 {
		return nil
	}
	for _, f := range stored {
		c.m.Folders = append(c.m.Folders, f.Name)
	}
	if c.base != nil {
		c.brief = &brief{left: briefBytes, until: time.Now().Add(cmp.Or(c.s.brief, briefTime))}
		err := c.held(ctx, b, stored, databases)
		c.brief = nil
		if !errors.Is(err, errNotBrief) {
			return err
		}
	}
	first := &collection{s: c.s, w: c.w, m: &Manifest{}, base: c.base, inside: c.inside}
	for _, f := range stored {
		if err := first.folder(ctx, f); err != nil {
			return err
		}
	}
	first.index()
	c.base = first.m
	return c.held(ctx, b, stored, databases)
}

// Bounds of a look at the files that may be given up: a part of maxHold, and what is read in
// it. A small file counts as smallFile, for it takes as long.
const (
	briefTime  = maxHold / 4
	briefBytes = 32 << 20
	smallFile  = 16 << 10
)

// brief bounds a look at the files.
type brief struct {
	left  int64
	until time.Time
}

var errNotBrief = errors.New("too much has changed for one look")

// reads counts a file of a size that is to be read, or one of size 0 that is as it was.
func (b *brief) reads(size int64) error {
	if b == nil {
		return nil
	}
	if size > 0 {
		b.left -= max(size, smallFile)
	}
	if b.left < 0 || time.Now().After(b.until) {
		return errNotBrief
	}
	return nil
}

// held adds the files and the dumps, the files while the site's writes are held. After an
// error nothing is added.
func (c *collection) held(ctx context.Context, b Backup, folders []Folder, databases []Database) (err error) {
	files, before := len(c.m.Files), c.counts
	defer func() {
		if err != nil {
			c.m.Files, c.counts = c.m.Files[:files], before
		}
	}()
	release := func() {}
	if c.s.c.Storage != nil {
		release = c.s.c.Storage.Hold(string(b.Site))
	}
	defer func() { release() }()
	at := time.Now()
	c.m.At = at.UTC()
	dumps, stop, err := c.dumps(ctx, databases) // their moment is when they begin
	defer stop()
	if err != nil {
		return err
	}
	for _, f := range folders {
		if err := c.folder(ctx, f); err != nil {
			return err
		}
		if time.Since(at) > maxHold {
			return &fault.Error{
				Kind: fault.Conflict, Message: "The site changes too much at once to be backed up while it runs",
				Details: "its writes may be held for 2 seconds, and reading what had changed took longer; try again when there is less going on",
			}
		}
	}
	release()
	release = func() {}
	return dumps()
}

// dumps begins to dump every database and returns what adds the dumps once they are stored,
// which goes on while the files are looked at. The site's writes are held until the dumps have
// begun, so that it doesn't wait for long. stop ends what still goes on.
func (c *collection) dumps(ctx context.Context, databases []Database) (add func() error, stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	type dump struct {
		name string
		*spool
	}
	var streams []dump
	// share: none, one backup's: one for each of its databases
	began := make(chan struct{}, len(databases))
	c.m.Places = make(map[string]int64, len(databases))
	for _, d := range databases {
		c.m.Places[d.Name] = d.Place
		w := newSpool()
		streams = append(streams, dump{d.Name, w})
		go func() {
			first := &firstWrite{w: w, began: began}
			err := c.s.c.Databases.Dump(ctx, d, first)
			first.begin()
			w.end(err)
		}()
	}
	stored, storing := make([]repository.File, len(streams)), &errgroup.Group{}
	stop = func() {
		cancel()
		for _, st := range streams {
			st.leave(context.Canceled)
		}
		_ = storing.Wait()
	}
	late := time.NewTimer(maxHold)
	defer late.Stop()
	for range databases { // a dump has its moment before its first byte
		select {
		case <-began:
		case <-late.C:
			return nil, stop, &fault.Error{
				Kind:    fault.Unavailable,
				Message: "The database server is too slow",
				Details: "the site's writes may be held for 2 seconds, and the dump had not begun by then; try again later",
				Code:    "database_slow",
			}
		}
	}
	storing.Go(func() error { // one after the other: each has what it needs of the processors
		for i, st := range streams {
			list, sum, size, err := c.w.Add(st)
			if err != nil {
				return fmt.Errorf("dump %s: %w", st.name, err)
			}
			stored[i] = repository.File{Path: inDatabase + c.inside + st.name + ".sql", Size: size, Mode: 0o600, Sum: sum, Pieces: list}
		}
		return nil
	})
	return func() error {
		if err := storing.Wait(); err != nil {
			return err
		}
		for _, f := range stored {
			if err := c.fits(len(f.Path)); err != nil {
				return err
			}
			c.add(f)
		}
		return nil
	}, stop, nil
}

// firstWrite tells when a dump has begun.
type firstWrite struct {
	w     io.Writer
	began chan<- struct{}
	told  bool
}

func (f *firstWrite) begin() {
	if !f.told {
		f.told = true
		f.began <- struct{}{}
	}
}

func (f *firstWrite) Write(b []byte) (int, error) {
	f.begin()
	return f.w.Write(b)
}

// index makes what was collected so far the base of what follows.
func (c *collection) index() {
	if c.base == nil {
		c.m.Index()
		return
	}
	c.m.Above(&c.base.Contents)
}

// folder adds the regular files and links of a storage folder, which belongs to a site
// and may be hostile: nothing is followed out of it, and what is no file is left out.
func (c *collection) folder(ctx context.Context, f Folder) error {
	root, err := os.OpenRoot(f.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open storage: %w", err)
	}
	defer root.Close()
	return c.below(ctx, root, inStorage+c.inside+f.Name, 0)
}

// maxNested is how deep folders may lie in each other: each is held open.
const maxNested = 200

// below adds what a directory has, which lies under a path of the backup. It is open, so what
// is asked of it by a single name can't lead elsewhere, and is asked quickly.
func (c *collection) below(ctx context.Context, root *os.Root, at string, depth int) error {
	dir, err := root.OpenFile(".", os.O_RDONLY|syscall.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer dir.Close()
	for {
		entries, err := dir.ReadDir(inFolder) // a part of a folder that may have a million
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := c.entries(ctx, root, at, depth, entries); err != nil {
			return err
		}
	}
}

// entries adds some of what a directory has.
func (c *collection) entries(ctx context.Context, root *os.Root, at string, depth int, entries []fs.DirEntry) error {
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	for _, e := range entries {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		var err error
		switch name := e.Name(); {
		case e.IsDir():
			err = c.subfolder(ctx, root, name, at, depth)
		case e.Type() == fs.ModeSymlink:
			if to, gone := root.Readlink(name); gone == nil {
				if err = c.fits(len(at) + 1 + len(name) + len(to)); err != nil {
					return err
				}
				c.m.Files = append(c.m.Files, repository.File{Path: at + "/" + name, Link: to, Sum: emptySum})
			}
		case e.Type().IsRegular():
			if info, gone := e.Info(); gone == nil { // known already: a folder of a root is read with what its files are
				err = c.stored(root, name, at+"/"+name, info)
			}
		}
		if err != nil && !changed(err) {
			return err
		}
	}
	return nil
}

// changed reports whether an error says that a file was deleted meanwhile, or that something
// else is there now.
func changed(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ELOOP)
}

func (c *collection) subfolder(ctx context.Context, root *os.Root, name, at string, depth int) error {
	if depth >= maxNested {
		return &fault.Error{
			Kind:    fault.TooLarge,
			Message: "The site's folders are nested too deeply for a backup",
			Details: fmt.Sprintf("at most %d levels", maxNested),
		}
	}
	if err := c.fits(0); err != nil { // it is no file of the backup, and takes time all the same
		return err
	}
	if len(at)+1+len(name) > maxPath {
		return c.fits(2*maxPath + 1)
	}
	sub, err := openFolder(root, name)
	if err != nil {
		return err
	}
	defer sub.Close()
	return c.below(ctx, sub, at+"/"+name, depth+1)
}

// openFolder opens a directory of a folder whose program runs, and may put a pipe in its place
// at this moment: to open that as a root would wait for ever.
func openFolder(root *os.Root, name string) (*os.Root, error) {
	dir, err := root.OpenFile(name, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return os.OpenRoot("/proc/self/fd/" + strconv.Itoa(int(dir.Fd())))
}

// stored adds a file of a storage folder, which was as info says when its folder was read: what
// is changed since has another stamp in the next backup.
func (c *collection) stored(root *os.Root, name, at string, info fs.FileInfo) error {
	if err := c.brief.reads(0); err != nil {
		return err
	}
	return c.file(at, stampOf(info), uint32(info.Mode().Perm()), func() (io.ReadCloser, error) {
		if err := c.brief.reads(max(1, info.Size())); err != nil {
			return nil, err
		}
		file, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
		if err != nil {
			return nil, err
		}
		now, err := file.Stat()
		if err != nil || !now.Mode().IsRegular() {
			file.Close()
			return nil, fs.ErrNotExist
		}
		if st, ok := now.Sys().(*syscall.Stat_t); ok {
			c.holes += max(0, now.Size()-512*st.Blocks)
		}
		if c.holes > repository.MaxHoles {
			file.Close()
			return nil, &fault.Error{
				Kind:    fault.TooLarge,
				Message: "The site's sparse files are too large for a backup",
				Details: fmt.Sprintf("their holes have at most %d GiB together", repository.MaxHoles>>30),
			}
		}
		return stream{repository.NewHoles(file, now.Size()), file}, nil
	})
}

// stream is a file that is read.
type stream struct {
	*repository.Holes
	io.Closer
}

// settled is how long a file must be unchanged before its time says that it is: kernels before
// 6.13 give all changes of one tick the same time, and a tick takes up to 10 ms.
const settled = 20 * time.Millisecond

// stampOf changes when a file does: a program can set its time of modification back, but
// not that of its last change. It is empty for a file that has changed just now.
func stampOf(info fs.FileInfo) string {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || time.Since(time.Unix(st.Ctim.Unix())) < settled {
		return ""
	}
	return strconv.FormatInt(info.Size(), 36) + "." + strconv.FormatUint(st.Ino, 36) + "." + strconv.FormatInt(st.Ctim.Nano(), 36)
}

// complete writes the manifest and the end, and has the backup verified.
func (s *Backups) complete(ctx context.Context, b Backup, m *Manifest, w *repository.Writer) error {
	raw, err := m.encode()
	if err != nil {
		return errors.Join(err, w.Abandon())
	}
	name, n, err := s.c.Repository.Put(ctx, raw)
	if err != nil {
		return errors.Join(fmt.Errorf("store manifest: %w", err), w.Abandon())
	}
	return s.c.DB.Write(ctx, func(tx *db.Tx) error {
		now := db.Now()
		wrote, err := tx.Exec(ctx, `
			UPDATE backups SET status = 'completed', size_bytes = $2, stored_bytes = $3, manifest = $4, checksum = $5, base = '', completed_at = $6
			WHERE id = $1 AND status = 'running'`, b.ID, m.Size(), w.Stored()+n, name, checksum(raw), now)
		if err != nil || wrote == 0 {
			return err
		}
		b.Status, b.Size, b.CompletedAt = Completed, m.Size(), now
		if _, err := job.Enqueue(ctx, tx, Verify{
			Backup: b.ID,
		}, job.Options{Queue: VerifyQueue, Unique: "verify/" + string(b.ID), Share: string(b.Owner)}); err != nil {
			return err
		}
		if err := s.emitTx(ctx, tx, b); err != nil {
			return err
		}
		return s.deleteSiteTx(ctx, tx, b)
	})
}

func checksum(raw []byte) string {
	d := blob.Sum(raw)
	return hex.EncodeToString(d[:])
}

// fail writes why a backup was not taken.
func (s *Backups) fail(ctx context.Context, id ID, why string) error {
	return s.c.DB.Write(ctx, func(tx *db.Tx) error {
		b, err := scan(tx.QueryRow(ctx, `
			UPDATE backups SET status = 'failed', error = $2, base = '', completed_at = $3
			WHERE id = $1 AND status IN ('pending', 'running') RETURNING `+columns, id, why, db.Now()))
		if fault.Is(err, fault.NotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		if b.thenDelete != "" {
			if err := s.c.Operations.EndTx(
				ctx,
				tx,
				operationID(b.thenDelete),
				"",
				"The site was not deleted, because its backup failed: "+why,
				nil,
			); err != nil {
				return err
			}
		}
		return s.emitTx(ctx, tx, b)
	})
}

// emitTx tells webhooks of the end of a backup.
func (s *Backups) emitTx(ctx context.Context, tx *db.Tx, b Backup) error {
	tx.Notify(b.Owner.Topic())
	of := webhook.Site{ID: string(b.Site), Name: b.SiteName}
	what := webhook.Backup{
		ID:         string(b.ID),
		Type:       string(b.Type),
		Status:     string(b.Status),
		Size:       b.Size,
		VerifiedAt: b.VerifiedAt,
		Error:      b.Error,
	}
	if b.Status == Completed {
		return s.c.Hooks.EmitTx(ctx, tx, b.Owner, webhook.BackupCompleted(of, what))
	}
	if s.c.Notify != nil {
		err := s.c.Notify.TellTx(ctx, tx, b.Owner, string(b.Site), notify.Message{
			Event: notify.BackupFailed,
			Title: "Backup of " + b.SiteName + " failed",
			Text:  b.Error,
			Path:  "/sites/" + string(b.Site) + "/backups",
		})
		if err != nil {
			return err
		}
	}
	return s.c.Hooks.EmitTx(ctx, tx, b.Owner, webhook.BackupFailed(of, what))
}
