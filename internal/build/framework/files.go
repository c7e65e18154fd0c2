package framework

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// The bounds of what detection looks at, whatever the repository holds.
const (
	MaxFile     = 1 << 20  // bytes of one file
	maxReads    = 1000     // files read
	maxBytes    = 16 << 20 // bytes read in all
	maxPaths    = 100_000  // files listed
	maxDepth    = 40       // folders deep
	maxPathLen  = 1024     // bytes of one path
	maxWarnings = 20
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

// clean reports whether p is a relative slash-separated path that stays inside the
// tree and that a log line can show.
func clean(p string) bool {
	if !fs.ValidPath(p) || p == "." || len(p) > maxPathLen {
		return false
	}
	return !strings.ContainsFunc(p, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\\' })
}

// cleanDir returns a folder as people write it ("./dist/", "/dist", "dist/.") in the
// form that plans use, and whether it stays inside the tree.
func cleanDir(s string) (string, bool) {
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
	return p, clean(p)
}

// cleanDirs keeps the folders that stay inside the tree, or inside the home folder
// for those that start with "~/", each once.
func cleanDirs(in []string) []string {
	var out []string
	for _, s := range in {
		home, rest := "", s
		if r, ok := strings.CutPrefix(s, "~/"); ok {
			home, rest = "~/", r
		}
		if c, ok := cleanDir(rest); ok && (home == "" || c != "") && !slices.Contains(out, home+c) {
			out = append(out, home+c)
		}
	}
	return out
}

// tree is Files with an index, a budget, and the warnings that reading gives rise to.
type tree struct {
	files     Files
	names     map[string]struct{} // every file
	dirs      map[string]struct{} // every folder that holds one, "" included
	list      []string            // the files in order, for the rare scan
	cache     map[string]loaded
	manifests map[string]*manifest
	reads     int
	bytes     int
	cut       bool
	warnings  []string
}

func newTree(files Files) *tree {
	t := &tree{
		files:     files,
		names:     map[string]struct{}{},
		dirs:      map[string]struct{}{"": {}},
		cache:     map[string]loaded{},
		manifests: map[string]*manifest{},
	}
	for _, p := range files.Paths() {
		if !clean(p) || strings.Count(p, "/") > maxDepth {
			continue
		}
		if len(t.list) >= maxPaths {
			t.cut = true
			break
		}
		if _, twice := t.names[p]; twice {
			continue
		}
		t.names[p] = struct{}{}
		t.list = append(t.list, p)
		for d := parent(p); ; d = parent(d) {
			if _, known := t.dirs[d]; known {
				break
			}
			t.dirs[d] = struct{}{}
		}
	}
	slices.Sort(t.list)
	return t
}

func (t *tree) truncated() bool { return t.cut }

func (t *tree) has(p string) bool { _, ok := t.names[p]; return ok }

func (t *tree) hasDir(p string) bool { _, ok := t.dirs[p]; return ok }

// read returns a file's text without a byte order mark, or "" when there is none, when
// it is too large, or when the budget is used up. It is for files that are searched for
// words; what a parser gets is read by config.
func (t *tree) read(p string) string { return t.bounded(p, MaxFile) }

// config is read for a file that is parsed.
func (t *tree) config(p string) string { return t.bounded(p, maxConfig) }

func (t *tree) bounded(p string, max int64) string {
	s, whole := t.load(p, max)
	if !whole {
		t.warn(fmt.Sprintf("%s is larger than %d KiB and was not read", p, max>>10))
		return ""
	}
	return s
}

// tooLarge reports whether config would leave a file out for its size.
func (t *tree) tooLarge(p string) bool {
	_, whole := t.load(p, maxConfig)
	return !whole
}

// head returns the beginning of a file that may be of any size, such as a lock file.
func (t *tree) head(p string) string {
	s, _ := t.load(p, 4<<10)
	return s
}

func (t *tree) load(p string, max int64) (text string, whole bool) {
	if !t.has(p) {
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

func (t *tree) warn(text string) { t.warnings = append(t.warnings, text) }

// parent is path.Dir with "" for the top.
func parent(p string) string {
	if i := strings.LastIndexByte(p, '/'); i >= 0 {
		return p[:i]
	}
	return ""
}

// join is path.Join with "" for the top.
func join(dir, name string) string {
	if dir == "" {
		return name
	}
	if name == "" {
		return dir
	}
	return dir + "/" + name
}
