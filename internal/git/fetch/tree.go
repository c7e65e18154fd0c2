package fetch

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
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
	"sync"
	"time"

	"slipway/internal/platform/fault"
	"slipway/internal/platform/panics"
	"slipway/internal/platform/text"
)

// File is one entry of a commit. Directories are not listed.
type File struct {
	Path string // as in the repository: slash-separated, relative, clean, without "..", not always UTF-8
	Mode fs.FileMode
	OID  string // of the blob; for a submodule, of its commit
	Size int64  // bytes of the content; of the target for a symbolic link; 0 for a submodule

	lfs string // path of the content's file, for files in Git LFS
	in  *Tree  // the submodule that contains it; nil for the tree itself
}

// Types of files, in [File.Mode].
const (
	ModeFile       fs.FileMode = 0o644
	ModeExecutable fs.FileMode = 0o755
	ModeSymlink                = fs.ModeSymlink | 0o777
	ModeSubmodule              = fs.ModeIrregular // submodule that .gitmodules doesn't declare: its content is missing
)

// Tree is one commit, readable until [Tree.Close], even while newer commits of the same site are fetched. It is safe
// for concurrent use.
type Tree struct {
	Commit      string // 40 hexadecimal digits (64 in SHA-256 repositories)
	Branch      string
	Message     string // at most 4 KiB, without control characters except newlines
	Author      string // name, at most 200 bytes
	AuthorEmail string
	CommittedAt time.Time
	Unfetched   []string // files in Git LFS that couldn't be fetched; their pointers are in the tree

	s          *Fetcher
	g          *generation
	files      []File   // sorted by Path
	subs       []module // parents before their children
	repository Repository
	once       sync.Once
	place      func() // releases the place of a look; nil for others
}

// read makes the Tree of the commit just fetched, with two concurrent git processes.
func (s *Fetcher) read(ctx context.Context, r Request, g *generation) (*Tree, error) {
	t := &Tree{Branch: r.Branch, repository: r.Repository, s: s, g: g}
	type listing struct {
		files []File
		err   error
	}
	listed := make(chan listing, 1)
	go func() { // ends when git exits
		var l listing
		l.err = panics.Call(func() (err error) { l.files, err = s.list(ctx, r, g); return err })
		listed <- l
	}()
	err := s.batch(ctx, g, []string{headRef + "^{commit}"}, func(oid, kind string, size int64, content io.Reader) error {
		if kind != "commit" {
			return errCorrupt
		}
		t.Commit = oid
		b, err := io.ReadAll(io.LimitReader(content, 64<<10))
		t.describe(b)
		return err
	})
	l := <-listed
	if errors.Is(err, errCorrupt) && t.Commit == "" {
		err = fmt.Errorf("%w: %w", errNoCommit, err)
	}
	if err = errors.Join(err, l.err); err != nil {
		if f := fault.As(err); f != nil {
			return nil, f
		}
		return nil, fmt.Errorf("read commit: %w", err)
	}
	t.files = l.files
	s.pin(g)
	return t, nil
}

// errNoCommit means that a name points to something other than a commit, or that the cache lacks it.
var errNoCommit = errors.New("not a commit")

// describe parses a commit object: headers, an empty line, the message.
func (t *Tree) describe(b []byte) {
	head, message, _ := bytes.Cut(b, []byte("\n\n"))
	for line := range bytes.Lines(head) {
		line = bytes.TrimSuffix(line, []byte("\n"))
		if author, ok := bytes.CutPrefix(line, []byte("author ")); ok && t.Author == "" {
			name, rest, _ := bytes.Cut(author, []byte(" <"))
			mail, _, _ := bytes.Cut(rest, []byte(">"))
			t.Author, t.AuthorEmail = clean(name, 200), clean(mail, 200)
		}
		if committer, ok := bytes.CutPrefix(line, []byte("committer ")); ok {
			if f := bytes.Fields(committer[bytes.LastIndexByte(committer, '>')+1:]); len(f) > 0 {
				if sec, err := strconv.ParseInt(string(f[0]), 10, 64); err == nil && sec >= 0 && sec < 1<<38 {
					t.CommittedAt = time.Unix(sec, 0).UTC()
				}
			}
		}
	}
	t.Message = clean(message, 4<<10)
}

// clean returns valid UTF-8 of at most limit bytes without control characters.
func clean(b []byte, limit int) string {
	s := strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' || r >= 0x7f && r < 0xa0 {
			return -1
		}
		return r
	}, strings.ToValidUTF8(string(b), "\uFFFD"))
	s = strings.TrimSpace(s)
	if len(s) > limit {
		s = strings.ToValidUTF8(s[:limit], "")
	}
	return s
}

