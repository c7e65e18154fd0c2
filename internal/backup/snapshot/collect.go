package snapshot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"slipway/internal/backup/repository"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/panics"
	"slipway/internal/tenant/site"
)

// maxHold is how long a site's writes may be held.
const maxHold = 2 * time.Second

// maxTries is how often a backup tries to stay below that.
const maxTries = 3

var errHeldLong = &fault.Error{
	Kind: fault.Conflict, Message: "The site changes too much at once to be backed up while it runs",
	Details: "its writes may be held for 2 seconds, and reading what had changed took longer; try again when there is less going on",
}

// Bounds of one backup.
const (
	maxFiles = 1_000_000
	maxBytes = 256 << 30
	maxNames = 32 << 20 // bytes of all paths and links: they are held in memory
	maxPath  = 4096     // bytes of one
	inFolder = 4096     // entries of a folder that are read at once
)

// Collection is one backup being filled: what a site's storage and databases are at one moment goes
// into the repository, and into the manifest's list.
type Collection struct {
	Storage   Storage        // nil: this node runs no programs
	Databases DatabaseServer // nil: there are none

	Writer   *repository.Writer
	Manifest *Manifest
	Base     *Manifest // what it builds on. Optional.
	Counts

	brief     *brief        // nil: no look that may be given up
	Inside    string        // folder of storage and databases, which ends with a slash. Optional.
	Most      int           // files. Optional: 0 means maxFiles.
	MostBytes int64         // Optional: 0 means maxBytes.
	MostNames int           // bytes. Optional: 0 means maxNames.
	Briefly   time.Duration // the time of a look that may be given up. Optional: 0 means briefTime.
	Held      time.Duration // how long writes may be held while files are read. Optional: 0 means maxHold.
}

// Counts holds how much was collected.
type Counts struct {
	Bytes int64
	Names int64 // bytes of the paths and links
	Seen  int   // files, links and folders
	holes int64 // bytes of files that no disk holds
}

// File adds what open returns under a path, or what the base has under it with the same stamp.
func (c *Collection) File(name, stamp string, mode uint32, open func() (io.ReadCloser, error)) error {
	if err := c.Fits(len(name)); err != nil {
		return err
	}
	if c.Base != nil && stamp != "" {
		if old, ok := c.Base.File(name); ok && old.Stamp == stamp {
			old.Mode = mode
			c.Manifest.Files = append(c.Manifest.Files, old) // the writer's pieces begin with the base's
			c.Bytes += old.Size
			return nil
		}
	}
	r, err := open()
	if err != nil {
		return err
	}
	defer r.Close()
	list, sum, size, err := c.Writer.Add(r)
	if err != nil {
		return err
	}
	c.add(repository.File{Path: name, Size: size, Mode: mode, Stamp: stamp, Sum: sum, Pieces: list})
	return nil
}

// Fits counts one more file, link or folder with so many bytes of names, and refuses it where
// a backup has as much as it may have.
func (c *Collection) Fits(names int) error {
	most, mostBytes := cmp.Or(c.Most, maxFiles), cmp.Or(c.MostBytes, maxBytes)
	c.Seen++
	c.Names += int64(names)
	if mostNames := int64(cmp.Or(c.MostNames, maxNames)); c.Names > mostNames || names > 2*maxPath {
		return &fault.Error{
			Kind: fault.TooLarge, Message: "The site's file names are too long for a backup",
			Details: fmt.Sprintf(
				"all paths together have at most %d MiB, one has at most %d bytes; shorten them, or delete some files",
				mostNames>>20,
				maxPath,
			),
		}
	}
	if c.Seen > most || c.Bytes > mostBytes {
		return &fault.Error{
			Kind:    fault.TooLarge,
			Message: "The site is too large for a backup",
			Details: fmt.Sprintf("a backup has at most %d files and %d GiB", most, mostBytes>>30),
		}
	}
	return nil
}

func (c *Collection) add(f repository.File) {
	c.Bytes += f.Size
	c.Manifest.Files = append(c.Manifest.Files, f)
}

