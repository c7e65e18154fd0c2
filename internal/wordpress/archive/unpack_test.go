package archive

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"slipway/internal/platform/fault"
)

// packed builds an archive, tar or zip.
type packed struct {
	t   *testing.T
	out bytes.Buffer
	gz  *gzip.Writer
	tar *tar.Writer
	zip *zip.Writer
}

func newPacked(t *testing.T, kind string) *packed {
	p := &packed{t: t}
	if kind == "zip" {
		p.zip = zip.NewWriter(&p.out)
		return p
	}
	p.gz, _ = gzip.NewWriterLevel(&p.out, gzip.BestSpeed)
	p.tar = tar.NewWriter(p.gz)
	return p
}

func (p *packed) ok(err error) {
	if err != nil {
		p.t.Helper()
		p.t.Fatal(err)
	}
}

// file adds a file with this size.
func (p *packed) file(name string, text io.Reader, size int64) {
	if p.zip != nil {
		w, err := p.zip.Create(name)
		p.ok(err)
		_, err = io.Copy(w, text)
		p.ok(err)
		return
	}
	p.ok(p.tar.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: size, Typeflag: tar.TypeReg}))
	_, err := io.Copy(p.tar, text)
	p.ok(err)
}

func (p *packed) text(name, text string) { p.file(name, strings.NewReader(text), int64(len(text))) }

func (p *packed) link(name, to string) {
	if p.zip != nil {
		h := &zip.FileHeader{Name: name}
		h.SetMode(os.ModeSymlink | 0o777)
		w, err := p.zip.CreateHeader(h)
		p.ok(err)
		_, err = w.Write([]byte(to))
		p.ok(err)
		return
	}
	p.ok(p.tar.WriteHeader(&tar.Header{Name: name, Linkname: to, Typeflag: tar.TypeSymlink}))
	p.ok(p.tar.WriteHeader(&tar.Header{Name: name + "-hard", Linkname: to, Typeflag: tar.TypeLink}))
}

func (p *packed) end() []byte {
	if p.zip != nil {
		p.ok(p.zip.Close())
		return p.out.Bytes()
	}
	p.ok(p.tar.Close())
	p.ok(p.gz.Close())
	return p.out.Bytes()
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// drain reads a dump without loading it.
func drain(sql io.Reader) error { _, err := io.Copy(io.Discard, sql); return err }

// prefixOf returns the prefix of a dump that is read in parts.
func prefixOf(sql io.Reader) (string, error) {
	var p Prefixes
	_, _ = io.CopyBuffer(struct{ io.Writer }{&p}, sql, make([]byte, 64<<10)) // it never fails
	return p.Found()
}

// unpackThere unpacks an archive into a new directory, which it returns.
func unpackThere(t *testing.T, archive []byte, left int64) (string, error) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "in", "next")
	file := filepath.Join(t.TempDir(), "archive")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, archive, 0o600); err != nil {
		t.Fatal(err)
	}
	u := &unpacking{ctx: t.Context(), dir: dir, left: left, load: drain, told: func(float64) {}}
	defer u.close()
	return dir, u.open(file)
}

// Whatever paths and links an archive contains, its files are written only below the new wp-content.
func TestUnpackStaysInside(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"tar", "zip"} {
		p := newPacked(t, kind)
		p.text("site/wp-content/themes/ours/style.css", "ours")
		p.text("site/dump.sql", "CREATE TABLE `x_options` (a int);")
		for _, name := range []string{
			"/wp-content/../../../escaped", "site/wp-content/../../../../../../escaped", "/etc/escaped",
			`..\..\wp-content\..\..\escaped`, "site/wp-content/x/../../../escaped",
		} {
			p.text(name, "escaped")
		}
		p.link("site/wp-content/up", "../../..")
		p.link("site/wp-content/passwd", "/etc/passwd")
		p.text("site/wp-content/up/escaped", "through a link")
		p.text("/site/wp-content/uploads/a.txt", "absolute")
		p.text("site/wp-content/object-cache.php", "<?php")
		dir, err := unpackThere(t, p.end(), 1<<20)
		if err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		got := map[string]string{}
		err = filepath.WalkDir(filepath.Dir(dir), func(path string, e os.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			if !e.Type().IsRegular() {
				t.Errorf("%s: %s is no file", kind, path)
				return nil
			}
			text, err := os.ReadFile(path)
			rel, _ := filepath.Rel(dir, path)
			got[rel] = string(text)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]string{"themes/ours/style.css": "ours", "uploads/a.txt": "absolute", "up/escaped": "through a link"}
		for name, text := range want {
			if got[name] != text {
				t.Errorf("%s: %s is %q, want %q", kind, name, got[name], text)
			}
			delete(got, name)
		}
		if len(got) > 0 {
			t.Errorf("%s: unpacking created %q", kind, got)
		}
	}
}

