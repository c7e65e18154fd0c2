package difference

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Tree is the wp-content of a site, without caches and links.
type Tree interface {
	// Count counts its files; nil: they are too many.
	Count(ctx context.Context) (*Amount, error)
	// Sizes returns the bytes of its files by their names; nil: they are too many.
	Sizes(ctx context.Context) (map[string]int64, error)
	// Digests returns digests of what files have, in their order. That of a file that can't be read, or not before ctx ends, is empty.
	Digests(ctx context.Context, files []File) ([]string, error)
}

// File is one of a Tree.
type File struct {
	Name string
	Size int64
}

// Dir is a Tree in a directory of this host.
type Dir string

// Count walks through the directory.
func (d Dir) Count(ctx context.Context) (*Amount, error) {
	var a Amount
	whole, err := d.walk(ctx, func(_ string, info fs.FileInfo) {
		a.Count++
		a.Bytes += info.Size()
		a.Changed = max(a.Changed, Seconds(info.ModTime().Unix()))
	})
	if err != nil || !whole {
		return nil, err
	}
	return &a, nil
}

// Sizes walks through the directory.
func (d Dir) Sizes(ctx context.Context) (map[string]int64, error) {
	sizes := map[string]int64{}
	told := 0
	whole, err := d.walk(ctx, func(name string, info fs.FileInfo) {
		if told += len(name); told <= maxTold {
			sizes[name] = info.Size()
		}
	})
	if err != nil || !whole || told > maxTold {
		return nil, err
	}
	return sizes, nil
}

// walk calls fn with every file that its owner may be changing, and reports whether it got to the end. It follows no link and
// opens only folders.
func (d Dir) walk(ctx context.Context, fn func(name string, info fs.FileInfo)) (whole bool, err error) {
	root, err := os.OpenRoot(string(d))
	if err != nil {
		return false, err
	}
	defer root.Close()
	ctx, done := context.WithTimeout(ctx, walkTime)
	defer done()
	n := 0
	err = fs.WalkDir(root.FS(), ".", func(name string, e fs.DirEntry, err error) error {
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
			if slices.Contains(notContent, name) {
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
	return err == nil && n <= maxWalked && ctx.Err() == nil, nil
}

// Digests reads the files.
func (d Dir) Digests(ctx context.Context, files []File) ([]string, error) {
	root, err := os.OpenRoot(string(d))
	if err != nil {
		return nil, err
	}
	defer root.Close()
	list := make([]string, len(files))
	for i, f := range files {
		if ctx.Err() != nil {
			break
		}
		list[i] = digest(root, f)
	}
	return list, nil
}

// digestLength is how many bytes of a SHA-256 are compared.
const digestLength = 16

func digest(root *os.Root, of File) string {
	f, err := root.OpenFile(of.Name, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0) // a pipe in its place is not waited for
	if err != nil {
		return ""
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return ""
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, io.LimitReader(f, of.Size+1)); err != nil { // it may have grown
		return ""
	}
	return hex.EncodeToString(sum.Sum(nil)[:digestLength])
}

// Asked is a Tree that lies where a site's PHP runs: it runs the task files there. What it says is bounded, and as true as the site's
// owner lets it be.
type Asked func(ctx context.Context, in, out any) error

// Bounds of one question.
const (
	maxPage    = 2 << 20   // bytes of names that are told at once
	maxNames   = 512 << 10 // bytes of names that are asked for at once
	maxDigests = 32 << 20  // bytes of files that are read at once: what is late is lost
	maxName    = 4096
)

// asking is what the task is asked.
type asking struct {
	Seconds float64  `json:"seconds"`
	Most    int      `json:"most,omitempty"`
	Without []string `json:"without,omitempty"`
	Names   bool     `json:"names,omitempty"`
	Page    int      `json:"page,omitempty"`
	After   []byte   `json:"after,omitempty"`   // the last name that it told
	Digests []byte   `json:"digests,omitempty"` // of these
}

// said is what the task says.
type said struct {
	Amount
	Late    bool   // they are too many
	Files   []byte // sizes and names
	More    bool   // after these
	Digests []string
}

var errGarbled = errors.New("the site's PHP tells its files in a way that makes no sense")

// Count has PHP walk.
func (a Asked) Count(ctx context.Context) (*Amount, error) {
	var s said
	if err := a(ctx, asking{Seconds: walkTime.Seconds(), Most: maxWalked, Without: notContent}, &s); err != nil || s.Late {
		return nil, err
	}
	n := Amount{Count: s.Count, Changed: s.Changed, Bytes: max(s.Bytes, 0)}
	n.Bound()
	return &n, nil
}

// Sizes has PHP walk, a page at a time.
func (a Asked) Sizes(ctx context.Context) (map[string]int64, error) { return a.sizes(ctx, maxPage) }

func (a Asked) sizes(ctx context.Context, page int) (map[string]int64, error) {
	sizes := map[string]int64{}
	ask := asking{Seconds: walkTime.Seconds(), Most: maxWalked, Without: notContent, Names: true, Page: page}
	for told := 0; ; {
		var s said
		if err := a(ctx, ask, &s); err != nil || s.Late {
			return nil, err
		}
		had := len(sizes)
		for line := range bytes.SplitSeq(s.Files, []byte{0}) {
			if len(line) == 0 { // after the last one
				continue
			}
			size, name, ok := strings.Cut(string(line), " ")
			n, err := strconv.ParseInt(size, 10, 64)
			if !ok || err != nil || n < 0 || len(name) > maxName || !filepath.IsLocal(name) || path.Clean(name) != name {
				return nil, errGarbled
			}
			told += len(name)
			if sizes[name] = n; len(sizes) > maxWalked || told > maxTold {
				return nil, nil
			}
			ask.After = []byte(name)
		}
		switch {
		case !s.More:
			return sizes, nil
		case len(sizes) == had, len(s.Files) <= page: // a page that more follow is full: nobody is asked for ever
			return nil, errGarbled
		}
	}
}

// Digests has PHP read the files, some at a time.
func (a Asked) Digests(ctx context.Context, files []File) ([]string, error) {
	list := make([]string, len(files))
	for i := 0; i < len(files) && ctx.Err() == nil; {
		n, size, names := i, int64(0), []byte(nil)
		for ; n < len(files) && (n == i || size+files[n].Size <= maxDigests && len(names) < maxNames); n++ {
			if n > i {
				names = append(names, 0)
			}
			names = fmt.Appendf(names, "%d %s", files[n].Size, files[n].Name)
			size += files[n].Size
		}
		ask := asking{Seconds: compareTime.Seconds(), Digests: names}
		if late, ok := ctx.Deadline(); ok {
			ask.Seconds = time.Until(late).Seconds()
		}
		var s said
		if err := a(ctx, ask, &s); err != nil {
			if ctx.Err() != nil {
				break
			}
			return nil, err
		}
		if len(s.Digests) != n-i {
			return nil, errGarbled
		}
		copy(list[i:], s.Digests)
		i = n
	}
	return list, nil
}