// Moment adds storage and databases as they are together at one moment. Where little has
// changed since the base, one look at the files does, the site's writes held. Else they are
// read while the site runs, and then, held, those that changed meanwhile.
func (c *Collection) Moment(ctx context.Context, id site.ID, withFiles, withDatabases bool) (err error) {
	var stored []Folder
	var databases []Database
	if withFiles && c.Storage != nil {
		fetched, err := c.Storage.FetchStorage(ctx, id)
		if err != nil {
			return err
		}
		defer fetched.Close()
		if stored, err = Folders(c.Storage, id); err != nil {
			return err
		}
	}
	if withDatabases && c.Databases != nil {
		if databases, err = c.Databases.OfSite(ctx, id); err != nil {
			return err
		}
	}
	c.Manifest.At = time.Now().UTC()
	if len(stored)+len(databases) == 0 {
		return nil
	}
	for _, f := range stored {
		c.Manifest.Folders = append(c.Manifest.Folders, f.Name)
	}
	if c.Base != nil {
		c.brief = &brief{left: briefBytes, until: time.Now().Add(cmp.Or(c.Briefly, briefTime))}
		err := c.held(ctx, id, stored, databases)
		c.brief = nil
		if !errors.Is(err, errNotBrief) && !errors.Is(err, errHeldLong) {
			return err
		}
	}
	for try := 1; ; try++ {
		first := &Collection{Writer: c.Writer, Manifest: &Manifest{}, Base: c.Base, Inside: c.Inside}
		for _, f := range stored {
			if err := first.Folder(ctx, f); err != nil {
				return err
			}
		}
		first.index()
		c.Base = first.Manifest
		// What took too long is read by the next try before anything is held. A busy moment of the machine passes, too.
		if err := c.held(ctx, id, stored, databases); !errors.Is(err, errHeldLong) || try == maxTries {
			return err
		}
	}
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
func (c *Collection) held(ctx context.Context, id site.ID, folders []Folder, databases []Database) (err error) {
	files, before := len(c.Manifest.Files), c.Counts
	defer func() {
		if err != nil {
			c.Manifest.Files, c.Counts = c.Manifest.Files[:files], before
		}
	}()
	release := func() {}
	if c.Storage != nil {
		release = c.Storage.Hold(id)
	}
	defer func() { release() }()
	at := time.Now()
	c.Manifest.At = at.UTC()
	dumps, stop, err := c.dumps(ctx, databases) // their moment is when they begin
	defer stop()
	if err != nil {
		return err
	}
	if len(folders) > 0 {
		fetched, err := c.Storage.FetchStorage(ctx, id)
		if err != nil {
			return err
		}
		defer fetched.Close()
	}
	for _, f := range folders {
		if err := c.Folder(ctx, f); err != nil {
			return err
		}
		if time.Since(at) > cmp.Or(c.Held, maxHold) {
			return errHeldLong
		}
	}
	release()
	release = func() {}
	return dumps()
}

// dumps begins to dump every database and returns what adds the dumps once they are stored,
// which goes on while the files are looked at. The site's writes are held until the dumps have
// begun, so that it doesn't wait for long. stop ends what still goes on.
func (c *Collection) dumps(ctx context.Context, databases []Database) (add func() error, stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	type dump struct {
		name string
		*spool
	}
	var streams []dump
	// share: none, one backup's: one for each of its databases
	began := make(chan struct{}, len(databases))
	c.Manifest.Places = make(map[string]int64, len(databases))
	for _, d := range databases {
		c.Manifest.Places[d.Name] = d.Place
		w := newSpool()
		streams = append(streams, dump{d.Name, w})
		go func() {
			first := &firstWrite{w: w, began: began}
			err := panics.Call(func() error { return c.Databases.Dump(ctx, d, first) })
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
			return nil, stop, fault.New(fault.Unavailable, "database_slow", "The database server is too slow",
				"the site's writes may be held for 2 seconds, and the dump had not begun by then; try again later")
		}
	}
	storing.Go(panics.Safe(func() error { // one after the other: each has what it needs of the processors
		for i, st := range streams {
			list, sum, size, err := c.Writer.Add(st)
			if err != nil {
				return fmt.Errorf("dump %s: %w", st.name, err)
			}
			stored[i] = repository.File{Path: InDatabase + c.Inside + st.name + ".sql", Size: size, Mode: 0o600, Sum: sum, Pieces: list}
		}
		return nil
	}))
	return func() error {
		if err := storing.Wait(); err != nil {
			return err
		}
		for _, f := range stored {
			if err := c.Fits(len(f.Path)); err != nil {
				return err
			}
			c.add(f)
		}
		return nil
	}, stop, nil
}

// index makes what was collected so far the base of what follows.
func (c *Collection) index() {
	if c.Base == nil {
		c.Manifest.Index()
		return
	}
	c.Manifest.Above(&c.Base.Contents)
}

// Folder adds the regular files and links of a storage folder, which belongs to a site
// and may be hostile: nothing is followed out of it, and what is no file is left out.
func (c *Collection) Folder(ctx context.Context, f Folder) error {
	root, err := os.OpenRoot(f.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open storage: %w", err)
	}
	defer root.Close()
	return c.below(ctx, root, InStorage+c.Inside+f.Name, 0)
}

// below adds what a directory has, which lies under a path of the backup. It is open, so what
// is asked of it by a single name can't lead elsewhere, and is asked quickly.
func (c *Collection) below(ctx context.Context, root *os.Root, at string, depth int) error {
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
func (c *Collection) entries(ctx context.Context, root *os.Root, at string, depth int, entries []fs.DirEntry) error {
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
				if err = c.Fits(len(at) + 1 + len(name) + len(to)); err != nil {
					return err
				}
				c.Manifest.Files = append(c.Manifest.Files, repository.File{Path: at + "/" + name, Link: to, Sum: EmptySum})
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

func (c *Collection) subfolder(ctx context.Context, root *os.Root, name, at string, depth int) error {
	if depth >= maxNested {
		return &fault.Error{
			Kind:    fault.TooLarge,
			Message: "The site's folders are nested too deeply for a backup",
			Details: fmt.Sprintf("at most %d levels", maxNested),
		}
	}
	if err := c.Fits(0); err != nil { // it is no file of the backup, and takes time all the same
		return err
	}
	if len(at)+1+len(name) > maxPath {
		return c.Fits(2*maxPath + 1)
	}
	sub, err := openFolder(root, name)
	if err != nil {
		return err
	}
	defer sub.Close()
	return c.below(ctx, sub, at+"/"+name, depth+1)
}

// stored adds a file of a storage folder, which was as info says when its folder was read: what
// is changed since has another stamp in the next backup.
func (c *Collection) stored(root *os.Root, name, at string, info fs.FileInfo) error {
	if err := c.brief.reads(0); err != nil {
		return err
	}
	return c.File(at, StampOf(info), uint32(info.Mode().Perm()), func() (io.ReadCloser, error) {
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