// Archives that expand too much, list too many entries, or aren't archives fail with a clear error, whatever their
// headers claim.
func TestUnpackIsBounded(t *testing.T) {
	t.Parallel()
	begin := func(kind string) *packed {
		p := newPacked(t, kind)
		p.text("wp-content/index.php", "<?php")
		p.text("dump.sql", "CREATE TABLE `x_options` (a int);")
		return p
	}
	many := func(kind, prefix string, n int, add func(p *packed, name string)) []byte {
		p := begin(kind)
		for i := range n {
			b := binary.BigEndian.AppendUint32(nil, uint32(i))
			add(
				p,
				prefix+strings.NewReplacer(
					"\x00", "a", "/", "b", "\\", "c", ".", "d",
				).Replace(string([]byte{'A' + b[3]&15, 'A' + b[3]>>4, 'A' + b[2]&15, 'A' + b[2]>>4, 'A' + b[1]&15, 'A' + b[1]>>4})),
			)
		}
		return p.end()
	}
	crowd := many("zip", "", maxImportEntries+1, func(p *packed, name string) {
		_, err := p.zip.CreateHeader(&zip.FileHeader{
			Name: name,
		})
		p.ok(err)
	})
	for name, tt := range map[string]struct {
		archive []byte
		want    string
	}{
		"bomb in a tar": {func() []byte {
			p := begin("tar")
			p.file("wp-content/big", io.LimitReader(zeros{}, 8<<20), 8<<20)
			return p.end()
		}(), "too large"},
		"bomb in a zip": {func() []byte {
			p := begin("zip")
			p.file("wp-content/big", io.LimitReader(zeros{}, 8<<20), 8<<20)
			return p.end()
		}(), "too large"},
		"folders without end": {many("tar", "other/", maxImportEntries+1, func(p *packed, name string) {
			p.ok(p.tar.WriteHeader(&tar.Header{Name: name + "/", Typeflag: tar.TypeDir}))
		}), "more than"},
		"entries without end": {crowd, "more than"},
		"entries that nobody announced": {func() []byte {
			quiet := bytes.Clone(crowd)
			at := bytes.LastIndex(quiet, []byte("PK\x06\x06"))
			n := binary.LittleEndian.Uint64(quiet[at+32:])
			binary.LittleEndian.PutUint64(quiet[at+32:], n&0xffff) // archive/zip only compares these bits
			return quiet
		}(), "more than"},
		"cut off":    {begin("tar").end()[:60], "damaged"},
		"half a zip": {begin("zip").end()[:60], "damaged"},
		"text":       {[]byte("hello, this is no archive"), "neither gzip nor zip"},
		"without a dump": {
			func() []byte { p := newPacked(t, "zip"); p.text("wp-content/index.php", "x"); return p.end() }(),
			"no .sql file",
		},
		"without wp-content": {func() []byte { p := newPacked(t, "tar"); p.text("a.sql", "x"); return p.end() }(), "no wp-content"},
		"a long path": {func() []byte {
			p := begin("zip")
			p.text("wp-content/"+strings.Repeat("a/", 600)+"x", "x")
			return p.end()
		}(), "too long"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := unpackThere(t, tt.archive, 1<<20)
			f := fault.As(err)
			if f == nil || !strings.Contains(f.Message+": "+f.Details, tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}

	// No memory is allocated for more entries than the archive has room for.
	liar := begin("zip").end()
	end := bytes.LastIndex(liar, []byte("PK\x05\x06"))
	large := append([]byte("PK\x06\x06"), make([]byte, 52)...)
	binary.LittleEndian.PutUint64(large[32:], 1<<40)
	locator := append([]byte("PK\x06\x07"), make([]byte, 16)...)
	binary.LittleEndian.PutUint64(locator[8:], uint64(end))
	lie := append(append(append([]byte(nil), liar[:end]...), append(large, locator...)...), liar[end:]...)
	if _, err := unpackThere(t, lie, 1<<20); err == nil || !strings.Contains(fault.As(err).Details, "more than") {
		t.Errorf("an end that lies: %v", err)
	}
}

// A full disk isn't reported as a damaged archive.
func TestUnpackToFullDisk(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can make a small file system")
	}
	p := newPacked(t, "tar")
	p.text("dump.sql", "CREATE TABLE `x_options` (a int);")
	p.file("wp-content/uploads/big", io.LimitReader(zeros{}, 1<<20), 1<<20)
	small, file := t.TempDir(), filepath.Join(t.TempDir(), "archive")
	if err := syscall.Mount("tmpfs", small, "tmpfs", 0, "size=256k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(small, syscall.MNT_DETACH) })
	next := filepath.Join(small, "next")
	if err := os.Mkdir(next, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, p.end(), 0o600); err != nil {
		t.Fatal(err)
	}
	u := &unpacking{ctx: t.Context(), dir: next, left: 1 << 30, load: drain, told: func(float64) {}}
	defer u.close()
	if f := fault.As(u.open(file)); f == nil || f.Code != "disk_full" {
		t.Errorf("%v", f)
	}
	// Receiving the archive reports a full disk too, rather than a lost connection.
	there, err := os.Create(filepath.Join(small, "archive"))
	p.ok(err)
	defer there.Close()
	if f := fault.As(Receive(there, io.LimitReader(zeros{}, 1<<20), 1<<30)); f == nil || f.Code != "disk_full" {
		t.Errorf("received: %v", f)
	}
}

// Found returns WordPress's own prefix, whatever plugins call their tables and wherever the dump is split into parts.
func TestPrefixOf(t *testing.T) {
	t.Parallel()
	table := func(name string) string { return "CREATE TABLE `" + name + "` (\n  `a` int\n);\n" }
	for name, tt := range map[string]struct{ sql, want string }{
		"WordPress": {table("wp_options") + table("wp_usermeta"), "wp_"},
		"plugins before": {
			table("wp_aaa_options") + table("wp_mailing_options") + table("wp_options") + table("wp_usermeta"),
			"wp_",
		},
		"a plugin's is shorter": {table("x_options") + table("site_options") + table("site_usermeta"), "site_"},
		"several blogs":         {table("wp_2_options") + table("wp_options") + table("wp_usermeta"), "wp_"},
		"users are elsewhere":   {table("wp_form_options") + table("wp_options") + table("wp_posts"), "wp_"},
		"small letters":         {"create table if not exists wp_options (a int);\ncreate table wp_usermeta(a int);", "wp_"},
		"a name in it":          {table("wp_options_options") + table("wp_options_usermeta"), "wp_options_"},
		"between two parts": {
			strings.Repeat("-", 1<<20-20) + "\n" + table("wp_options") + strings.Repeat("-", 1<<20-30) + "\n" + table("wp_usermeta"),
			"wp_",
		},
		"a plugin of blogs":       {table("wp_options") + table("wp_usermeta") + table("wp_blogs"), "wp_"},
		"a network":               {table("wp_2_options") + table("wp_options") + table("wp_usermeta") + table("wp_blogs") + table("wp_sitemeta"), "wp_"},
		"a network, sorted":       {table("wp_blogs") + table("wp_options") + table("wp_sitemeta") + table("wp_usermeta"), "wp_"},
		"one site of a network":   {table("wp_2_options") + table("wp_usermeta"), ""},
		"one without its users":   {table("wp_2_options") + table("wp_2_posts"), ""},
		"users of its own":        {table("wp_2_options") + table("wp_2_usermeta") + table("wp_usermeta"), "wp_2_"},
		"users of two":            {table("wp_2_options") + table("wp_2_usermeta") + table("wp_options") + table("wp_usermeta"), "wp_2_"},
		"a number, users apart":   {table("site2_options") + table("site2_posts"), "site2_"},
		"a plugin's alone":        {table("wp_options_log") + table("wp_posts"), ""},
		"no prefix":               {table("options") + table("usermeta"), ""},
		"nothing":                 {"", ""},
		"a great many":            {strings.Repeat("CREATE ", 1<<16) + table("wp_options"), "wp_"},
		"more than are looked at": {strings.Repeat("CREATE ", maxLooks+1) + table("wp_options"), ""},
		"a name that is too long": {table(strings.Repeat("a", 60) + "_options"), ""},
	} {
		got, err := prefixOf(strings.NewReader(tt.sql))
		if got != tt.want || (err == nil) != (tt.want != "") || err != nil && !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %q, %v, want %q", name, got, err, tt.want)
		}
	}
	many := new(strings.Builder)
	for i := range 5000 {
		many.WriteString(table("wp_" + strconv.Itoa(i) + "x_options"))
	}
	if got, err := prefixOf(strings.NewReader(many.String())); got != "wp_0x_" || err != nil {
		t.Errorf("of very many: %q, %v", got, err)
	}
}

// A dump is loaded while it is unpacked. Only the imported files are written to disk.
func TestUnpackHoldsNoDump(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"tar", "zip"} {
		p := newPacked(t, kind)
		p.text("wp-content/index.php", "<?php")
		p.text("dump.sql", "-- "+strings.Repeat("x", 32<<20)+"\n")
		file, dir := filepath.Join(t.TempDir(), "archive"), t.TempDir()
		p.ok(os.WriteFile(file, p.end(), 0o600))
		var loaded int64
		u := &unpacking{ctx: t.Context(), dir: dir, left: 1 << 20, told: func(float64) {}}
		u.load = func(sql io.Reader) error {
			n, err := io.CopyN(io.Discard, sql, 16<<20) // half of the dump
			p.ok(err)
			for _, where := range []string{dir, filepath.Dir(dir), os.TempDir()} {
				if files, err := filepath.Glob(filepath.Join(where, ".import-sql-*")); err != nil || len(files) > 0 {
					t.Errorf("%s: %q, %v", kind, files, err)
				}
			}
			fds, err := os.ReadDir("/proc/self/fd")
			p.ok(err)
			for _, fd := range fds {
				if name, _ := os.Readlink("/proc/self/fd/" + fd.Name()); strings.Contains(name, ".import-") {
					t.Errorf("%s: %s is open", kind, name)
				}
			}
			rest, err := io.Copy(io.Discard, sql)
			loaded = n + rest
			return err
		}
		p.ok(u.open(file))
		u.close()
		if loaded < 32<<20 {
			t.Errorf("%s: %d bytes are loaded", kind, loaded)
		}
	}
}

