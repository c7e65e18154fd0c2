// Package worktree owns reading a repository's files, within limits: package.json, lock files, workspaces and their
// members, and settings for other hosts. Package framework decides what they mean.
package worktree

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"slipway/internal/build/configfile"
	"slipway/internal/platform/fault"
)

// Limits of what detection reads.
const (
	MaxFile     = 1 << 20  // bytes of one file
	maxReads    = 1000     // files read
	maxBytes    = 16 << 20 // bytes read in all
	MaxPaths    = 100_000  // files listed
	MaxDepth    = 40       // nested folders
	MaxPathLen  = 1024     // bytes of one path
	MaxWarnings = 20
)

// ErrTooLarge is returned by [Files.ReadFile] for a file over its limit.
var ErrTooLarge = errors.New("file too large")

// Files is an unchanging tree of regular files, such as a listed git commit.
type Files interface {
	// Paths returns the regular files, slash-separated and relative to the tree's root, including symbolic links to
	// files. Detect ignores paths that aren't clean.
	Paths() []string
	// Dangling returns the symbolic links whose target isn't in the tree.
	Dangling() []string
	// ReadFile returns the content of a file of Paths. The error is fs.ErrNotExist if there is none, and ErrTooLarge if
	// it has more than max bytes; then the content is its first max bytes or nil.
	ReadFile(name string, max int64) ([]byte, error)
}

