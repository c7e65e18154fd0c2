package release

import (
	"encoding/binary"
	"errors"
	"iter"
	"slices"
	"strings"

	"slipway/internal/build/rules"
	"slipway/internal/platform/blob"

	"golang.org/x/text/unicode/norm"
)

// The manifest consists of: magic; fallback path; rules, as JSON or empty; table of media types; number of files; the
// files, sorted by path; one source key per file, in the same order. Strings are prefixed with their length, numbers
// are uvarints, digests are 32 bytes. A file is path, index of its type, flags, digest, size, and the digest and size
// of each variant that the flags name. The first version had no rules, no zstd and no immutable files; its releases
// stay readable.
const (
	magic       = "slipway release 2\n"
	magic1      = "slipway release 1\n"
	maxManifest = 512 << 20
	maxKey      = 256 // bytes of a source key

	hasBrotli   = 1
	hasGzip     = 2
	hasZstd     = 4
	isImmutable = 8
)

// Content is a content in the blob store.
type Content struct {
	Digest blob.Digest
	Size   int64
}

// File is one file of a release. A variant with Size 0 doesn't exist.
type File struct {
	Path   string // slash-separated and relative, see checkPath
	Type   string // media type with its charset
	Body   Content
	Brotli Content
	Gzip   Content
	Zstd   Content

	Immutable bool // the content under this path can never change
}

// Compressed reports whether there is any variant.
func (f File) Compressed() bool { return f.Brotli.Size > 0 || f.Gzip.Size > 0 || f.Zstd.Size > 0 }

// Tree is a decoded manifest. It is immutable, and as compact as the manifest, because files are decoded when they are
// requested.
type Tree struct {
	raw      string         // manifest without its keys
	types    []string       // substrings of raw
	at       []uint32       // offset of each file in raw
	composed map[string]int // index of files whose path isn't in Unicode form NFC, by that form
	fallback string
	slash    rules.Slash // replaces the rules' setting; see Served
	rules    *rules.Set  // nil if there are none
	bytes    int64
}

// Len returns the number of files.
func (t *Tree) Len() int { return len(t.at) }

// Bytes returns the size of all files, without variants.
func (t *Tree) Bytes() int64 { return t.bytes }

// Memory returns about how many bytes the Tree takes.
func (t *Tree) Memory() int64 {
	return int64(len(t.raw)+4*len(t.at)+16*len(t.types)+(maxPath/4)*len(t.composed)+128) + t.rules.Memory()
}

// Files yields the files sorted by path.
func (t *Tree) Files() iter.Seq[File] {
	return func(yield func(File) bool) {
		for i := range t.at {
			if !yield(t.file(i)) {
				return
			}
		}
	}
}

// Lookup returns the file at exactly this path.
func (t *Tree) Lookup(path string) (File, bool) {
	i, ok := t.search(path)
	if !ok {
		return File{}, false
	}
	return t.file(i), true
}

// has reports whether a file may be served. Releases of earlier versions may contain PHP source, which may not.
func (t *Tree) has(path string) bool {
	_, ok := t.search(path)
	return ok && !PHPSource(path)
}

// search finds a path in either Unicode form: browsers send the form of the link, and files have the form of the system
// on which they were created.
func (t *Tree) search(path string) (int, bool) {
	i, ok := t.exactly(path)
	if ok {
		return i, true
	}
	composed := norm.NFC.String(path)
	if composed != path {
		if j, ok := t.exactly(composed); ok {
			return j, true
		}
	}
	if j, ok := t.composed[composed]; ok {
		return j, true
	}
	return i, false
}

func (t *Tree) exactly(path string) (int, bool) {
	return slices.BinarySearchFunc(t.at, path, func(at uint32, path string) int {
		s := scanner{rest: t.raw[at:]}
		return strings.Compare(s.string(maxPath), path)
	})
}

func (t *Tree) file(i int) File {
	s := scanner{rest: t.raw[t.at[i]:]}
	f, _ := s.file(t.types)
	return f
}

// Empty is the release without files and rules, as applications have.
var Empty = ID(blob.Sum(encode("", "", nil, nil)).String())

// encode is the inverse of decode. files are sorted by path; keys are in the same order.
func encode(fallback, rules string, files []File, keys []string) []byte {
	var kinds []string
	index := map[string]int{}
	for _, f := range files {
		if _, ok := index[f.Type]; !ok {
			index[f.Type] = len(kinds)
			kinds = append(kinds, f.Type)
		}
	}
	str := func(b []byte, s string) []byte { return append(binary.AppendUvarint(b, uint64(len(s))), s...) }
	content := func(b []byte, c Content) []byte {
		return binary.AppendUvarint(append(b, c.Digest[:]...), uint64(c.Size))
	}
	b := str(str([]byte(magic), fallback), rules)
	b = binary.AppendUvarint(b, uint64(len(kinds)))
	for _, k := range kinds {
		b = str(b, k)
	}
	b = binary.AppendUvarint(b, uint64(len(files)))
	for _, f := range files {
		b = binary.AppendUvarint(str(b, f.Path), uint64(index[f.Type]))
		var flags byte
		if f.Brotli.Size > 0 {
			flags |= hasBrotli
		}
		if f.Gzip.Size > 0 {
			flags |= hasGzip
		}
		if f.Zstd.Size > 0 {
			flags |= hasZstd
		}
		if f.Immutable {
			flags |= isImmutable
		}
		b = content(append(b, flags), f.Body)
		for _, c := range []Content{f.Brotli, f.Gzip, f.Zstd} {
			if c.Size > 0 {
				b = content(b, c)
			}
		}
	}
	for _, k := range keys {
		b = str(b, k)
	}
	return b
}