// Files that macOS adds to an archive don't count as dumps or plugins. Dumps may be compressed. An archive with two
// WordPress sites is rejected.
func TestUnpackOfOthers(t *testing.T) {
	t.Parallel()
	var dump bytes.Buffer
	gz := gzip.NewWriter(&dump)
	_, _ = io.WriteString(gz, "CREATE TABLE `x_options` (a int);")
	_ = gz.Close()
	for _, kind := range []string{"tar", "zip"} {
		p := newPacked(t, kind)
		p.text("Site/wp-content/mu-plugins/ours.php", "<?php")
		p.text("Site/wp-content/mu-plugins/._ours.php", "\x00\x05\x16\x07")
		p.text("Site/db/dump.SQL.gz", dump.String())
		p.text("Site/db/._dump.sql", "\x00\x05\x16\x07")
		p.text("__MACOSX/Site/wp-content/._mu-plugins", "\x00\x05\x16\x07")
		p.text("__MACOSX/Site/db/._dump.sql.gz", "\x00\x05\x16\x07")
		file := filepath.Join(t.TempDir(), "archive")
		p.ok(os.WriteFile(file, p.end(), 0o600))
		dir := t.TempDir()
		var tables Prefixes
		u := &unpacking{
			ctx:  t.Context(),
			dir:  dir,
			left: 1 << 20,
			told: func(float64) {},
			load: func(sql io.Reader) error { _, err := io.Copy(&tables, sql); return err },
		}
		defer u.close()
		p.ok(u.open(file))
		if prefix, err := tables.Found(); prefix != "x_" {
			t.Errorf("%s: the prefix is %q, %v", kind, prefix, err)
		}
		if entries, err := os.ReadDir(filepath.Join(dir, "mu-plugins")); err != nil || len(entries) != 1 {
			t.Errorf("%s: %v, %v", kind, entries, err)
		}
		p = newPacked(t, kind)
		p.text("public_html/wp-content/themes/a/style.css", "a")
		p.text("public_html/shop/wp-content/themes/a/style.css", "b")
		p.text("dump.sql", "CREATE TABLE `x_options` (a int);")
		if _, err := unpackThere(
			t,
			p.end(),
			1<<20,
		); fault.As(err) == nil || !strings.Contains(
			fault.As(err).Details,
			`several WordPress, "public_html/wp-content" and "public_html/shop/wp-content"`,
		) {
			t.Errorf("%s with two WordPress: %v", kind, err)
		}
	}
}

