package fetch

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"slipway/internal/platform/fault"
)

// Reader streams the contents of files in the given order.
type Reader interface {
	Read(ctx context.Context, files []File, fn func(File, io.Reader) error) error
}

// Followed is a file under one of its names in the commit: its own, or that of a symbolic link.
type Followed struct {
	File        // Path is this name
	Real string // the file's own path
}

const (
	maxLinks  = 40      // links followed for one file, as in Linux
	maxLinked = 100_000 // entries in all linked folders together
	maxTarget = 4096    // bytes of a link's target
)

// Follow replaces the symbolic links of a commit by their targets: a file, or all files of a folder. left lists links
// that lead outside the tree, to nothing or to a folder that contains them, and submodules without content. all must be
// sorted by path, as [Tree.Files] returns it.
func Follow(ctx context.Context, tree Reader, all []File) (files []Followed, left []File, err error) {
	l := links{all: all, targets: map[string]string{}, files: make([]Followed, 0, len(all))}
	var found []File
	for _, f := range all {
		switch {
		case f.Mode&fs.ModeSymlink != 0:
			found = append(found, f)
		case f.Mode.IsRegular():
			l.files = append(l.files, Followed{f, f.Path})
		default:
			left = append(left, f)
		}
	}
	if len(found) == 0 {
		return l.files, left, nil
	}
	err = tree.Read(ctx, found, func(f File, r io.Reader) error {
		b, err := io.ReadAll(io.LimitReader(r, maxTarget+1))
		if len(b) <= maxTarget {
			l.targets[f.Path] = string(b)
		}
		return err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("read links: %w", err)
	}
	for _, f := range found {
		if !l.add(f.Path, f.Path, nil) {
			left = append(left, f)
		}
		if l.looked > maxLinked {
			return nil, nil, fault.New(fault.Invalid, "repository_links", "The repository's links to folders add too many files",
				fmt.Sprintf("all links together may lead to %d files and links", maxLinked))
		}
	}
	return l.files, left, nil
}

type links struct {
	all     []File
	targets map[string]string // targets of links, by path
	files   []Followed
	looked  int // entries of linked folders so far
}

// add adds the target of link under a name. within lists the linked folders that are being added.
func (l *links) add(name, link string, within []string) bool {
	real, ok := l.resolve(link)
	if !ok {
		return false
	}
	if i, found := l.index(real); found {
		f := l.all[i]
		f.Path = name
		if f.Mode.IsRegular() {
			l.files = append(l.files, Followed{f, real})
		}
		return f.Mode.IsRegular()
	}
	within = append(slices.Clone(within), path.Dir(link))
	for _, dir := range within { // a folder that contains a link to itself is infinite
		if real == "" || dir == real || strings.HasPrefix(dir, real+"/") {
			return false
		}
	}
	first, _ := l.index(real + "/")
	some := false
	for i := first; i < len(l.all) && strings.HasPrefix(l.all[i].Path, real+"/") && l.looked <= maxLinked; i++ {
		l.looked++
		f := l.all[i]
		at, as := f.Path, name+strings.TrimPrefix(f.Path, real)
		switch {
		case f.Mode.IsRegular():
			f.Path = as
			l.files = append(l.files, Followed{f, at})
			some = true
		case f.Mode&fs.ModeSymlink != 0:
			some = l.add(as, at, append(within, real)) || some
		}
	}
	return some
}

// resolve returns a link's final path, without links on the way. The path may not exist.
func (l *links) resolve(link string) (string, bool) {
	var done []string
	left := strings.Split(link, "/")
	for links := 0; len(left) > 0; {
		n := left[0]
		left = left[1:]
		switch n {
		case "", ".":
			continue
		case "..":
			if len(done) == 0 {
				return "", false
			}
			done = done[:len(done)-1]
			continue
		}
		done = append(done, n)
		to, is := l.targets[strings.Join(done, "/")]
		if !is {
			continue
		}
		links++
		if links > maxLinks || to == "" || path.IsAbs(to) {
			return "", false
		}
		done = done[:len(done)-1]
		left = append(strings.Split(to, "/"), left...)
	}
	return path.Join(done...), true
}

func (l *links) index(name string) (int, bool) {
	return slices.BinarySearchFunc(l.all, name, func(f File, name string) int { return strings.Compare(f.Path, name) })
}
