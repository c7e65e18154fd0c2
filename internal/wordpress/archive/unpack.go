// Package archive owns reading archives of other WordPress sites: it receives or fetches them, and takes
// them apart: wp-content goes to a folder and the SQL dump to whoever loads it.
//
// Everything in an archive is a stranger's: its size, its names and how many there are is bounded, and
// nothing is written outside the folder.
package archive

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"

	"slipway/internal/platform/disk"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/lazyregexp"
	"slipway/internal/platform/text"
	"slipway/internal/platform/unzip"
)

// Bounds of an archive besides the site's storage and the database's size.
const (
	maxImportFiles   = 200_000
	maxImportEntries = 250_000  // folders and links included
	maxImportList    = 64 << 20 // bytes of a zip archive's list of them
	maxImportPath    = 1000
	maxImportSQL     = 8 << 30
	maxImportSkipped = 4 << 30 // bytes of what is not taken, such as a core
)

// tableForm finds tables whose names end as those of WordPress's options, of its users' settings, and of a network's sites.
// What they begin with all tables begin with.
var tableForm = lazyregexp.New(
	"(?i)^CREATE\\s+TABLE\\s+(?:IF\\s+NOT\\s+EXISTS\\s+)?[`\"]?([A-Za-z0-9_]{1,30}?)(options|usermeta|blogs|sitemeta)[`\"]?\\s*\\(",
)

// Bounds of the search for a prefix: how long a match may be, how many names are remembered,
// and how many places are looked at.
const (
	maxTableForm  = 300
	maxCandidates = 1000
	maxLooks      = 100_000
)

// Prefixes looks for a dump's table prefix in what is written to it. Tables of plugins end in
// options too: WordPress's own is the one with a usermeta beside it, or, where its users are
// elsewhere, the one with the shortest name.
type Prefixes struct {
	tables map[[2]string]bool // by prefix and the rest of the name
	sure   bool
	best   string // what was found so far
	looks  int
	text   []byte // what is not looked at yet
}

// Write never fails.
func (p *Prefixes) Write(b []byte) (int, error) {
	if p.looks > maxLooks {
		return len(b), nil
	}
	p.text = append(p.text, b...)
	if len(p.text) >= 1<<20 {
		p.search(len(p.text) - maxTableForm)
		p.text = append(p.text[:0], p.text[max(0, len(p.text)-maxTableForm):]...)
	}
	return len(b), nil
}

// Network reports whether the dump is one of a network of several sites.
func (p *Prefixes) Network() bool {
	return p.tables[[2]string{p.best, "blogs"}] && p.tables[[2]string{p.best, "sitemeta"}]
}

// Found returns the prefix.
func (p *Prefixes) Found() (string, error) {
	p.search(len(p.text))
	if p.best == "" {
		return "", Bad("its SQL file holds no table of options of a WordPress")
	}
	base := ofNetwork.ReplaceAllString(p.best, "")
	if base != p.best && !p.tables[[2]string{p.best, "usermeta"}] && (p.tables[[2]string{base, "usermeta"}] || strings.HasSuffix(base, "_")) {
		return "", Bad("its SQL file holds one site of a network (multisite) without users of its own; export it as a site of its own")
	}
	return p.best, nil
}

// ofNetwork is what follows the prefix of a network in that of one of its sites.
var ofNetwork = lazyregexp.New(`[0-9]+_$`)

// search looks at tables that begin before end.
func (p *Prefixes) search(end int) {
	if p.tables == nil {
		p.tables = map[[2]string]bool{}
	}
	for _, word := range []string{"CREATE", "create", "Create"} {
		for at := 0; p.looks <= maxLooks; at++ {
			i := bytes.Index(p.text[at:], []byte(word))
			if i < 0 || at+i >= end {
				break
			}
			at += i
			p.looks++
			m := tableForm.FindSubmatch(p.text[at:min(at+maxTableForm, len(p.text))])
			if m == nil || len(p.tables) > maxCandidates {
				continue
			}
			prefix, name := string(m[1]), strings.ToLower(string(m[2]))
			p.tables[[2]string{prefix, name}] = true
			if !p.sure && p.tables[[2]string{prefix, "options"}] && p.tables[[2]string{prefix, "usermeta"}] {
				p.best, p.sure = prefix, true
			}
			if name == "options" && !p.sure && (p.best == "" || len(prefix) < len(p.best)) {
				p.best = prefix
			}
		}
	}
}