// Bedrock archives have their wp-content in web/app. The core's own wp-content beside it is ignored.
func TestUnpackBedrock(t *testing.T) {
	t.Parallel()
	own := map[string]string{"uploads/2026/a.jpg": "picture", "plugins/shop/shop.php": "<?php", "themes/ours/style.css": "x"}
	for _, top := range []string{"", "site/", "home/ada/site/"} {
		for _, kind := range []string{"tar", "zip"} {
			for _, coreFirst := range []bool{false, true} {
				p := newPacked(t, kind)
				core := func() {
					p.text(top+"web/wp/wp-content/themes/twenty/style.css", "the core's")
					p.text(top+"web/wp/wp-load.php", "<?php")
				}
				if coreFirst {
					core()
				}
				for name, text := range own {
					p.text(top+"web/app/"+name, text)
				}
				core()
				p.text(top+"config/application.php", "<?php")
				p.text(top+"dump.sql", "--")
				dir, err := unpackThere(t, p.end(), 1<<20)
				if err != nil {
					t.Fatalf("%s of %q: %v", kind, top, err)
				}
				for name, text := range own {
					if b, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(b) != text {
						t.Errorf("%s of %q: %s is %q, %v", kind, top, name, b, err)
					}
				}
				if _, err := os.Stat(filepath.Join(dir, "themes/twenty")); err == nil {
					t.Errorf("%s of %q: the core's theme is taken", kind, top)
				}
			}
		}
	}
	p := newPacked(t, "tar")
	p.text("a/web/app/themes/x/style.css", "x")
	p.text("b/wp-content/themes/x/style.css", "x")
	if _, err := unpackThere(t, p.end(), 1<<20); !fault.Is(err, fault.Invalid) {
		t.Errorf("two WordPress: %v", err)
	}
	p = newPacked(t, "tar")
	p.text("src/app/themes/x.ts", "no WordPress")
	p.text("dump.sql", "--")
	if _, err := unpackThere(t, p.end(), 1<<20); !fault.Is(err, fault.Invalid) {
		t.Errorf("an application's folder app: %v", err)
	}
}