// list runs ls-tree and checks each entry against the limits.
func (s *Fetcher) list(ctx context.Context, r Request, g *generation) ([]File, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	k, err := s.start(ctx, command{
		args:  []string{"ls-tree", "-r", "-t", "-z", "-l", "--full-tree", headRef},
		site:  r.Site,
		gen:   g,
		piped: true,
	})
	if err != nil {
		return nil, fmt.Errorf("list files: %w", err)
	}
	files, err := s.parse(r, bufio.NewReaderSize(k.out, 64<<10))
	if err != nil {
		cancel()
		k.wait()
		return nil, err
	}
	if err := k.wait(); err != nil {
		return nil, fmt.Errorf("list files: %w", err)
	}
	return files, nil
}

// Limits of a commit's paths. They are checked while git lists, and git is stopped when one is exceeded.
const (
	maxPath  = 1024     // bytes of one path
	maxDepth = 64       // nested folders
	maxNames = 64 << 20 // bytes of all paths, including folders
)

func longPath() string {
	return fmt.Sprintf("a path is longer than %d bytes or more than %d folders deep", maxPath, maxDepth)
}

// parse reads "<mode> SP <type> SP <oid> SP <size, padded> TAB <path> NUL" entries.
func (s *Fetcher) parse(r Request, in *bufio.Reader) ([]File, error) {
	var files []File
	var total, names int64
	trees := 0
	for {
		entry, err := in.ReadSlice(0)
		if errors.Is(err, io.EOF) && len(entry) == 0 {
			break
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			return nil, tooLarge(r, "a path is too long")
		}
		if err != nil {
			return nil, fmt.Errorf("list files: %w", err)
		}
		facts, name, ok := strings.Cut(string(entry[:len(entry)-1]), "\t")
		f := strings.Fields(facts)
		if !ok || len(f) != 4 {
			return nil, errCorrupt
		}
		if !decent(name) {
			return nil, fault.New(fault.Invalid, "repository_refused",
				fmt.Sprintf("Repository %s contains a path that no working tree may have", r.Repository), "")
		}
		if len(name) > maxPath || strings.Count(name, "/") >= maxDepth {
			return nil, tooLarge(r, longPath())
		}
		// One tree object can occur in thousands of places, so a pack of 1 KB can expand to any number of paths.
		names += int64(len(name))
		if names > maxNames {
			return nil, tooLarge(r, "the paths of its files are over the limit of "+text.Size(maxNames))
		}
		if f[1] == "tree" {
			trees++
			if trees > s.c.MaxFile {
				return nil, tooLarge(r, fmt.Sprintf("it has more than %d folders", s.c.MaxFile))
			}
			continue
		}
		file := File{Path: name, OID: f[2]}
		switch {
		case f[1] == "commit":
			file.Mode = ModeSubmodule
		case f[1] != "blob":
			return nil, errCorrupt
		case f[0] == "120000":
			file.Mode = ModeSymlink
		case f[0] == "100755":
			file.Mode = ModeExecutable
		default:
			file.Mode = ModeFile
		}
		if f[1] == "blob" {
			if file.Size, err = strconv.ParseInt(f[3], 10, 64); err != nil || file.Size < 0 {
				return nil, errCorrupt // git printed BAD: the cache lacks the blob
			}
		}
		total += file.Size
		if total > s.c.MaxSize {
			return nil, tooLarge(r, "its files are over the limit of "+text.Size(s.c.MaxSize))
		}
		if len(files) == s.c.MaxFile {
			return nil, tooLarge(r, fmt.Sprintf("it has more than %d files", s.c.MaxFile))
		}
		files = append(files, file)
	}
	slices.SortFunc(files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return files, nil
}

// decent reports whether a path stays inside its tree and outside git's own directory.
func decent(p string) bool {
	if p == "" || path.IsAbs(p) || path.Clean(p) != p || p == "." || p == ".." || strings.HasPrefix(p, "../") {
		return false
	}
	for seg := range strings.SplitSeq(p, "/") {
		if strings.EqualFold(seg, ".git") || len(seg) > 255 {
			return false
		}
	}
	return true
}

// Files lists the commit's files, sorted by path.
func (t *Tree) Files(context.Context) ([]File, error) { return slices.Clone(t.files), nil }

// Read streams the contents of files in the given order from one git process. fn may use its reader until it returns,
// and needn't read to the end. The content of a symbolic link is its target. Submodules have no content and are
// skipped. An error of fn stops Read and is returned unchanged.
func (t *Tree) Read(ctx context.Context, files []File, fn func(File, io.Reader) error) error {
	files = slices.DeleteFunc(slices.Clone(files), func(f File) bool { return f.Mode == ModeSubmodule })
	for len(files) > 0 { // one process per run of files in the same repository
		if f := files[0]; f.lfs != "" {
			if err := readLFS(f, fn); err != nil {
				return err
			}
			files = files[1:]
			continue
		}
		n := slices.IndexFunc(files, func(f File) bool { return f.in != files[0].in || f.lfs != "" })
		if n < 0 {
			n = len(files)
		}
		if err := cmp.Or(files[0].in, t).readOwn(ctx, files[:n], fn); err != nil {
			return err
		}
		files = files[n:]
	}
	return nil
}

// readOwn is Read for files of the tree's own repository.
func (t *Tree) readOwn(ctx context.Context, files []File, fn func(File, io.Reader) error) error {
	ids := make([]string, len(files))
	for i, f := range files {
		if len(f.OID) < 40 || strings.Trim(f.OID, "0123456789abcdef") != "" {
			return fmt.Errorf("read %q: %q is no object id", f.Path, f.OID)
		}
		ids[i] = f.OID
	}
	i := 0
	err := t.s.batch(ctx, t.g, ids, func(oid, kind string, size int64, content io.Reader) error {
		f := files[i]
		i++
		if kind != "blob" || oid != f.OID || size != f.Size {
			return errCorrupt
		}
		return fn(f, content)
	})
	if errors.Is(err, errCorrupt) {
		// Mark the cache as damaged: the next fetch replaces it, and the retry of this deployment uses that.
		if berr := t.g.begin(); berr != nil {
			err = errors.Join(err, berr)
		}
	}
	return err
}

// ReadFile returns the content of one file, following symbolic links inside the tree. If the file doesn't exist, the
// error is fs.ErrNotExist. A file over max bytes is returned up to max, with a fault of kind TooLarge.
func (t *Tree) ReadFile(ctx context.Context, name string, max int64) ([]byte, error) {
	for range 10 {
		i, found := slices.BinarySearchFunc(t.files, name, func(f File, name string) int { return strings.Compare(f.Path, name) })
		if !found || t.files[i].Mode == ModeSubmodule {
			break
		}
		f := t.files[i]
		var b []byte
		err := t.Read(ctx, []File{f}, func(_ File, r io.Reader) (err error) {
			if b, err = io.ReadAll(io.LimitReader(r, max)); err == nil && f.Size > max {
				err = errEnough
			}
			return err
		})
		if errors.Is(err, errEnough) {
			return b, fault.New(fault.TooLarge, "file_too_large", fmt.Sprintf("%s is too large", strings.ToValidUTF8(f.Path, "?")),
				"the limit is "+text.Size(max))
		}
		if err != nil {
			return nil, err
		}
		if f.Mode != ModeSymlink {
			return b, nil
		}
		name = path.Join(path.Dir(name), string(b))
		if path.IsAbs(string(b)) {
			break
		}
	}
	return nil, fmt.Errorf("read %q: %w", name, fs.ErrNotExist)
}

var errEnough = errors.New("enough was read")

// Checkout writes the working tree into dir, which must be empty or missing, with a repository in .git that has the
// fetched history. Symbolic links are kept.
func (t *Tree) Checkout(ctx context.Context, dir string) error {
	return t.checkout(ctx, dir, true)
}

// checkout is Checkout; repository says whether to make .git.
func (t *Tree) checkout(ctx context.Context, dir string, repository bool) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("check out: %w", err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		return fmt.Errorf("check out: directory is not empty: %w", errors.Join(err, fs.ErrExist))
	}
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return fmt.Errorf("check out: %w", err)
	}
	tmp, err := os.MkdirTemp(t.s.path("tmp"), "index-")
	if err != nil {
		return fmt.Errorf("check out: %w", err)
	}
	defer os.RemoveAll(tmp)
	run := func(c command) error {
		c.dir, c.site, c.gen, c.lend = dir, t.g.site, t.g, []string{dir, tmp}
		c.env = append(c.env, "GIT_WORK_TREE="+dir)
		stderr, err := t.s.run(ctx, c)
		if errors.Is(err, errMemory) {
			return hungry(t.s.c.MaxMemory)
		}
		if err != nil {
			return fmt.Errorf("check out: %w: %s", err, t.s.scrub(strings.ReplaceAll(stderr, dir, "…"), &remote{}))
		}
		return nil
	}
	index := filepath.Join(tmp, "index")
	if repository {
		index = filepath.Join(dir, ".git", "index")
		if err := t.clone(dir, run); err != nil {
			return err
		}
	}
	if err := run(command{args: []string{"read-tree", "--reset", "-u", t.Commit}, env: []string{"GIT_INDEX_FILE=" + index}}); err != nil {
		return err
	}
	if err := t.checkoutLFS(dir); err != nil {
		return err
	}
	return t.checkoutModules(ctx, dir)
}

