package difference

import (
	"bytes"
	"context"
	"io"
	"io/fs"
	"os"
	"path"
	"syscall"
	"time"
)

// Bounds of walks over files of sites.
const (
	maxWalked   = 300_000          // files and folders
	walkTime    = 5 * time.Second  // of one tree
	maxCompared = 256 << 20        // bytes that are read of each of two trees
	compareTime = 10 * time.Second // of reading them
)

// notContent are folders of wp-content that are made anew whenever they are missing.
var notContent = map[string]bool{"cache": true, "upgrade": true, "upgrade-temp-backup": true}

// walkContent calls fn with every file of a wp-content that its owner may be changing, and reports whether it got to
// the end. It follows no link and opens only folders.
func Walk(ctx context.Context, root *os.Root, fn func(name string, info fs.FileInfo)) (whole bool) {
	ctx, done := context.WithTimeout(ctx, walkTime)
	defer done()
	n := 0
	err := fs.WalkDir(root.FS(), ".", func(name string, e fs.DirEntry, err error) error {
		if n++; n > maxWalked || ctx.Err() != nil {
			return fs.SkipAll
		}
		switch {
		case err != nil: // it is gone meanwhile
			if e != nil && e.IsDir() {
				return fs.SkipDir
			}
			return nil
		case e.IsDir():
			if notContent[name] {
				return fs.SkipDir
			}
			return nil
		case !e.Type().IsRegular():
			return nil
		}
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			fn(name, info)
		}
		return nil
	})
	return err == nil && n <= maxWalked && ctx.Err() == nil
}

// FileDiff is how the files of one wp-content differ from those of another.
type FileDiff struct {
	Added   int // only in the first
	Removed int // only in the second
	Changed int // in both, with another content
	Unread  int // in both with the same size, but too many to compare their content
	// Examples are names of files that are only in the second, or are another there.
	Examples []string
}

// maxExamples of files and options that differ.
const maxExamples = 5

// compareFiles compares two trees; nil: they have too many files.
func Files(ctx context.Context, from, to string) (*FileDiff, error) {
	a, err := os.OpenRoot(from)
	if err != nil {
		return nil, err
	}
	defer a.Close()
	b, err := os.OpenRoot(to)
	if err != nil {
		return nil, err
	}
	defer b.Close()
	sizes := map[string]int64{}
	if !Walk(ctx, a, func(name string, info fs.FileInfo) { sizes[name] = info.Size() }) {
		return nil, nil
	}
	var d FileDiff
	example := func(name string) {
		if len(d.Examples) < maxExamples {
			d.Examples = append(d.Examples, path.Clean(name))
		}
	}
	var alike []string
	if !Walk(ctx, b, func(name string, info fs.FileInfo) {
		size, both := sizes[name]
		delete(sizes, name)
		switch {
		case !both:
			d.Removed++
			example(name)
		case size != info.Size():
			d.Changed++
			example(name)
		case size > 0:
			alike = append(alike, name)
			return
		}
	}) {
		return nil, nil
	}
	d.Added = len(sizes)
	ctx, done := context.WithTimeout(ctx, compareTime)
	defer done()
	left := int64(maxCompared)
	for _, name := range alike {
		if ctx.Err() != nil {
			d.Unread++
			continue
		}
		same, known := sameBytes(a, b, name, &left)
		switch {
		case !known:
			d.Unread++
		case !same:
			d.Changed++
			example(name)
		}
	}
	return &d, nil
}

// sameBytes compares a file of two trees, for as long as bytes are left.
func sameBytes(a, b *os.Root, name string, left *int64) (same, known bool) {
	open := func(r *os.Root) *os.File { // a pipe in its place must not be waited for
		f, err := r.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
		if err != nil {
			return nil
		}
		if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() || info.Size() > *left {
			_ = f.Close()
			return nil
		}
		return f
	}
	x := open(a)
	if x == nil {
		return false, false
	}
	defer x.Close()
	y := open(b)
	if y == nil {
		return false, false
	}
	defer y.Close()
	var p, q [32 << 10]byte
	for *left > 0 {
		n, errA := io.ReadFull(x, p[:])
		m, errB := io.ReadFull(y, q[:])
		*left -= int64(max(n, m))
		if !bytes.Equal(p[:n], q[:m]) {
			return false, true
		}
		if errA != nil || errB != nil {
			return errA != nil && errB != nil, true
		}
	}
	return false, false
}
