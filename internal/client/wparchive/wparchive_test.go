package wparchive

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// sql returns a dump with this prefix and a plugin's table that resembles one of WordPress.
func sql(prefix string) string {
	return "CREATE TABLE `" + prefix + "shop_options` (id int);\nCREATE TABLE `" + prefix + "options` (\n  option_id bigint\n);\n" +
		"INSERT INTO `" + prefix + "options` VALUES (1,'siteurl','https://old.example/','yes');\n" +
		"CREATE TABLE `" + prefix + "usermeta` (id int);\n"
}

func write(t *testing.T, name string, b []byte) string {
	t.Helper()
	at := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(at, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return at
}

func gz(t *testing.T, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := io.WriteString(z, text); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func zipOf(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		h := &zip.FileHeader{Name: name, Method: zip.Deflate}
		if link, ok := strings.CutPrefix(files[name], "link:"); ok {
			h.SetMode(os.ModeSymlink | 0o777)
			files[name] = link
		}
		w, err := z.CreateHeader(h)
		if err == nil {
			_, err = io.WriteString(w, files[name])
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// entry is a file of a .wpress; size is the size in its header.
type entry struct{ folder, name, size, body string }

func wpressOf(entries ...entry) []byte {
	var b bytes.Buffer
	field := func(text string, length int) { b.WriteString(text + strings.Repeat("\x00", length-len(text))) }
	for _, e := range entries {
		if e.size == "" {
			e.size = strconv.Itoa(len(e.body))
		}
		field(e.name, wpressName)
		field(e.size, wpressSize)
		field("1700000000", wpressTime)
		field(e.folder+"\x00"+strings.Repeat("\x00", wpressFolder-len(e.folder)-9)+"cafe0123", wpressFolder) // with a checksum
		b.WriteString(e.body)
	}
	b.Write(make([]byte, wpressHeader))
	return b.Bytes()
}

// converted returns what the server gets: files by name, with the dump unpacked.
func converted(t *testing.T, files ...string) (map[string]string, Plan, error) {
	t.Helper()
	a, err := Open(files)
	if err != nil {
		return nil, Plan{}, err
	}
	if a == nil {
		t.Fatalf("%v is of no known kind", files)
	}
	f, err := os.Create(filepath.Join(t.TempDir(), "out.tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p, err := a.Convert(t.Context(), f)
	if err != nil {
		return nil, p, err
	}
	if looked, err := a.Plan(t.Context()); err != nil || looked.Files != p.Files || looked.Bytes != p.Bytes || looked.SQL != p.SQL {
		t.Errorf("planned %+v, converted %+v, %v", looked, p, err)
	}
	return packed(t, f), p, nil
}

// packed reads the archive written for the server: files by name, with the dump unpacked.
func packed(t *testing.T, f *os.File) map[string]string {
	t.Helper()
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		var in io.Reader = r
		if h.Name == "database.sql.gz" {
			if in, err = gzip.NewReader(r); err != nil {
				t.Fatal(err)
			}
		}
		text, err := io.ReadAll(in)
		if err != nil || h.Typeflag != tar.TypeReg {
			t.Fatalf("%s: %v", h.Name, err)
		}
		out[h.Name] = string(text)
	}
}

// A backup of each format becomes the same archive: the files of wp-content and the dump, and nothing else.
func TestKinds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for part, body := range map[string][]byte{
		"db.gz":       gz(t, sql("qx_")),
		"plugins.zip": zipOf(t, map[string]string{"plugins/": "", "plugins/hello.php": "<?php"}),
		"themes.zip":  zipOf(t, map[string]string{"themes/sea/style.css": "body{}"}),
		"uploads.zip": zipOf(t, map[string]string{"uploads/a.txt": "one"}), "uploads2.zip": zipOf(t, map[string]string{"uploads/b.txt": "two"}),
		"others.zip": zipOf(t, map[string]string{"languages/de.mo": "x", "languages/link": "link:/etc/passwd"}),
		"db1.gz":     gz(t, "-- another"),
	} {
		if err := os.WriteFile(filepath.Join(dir, "backup_2026-11-20-0315_Old_Harbour_0123456789ab-"+part), body, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	set := filepath.Join(dir, "backup_2026-11-20-0315_Old_Harbour_0123456789ab-themes.zip")
	files := map[string]string{
		"wp-content/plugins/hello.php": "<?php", "wp-content/themes/sea/style.css": "body{}", "wp-content/uploads/a.txt": "one",
		"wp-content/uploads/b.txt": "two", "wp-content/languages/de.mo": "x",
	}
	below := func(top string) map[string]string {
		out := map[string]string{}
		for name, text := range files {
			out[top+name] = text
		}
		return out
	}
	with := func(m map[string]string, more map[string]string) map[string]string { maps.Copy(m, more); return m }
	for name, tt := range map[string]struct {
		file, root, prefix string
		left               string
	}{
		"UpdraftPlus": {file: set, prefix: "qx_", left: "another database"},
		"All-in-One": {file: write(t, "old.wpress", wpressOf(
			entry{".", "package.json", "", `{"SiteURL":"https://old.example"}`}, entry{".", "database.sql", "", sql(wpressPrefix)},
			entry{"plugins", "hello.php", "", "<?php"}, entry{"themes/sea", "style.css", "", "body{}"}, entry{"uploads", "a.txt", "", "one"},
			entry{"uploads", "b.txt", "", "two"}, entry{"languages", "de.mo", "", "x"},
		)), prefix: "wp_"},
		"Duplicator": {file: write(t, "20261120_old_archive.zip", zipOf(t, with(below(""), map[string]string{
			"dup-installer/dup-database__0123abc-20261120.sql": sql("qx_"), "wp-config.php": "<?php", "wp-includes/a.php": "<?php",
			"wp-content/evil": "link:/etc",
		}))), prefix: "qx_"},
	} {
		got, p, err := converted(t, tt.file)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if dump := got["database.sql.gz"]; dump != sql(tt.prefix) {
			t.Errorf("%s: the dump is %q", name, dump)
		}
		delete(got, "database.sql.gz")
		if !maps.Equal(got, files) {
			t.Errorf("%s: the files are %q", name, got)
		}
		if p.Prefix != tt.prefix || p.Home != "https://old.example" || p.Files != 5 || p.Bytes != 18 {
			t.Errorf("%s: the plan is %+v", name, p)
		}
		if !strings.Contains(strings.Join(p.Left, "; "), tt.left) {
			t.Errorf("%s: not carried are %q", name, p.Left)
		}
	}
	if a, err := Open([]string{write(t, "site.zip", zipOf(t, below("")))}); a != nil || err != nil {
		t.Errorf("a plain archive is %+v, %v", a, err)
	}
}

// Archives with false sizes or paths outside wp-content, truncated and encrypted ones are refused with an error
// message.
func TestHostileArchives(t *testing.T) {
	t.Parallel()
	dump := entry{".", "database.sql", "", sql(wpressPrefix)}
	file := entry{"uploads", "a.txt", "", "one"}
	whole := wpressOf(dump, file)
	broken := zipOf(t, map[string]string{"dup-installer/dup-database__1.sql": sql("wp_"), "wp-content/a": strings.Repeat("abc", 1000)})
	i := bytes.Index(broken, []byte("wp-content/a"))
	broken[i+20] ^= 0xff // in its data
	for name, tt := range map[string]struct {
		file string
		body []byte
		want string
	}{
		"a size below zero":    {"a.wpress", wpressOf(dump, entry{"uploads", "a", "-1", ""}), "size"},
		"a size of words":      {"a.wpress", wpressOf(dump, entry{"uploads", "a", "12x", ""}), "size"},
		"a size without end":   {"a.wpress", wpressOf(dump, entry{"uploads", "a", "99999999999999", ""}), "larger than 64 GiB"},
		"more than there is":   {"a.wpress", wpressOf(dump, entry{"uploads", "a", "50000", "x"}), "damaged"},
		"a path that leads up": {"a.wpress", wpressOf(dump, entry{"../..", "wp-config.php", "", "<?php"}), "not allowed"},
		"an absolute path":     {"a.wpress", wpressOf(dump, entry{"/etc", "passwd", "", "x"}), "not allowed"},
		"cut off":              {"a.wpress", whole[:len(whole)-wpressHeader], "damaged"},
		"cut off in a header":  {"a.wpress", whole[:100], "damaged"},
		"two dumps":            {"a.wpress", wpressOf(dump, dump, file), "several dumps"},
		"no dump":              {"a.wpress", wpressOf(file), "no dump"},
		"no files":             {"a.wpress", wpressOf(dump), "no file of wp-content"},
		"a password":           {"a.wpress", wpressOf(entry{".", "package.json", "", `{"Encrypted":true}`}, dump, file), "encrypted"},
		"compressed":           {"a.wpress", wpressOf(entry{".", "package.json", "", `{"Compression":{"Enabled":true}}`}, dump, file), "compressed"},
		"a network":            {"a.wpress", wpressOf(entry{".", "multisite.json", "", "{}"}, dump, file), "multisite"},
		"Duplicator's own":     {"a_archive.daf", []byte("x"), "ZipArchive"},
		"an encrypted set":     {"backup_2026-11-20-0315_Old_0123456789ab-db.gz.crypt", []byte("x"), "encrypted"},
		"a set without a dump": {"backup_2026-11-20-0315_Old_0123456789ab-plugins.zip", zipOf(t, map[string]string{"plugins/a": "x"}), "-db.gz"},
		"a zip that leads up": {"a.zip", zipOf(t, map[string]string{
			"dup-installer/dup-database__1.sql": sql("wp_"), "wp-content/../../wp-config.php": "<?php",
		}), "not allowed"},
		"a zip with wrong data": {"a.zip", broken, "damaged"},
		"a zip cut off":         {"a.zip", broken[:len(broken)-30], "damaged"},
	} {
		if got, _, err := converted(t, write(t, tt.file, tt.body)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, %v; want %q", name, got, err, tt.want)
		}
	}
}

// The word is replaced everywhere, also across the borders of read buffers.
func TestReplaced(t *testing.T) {
	t.Parallel()
	for _, before := range []int{0, 1, 256<<10 - 17, 256<<10 - 8, 256<<10 - 1, 256 << 10} {
		text := strings.Repeat("S", before) + wpressPrefix + "options " + wpressPrefix + wpressPrefix[:5]
		got, err := io.ReadAll(&replaced{in: strings.NewReader(text), old: []byte(wpressPrefix), new: []byte("wp_")})
		if want := strings.ReplaceAll(text, wpressPrefix, "wp_"); err != nil || string(got) != want {
			t.Errorf("after %d bytes: %d bytes, %v; want %d", before, len(got), err, len(want))
		}
	}
}