// clone makes dir/.git from the cache: the branch with the fetched history and tags, and the repository's address
// without a credential. It is a copy, so that builds can't change the cache.
func (t *Tree) clone(dir string, run func(command) error) error {
	git := filepath.Join(dir, ".git")
	branch := cmp.Or(t.Branch, "main")
	for _, d := range []string{"objects/info", "objects/pack", "refs/heads", "refs/tags", "hooks", "info"} {
		if err := os.MkdirAll(filepath.Join(git, d), 0o755); err != nil {
			return fmt.Errorf("check out: %w", err)
		}
	}
	for name, text := range map[string]string{
		"HEAD": "ref: refs/heads/" + branch + "\n",
		"config": "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n[remote \"origin\"]\n\turl = https://" +
			t.repository.String() + ".git\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n",
	} {
		// unsynced: the build's own, gone with it
		if err := os.WriteFile(filepath.Join(git, name), []byte(text), 0o644); err != nil {
			return fmt.Errorf("check out: %w", err)
		}
	}
	return run(command{
		args: []string{
			"fetch", "--quiet", "--update-head-ok", "--update-shallow", "--no-write-fetch-head",
			"--no-auto-maintenance", "--end-of-options",
			t.g.git(),
			t.Commit + ":refs/heads/" + branch,
		},
		// Objects were checked when they were fetched.
		config:  [][2]string{{"transfer.fsckObjects", "false"}, {"uploadpack.allowAnySHA1InWant", "true"}},
		env:     []string{"GIT_ALLOW_PROTOCOL=file", "GIT_DIR=" + git},
		several: true,
	})
}

