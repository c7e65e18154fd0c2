package difference

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// asked returns a Tree whose directory is read by PHP, like a running WordPress's. before is a command that runs first.
func asked(t *testing.T, dir, before string) Asked {
	t.Helper()
	lib, err := filepath.Abs("../core/files/tasks/tree.php")
	if err != nil {
		t.Fatal(err)
	}
	const script = `require $argv[1]; echo json_encode(tree($argv[2], json_decode(stream_get_contents(STDIN), true)));`
	return func(ctx context.Context, in, out any) error {
		text, err := json.Marshal(in)
		if err != nil {
			return err
		}
		argv := []string{"php", "-r", script, lib, dir}
		if before != "" {
			argv = append([]string{"unshare", "-m", "sh", "-c", before + ` && exec "$@"`, "sh"}, argv...)
		}
		c := exec.CommandContext(ctx, argv[0], argv[1:]...)
		c.Stdin = bytes.NewReader(text)
		said, err := c.Output()
		if err != nil {
			return fmt.Errorf("%w: %s", err, said)
		}
		return json.Unmarshal(said, out)
	}
}

// Files compares files by content, whether they are read locally or by PHP. Caches are ignored, and symbolic links
// aren't followed.
func TestCompareFiles(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 100_000)
	a := tree(t, map[string]string{"same.txt": long, "size.txt": "1", "bytes.txt": long + "a", "new/one.txt": "", "cache/a": "1", "empty": ""})
	b := tree(t, map[string]string{"same.txt": long, "size.txt": "12", "bytes.txt": long + "b", "uploads/only.png": "", "cache/b": "22", "empty": ""})
	for _, dir := range []string{a, b} {
		if err := os.Symlink("/etc", filepath.Join(dir, "link")); err != nil {
			t.Fatal(err)
		}
	}
	for name, x := range map[string][2]Tree{
		"both here": {Dir(a), Dir(b)}, "one here": {Dir(a), asked(t, b, "")}, "the other here": {asked(t, a, ""), Dir(b)},
		"both elsewhere": {asked(t, a, ""), asked(t, b, "")},
	} {
		d, err := Files(t.Context(), x[0], x[1])
		if err != nil {
			t.Fatal(name, err)
		}
		slices.Sort(d.Examples)
		if d.Added != 1 || d.Removed != 1 || d.Changed != 2 || d.Unread != 0 ||
			!slices.Equal(d.Examples, []string{"bytes.txt", "size.txt", "uploads/only.png"}) {
			t.Errorf("%s: %+v", name, d)
		}
		if d, err = Files(t.Context(), x[0], x[0]); err != nil || d.Added+d.Removed+d.Changed+d.Unread != 0 {
			t.Errorf("%s, with itself: %+v, %v", name, d, err)
		}
	}
}