// A folder app beside a wp-content doesn't make an archive Bedrock's.
func TestUnpackAppBesideContent(t *testing.T) {
	t.Parallel()
	for _, top := range []string{"", "public/", "home/ada/web/"} {
		for _, appFirst := range []bool{false, true} {
			p := newPacked(t, "tar")
			p.text("dump.sql", "--")
			app := func() {
				p.text(top+"app/uploads/a.jpg", "another application's")
				p.text(top+"app/themes/theirs/style.css", "another application's")
			}
			if appFirst {
				app()
			}
			p.text(top+"wp-content/uploads/a.jpg", "picture")
			app()
			p.text(top+"wp-content/themes/ours/style.css", "ours")
			dir, err := unpackThere(t, p.end(), 1<<20)
			if err != nil {
				t.Errorf("%q, app first %v: %v", top, appFirst, err)
				continue
			}
			for name, want := range map[string]string{"uploads/a.jpg": "picture", "themes/ours/style.css": "ours"} {
				if b, err := os.ReadFile(filepath.Join(dir, name)); string(b) != want {
					t.Errorf("%q, app first %v: %s is %q, %v", top, appFirst, name, b, err)
				}
			}
			if _, err := os.Stat(filepath.Join(dir, "themes/theirs")); err == nil {
				t.Errorf("%q, app first %v: files of app are imported", top, appFirst)
			}
		}
	}
}

// Files that are deleted after unpacking, such as the core's, don't count towards the site's storage.
func TestUnpackCountsOnlyItsOwn(t *testing.T) {
	t.Parallel()
	for size, fits := range map[int]bool{900: true, 1001: false} {
		p := newPacked(t, "tar")
		p.text("dump.sql", "--")
		p.text("web/wp/wp-content/themes/twenty/a.css", strings.Repeat("x", 900))
		p.text("web/app/uploads/a.txt", strings.Repeat("x", size))
		if _, err := unpackThere(t, p.end(), 1000); (err == nil) != fits {
			t.Errorf("%d bytes of 1000: %v", size, err)
		}
	}
}