// Close releases the cache. Further calls do nothing.
func (t *Tree) Close() error {
	var err error
	t.once.Do(func() {
		err = t.s.unpin(t.g)
		for _, m := range t.subs {
			err = errors.Join(err, m.tree.Close())
		}
		if t.place != nil {
			t.place()
		}
	})
	return err
}

// batch reads objects with one git cat-file and passes them to fn one after the other.
func (s *Fetcher) batch(
	ctx context.Context,
	g *generation,
	names []string,
	fn func(oid, kind string, size int64, content io.Reader) error,
) error {
	if len(names) == 0 {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	k, err := s.start(ctx, command{
		args:  []string{"cat-file", "--batch", "--buffer"},
		stdin: &lines{names: names},
		site:  g.site,
		gen:   g,
		piped: true,
	})
	if err != nil {
		return fmt.Errorf("read objects: %w", err)
	}
	err = objects(bufio.NewReaderSize(k.out, 64<<10), len(names), fn)
	if err != nil {
		if errors.Is(err, errCorrupt) { // git may have reached a limit, which its exit status shows
			k.out.Close()
			if end := k.wait(); errors.Is(end, errMemory) {
				return hungry(s.c.MaxMemory)
			}
			return err
		}
		cancel()
		k.wait()
		if cause := context.Cause(ctx); errors.Is(cause, context.DeadlineExceeded) {
			return cause
		}
		return err
	}
	if err := k.wait(); err != nil {
		return fmt.Errorf("read objects: %w", err)
	}
	return nil
}

func hungry(limit int64) error {
	return fault.New(fault.TooLarge, "repository_too_large", "The repository is too large",
		"git needs more than "+text.Size(limit)+" of memory to read one of its files")
}

// objects reads "<oid> SP <type> SP <size> LF <content> LF" n times.
func objects(in *bufio.Reader, n int, fn func(oid, kind string, size int64, content io.Reader) error) error {
	for range n {
		head, err := in.ReadSlice('\n')
		if err != nil {
			return fmt.Errorf("read objects: %w", errors.Join(errCorrupt, err))
		}
		f := strings.Fields(string(head))
		if len(f) != 3 { // "… missing"
			return fmt.Errorf("read objects: %w", errCorrupt)
		}
		size, err := strconv.ParseInt(f[2], 10, 64)
		if err != nil || size < 0 {
			return fmt.Errorf("read objects: %w", errCorrupt)
		}
		content := &io.LimitedReader{R: in, N: size}
		if err := fn(f[0], f[1], size, content); err != nil {
			return err
		}
		if _, err := io.Copy(io.Discard, content); err != nil || content.N > 0 {
			return fmt.Errorf("read objects: %w", errors.Join(errCorrupt, err))
		}
		if c, err := in.ReadByte(); err != nil || c != '\n' {
			return fmt.Errorf("read objects: %w", errors.Join(errCorrupt, err))
		}
	}
	return nil
}

// lines reads names as a stream, one per line.
type lines struct {
	names []string
	rest  string
}

func (l *lines) Read(p []byte) (int, error) {
	n := 0
	for n < len(p) {
		if l.rest == "" {
			if len(l.names) == 0 {
				break
			}
			l.rest, l.names = l.names[0]+"\n", l.names[1:]
		}
		c := copy(p[n:], l.rest)
		l.rest = l.rest[c:]
		n += c
	}
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}