// PHP lists the same files as the local code, whatever their names and the page size.
func TestTreesAgree(t *testing.T) {
	t.Parallel()
	files := map[string]string{
		"cache/left out": "1", "upgrade/left out": "1", "upgrade-temp-backup/x": "1", "uploads/cache/kept": "22",
		"a/b": "1", "a.b": "22", "a-": "", "12": "3", "7/8": "4", "007": "5", "\xff\xfe": "not UTF-8", "line\nbreak": "6",
		`quotes "'\134`: "7", "deep/er/and/deep/er": "8", " ": "9", "ü/ö": "10", "..two": "11", "0/0": "", "nul": "\x00\x00",
	}
	for i := range 25 {
		files[fmt.Sprintf("many/%d/%d", i%7, i)] = strings.Repeat("x", i)
	}
	dir := tree(t, files)
	for _, err := range []error{
		os.Symlink("..", filepath.Join(dir, "many/up")), os.Symlink("a.b", filepath.Join(dir, "linked")),
		syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600), os.Mkdir(filepath.Join(dir, "empty"), 0o700),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	here, there := Dir(dir), asked(t, dir, "")
	want, err := here.Sizes(t.Context())
	if err != nil || len(want) != len(files)-3 {
		t.Fatalf("%d files, %v", len(want), err)
	}
	for _, page := range []int{1, 97, maxPage} {
		got, err := there.sizes(t.Context(), page)
		if err != nil || !maps.Equal(got, want) {
			t.Errorf("in pages of %d bytes: %d files, want %d; %v", page, len(got), len(want), err)
		}
	}
	a, errA := here.Count(t.Context())
	b, errB := there.Count(t.Context())
	if errA != nil || errB != nil || a.Count != int64(len(want)) || a.Changed == 0 || *a != *b {
		t.Errorf("counted: %+v %v, %+v %v", a, errA, b, errB)
	}
	var list []File
	for name, size := range want {
		list = append(list, File{name, size})
	}
	list = append(list, File{"pipe", 5}, File{"gone", 5}, File{"a.b", 0})
	x, errX := here.Digests(t.Context(), list)
	y, errY := there.Digests(t.Context(), list)
	if errX != nil || errY != nil || !slices.Equal(x, y) {
		t.Errorf("digests: %v, %v", errX, errY)
	}
	for i, f := range list[:len(want)] {
		if len(x[i]) != 2*digestLength {
			t.Errorf("%q has the digest %q", f.Name, x[i])
		}
	}
	if n := len(want); x[n] != "" || x[n+1] != "" || x[n+2] == x[slices.Index(list, File{"a.b", 2})] {
		t.Errorf("of a pipe, of nothing, and of a file that has grown: %q", x[n:])
	}

	late, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	if got, err := there.Digests(late, list); err != nil || len(got) != len(list) || slices.ContainsFunc(got, func(s string) bool { return s != "" }) {
		t.Errorf("without time: %v, %v", got, err)
	}
	var s said
	if err := there(t.Context(), asking{Seconds: -1, Digests: []byte("2 a.b")}, &s); err != nil || len(s.Digests) != 1 || s.Digests[0] != "" {
		t.Errorf("late: %+v, %v", s, err)
	}
	for name, ask := range map[string]asking{"late": {Most: maxWalked}, "too many": {Seconds: 5, Most: len(want) - 1}} {
		if s = (said{}); there(t.Context(), ask, &s) != nil || !s.Late {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

// Folders over which a release is mounted aren't part of the site.
func TestMountedIsLeftOut(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root may mount")
	}
	dir := tree(t, map[string]string{"themes/own/style.css": "1", "themes/of the release/below": "22", "index.php": "333"})
	release := tree(t, map[string]string{"style.css": "4444"})
	covered := asked(t, dir, "mount --bind '"+release+"' '"+dir+"/themes/of the release'")
	got, err := covered.Sizes(t.Context())
	if want := map[string]int64{"themes/own/style.css": 1, "index.php": 3}; err != nil || !maps.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
}

// Invalid responses of a site's PHP are errors, and repeated ones end the listing.
func TestTreesThatMakeNoSense(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"outside": "1 ../x", "absolute": "1 /etc/passwd", "twice the same": "1 a//b", "no size": "a", "negative": "-1 a", "too long": "1 " + strings.Repeat("x", 5000),
	} {
		asks := Asked(func(_ context.Context, _, out any) error {
			*out.(*said) = said{Files: []byte(text + "\x00")}
			return nil
		})
		if got, err := asks.Sizes(t.Context()); err == nil {
			t.Errorf("%s: %v", name, got)
		}
	}
	n := 0
	more := Asked(func(_ context.Context, _, out any) error {
		n++
		*out.(*said) = said{Files: []byte("1 same\x00"), More: true, Digests: []string{"1", "2"}}
		return nil
	})
	if got, err := more.sizes(t.Context(), 1); err == nil || n != 2 {
		t.Errorf("asked %d times: %v", n, got)
	}
	if got, err := more.Sizes(t.Context()); err == nil || n != 3 {
		t.Errorf("pages that are not full: asked %d times: %v", n, got)
	}
	if got, err := more.Digests(t.Context(), []File{{"one", 1}}); err == nil {
		t.Errorf("two digests of one file: %v", got)
	}
	next := 0
	endless := Asked(func(_ context.Context, _, out any) error {
		var b bytes.Buffer
		for range 50_000 {
			next++
			fmt.Fprintf(&b, "1 %d\x00", next)
		}
		*out.(*said) = said{Files: b.Bytes(), More: true}
		return nil
	})
	if got, err := endless.sizes(t.Context(), 1); got != nil || err != nil || next != maxWalked+50_000 {
		t.Errorf("of an endless tree %d files of %d, %v", len(got), next, err)
	}
	next = 0
	long := Asked(func(_ context.Context, _, out any) error {
		next++
		*out.(*said) = said{Files: fmt.Appendf(nil, "1 %04d%s\x00", next, strings.Repeat("x", maxName-4)), More: true}
		return nil
	})
	if got, err := long.sizes(t.Context(), 1); got != nil || err != nil || next != maxTold/maxName+1 {
		t.Errorf("of long names %d files of %d, %v", len(got), next, err)
	}
	negative := Asked(func(_ context.Context, _, out any) error {
		*out.(*said) = said{Amount: Amount{Type: "x", Count: -1, Bytes: -1, Changed: -1}}
		return nil
	})
	if got, err := negative.Count(t.Context()); err != nil || *got != (Amount{}) {
		t.Errorf("less than nothing: %+v, %v", got, err)
	}
}

// Digests are requested in parts with limited bytes and names, so that a timeout loses little.
func TestDigestsAreAskedInParts(t *testing.T) {
	t.Parallel()
	var parts []int
	asks := Asked(func(_ context.Context, in, out any) error {
		ask := in.(asking)
		files := bytes.Split(ask.Digests, []byte{0})
		parts = append(parts, len(files))
		if ask.Seconds <= 0 || ask.Seconds > compareTime.Seconds() {
			t.Errorf("%v seconds", ask.Seconds)
		}
		s := out.(*said)
		for _, f := range files {
			s.Digests = append(s.Digests, string(f))
		}
		return nil
	})
	list := []File{{"a", maxDigests / 2}, {"b", maxDigests / 2}, {"c", 2 * maxDigests}, {"d", 1}}
	for i := range 2000 {
		list = append(list, File{fmt.Sprintf("%s%d", strings.Repeat("n", 1000), i), 1})
	}
	ctx, done := context.WithTimeout(t.Context(), compareTime-time.Second)
	defer done()
	got, err := asks.Digests(ctx, list)
	if err != nil || len(got) != len(list) {
		t.Fatal(len(got), err)
	}
	for i, f := range list {
		if got[i] != fmt.Sprintf("%d %s", f.Size, f.Name) {
			t.Fatalf("%d: %q", i, got[i])
		}
	}
	if !slices.Equal(parts[:2], []int{2, 1}) || len(parts) != 6 {
		t.Errorf("parts of %v files", parts)
	}
}