// Clean reports whether p is a relative slash-separated path that stays inside the tree and can be printed in a log
// line.
func Clean(p string) bool {
	if !fs.ValidPath(p) || p == "." || len(p) > MaxPathLen {
		return false
	}
	return !strings.ContainsFunc(p, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\\' })
}

// CleanDir normalizes a folder ("./dist/", "/dist", "dist/.") and reports whether it stays inside the tree.
func CleanDir(s string) (string, bool) {
	s = strings.TrimSpace(s)
	// Refuse a folder that leads out before path.Clean hides it behind the leading slash.
	depth := 0
	for _, part := range strings.Split(s, "/") {
		switch part {
		case "", ".":
		case "..":
			depth--
			if depth < 0 {
				return "", false
			}
		default:
			depth++
		}
	}
	p := strings.TrimPrefix(path.Clean("/"+s), "/")
	if p == "" {
		return "", true
	}
	return p, Clean(p)
}

// CleanDirs returns the folders that stay inside the tree or, if they start with "~/", inside the home folder, without
// duplicates.
func CleanDirs(in []string) []string {
	var out []string
	for _, s := range in {
		home, rest := "", s
		if r, ok := strings.CutPrefix(s, "~/"); ok {
			home, rest = "~/", r
		}
		if c, ok := CleanDir(rest); ok && (home == "" || c != "") && !slices.Contains(out, home+c) {
			out = append(out, home+c)
		}
	}
	return out
}

// Tree is Files with an index, limits, and the warnings about what was read.
type Tree struct {
	files     Files
	names     map[string]struct{} // every file
	dirs      map[string]struct{} // every folder with files, and ""
	List      []string            // files in order, for scans
	cache     map[string]loaded
	manifests map[string]*Manifest
	reads     int
	bytes     int
	cut       bool
	dangling  map[string]bool
	err       error // why an important file can't be read
	Warnings  []string
}

func NewTree(files Files) *Tree {
	t := &Tree{
		files:     files,
		names:     map[string]struct{}{},
		dirs:      map[string]struct{}{"": {}},
		cache:     map[string]loaded{},
		manifests: map[string]*Manifest{},
		dangling:  map[string]bool{},
	}
	for _, p := range files.Dangling() {
		t.dangling[p] = true
	}
	paths := files.Paths()
	if len(paths) > MaxPaths { // a project's important files are near its root
		paths = slices.Clone(paths)
		slices.SortStableFunc(paths, func(a, b string) int { return strings.Count(a, "/") - strings.Count(b, "/") })
	}
	for _, p := range paths {
		if !Clean(p) || strings.Count(p, "/") > MaxDepth {
			continue
		}
		if len(t.List) >= MaxPaths {
			t.cut = true
			break
		}
		if _, twice := t.names[p]; twice {
			continue
		}
		t.names[p] = struct{}{}
		t.List = append(t.List, p)
		for d := Parent(p); ; d = Parent(d) {
			if _, known := t.dirs[d]; known {
				break
			}
			t.dirs[d] = struct{}{}
		}
	}
	slices.Sort(t.List)
	return t
}

func (t *Tree) Truncated() bool { return t.cut }

func (t *Tree) Has(p string) bool { _, ok := t.names[p]; return ok }

// Names reports whether the tree has a file of this name, including a dangling link.
func (t *Tree) Names(p string) bool { return t.Has(p) || t.dangling[p] }

// Err returns the first reason why an important file can't be read.
func (t *Tree) Err() error { return t.err }

// Refuse makes Err return a fault that names a file, what is wrong with it, and the remedy.
func (t *Tree) Refuse(file, why, remedy string) {
	if t.err == nil {
		t.err = fault.New(fault.Invalid, "unreadable_file", file+" can't be read: "+why, remedy)
	}
}

func (t *Tree) HasDir(p string) bool { _, ok := t.dirs[p]; return ok }

// Read returns a file's text without a byte order mark, or "" if it is missing, too large, or over the limits. It is
// for files that are searched for words; Config is for files that are parsed.
func (t *Tree) Read(p string) string {
	s, whole, _ := t.load(p, MaxFile)
	if !whole {
		t.Warn(fmt.Sprintf("%s is larger than %d KiB and was not read", p, MaxFile>>10))
		return ""
	}
	return s
}

// Config returns the text of an important file. If it can't be read, Err says why.
func (t *Tree) Config(p string) string {
	s, _ := t.config(p)
	return s
}

// config returns false if the file is missing or unreadable.
func (t *Tree) config(p string) (string, bool) {
	if t.dangling[p] {
		t.Refuse(p, "it is a link that leads outside the repository or to nothing", "commit the file itself")
		return "", false
	}
	s, whole, read := t.load(p, configfile.MaxConfig)
	if !whole {
		t.Refuse(p, fmt.Sprintf("it is larger than %d KiB", configfile.MaxConfig>>10), "shorten it")
		return "", false
	}
	if first, last := configfile.Conflict(s); first > 0 {
		t.Refuse(p, fmt.Sprintf("lines %d to %d are a merge conflict", first, last), "keep one side of it, and commit the file again")
		return "", false
	}
	return s, read
}

// JSON decodes an important file if it exists, and reports whether it did. If it isn't a JSON object, Err says so.
func (t *Tree) JSON(p string, into any) bool {
	src, ok := t.config(p)
	if !ok {
		return false
	}
	err := configfile.JSONC(src, into)
	switch {
	case err == nil:
		return true
	case strings.TrimSpace(src) == "":
		t.Refuse(p, "it is empty", "write a JSON object into it, or delete it")
	default:
		t.Refuse(p, err.Error(), "correct it so that it is a JSON object")
	}
	return false
}

// TOML decodes an important file if it exists. If it isn't TOML, or has a value of the wrong type, Err says so, with
// the remedy.
func (t *Tree) TOML(p string, into any, remedy string) toml.MetaData {
	md, err := configfile.DecodeTOML(t.Config(p), into)
	if err != nil {
		t.Refuse(p, FirstLine(err), remedy)
		return toml.MetaData{}
	}
	return md
}

// Head returns the first max bytes of a file of any size, such as a lock file.
func (t *Tree) Head(p string, max int64) string {
	s, _, _ := t.load(p, max)
	return s
}

// load returns the first max bytes of a file and whether they are all. read is false if the file is missing or the
// limits are exceeded.
func (t *Tree) load(p string, max int64) (text string, whole, read bool) {
	if !t.Has(p) {
		return "", true, false
	}
	key := fmt.Sprint(max, " ", p)
	if f, ok := t.cache[key]; ok {
		return f.text, f.whole, true
	}
	if t.reads >= maxReads || t.bytes >= maxBytes {
		t.cut = true
		return "", true, false
	}
	t.reads++
	b, err := t.files.ReadFile(p, max)
	whole = !errors.Is(err, ErrTooLarge) && int64(len(b)) <= max
	if err != nil && whole {
		t.err = cmp.Or(t.err, fmt.Errorf("read %s: %w", p, err))
		return "", true, false
	}
	b = b[:min(int64(len(b)), max)]
	t.bytes += len(b)
	text = t.decode(p, b)
	t.cache[key] = loaded{text, whole}
	return text, whole, true
}

type loaded struct {
	text  string
	whole bool
}

func (t *Tree) Warn(text string) { t.Warnings = append(t.Warnings, text) }

// Parent is path.Dir, but the root is "".
func Parent(p string) string {
	if i := strings.LastIndexByte(p, '/'); i >= 0 {
		return p[:i]
	}
	return ""
}

// Join is path.Join, but the root is "".
func Join(dir, name string) string {
	if dir == "" {
		return name
	}
	if name == "" {
		return dir
	}
	return dir + "/" + name
}

func (t *Tree) AnyIn(dir string, names ...string) string {
	for _, n := range names {
		if t.Has(Join(dir, n)) {
			return Join(dir, n)
		}
	}
	return ""
}

// Under returns a folder that a configuration in base names, if it is inside the project, else "".
func Under(base, dir string) string {
	if dir == "" {
		return ""
	}
	joined := path.Join(base, dir)
	if joined == ".." || strings.HasPrefix(joined, "../") {
		return ""
	}
	return joined
}
