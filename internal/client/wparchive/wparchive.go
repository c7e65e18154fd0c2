// Package wparchive owns reading WordPress archives made by other tools, and WordPress installations reached by ssh. It
// converts them to the format that servers import: a .tar.gz with wp-content and a dump.
//
// Archives are untrusted: their sizes, names and number of entries are limited, nothing in them is run, and data is
// written only to the new archive.
package wparchive

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// Limits of an archive. The server applies its own by the site's storage.
const (
	maxEntries = 250_000
	maxList    = 64 << 20 // bytes of a zip's directory
	maxPath    = 1000
	maxBytes   = 64 << 30 // unpacked
	maxSQL     = 8 << 30  // of the dump
	maxText    = 1 << 20  // of a file that is read into memory
)

// Plan describes an archive's content.
type Plan struct {
	Kind   string   `json:"kind"`       // for people
	Home   string   `json:"home"`       // URL of the WordPress; empty if the dump doesn't contain it
	Prefix string   `json:"prefix"`     // table prefix; empty if the dump doesn't contain it
	Files  int      `json:"files"`      // files in wp-content
	Bytes  int64    `json:"bytes"`      // total size of Files
	SQL    int64    `json:"sqlBytes"`   // 0 if unknown
	Left   []string `json:"notCarried"` // messages about what isn't imported
}

// Archive is a recognized archive.
type Archive struct {
	name string
	src  source
}

// source reads one kind of archive.
type source interface {
	// walk calls take with each file of wp-content and with the dump. left describes what isn't imported.
	walk(ctx context.Context, take taker) (left []string, err error)
}

// taker receives an archive's items in order.
type taker interface{ take(it item) error }

// item is a file of wp-content, or the dump.
type item struct {
	path string // below wp-content; empty for the dump
	size int64  // size of a file
	gzip bool   // the dump is compressed
	in   io.Reader
}

// bad returns an error about an archive that can't be imported.
func bad(format string, args ...any) error {
	return fmt.Errorf("the archive can't be imported: "+format, args...)
}

var errDamaged = bad("it is damaged or cut off")

// Open recognizes an archive by its file or its set of files. It returns nil for unknown kinds, which the server may
// know.
func Open(files []string) (*Archive, error) {
	name := filepath.Base(files[0])
	if set, err := updraftSet(files); set != nil || err != nil {
		return &Archive{"UpdraftPlus backup", set}, err
	}
	if len(files) > 1 {
		return nil, errors.New("several files are imported only where they are one UpdraftPlus backup")
	}
	low := strings.ToLower(name)
	switch {
	case strings.HasSuffix(low, ".wpress"):
		return &Archive{"All-in-One WP Migration archive", wpress(files[0])}, nil
	case strings.HasSuffix(low, ".daf"):
		return nil, bad("Duplicator's own format (.daf) is not read; choose ZipArchive in its settings and build the package again")
	case strings.HasSuffix(low, ".crypt"):
		return nil, bad("it is encrypted; decrypt it in UpdraftPlus first")
	}
	is, err := isDuplicator(files[0])
	if err != nil {
		return nil, err
	}
	if is {
		return &Archive{"Duplicator package", duplicator(files[0])}, nil
	}
	return nil, nil
}

// Plan describes the content. It reads a local archive completely; for a remote WordPress it uses what look found.
func (a *Archive) Plan(ctx context.Context) (Plan, error) {
	if r, ok := a.src.(*remote); ok {
		return r.plan(a.name), nil
	}
	return a.read(ctx, nil)
}

// Convert writes the archive for the server to f, a new file.
func (a *Archive) Convert(ctx context.Context, f *os.File) (Plan, error) {
	z := gzip.NewWriter(f)
	t := tar.NewWriter(z)
	p, err := a.read(ctx, t)
	if err != nil {
		return p, err
	}
	return p, errors.Join(t.Close(), z.Close())
}