// Unpack takes the archive of a name apart: its wp-content goes below dir, at most left bytes of it, and its dump to
// load. told hears how far it is, from 0 to 1.
func Unpack(ctx context.Context, name, dir string, left int64, load func(sql io.Reader) error, told func(part float64)) error {
	u := &unpacking{ctx: ctx, dir: dir, left: left, load: load, told: told}
	defer u.close()
	return u.open(name)
}

// unpacking takes an archive apart: its wp-content below dir, its dump to load, which is never
// on disk unpacked.
type unpacking struct {
	ctx     context.Context
	dir     string
	left    int64 // bytes
	taken   int64 // bytes, until clear
	entries int   // of the archive, folders and links included
	files   int
	load    func(sql io.Reader) error
	told    func(part float64)

	root *os.Root
	sql  bool   // a dump was there
	seen bool   // something of wp-content
	top  string // the folder that its wp-content is in
}

func (u *unpacking) close() {
	if u.root != nil {
		_ = u.root.Close()
	}
}

func (u *unpacking) open(name string) (err error) {
	if u.root, err = os.OpenRoot(u.dir); err != nil {
		return err
	}
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return Bad("it is no longer here: upload it again")
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
		return Bad("it is too short")
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
	case !u.sql:
		return Bad("it holds no .sql file")
	case !u.seen:
		return Bad("it holds no wp-content")
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
		return Bad("it is neither gzip nor zip")
	}
	// What is not taken is unpacked too, on the way to what follows it.
	whole := &io.LimitedReader{R: z, N: u.left + maxImportSQL + maxImportSkipped}
	t := tar.NewReader(whole)
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) && whole.N > 0 {
			return nil
		}
		switch {
		case whole.N <= 0:
			return tooLarge
		case err != nil:
			return Bad("it is damaged or cut off")
		}
		if err := u.entry(); err != nil {
			return err
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
	z, err := unzip.Open(f, size, unzip.Limits{Entries: maxImportEntries, Bytes: maxImportList})
	switch {
	case errors.Is(err, unzip.ErrEntries):
		return Bad(fmt.Sprintf("it holds more than %d files and folders", maxImportEntries))
	case errors.Is(err, unzip.ErrList):
		return Bad(fmt.Sprintf("it holds more than %d files and folders, or their names are too long", maxImportEntries))
	case err != nil:
		return Bad("it is damaged or cut off")
	}
	for i, h := range z.File {
		if err := u.entry(); err != nil {
			return err
		}
		if !h.Mode().IsRegular() {
			continue
		}
		in, err := h.Open()
		if err != nil {
			return Bad("it is damaged, or compressed in an unknown way")
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

// entry counts whatever the archive lists.
func (u *unpacking) entry() error {
	if u.entries++; u.entries > maxImportEntries {
		return Bad(fmt.Sprintf("it holds more than %d files and folders", maxImportEntries))
	}
	if u.entries%1000 == 0 && u.ctx.Err() != nil {
		return context.Cause(u.ctx)
	}
	return nil
}

// dropIns belong to the server that the site comes from.
var dropIns = map[string]bool{
	"object-cache.php":    true,
	"advanced-cache.php":  true,
	"db.php":              true,
	"wp-cache-config.php": true,
	"maintenance.php":     true,
	"debug.log":           true,
}

// file takes one file of the archive.
func (u *unpacking) file(name string, in io.Reader) error {
	if err := u.ctx.Err(); err != nil {
		return context.Cause(u.ctx)
	}
	name = path.Clean("/" + strings.ReplaceAll(name, "\\", "/"))[1:]
	if len(name) > maxImportPath || strings.ContainsRune(name, 0) {
		return Bad("a path in it is too long")
	}
	if u.files++; u.files > maxImportFiles {
		return Bad(fmt.Sprintf("it holds more than %d files", maxImportFiles))
	}
	if strings.HasPrefix(path.Base(name), "._") || strings.HasPrefix(name, "__MACOSX/") {
		return nil // what macOS notes of a file, under the file's name
	}
	if top, rel, ok := contentOf(name); ok {
		switch {
		case !u.seen, top == u.top:
		case notContent(top, u.top):
			return nil
		case notContent(u.top, top):
			if err := u.clear(); err != nil {
				return err
			}
		default: // one over the other would be neither
			return Bad(fmt.Sprintf("it holds several WordPress, %q and %q", text.Clip(u.top, 100), text.Clip(top, 100)))
		}
		u.seen, u.top = true, top
		if dropIns[rel] {
			return nil
		}
		if err := u.root.MkdirAll(path.Dir(rel), 0o755); err != nil {
			return Bad(fmt.Sprintf("the path %q can't be made", text.Clip(rel, 200)))
		}
		out, err := u.root.OpenFile(rel, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
		if err != nil {
			return Bad(fmt.Sprintf("the file %q can't be made", text.Clip(rel, 200)))
		}
		return u.copy(out, in)
	}
	low := strings.ToLower(name)
	if packed := strings.HasSuffix(low, ".sql.gz"); packed || strings.HasSuffix(low, ".sql") {
		if u.sql {
			return Bad("it holds several .sql files beside wp-content")
		}
		u.sql = true
		if packed {
			var err error
			if in, err = gzip.NewReader(in); err != nil {
				return Bad("its .sql.gz file is damaged")
			}
		}
		return u.load(&dump{r: in, left: maxImportSQL})
	}
	return nil // such as the core, which is ours
}

// contentOf returns the folder of an archive that is a wp-content, and where a file lies in it. Bedrock calls it app.
func contentOf(name string) (top, rel string, ok bool) {
	if before, rel, ok := strings.Cut("/"+name, "/wp-content/"); ok && rel != "" {
		return strings.TrimPrefix(before+"/wp-content", "/"), rel, true
	}
	before, rel, ok := strings.Cut("/"+name, "/app/")
	switch first, _, deeper := strings.Cut(rel, "/"); {
	case !ok, !deeper, first != "themes" && first != "plugins" && first != "mu-plugins" && first != "uploads" && first != "languages",
		before != "" && path.Base(before) != "web" && path.Base(before) != "public":
		return "", "", false
	}
	return strings.TrimPrefix(before+"/app", "/"), rel, true
}

// notContent reports whether a folder isn't the site's wp-content, because the archive holds another folder too: Bedrock's app, beside
// which the core has a wp-content of its own, or a wp-content, beside which app isn't Bedrock's.
func notContent(top, other string) bool {
	dir := path.Dir(other)
	return path.Base(other) == "app" && top == path.Join(dir, "wp/wp-content") ||
		path.Base(other) == "wp-content" && top == path.Join(dir, "app")
}

// clear removes the files taken so far, and gives back their share of left.
func (u *unpacking) clear() error {
	u.left, u.taken = u.left+u.taken, 0
	entries, err := fs.ReadDir(u.root.FS(), ".")
	for _, e := range entries {
		err = errors.Join(err, u.root.RemoveAll(e.Name()))
	}
	return err
}

var tooLarge = fault.New(fault.TooLarge, "import_too_large", "The archive is too large",
	"the unpacked archive exceeds the site's storage limit; increase run.storageMiB")

// dump reads the SQL of an archive, and says in words what is wrong with it.
type dump struct {
	r    io.Reader
	left int64
}

func (d *dump) Read(b []byte) (int, error) {
	n, err := d.r.Read(b)
	if d.left -= int64(n); d.left < 0 {
		return n, tooLarge
	}
	if err != nil && !errors.Is(err, io.EOF) {
		err = Bad("it is damaged or cut off")
	}
	return n, err
}

func (u *unpacking) copy(out io.WriteCloser, in io.Reader) error {
	n, err := io.Copy(out, disk.Sparing(u.dir, io.LimitReader(in, u.left+1)))
	u.left, u.taken = u.left-n, u.taken+n
	err = errors.Join(err, out.Close())
	switch {
	case u.left < 0:
		return tooLarge
	case disk.Full(err):
		return diskFull()
	case err != nil:
		return Bad("it is damaged or cut off")
	}
	return nil
}
