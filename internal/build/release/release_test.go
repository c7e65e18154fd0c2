package release

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/gzip"

	"slipway/internal/build/rules"
	"slipway/internal/platform/blob"
	"slipway/internal/platform/fault"
)

func open(t testing.TB) *Releases {
	t.Helper()
	s, err := blob.OpenDir(filepath.Join(t.TempDir(), "blobs"))
	if err != nil {
		t.Fatal(err)
	}
	return New(Config{Blobs: s})
}

func begin(t testing.TB, r *Releases, previous ID) *Writer {
	t.Helper()
	w, err := r.Begin(t.Context(), previous)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Abort)
	return w
}

func publish(t testing.TB, r *Releases, previous ID, files map[string]string) Sealed {
	t.Helper()
	w := begin(t, r, previous)
	for path, text := range files {
		if err := w.Add(t.Context(), path, "", strings.NewReader(text)); err != nil {
			t.Fatal(err)
		}
	}
	return seal(t, w)
}

func seal(t testing.TB, w *Writer) Sealed {
	t.Helper()
	s, err := w.Seal(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func load(t testing.TB, r *Releases, id ID) *Tree {
	t.Helper()
	tree, err := r.Load(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

func read(t testing.TB, r *Releases, c Content) string {
	t.Helper()
	b, err := r.Blobs.ReadAll(t.Context(), c.Digest, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	if int64(len(b)) != c.Size {
		t.Errorf("the manifest says %d bytes, the blob has %d", c.Size, len(b))
	}
	return string(b)
}

// invalid checks for an Invalid fault whose details contain names.
func invalid(t *testing.T, err error, names string) {
	t.Helper()
	f := fault.As(err)
	if f == nil || f.Kind != fault.Invalid || !strings.Contains(f.Details, names) {
		t.Errorf("error %v (%+v), want an Invalid fault that names %q", err, f, names)
	}
}

func TestPublish(t *testing.T) {
	t.Parallel()
	r := open(t)
	noise := make([]byte, 3<<20)
	for i := range noise {
		noise[i] = byte(rand.Uint32())
	}
	files := map[string]string{
		"index.html":              strings.Repeat("<p>hello</p>\n", 100),
		"tiny.css":                "a{}",
		"random.wasm":             string(noise[:100_000]),
		"image.png":               string(noise),
		"LICENSE":                 "Permission is hereby granted…",
		"raw":                     "\x00\x01\x02",
		"deep/er/ä ö.JS":          strings.Repeat("let a = 1;\n", 1000),
		".well-known/x/y.txt":     "known",
		".env":                    "SECRET=1",
		".git/config":             "[core]",
		"a/.GIT/config":           "[core]",
		"a/.well-known/x":         "not at the top",
		".well-known/.htpasswd":   "hidden",
		"empty.html":              "",
		".well-known/acme/t0ken_": "answer",
	}
	s := publish(t, r, "", files)
	tree := load(t, r, s.ID)
	var paths []string
	var size int64
	for f := range tree.Files() {
		paths = append(paths, f.Path)
		size += f.Body.Size
		if got := read(t, r, f.Body); got != files[f.Path] {
			t.Errorf("%s: %d bytes came back, %d went in", f.Path, len(got), len(files[f.Path]))
		}
		if f.Brotli.Size > 0 {
			got, err := io.ReadAll(brotli.NewReader(strings.NewReader(read(t, r, f.Brotli))))
			if err != nil || string(got) != files[f.Path] {
				t.Errorf("%s: brotli variant unpacks to %d bytes, %v", f.Path, len(got), err)
			}
		}
		if f.Gzip.Size > 0 {
			z, err := gzip.NewReader(strings.NewReader(read(t, r, f.Gzip)))
			if err != nil {
				t.Fatal(err)
			}
			if got, err := io.ReadAll(z); err != nil || string(got) != files[f.Path] {
				t.Errorf("%s: gzip variant unpacks to %d bytes, %v", f.Path, len(got), err)
			}
		}
		compressed := f.Brotli.Size > 0 && f.Gzip.Size > 0
		if want := f.Path == "index.html" || f.Path == "deep/er/ä ö.JS"; compressed != want {
			t.Errorf("%s: compressed %v, want %v", f.Path, compressed, want)
		}
	}
	want := []string{
		".well-known/acme/t0ken_", ".well-known/x/y.txt", "LICENSE", "deep/er/ä ö.JS", "empty.html",
		"image.png", "index.html", "random.wasm", "raw", "tiny.css",
	}
	if !slices.Equal(paths, want) {
		t.Errorf("paths %q, want %q", paths, want)
	}
	if s.Files != len(want) || s.Bytes != size || tree.Bytes() != size || tree.Len() != len(want) {
		t.Errorf("sealed %+v, tree has %d files, %d bytes; want %d, %d", s, tree.Len(), tree.Bytes(), len(want), size)
	}
	for path, kind := range map[string]string{
		"index.html": "text/html; charset=utf-8", "LICENSE": "text/plain; charset=utf-8",
		"raw": "application/octet-stream", "deep/er/ä ö.JS": "text/javascript; charset=utf-8", "image.png": "image/png",
	} {
		if f, ok := tree.Lookup(path); !ok || f.Type != kind {
			t.Errorf("%s: type %q, want %q", path, f.Type, kind)
		}
	}
	if again := publish(t, r, s.ID, files); again.ID != s.ID {
		t.Error("equal files make different releases")
	}
}

func TestReuse(t *testing.T) {
	t.Parallel()
	r := open(t)
	page := strings.Repeat("<p>hello</p>\n", 100)
	w := begin(t, r, "")
	for path, key := range map[string]string{"index.html": "k1", "a.css": "k2", "data.bin": "k3", "noext": "k4"} {
		if err := w.Add(t.Context(), path, key, strings.NewReader(page+key)); err != nil {
			t.Fatal(err)
		}
	}
	first := seal(t, w)

	w = begin(t, r, first.ID)
	for _, tt := range []struct {
		path, key string
		want      bool
	}{
		{"index.html", "k1", true},
		{"moved/index.html", "k1", true}, // renamed, and exists twice
		{"index2.html", "unknown", false},
		{"nokey.html", "", false},
		{"a.svg", "k2", true},         // another type with the same compression
		{"data.html", "k3", false},    // lacks its compressed variants
		{"noext2", "k4", true},        // its type was detected from its content
		{"noext.html", "k4", true},    // both types are text
		{"a", "k2", false},            // its type depends on its content
		{".git/objects", "k9", true},  // not published, so it needn't be read
		{"../evil.html", "k1", false}, // Add rejects it
	} {
		if got := w.Reuse(tt.path, tt.key); got != tt.want {
			t.Errorf("Reuse(%q, %q) = %v", tt.path, tt.key, got)
		}
	}
	second := seal(t, w)
	if second.Reused != 5 || second.Files != 5 {
		t.Errorf("sealed %+v, want 5 files, all reused", second)
	}
	old, _ := load(t, r, first.ID).Lookup("index.html")
	moved, ok := load(t, r, second.ID).Lookup("moved/index.html")
	if old.Path = moved.Path; !ok || old != moved {
		t.Errorf("the moved file is %+v, was %+v", moved, old)
	}

	// A reused file can be reused again.
	w = begin(t, r, second.ID)
	if !w.Reuse("third.html", "k1") {
		t.Error("Reuse doesn't know the key of a reused file")
	}
	// If the previous release is missing, nothing can be reused, without an error.
	w = begin(t, r, ID(blob.Sum([]byte("gone")).String()))
	if w.Reuse("index.html", "k1") {
		t.Error("Reuse succeeded without a previous release")
	}
}

func TestHostilePaths(t *testing.T) {
	t.Parallel()
	r := open(t)
	for _, path := range []string{
		"", "/etc/passwd", "../x", "a/../../x", "a/./b", ".", "a//b", "a/", "a\\b", "a\x00b", "a\nb", "a\x7fb",
		"a\u0085b", "\xff",
		strings.Repeat("a/", 512) + "x",
	} {
		w := begin(t, r, "")
		err := w.Add(t.Context(), path, "", strings.NewReader("x"))
		invalid(t, err, "")
		if f := fault.As(err); f != nil && strings.ContainsAny(f.Details, "\x00\n\x7f") {
			t.Errorf("the sentence about %q isn't fit to print: %q", path, f.Details)
		}
	}
	w := begin(t, r, "")
	if err := w.Add(t.Context(), "a.html", "", strings.NewReader("x")); err != nil {
		t.Fatal(err)
	}
	invalid(t, w.Add(t.Context(), "a.html", "", strings.NewReader("y")), "a.html")
	if err := w.Add(t.Context(), strings.Repeat("x", 1024), "", strings.NewReader("x")); err != nil {
		t.Errorf("a path of 1,024 bytes: %v", err)
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.MaxFiles, r.MaxFile, r.MaxBytes = 3, 1000, 2500
	text := func(n int) io.Reader { return strings.NewReader(strings.Repeat("x", n)) }
	w := begin(t, r, "")
	invalid(t, w.Add(t.Context(), "big.bin", "", text(1001)), "big.bin")
	invalid(t, w.Add(t.Context(), "big.html", "", text(1001)), "big.html")
	for _, path := range []string{"a.html", "b.bin"} {
		if err := w.Add(t.Context(), path, "", text(1000)); err != nil {
			t.Fatal(err)
		}
	}
	invalid(t, w.Add(t.Context(), "c.html", "", text(501)), "c.html")
	if err := w.Add(t.Context(), "c.html", "key", text(500)); err != nil {
		t.Fatal(err)
	}
	invalid(t, w.Add(t.Context(), "d.html", "", text(0)), "3 files")
	s := seal(t, w)

	w = begin(t, r, s.ID)
	for i := range 4 {
		if !w.Reuse(fmt.Sprint(i, ".html"), "key") {
			t.Fatal("Reuse failed")
		}
	}
	_, err := w.Seal(t.Context())
	invalid(t, err, "3 files")

	broken := errors.New("broken pipe")
	w = begin(t, r, "")
	for _, path := range []string{"x.html", "x.png", "x"} {
		if err := w.Add(t.Context(), path, "", io.MultiReader(text(10), errReader{broken})); !errors.Is(err, broken) {
			t.Errorf("%s: Add = %v, want the reader's error", path, err)
		}
	}
	if s := seal(t, w); s.Files != 0 {
		t.Errorf("%d broken files were published", s.Files)
	}
}

type errReader struct{ error }

func (e errReader) Read([]byte) (int, error) { return 0, e.error }

func TestEndings(t *testing.T) {
	t.Parallel()
	r := open(t)
	ctx, cancel := context.WithCancel(t.Context())
	w, err := r.Begin(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Add(ctx, "a.html", "", strings.NewReader(strings.Repeat("x", 1000))); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := w.Add(t.Context(), "b.html", "", strings.NewReader("x")); !errors.Is(err, context.Canceled) {
		t.Errorf("Add after the Writer's context: %v", err)
	}
	if _, err := w.Seal(t.Context()); !errors.Is(err, context.Canceled) {
		t.Errorf("Seal after the Writer's context: %v", err)
	}
	w = begin(t, r, "")
	w.Abort()
	w.Abort()
	if _, err := w.Seal(t.Context()); err == nil {
		t.Error("Seal succeeded after Abort")
	}
	w = begin(t, r, "")
	w.Fallback("index.html")
	if _, err := w.Seal(t.Context()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Seal with a fallback that isn't there: %v", err)
	}
	if _, err := r.Load(t.Context(), ID(blob.Sum([]byte("x")).String())); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Load of an unknown release: %v", err)
	}
	if _, err := r.Load(t.Context(), "../../etc/passwd"); err == nil {
		t.Error("Load accepted a path")
	}
	d, _, err := r.Blobs.Put(t.Context(), strings.NewReader("<html>"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Load(t.Context(), ID(d.String())); !errors.Is(err, errManifest) {
		t.Errorf("Load of something that is no manifest: %v", err)
	}
}

// decode rejects damaged releases.
func FuzzDecode(f *testing.F) {
	r := open(f)
	s := publish(f, r, "", map[string]string{"index.html": strings.Repeat("x ", 500), "a/b.png": "png", "404.html": ""})
	d, _ := blob.ParseDigest(string(s.ID))
	b, err := r.Blobs.ReadAll(f.Context(), d, 1<<20)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add(b[:len(b)-1])
	f.Add([]byte(magic))
	f.Add([]byte(magic + "\x00\x00\x00"))
	f.Add([]byte(magic + "\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"))
	f.Add(bytes.Replace(b, []byte("404.html"), []byte("../x.htm"), 1))
	// A decoded release is sorted, has only publishable paths, finds each of its files, and encodes to the same tree
	// again.
	f.Fuzz(func(t *testing.T, b []byte) {
		tree, keys, err := decode(b)
		if err != nil {
			return
		}
		files := slices.Collect(tree.Files())
		var names []string
		s := scanner{rest: keys}
		for i, f := range files {
			if checkPath(f.Path) != "" || Hidden(f.Path) || i > 0 && files[i-1].Path >= f.Path {
				t.Fatalf("path %q", f.Path)
			}
			if got, ok := tree.Lookup(f.Path); !ok || got != f {
				t.Fatalf("Lookup(%q) = %+v, %v", f.Path, got, ok)
			}
			names = append(names, s.string(maxKey))
		}
		again, _, err := decode(encode(tree.fallback, "", files, names))
		if err != nil || !slices.Equal(slices.Collect(again.Files()), files) {
			t.Fatalf("encodes to another tree: %v", err)
		}
	})
}

func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	c := Content{blob.Sum([]byte("x")), 1}
	file := func(path string) File { return File{Path: path, Type: "text/html", Body: c} }
	for name, b := range map[string][]byte{
		"unsorted":  encode("", "", []File{file("b"), file("a")}, []string{"", ""}),
		"twice":     encode("", "", []File{file("a"), file("a")}, []string{"", ""}),
		"escape":    encode("", "", []File{file("../a")}, []string{""}),
		"hidden":    encode("", "", []File{file(".env")}, []string{""}),
		"no key":    encode("", "", []File{file("a")}, nil),
		"more keys": encode("", "", []File{file("a")}, []string{"", ""}),
		"fallback":  encode("b", "", []File{file("a")}, []string{""}),
		"header":    encode("", "", []File{{Path: "a", Type: "text/html\r\nSet-Cookie: x", Body: c}}, []string{""}),
		"empty":     nil,
	} {
		if _, _, err := decode(b); err == nil {
			t.Errorf("%s: decoded", name)
		}
	}
	if _, _, err := decode(encode("a", "", []File{file("a")}, []string{"k"})); err != nil {
		t.Errorf("a good one: %v", err)
	}
}

func BenchmarkPublish(b *testing.B) {
	words := strings.Fields(
		"the quick brown fox jumps over a lazy dog and <div class=card> </div> function return const export import default",
	)
	r := open(b)
	for b.Loop() {
		b.StopTimer()
		files := map[string]string{}
		for i := range 100 {
			var text strings.Builder
			for text.Len() < 4096 {
				fmt.Fprint(&text, words[rand.IntN(len(words))], " ")
			}
			files[fmt.Sprint("page", i, ".html")] = text.String()
		}
		b.StartTimer()
		publish(b, r, "", files)
	}
}

func BenchmarkResolve(b *testing.B) {
	r := open(b)
	files := map[string]string{"index.html": "x"}
	for i := range 1000 {
		files[fmt.Sprintf("docs/page-%d/index.html", i)] = "x"
	}
	tree := load(b, r, publish(b, r, "", files).ID)
	for path := range maps.Keys(map[string]bool{"/": true, "/docs/page-500/": true, "/nothing/here": true}) {
		b.Run(path, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				tree.Resolve(rules.Request{Path: path})
			}
		})
	}
}

// A release without files has the ID Empty.
func TestEmpty(t *testing.T) {
	t.Parallel()
	r := open(t)
	if s := publish(t, r, "", nil); s.ID != Empty {
		t.Errorf("its id is %s, want %s", s.ID, Empty)
	}
	if s := publish(t, r, Empty, map[string]string{"a.txt": "a"}); s.ID == Empty {
		t.Error("a release with a file has the id of the empty release")
	}
}