var errManifest = errors.New("malformed manifest")

// decode checks everything that Tree's methods rely on, so that they never fail.
func decode(b []byte) (t *Tree, keys string, err error) {
	if len(b) > maxManifest {
		return nil, "", errManifest
	}
	all, ok := strings.CutPrefix(string(b), magic)
	old := false
	if !ok {
		all, old = strings.CutPrefix(string(b), magic1)
		if !old {
			return nil, "", errManifest
		}
	}
	t = &Tree{}
	s := scanner{rest: all}
	t.fallback = s.string(maxPath)
	if !old {
		if t.rules, err = rules.Decode(s.string(rules.MaxBytes)); err != nil {
			return nil, "", errManifest
		}
	}
	n := s.uint()
	if n > uint64(len(s.rest)) { // each takes at least one byte
		return nil, "", errManifest
	}
	for range n {
		t.types = append(t.types, s.string(256))
	}
	n = s.uint()
	if n > uint64(len(s.rest))/36 { // at least a path of one byte, type, flags, digest and size
		return nil, "", errManifest
	}
	t.at = make([]uint32, n)
	last := ""
	for i := range t.at {
		t.at[i] = uint32(len(all) - len(s.rest))
		f, ok := s.file(t.types)
		if !ok || checkPath(f.Path) != "" || Hidden(f.Path) || f.Path <= last {
			return nil, "", errManifest
		}
		last = f.Path
		if !norm.NFC.IsNormalString(f.Path) {
			if t.composed == nil {
				t.composed = map[string]int{}
			}
			t.composed[norm.NFC.String(f.Path)] = i
		}
		t.bytes += f.Body.Size
		if t.bytes < 0 {
			return nil, "", errManifest
		}
	}
	keys = s.rest
	for range n {
		s.string(maxKey)
	}
	for _, kind := range t.types {
		// The type becomes a header.
		if strings.ContainsFunc(kind, func(c rune) bool { return c < ' ' || c > '~' }) {
			return nil, "", errManifest
		}
	}
	if s.bad || s.rest != "" {
		return nil, "", errManifest
	}
	t.raw = strings.Clone(all[:len(all)-len(keys)])
	// Strings refer to b; make them refer to the part that is kept.
	k := scanner{rest: t.raw}
	t.fallback = k.string(maxPath)
	if !old {
		k.string(rules.MaxBytes)
	}
	k.uint()
	for i := range t.types {
		t.types[i] = k.string(256)
	}
	if t.fallback != "" && !t.has(t.fallback) {
		return nil, "", errManifest
	}
	return t, keys, nil
}

// scanner reads a manifest. After an error, bad is set and it returns zero values.
type scanner struct {
	rest string
	bad  bool
}

func (s *scanner) fail() { s.bad, s.rest = true, "" }

func (s *scanner) uint() uint64 {
	var v uint64
	for i := 0; i < len(s.rest) && i < binary.MaxVarintLen64; i++ {
		c := s.rest[i]
		if i == 9 && c > 1 {
			break
		}
		v |= uint64(c&0x7f) << (7 * i)
		if c < 0x80 {
			s.rest = s.rest[i+1:]
			return v
		}
	}
	s.fail()
	return 0
}

func (s *scanner) string(limit int) string {
	n := s.uint()
	if n > uint64(limit) || n > uint64(len(s.rest)) {
		s.fail()
		return ""
	}
	v := s.rest[:n]
	s.rest = s.rest[n:]
	return v
}

func (s *scanner) content() (c Content) {
	if len(s.rest) < len(c.Digest) {
		s.fail()
		return Content{}
	}
	copy(c.Digest[:], s.rest)
	s.rest = s.rest[len(c.Digest):]
	size := s.uint()
	if size > 1<<50 {
		s.fail()
	}
	c.Size = int64(size)
	return c
}

func (s *scanner) file(types []string) (f File, ok bool) {
	f.Path = s.string(maxPath)
	kind := s.uint()
	if kind >= uint64(len(types)) || s.rest == "" {
		s.fail()
		return f, false
	}
	f.Type = types[kind]
	flags := s.rest[0]
	s.rest = s.rest[1:]
	f.Body = s.content()
	if flags&hasBrotli != 0 {
		f.Brotli = s.content()
		s.bad = s.bad || f.Brotli.Size == 0
	}
	if flags&hasGzip != 0 {
		f.Gzip = s.content()
		s.bad = s.bad || f.Gzip.Size == 0
	}
	if flags&hasZstd != 0 {
		f.Zstd = s.content()
		s.bad = s.bad || f.Zstd.Size == 0
	}
	f.Immutable = flags&isImmutable != 0
	return f, !s.bad && flags&^(hasBrotli|hasGzip|hasZstd|isImmutable) == 0
}
