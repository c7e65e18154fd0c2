// Package worktree owns reading what a repository holds: its files within a budget, package.json and lock
// files, workspaces and their members, and settings written for other hosts. It decides nothing: package
// framework makes a plan of it.
package worktree

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"slipway/internal/build/configfile"
)

// The bounds of what detection looks at, whatever the repository holds.
const (
	MaxFile     = 1 << 20  // bytes of one file
	maxReads    = 1000     // files read
	maxBytes    = 16 << 20 // bytes read in all
	MaxPaths    = 100_000  // files listed
	MaxDepth    = 40       // folders deep
	MaxPathLen  = 1024     // bytes of one path
	MaxWarnings = 20
)

// ErrTooLarge is returned by Files.ReadFile for a file over its limit.
var ErrTooLarge = errors.New("file too large")

// Files is a tree of regular files at rest: such as a git commit that was only listed.
type Files interface {
	// Paths returns the regular files, slash-separated and relative to the tree's top.
	// Symbolic links are not among them. Detect ignores paths that are not clean.
	Paths() []string
	// ReadFile returns a file of Paths whole, or an error: fs.ErrNotExist when there is
	// none, ErrTooLarge when it holds more than max bytes, then with its first max
	// bytes or none.
	ReadFile(name string, max int64) ([]byte, error)
}

// Clean reports whether p is a relative slash-separated path that stays inside the
// tree and that a log line can show.
func Clean(p string) bool {
	if !fs.ValidPath(p) || p == "." || len(p) > MaxPathLen {
		return false
	}
	return !strings.ContainsFunc(p, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\\' })
}

// CleanDir returns a folder as people write it ("./dist/", "/dist", "dist/.") in the
// form that plans use, and whether it stays inside the tree.
func CleanDir(s string) (string, bool) {
	s = strings.TrimSpace(s)
	// A folder that climbs is refused before Clean could hide it behind the leading slash.
	depth := 0
	for _, part := range strings.Split(s, "/") {
		switch part {
		case "", ".":
		case "..":
			if depth--; depth < 0 {
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

// CleanDirs keeps the folders that stay inside the tree, or inside the home folder
// for those that start with "~/", each once.
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

// Tree is Files with an index, a budget, and the warnings that reading gives rise to.
type Tree struct {
	files     Files
	names     map[string]struct{} // every file
	dirs      map[string]struct{} // every folder that holds one, "" included
	List      []string            // the files in order, for the rare scan
	cache     map[string]loaded
	manifests map[string]*Manifest
	reads     int
	bytes     int
	cut       bool
	Warnings  []string
}

func NewTree(files Files) *Tree {
	t := &Tree{
		files:     files,
		names:     map[string]struct{}{},
		dirs:      map[string]struct{}{"": {}},
		cache:     map[string]loaded{},
		manifests: map[string]*Manifest{},
	}
	paths := files.Paths()
	if len(paths) > MaxPaths { // what says what a project is lies near its top
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

func (t *Tree) HasDir(p string) bool { _, ok := t.dirs[p]; return ok }

// Read returns a file's text without a byte order mark, or "" when there is none, when
// it is too large, or when the budget is used up. It is for files that are searched for
// words; what a parser gets is read by config.
func (t *Tree) Read(p string) string { return t.Bounded(p, MaxFile) }

// Config is read for a file that is parsed.
func (t *Tree) Config(p string) string { return t.Bounded(p, configfile.MaxConfig) }

func (t *Tree) Bounded(p string, max int64) string {
	s, whole := t.load(p, max)
	if !whole {
		t.Warn(fmt.Sprintf("%s is larger than %d KiB and was not read", p, max>>10))
		return ""
	}
	return s
}

// TooLarge reports whether config would leave a file out for its size.
func (t *Tree) TooLarge(p string) bool {
	_, whole := t.load(p, configfile.MaxConfig)
	return !whole
}

// head returns the beginning of a file that may be of any size, such as a lock file.
func (t *Tree) head(p string) string {
	s, _ := t.load(p, 4<<10)
	return s
}

func (t *Tree) load(p string, max int64) (text string, whole bool) {
	if !t.Has(p) {
		return "", true
	}
	key := fmt.Sprint(max, " ", p)
	if f, ok := t.cache[key]; ok {
		return f.text, f.whole
	}
	if t.reads >= maxReads || t.bytes >= maxBytes {
		t.cut = true
		return "", true
	}
	t.reads++
	b, err := t.files.ReadFile(p, max)
	whole = !errors.Is(err, ErrTooLarge) && int64(len(b)) <= max
	if err != nil && whole {
		b = nil
	}
	b = b[:min(int64(len(b)), max)]
	t.bytes += len(b)
	text = t.decode(p, b)
	t.cache[key] = loaded{text, whole}
	return text, whole
}

type loaded struct {
	text  string
	whole bool
}

func (t *Tree) Warn(text string) { t.Warnings = append(t.Warnings, text) }

// Parent is path.Dir with "" for the top.
func Parent(p string) string {
	if i := strings.LastIndexByte(p, '/'); i >= 0 {
		return p[:i]
	}
	return ""
}

// Join is path.Join with "" for the top.
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

// Under joins a folder that a configuration names relative to base, as far as it stays
// in the project; "" otherwise.
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
