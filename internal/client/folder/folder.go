// Package folder owns the choice of a folder's files to upload, and their digests.
//
// In a Git work tree, Git says which files are ignored; elsewhere the package reads .gitignore files by the same rules.
// .slipwayignore excludes more. Secrets, dependencies and version control are uploaded only if a pattern includes them,
// and nothing outside the folder is. Digests are cached by size, time and inode, so that an unchanged folder isn't read
// again.
package folder

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// File is one file to upload.
type File struct {
	Path   string // with slashes, relative to the folder
	Mode   string // "" regular, "x" executable, "l" symbolic link
	Size   int64
	Digest string // SHA-256, hexadecimal

	name string // path on this machine, relative to the folder
	link string // target of a symbolic link
	info fs.FileInfo
}

// Left is something that isn't uploaded, and why.
type Left struct{ Path, Why string }

// Options holds what to include.
type Options struct {
	Prebuilt bool     // the folder is ready to publish: ignore .gitignore, and follow links within it
	Include  []string // patterns of secrets and dependencies to upload anyway
	MaxFiles int
}

// Folder is a folder with a list of its files.
type Folder struct {
	root  *os.Root
	dir   string
	Files []File
	Left  []Left // skipped files, except those named by ignore files
}

// Open lists the files of a folder. Close it afterwards.
func Open(ctx context.Context, dir string, o Options) (*Folder, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	f := &Folder{root: root, dir: dir}
	if err := f.list(ctx, o); err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return f, nil
}

// Close releases the folder.
func (f *Folder) Close() error { return f.root.Close() }

func (f *Folder) list(ctx context.Context, o Options) error {
	include, err := parseIgnore("", []byte(strings.Join(o.Include, "\n")))
	if err != nil {
		return err
	}
	w := &walker{f: f, o: o, include: include}
	if text, err := f.root.ReadFile(".slipwayignore"); err == nil {
		w.slipway, err = parseIgnore("", text)
		if err != nil {
			return fmt.Errorf("read .slipwayignore: %w", err)
		}
	}
	names, inGit, err := gitFiles(ctx, f.dir)
	if err != nil {
		return err
	}
	if o.Prebuilt || !inGit {
		w.gitignore = !o.Prebuilt
		err = w.walk(ctx, ".", nil)
	} else {
		err = w.listed(names)
	}
	if err != nil {
		return err
	}
	slices.SortFunc(f.Files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return nil
}

// gitFiles asks Git for the folder's files that aren't ignored. inGit reports whether the folder is in a work tree.
func gitFiles(ctx context.Context, dir string) (names []string, inGit bool, err error) {
	in := func(args ...string) ([]byte, error) { return git(ctx, dir, args...).Output() }
	if out, err := in("rev-parse", "--is-inside-work-tree"); err != nil || string(bytes.TrimSpace(out)) != "true" {
		return nil, false, nil // no work tree, or Git isn't installed
	}
	out, err := in("ls-files", "-coz", "--exclude-standard")
	if err != nil {
		return nil, true, fmt.Errorf("git ls-files: %w", err)
	}
	seen := map[string]bool{} // Git lists a file with conflicts three times
	for name := range strings.SplitSeq(string(out), "\x00") {
		if name != "" && !seen[name] {
			seen[name] = true
			names = append(names, name)
		}
	}
	return names, true, nil
}

type walker struct {
	f         *Folder
	o         Options
	gitignore bool     // read .gitignore files
	slipway   patterns // of .slipwayignore
	include   patterns
	named     map[string]bool // paths already in Left
}

// listed adds the files that Git names.
func (w *walker) listed(names []string) error {
	for _, name := range names {
		info, err := w.f.root.Lstat(filepath.FromSlash(name))
		if errors.Is(err, fs.ErrNotExist) {
			continue // deleted but not committed
		}
		if err != nil {
			return err
		}
		if info.IsDir() {
			w.leave(name, "it is another repository")
			continue
		}
		if w.ignored(name) {
			continue
		}
		if err := w.file(name, info); err != nil {
			return err
		}
	}
	return nil
}

// ignored reports whether a path or a parent folder is excluded, and records why.
func (w *walker) ignored(name string) bool {
	for i := range name {
		if name[i] == '/' && w.leaves(name[:i], true) {
			return true
		}
	}
	return w.leaves(name, false)
}

// leaves is ignored for the path itself.
func (w *walker) leaves(name string, dir bool) bool {
	if ignored, _ := w.slipway.match(name, dir); ignored {
		return true
	}
	why := sensitive(path.Base(name), dir)
	if why == "" {
		return false
	}
	if included, ok := w.include.match(name, dir); ok && included || w.includedAbove(name) {
		return false
	}
	if path.Base(name) != ".slipway" { // the link itself isn't worth a message
		w.leave(name, why)
	}
	return true
}

func (w *walker) includedAbove(name string) bool {
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if included, _ := w.include.match(dir, true); included {
			return true
		}
	}
	return false
}

