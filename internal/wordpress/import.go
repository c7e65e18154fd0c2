package wordpress

import (
	"archive/tar"
	"archive/zip"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"slipway/internal/account"
	"slipway/internal/database"
	"slipway/internal/db"
	"slipway/internal/fault"
	"slipway/internal/job"
	"slipway/internal/operation"
	"slipway/internal/site"
)

// Import is an archive of another WordPress that is on disk here: wp-content and one SQL
// dump.
type Import struct {
	File string // its name in the directory of imports
}

// Bounds of an import besides the site's storage and the database's size.
const (
	maxImportFiles = 200_000
	maxImportPath  = 1000
	maxImportSQL   = 8 << 30
	importTime     = 24 * time.Hour // that an archive which nobody asked for stays
)

func (w *WordPress) importDir() string { return filepath.Join(w.c.Dir, "imports") }

// Receive stores the archive of an import of the owner's site, and says how it begins. The
// site's storage limit bounds it. drop removes it where no import begins.
func (w *WordPress) Receive(ctx context.Context, owner account.OwnerID, id site.ID, body io.Reader) (_ Import, drop func(), err error) {
	s, err := w.c.Sites.Get(ctx, owner, id)
	if err == nil {
		err = w.live(s)
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
	most := w.c.StorageLimit(s)
	n, err := io.Copy(f, io.LimitReader(body, most+1))
	switch {
	case err != nil:
		return Import{}, nil, &fault.Error{Kind: fault.Invalid, Message: "The archive could not be received", Details: "the connection ended before all of it was here", Code: "invalid_import"}
	case n > most:
		return Import{}, nil, &fault.Error{Kind: fault.TooLarge, Message: "The archive is too large", Details: fmt.Sprintf("this site may store %d MiB; raise run.storageMiB", most>>20), Code: "import_too_large"}
	case n == 0:
		return Import{}, nil, badArchive("it is empty")
	}
	if err := f.Sync(); err != nil {
		return Import{}, nil, fmt.Errorf("store import: %w", err)
	}
	return Import{File: filepath.Base(f.Name())}, remove, nil
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
	if x.Import != nil && x.Import.File != "" {
		_ = os.Remove(filepath.Join(w.importDir(), filepath.Base(x.Import.File)))
	}
}

// ImportArchiveTx begins to put another WordPress in the place of the owner's.
func (w *WordPress) ImportArchiveTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, id site.ID, i Import) (operation.Operation, error) {
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

func badArchive(why string) error {
	return &fault.Error{Kind: fault.Invalid, Message: "The archive can't be imported", Details: why + "; it must be a .tar.gz or a .zip with wp-content and one .sql file", Code: "invalid_import"}
}

// importSite is one call of an import's job.
func (r *run) importSite(ctx context.Context) error {
	switch r.step.At {
	case atBackup:
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
	dir, err := r.c.Content(ctx, s.ID)
	if err != nil {
		return err
	}
	parent := filepath.Dir(dir)
	next, old := filepath.Join(parent, ".import-next"), filepath.Join(parent, ".import-old")
	for _, d := range []string{next, old} { // of a run that a crash ended
		if err := os.RemoveAll(d); err != nil {
			return fmt.Errorf("import: %w", err)
		}
	}
	defer func() { _ = os.RemoveAll(next); _ = os.RemoveAll(old) }()
	if err := os.Mkdir(next, 0o755); err != nil {
		return fmt.Errorf("import: %w", err)
	}
	if err := r.to(ctx, atBackup, 0.2, "Unpacking"); err != nil {
		return err
	}
	u := &unpacking{ctx: ctx, dir: next, left: r.c.StorageLimit(s), told: func(part float64) {
		_ = r.to(ctx, atBackup, 0.2+0.3*part, "Unpacking")
	}}
	defer u.close()
	if err := u.open(filepath.Join(r.importDir(), filepath.Base(r.x.Import.File))); err != nil {
		return err
	}
	prefix, err := prefixOf(u.sql)
	if err != nil {
		return err
	}
	if err := ownLike(next, dir); err != nil {
		return fmt.Errorf("import: %w", err)
	}
	if err := r.to(ctx, atBackup, 0.5, "Loading the database"); err != nil {
		return err
	}
	if _, err := u.sql.Seek(0, io.SeekStart); err != nil {
		return err
	}
	loaded, err := r.c.Databases.Load(ctx, u.sql, database.LoadOptions{Foreign: true})
	if err != nil {
		return err
	}
	defer loaded.Drop(context.WithoutCancel(ctx))
	if err := r.to(ctx, atChange, 0.7, "Putting it in place"); err != nil {
		return err
	}
	release, err := r.c.Hold(ctx, s.ID)
	if err != nil {
		return err
	}
	err = r.exchange(ctx, dir, next, old, func(tx *db.Tx) error {
		if _, err := loaded.PutTx(ctx, tx, s.Owner, s.ID, databaseName, 0); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `UPDATE wordpress_sites SET table_prefix = $2 WHERE site_id = $1`, s.ID, prefix)
		return err
	})
	release()
	if err != nil {
		return err
	}
	r.c.Renew(string(s.ID))
	return r.imported(ctx)
}

// exchange puts the new wp-content and the new database in place. Programs of the site are
// held meanwhile.
func (r *run) exchange(ctx context.Context, dir, next, old string, put func(tx *db.Tx) error) error {
	if err := os.Mkdir(old, 0o700); err != nil {
		return fmt.Errorf("import: %w", err)
	}
	// The folder stays: running programs see it, not its name.
	move := func(from, to string) error {
		entries, err := os.ReadDir(from)
		if err != nil {
			return err
		}
		for _, e := range entries { // both are directories of ours: no link is on the way
			if err := os.Rename(filepath.Join(from, e.Name()), filepath.Join(to, e.Name())); err != nil {
				return err
			}
		}
		return nil
	}
	if err := move(dir, old); err != nil {
		return fmt.Errorf("import: %w", err)
	}
	if err := move(next, dir); err != nil {
		return fmt.Errorf("import: %w", err)
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

// prefixForm finds the table of options, whose name says what all tables begin with.
var prefixForm = regexp.MustCompile("(?i)CREATE\\s+TABLE\\s+(?:IF\\s+NOT\\s+EXISTS\\s+)?[`\"]?([A-Za-z0-9_]{0,30})options[`\"]?\\s*\\(")

// prefixOf reads a dump's table prefix.
func prefixOf(sql io.ReadSeeker) (string, error) {
	if _, err := sql.Seek(0, io.SeekStart); err != nil {
		return "", err
	}
	in := bufio.NewReaderSize(sql, 1<<20)
	var tail []byte
	for {
		b := make([]byte, 1<<20)
		n, err := io.ReadFull(in, b)
		text := append(tail, b[:n]...)
		for _, m := range prefixForm.FindAllSubmatch(text, -1) {
			// Plugins have tables that end so too: WordPress's own is beside usermeta.
			if p := string(m[1]); p != "" {
				return p, nil
			}
		}
		if err != nil {
			return "", badArchive("its SQL file holds no table of options of a WordPress")
		}
		tail = bytes.Clone(text[max(0, len(text)-200):])
	}
}

// unpacking takes an archive apart: its wp-content below dir, its dump into a file.
type unpacking struct {
	ctx   context.Context
	dir   string
	left  int64 // bytes
	files int
	sql   *os.File
	told  func(part float64)

	root *os.Root
	seen bool // something of wp-content
}

func (u *unpacking) close() {
	if u.root != nil {
		_ = u.root.Close()
	}
	if u.sql != nil {
		_ = u.sql.Close()
	}
}

func (u *unpacking) open(name string) (err error) {
	if u.root, err = os.OpenRoot(u.dir); err != nil {
		return err
	}
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return badArchive("it is no longer here: upload it again")
	}
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	first := make([]byte, 4)
	if _, err := io.ReadFull(f, first); err != nil {
		return badArchive("it is too short")
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if bytes.HasPrefix(first, []byte("PK")) {
		err = u.zip(f, info.Size())
	} else {
		err = u.tar(&counted{r: f, size: info.Size(), told: u.told})
	}
	switch {
	case err != nil:
		return err
	case u.sql == nil:
		return badArchive("it holds no .sql file")
	case !u.seen:
		return badArchive("it holds no wp-content")
	}
	return nil
}

// counted tells how much of a file has been read.
type counted struct {
	r          io.Reader
	size, read int64
	last       time.Time
	told       func(part float64)
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.read += int64(n)
	if time.Since(c.last) > time.Second {
		c.last = time.Now()
		c.told(float64(c.read) / float64(max(1, c.size)))
	}
	return n, err
}

func (u *unpacking) tar(in io.Reader) error {
	z, err := gzip.NewReader(in)
	if err != nil {
		return badArchive("it is neither gzip nor zip")
	}
	t := tar.NewReader(z)
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return badArchive("it is damaged or cut off")
		}
		if h.Typeflag != tar.TypeReg {
			continue // links and devices are nothing of a wp-content
		}
		if err := u.file(h.Name, t); err != nil {
			return err
		}
	}
}

func (u *unpacking) zip(f *os.File, size int64) error {
	z, err := zip.NewReader(f, size)
	if err != nil {
		return badArchive("it is damaged or cut off")
	}
	if len(z.File) > 4*maxImportFiles {
		return badArchive(fmt.Sprintf("it holds more than %d files", maxImportFiles))
	}
	for i, h := range z.File {
		if !h.Mode().IsRegular() {
			continue
		}
		in, err := h.Open()
		if err != nil {
			return badArchive("it is damaged, or compressed in an unknown way")
		}
		err = u.file(h.Name, in)
		_ = in.Close()
		if err != nil {
			return err
		}
		if i%500 == 0 {
			u.told(float64(i) / float64(len(z.File)))
		}
	}
	return nil
}

// dropIns belong to the server that the site comes from.
var dropIns = map[string]bool{"object-cache.php": true, "advanced-cache.php": true, "db.php": true, "wp-cache-config.php": true, "maintenance.php": true, "debug.log": true}

// file takes one file of the archive.
func (u *unpacking) file(name string, in io.Reader) error {
	if err := u.ctx.Err(); err != nil {
		return context.Cause(u.ctx)
	}
	name = path.Clean("/" + strings.ReplaceAll(name, "\\", "/"))[1:]
	if len(name) > maxImportPath || strings.ContainsRune(name, 0) {
		return badArchive("a path in it is too long")
	}
	if u.files++; u.files > maxImportFiles {
		return badArchive(fmt.Sprintf("it holds more than %d files", maxImportFiles))
	}
	rel, ok := strings.CutPrefix("/"+name, "/wp-content/")
	if !ok {
		_, rel, ok = strings.Cut("/"+name, "/wp-content/")
	}
	if ok && rel != "" {
		if dropIns[rel] {
			return nil
		}
		u.seen = true
		if err := u.root.MkdirAll(path.Dir(rel), 0o755); err != nil {
			return badArchive(fmt.Sprintf("the path %q can't be made", clip(rel, 200)))
		}
		out, err := u.root.OpenFile(rel, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
		if err != nil {
			return badArchive(fmt.Sprintf("the file %q can't be made", clip(rel, 200)))
		}
		return u.copy(out, in, &u.left)
	}
	if strings.EqualFold(path.Ext(name), ".sql") {
		if u.sql != nil {
			return badArchive("it holds several .sql files beside wp-content")
		}
		var err error
		if u.sql, err = os.CreateTemp(filepath.Dir(u.dir), ".import-sql-"); err != nil {
			return fmt.Errorf("import: %w", err)
		}
		_ = os.Remove(u.sql.Name())
		left := int64(maxImportSQL)
		return u.copy(keep{u.sql}, in, &left)
	}
	return nil // such as the core, which is ours
}

// keep leaves a file open.
type keep struct{ *os.File }

func (keep) Close() error { return nil }

func (u *unpacking) copy(out io.WriteCloser, in io.Reader, left *int64) error {
	n, err := io.Copy(out, io.LimitReader(in, *left+1))
	*left -= n
	err = errors.Join(err, out.Close())
	switch {
	case *left < 0:
		return &fault.Error{Kind: fault.TooLarge, Message: "The archive is too large", Details: "unpacked it is more than this site may store; raise run.storageMiB", Code: "import_too_large"}
	case errors.Is(err, syscall.ENOSPC):
		return &fault.Error{Kind: fault.Unavailable, Message: "The server's disk is full", Details: "nothing was changed", Code: "disk_full"}
	case err != nil:
		return badArchive("it is damaged or cut off")
	}
	return nil
}

// ownLike gives a tree that we have written to the owner of dir.
func ownLike(tree, dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || os.Geteuid() != 0 {
		return nil // everything is ours
	}
	root, err := os.OpenRoot(tree)
	if err != nil {
		return err
	}
	defer root.Close()
	return fs.WalkDir(root.FS(), ".", func(name string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return root.Lchown(name, int(st.Uid), int(st.Gid))
	})
}