func (a *Archive) read(ctx context.Context, out *tar.Writer) (Plan, error) {
	r := &reading{ctx: ctx, out: out, plan: Plan{Kind: a.name, Left: []string{}}}
	left, err := a.src.walk(ctx, r)
	switch {
	case err != nil:
		return r.plan, err
	case !r.sql:
		return r.plan, bad("it holds no dump of the database")
	case r.plan.Files == 0:
		return r.plan, bad("it holds no file of wp-content")
	}
	r.plan.Left = append(r.plan.Left, left...)
	r.plan.Home, r.plan.Prefix = r.look.home, r.look.prefix
	return r.plan, nil
}

// reading receives the items of one archive.
type reading struct {
	ctx     context.Context
	out     *tar.Writer // nil: only count them
	plan    Plan
	entries int
	sql     bool
	look    look
}

func (r *reading) take(it item) error {
	if err := r.ctx.Err(); err != nil {
		return context.Cause(r.ctx)
	}
	r.entries++
	if r.entries > maxEntries {
		return bad("it holds more than %d files", maxEntries)
	}
	if it.path == "" {
		return r.dump(it)
	}
	if err := checkPath(it.path); err != nil {
		return err
	}
	if it.size < 0 || it.size > maxBytes-r.plan.Bytes {
		return bad("it is larger than %d GiB unpacked", maxBytes>>30)
	}
	r.plan.Files++
	r.plan.Bytes += it.size
	if r.out == nil {
		return nil
	}
	h := &tar.Header{Typeflag: tar.TypeReg, Name: "wp-content/" + it.path, Size: it.size, Mode: 0o644, Format: tar.FormatPAX}
	if err := r.out.WriteHeader(h); err != nil {
		return fmt.Errorf("write the archive: %w", err)
	}
	if _, err := io.CopyN(r.out, it.in, it.size); err != nil {
		return errors.Join(errDamaged, err)
	}
	// Reading to the end detects a wrong length or checksum.
	if n, err := io.ReadFull(it.in, make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		return errDamaged
	}
	return nil
}

// checkPath refuses paths that lead out of wp-content.
func checkPath(p string) error {
	if len(p) > maxPath || strings.ContainsAny(p, "\x00\\") || strings.HasPrefix(p, "/") || strings.Contains("/"+p+"/", "/../") {
		return bad("the path %q is not allowed", p[:min(len(p), 200)])
	}
	return nil
}

// dump compresses the database dump, whose uncompressed length isn't known in advance.
func (r *reading) dump(it item) error {
	if r.sql {
		return bad("it holds several dumps of the database")
	}
	r.sql = true
	in := it.in
	if it.gzip {
		z, err := gzip.NewReader(in)
		if err != nil {
			return errDamaged
		}
		in = z
	}
	f, err := os.CreateTemp("", "slipway-dump-*")
	if err != nil {
		return fmt.Errorf("store the dump: %w", err)
	}
	defer func() { _, _ = f.Close(), os.Remove(f.Name()) }()
	z := gzip.NewWriter(f)
	to := io.MultiWriter(&r.look, z)
	if r.out == nil {
		to = &r.look
	}
	n, err := io.Copy(to, io.LimitReader(in, maxSQL+1))
	switch {
	case err != nil:
		return errors.Join(errDamaged, err)
	case n > maxSQL:
		return bad("its dump is larger than %d GiB", maxSQL>>30)
	}
	r.look.end()
	r.plan.SQL = n
	if r.out == nil {
		return nil
	}
	if err := z.Close(); err != nil {
		return fmt.Errorf("store the dump: %w", err)
	}
	size, err := f.Seek(0, io.SeekCurrent)
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err == nil {
		err = r.out.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "database.sql.gz", Size: size, Mode: 0o600})
	}
	if err == nil {
		_, err = io.Copy(r.out, f)
	}
	if err != nil {
		return fmt.Errorf("write the archive: %w", err)
	}
	return nil
}