func (w *walker) leave(name, why string) {
	if w.named[name] {
		return
	}
	if w.named == nil {
		w.named = map[string]bool{}
	}
	w.named[name] = true
	w.f.Left = append(w.f.Left, Left{name, why})
}

// Sensitive returns why a file isn't uploaded by default, because of its name or a parent folder's, or "". name uses
// slashes.
func Sensitive(name string) string {
	for i := range name {
		if name[i] == '/' {
			if why := sensitive(path.Base(name[:i]), true); why != "" {
				return why
			}
		}
	}
	return sensitive(path.Base(name), false)
}

// sensitive returns why a name isn't uploaded unless included, or "".
func sensitive(name string, dir bool) string {
	lower := strings.ToLower(name)
	switch {
	case slices.Contains([]string{".git", ".hg", ".svn", ".bzr", ".jj"}, lower):
		return "version control"
	case slices.Contains([]string{".slipway", ".vercel", ".netlify"}, lower) && dir:
		return "settings of this machine"
	case lower == "node_modules" && dir:
		return "dependencies"
	case dir:
		return ""
	case lower == ".ds_store":
		return "settings of this machine"
	case lower == ".env.example" || lower == ".env.sample" || lower == ".env.template":
		return ""
	case lower == ".env" || strings.HasPrefix(lower, ".env."):
		return "secrets"
	}
	return ""
}

// walk adds the files below a folder. above holds the patterns of the .gitignore files in parent folders.
func (w *walker) walk(ctx context.Context, dir string, above []patterns) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	entries, err := fs.ReadDir(w.f.root.FS(), dir)
	if err != nil {
		return err
	}
	if w.gitignore {
		if text, err := w.f.root.ReadFile(filepath.Join(filepath.FromSlash(dir), ".gitignore")); err == nil {
			base := dir + "/"
			if dir == "." {
				base = ""
			}
			p, err := parseIgnore(base, text)
			if err != nil {
				return fmt.Errorf("read %s.gitignore: %w", base, err)
			}
			above = append(slices.Clip(above), p)
		}
	}
	for _, e := range entries {
		name := path.Join(dir, e.Name())
		if e.Name() == ".git" && w.gitignore { // like Git: never uploaded, no message
			continue
		}
		if matchAll(above, name, e.IsDir()) || w.leaves(name, e.IsDir()) {
			continue
		}
		if e.IsDir() {
			if err := w.walk(ctx, name, above); err != nil {
				return err
			}
			continue
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if err := w.file(name, info); err != nil {
			return err
		}
	}
	return nil
}

// file adds one file.
func (w *walker) file(name string, info fs.FileInfo) error {
	file := File{Path: name, Size: info.Size(), name: name, info: info}
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		to, err := w.f.root.Readlink(filepath.FromSlash(name))
		if err != nil {
			return err
		}
		to = filepath.ToSlash(to)
		if path.IsAbs(to) || !fs.ValidPath(path.Join(path.Dir(name), to)) {
			w.leave(name, "a link that leads out of the folder")
			return nil
		}
		if !w.o.Prebuilt {
			file.Mode, file.link, file.Size = "l", to, int64(len(to))
			break
		}
		at, err := w.f.root.Stat(filepath.FromSlash(name)) // fails for targets outside the folder
		target := path.Join(path.Dir(name), to)
		if err != nil || !at.Mode().IsRegular() || w.ignored(target) {
			w.leave(name, "a link to no file of the folder")
			return nil
		}
		file.info, file.Size = at, at.Size()
	case info.Mode().IsRegular():
		if info.Mode()&0o100 != 0 && !w.o.Prebuilt {
			file.Mode = "x"
		}
	default:
		w.leave(name, "not a file")
		return nil
	}
	w.f.Files = append(w.f.Files, file)
	if len(w.f.Files) > w.o.MaxFiles && w.o.MaxFiles > 0 {
		return fmt.Errorf("the folder has more than %d files; most are in %s: leave some out with .slipwayignore", w.o.MaxFiles, w.f.largest())
	}
	return nil
}

// largest lists the five folders with the most files.
func (f *Folder) largest() string {
	count := map[string]int{}
	for _, x := range f.Files {
		for dir := path.Dir(x.Path); dir != "."; dir = path.Dir(dir) {
			count[dir]++
		}
	}
	var dirs []string
	for dir := range count {
		dirs = append(dirs, dir)
	}
	slices.SortFunc(dirs, func(a, b string) int { return cmp.Or(count[b]-count[a], strings.Compare(a, b)) })
	for i, dir := range dirs[:min(5, len(dirs))] {
		dirs[i] = fmt.Sprintf("%s (%d)", dir, count[dir])
	}
	return strings.Join(dirs[:min(5, len(dirs))], ", ")
}
