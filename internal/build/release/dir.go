package release

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"

	"slipway/internal/build/rules"
	"slipway/internal/platform/fault"
)

// AddDir adds the regular files below root. The directory is untrusted and may change meanwhile: everything is opened
// below root (os.Root), without blocking, and checked again after opening. Only bytes are copied, not modes and owners.
// A relative symbolic link to something inside is published as its target. A FIFO, socket or device is a fault that
// names it. Hidden and invalid names are skipped and reported by Seal. PHP source is skipped, and its first file is
// reported to skipped.
//
// All other symbolic links are skipped and reported to skipped; for a rule file, that is a fault.
func (w *Writer) AddDir(ctx context.Context, root *os.Root, skipped func(name, why string)) error {
	return w.AddDirAt(ctx, root, "", skipped)
}

// AddDirAt is AddDir with a folder of the release as destination.
func (w *Writer) AddDirAt(ctx context.Context, root *os.Root, at string, skipped func(name, why string)) error {
	d := &dirWalk{w: w, root: root, skipped: skipped}
	return d.dir(ctx, ".", at, nil)
}

// Leave makes AddDir and AddDirAt skip files and folders for which leave returns true, by their path in the release.
func (w *Writer) Leave(leave func(path string) bool) { w.leave = leave }

type dirWalk struct {
	w       *Writer
	root    *os.Root
	skipped func(name, why string)
	entries int // entries so far, including directories
	php     int // files with PHP source
}

// WhyNoPHP is the reason for skipping PHP source.
const WhyNoPHP = "PHP source is never published as text, this file or any other; to run it, set the framework to php"

// at is a directory on the path from the root, to detect a link to one of its parents.
type at struct {
	info fs.FileInfo
	up   *at
}

// dir adds the directory at real under name.
func (d *dirWalk) dir(ctx context.Context, real, name string, up *at) error {
	f, err := d.open(real)
	if err != nil {
		return d.unreadable(name, err)
	}
	info, err := f.Stat()
	if err == nil && !info.IsDir() {
		err = errors.New("not a directory any more")
	}
	var names []string
	if err == nil {
		names, err = d.names(f)
	}
	f.Close()
	if err != nil {
		return d.unreadable(name, err)
	}
	for a := up; a != nil; a = a.up {
		if os.SameFile(a.info, info) {
			return d.skip(name, "it is a symbolic link to a directory that it is in")
		}
	}
	for _, n := range names {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := d.entry(ctx, path.Join(real, n), path.Join(name, n), &at{info, up}); err != nil {
			return err
		}
	}
	return nil
}

// names reads a directory in portions, up to the limit: a hostile directory may be endless. The names are sorted, so
// that the same tree is always published in the same order.
func (d *dirWalk) names(f *os.File) ([]string, error) {
	var all []string
	for {
		names, err := f.Readdirnames(1024)
		all = append(all, names...)
		d.entries += len(names)
		if d.entries > 2*d.w.r.MaxFiles {
			return nil, fault.New(fault.Invalid, "release_files", "Too many files to publish",
				fmt.Sprintf("a release has at most %d files", d.w.r.MaxFiles))
		}
		if err == io.EOF {
			slices.Sort(all)
			return all, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

func (d *dirWalk) entry(ctx context.Context, real, name string, up *at) error {
	if d.w.Skips(name) || d.w.leave != nil && d.w.leave(name) {
		return nil
	}
	info, err := d.root.Lstat(real)
	if err != nil {
		return d.unreadable(name, err)
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		var why string
		if real, why, err = d.follow(real); err != nil {
			return d.unreadable(name, err)
		}
		if why == "" {
			if info, err = d.root.Lstat(real); err != nil {
				why = nowhere
			}
		}
		if why != "" {
			return d.skip(name, why)
		}
	}
	switch {
	case info.IsDir():
		return d.dir(ctx, real, name, up)
	case info.Mode().IsRegular() && (PHPSource(name) || PHPSource(real)): // a link may have another name than its target
		d.php++
		if d.php == 1 {
			d.skipped(show(name), WhyNoPHP)
		}
		return nil
	case info.Mode().IsRegular():
		return d.file(ctx, real, name)
	}
	return notFile(name, "it is "+kind(info.Mode()))
}

func (d *dirWalk) file(ctx context.Context, real, name string) error {
	f, err := d.open(real)
	if err != nil {
		return d.unreadable(name, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return d.unreadable(name, err)
	}
	if !info.Mode().IsRegular() {
		return notFile(name, "it is "+kind(info.Mode()))
	}
	return d.w.Add(ctx, name, "", f)
}

// open never blocks on a FIFO and never follows a link in the last element. os.Root keeps links in the other elements
// inside the root.
func (d *dirWalk) open(real string) (*os.File, error) {
	return d.root.OpenFile(real, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
}

// skip skips a symbolic link.
func (d *dirWalk) skip(name, why string) error {
	if rules.IsFile(name) {
		return notFile(name, why)
	}
	d.skipped(show(name), why)
	return nil
}

const nowhere = "it is a symbolic link to something that isn't there"

// follow resolves a link one element at a time, because a link must not publish a hidden file under another name. why
// says why it can't be published.
func (d *dirWalk) follow(real string) (to, why string, err error) {
	const most = 40 // links followed, as in Linux
	const outside = "it is a symbolic link that points outside the published directory"
	todo := strings.Split(real, "/")
	var done []string
	for links := 0; len(todo) > 0; {
		n := todo[0]
		todo = todo[1:]
		switch n {
		case "", ".":
			continue
		case "..":
			if len(done) == 0 {
				return "", outside, nil
			}
			done = done[:len(done)-1]
			continue
		}
		here := path.Join(append(slices.Clone(done), n)...)
		if Hidden(here) {
			return "", "it is a symbolic link to a hidden file", nil
		}
		info, err := d.root.Lstat(here)
		if err != nil {
			return "", nowhere, nil
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			done = append(done, n)
			continue
		}
		links++
		if links > most {
			return "", "it is a symbolic link loop", nil
		}
		target, err := d.root.Readlink(here)
		if err != nil {
			return "", "", err
		}
		if target == "" || path.IsAbs(target) {
			return "", outside, nil
		}
		todo = append(strings.Split(target, "/"), todo...)
	}
	return cmp.Or(path.Join(done...), "."), "", nil
}

func (d *dirWalk) unreadable(name string, err error) error {
	switch {
	case fault.As(err) != nil:
		return err
	case errors.Is(err, fs.ErrPermission):
		return notFile(cmp.Or(name, "."), "it cannot be read")
	}
	return fmt.Errorf("read %s: %w", show(cmp.Or(name, ".")), err)
}

func notFile(name, why string) error {
	return fault.New(fault.Invalid, "release_file", "The output contains a file that can't be published",
		fmt.Sprintf("%s: %s", show(name), why)).Got(show(name))
}

func kind(m fs.FileMode) string {
	switch {
	case m&fs.ModeNamedPipe != 0:
		return "a named pipe"
	case m&fs.ModeSocket != 0:
		return "a socket"
	case m&fs.ModeDevice != 0:
		return "a device"
	default:
		return "not a regular file"
	}
}
