package wordpress

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// content is what a WordPress archive contains: a dump, and the files of wp-content by their path.
type content struct {
	dump  string
	files map[string][]byte
}

// contentOf reads an export.
func (h *installation) contentOf(archive []byte) content {
	h.t.Helper()
	c := content{files: map[string][]byte{}}
	gz, err := gzip.NewReader(bytes.NewReader(archive))
	ok(h.t, err)
	for in := tar.NewReader(gz); ; {
		f, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		ok(h.t, err)
		body, err := io.ReadAll(in)
		ok(h.t, err)
		if _, name, found := strings.Cut(f.Name, "/wp-content/"); found && f.Typeflag == tar.TypeReg && !strings.Contains(name, "../") {
			c.files[name] = body
		} else if strings.HasSuffix(f.Name, ".sql") {
			c.dump = string(body)
		}
	}
	if c.dump == "" || len(c.files) == 0 {
		h.t.Fatalf("the export has a dump of %d bytes and %d files", len(c.dump), len(c.files))
	}
	return c
}

// marked returns a copy of the content with a title and a file that identify the kind of archive.
func (c content) marked(kind string) content {
	files := maps.Clone(c.files)
	files["uploads/"+kind+".txt"] = []byte("came by " + kind)
	return content{strings.ReplaceAll(c.dump, "News of the day", "News of "+kind), files}
}

// names returns the files' paths, sorted.
func (c content) names() []string { return slices.Sorted(maps.Keys(c.files)) }

// zipped returns a zip archive of files.
func zipped(files map[string][]byte) ([]byte, error) {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		w, err := z.Create(name)
		if err == nil {
			_, err = w.Write(files[name])
		}
		if err != nil {
			return nil, err
		}
	}
	err := z.Close()
	return b.Bytes(), err
}

func gzipped(text []byte) ([]byte, error) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, err := z.Write(text)
	err = errors.Join(err, z.Close())
	return b.Bytes(), err
}

// updraft writes an UpdraftPlus backup and returns the path of its database file.
func (c content) updraft(dir string) (string, error) {
	const set = "backup_2026-11-27-0730_Blog_0123456789ab-"
	parts := map[string]map[string][]byte{"plugins": {}, "themes": {}, "uploads": {}, "others": {}}
	for name, body := range c.files {
		part, _, _ := strings.Cut(name, "/")
		if parts[part] == nil || part == "others" {
			part = "others"
		}
		parts[part][name] = body
	}
	for part, files := range parts {
		b, err := zipped(files)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, set+part+".zip"), b, 0o600)
		}
		if err != nil {
			return "", err
		}
	}
	at := filepath.Join(dir, set+"db.gz")
	b, err := gzipped([]byte(c.dump))
	return at, errors.Join(err, os.WriteFile(at, b, 0o600))
}

// wpress writes an archive of All-in-One WP Migration and returns its path.
func (c content) wpress(dir string) (string, error) {
	var b bytes.Buffer
	add := func(name string, body []byte) {
		head := make([]byte, 255+14+12+4096)
		copy(head, path.Base(name))
		copy(head[255:], []byte(strconv.Itoa(len(body))))
		copy(head[255+14:], "1795765800")
		copy(head[255+14+12:], path.Dir(name))
		b.Write(head)
		b.Write(body)
	}
	add("package.json", []byte(`{"SiteURL":"https://old.example","Encrypted":false}`))
	for _, name := range c.names() {
		add(name, c.files[name])
	}
	add("database.sql", []byte(strings.ReplaceAll(c.dump, "moved_", "SERVMASK_PREFIX_")))
	b.Write(make([]byte, 255+14+12+4096))
	at := filepath.Join(dir, "blog.wpress")
	return at, os.WriteFile(at, b.Bytes(), 0o600)
}

// duplicator writes a Duplicator package and returns its path.
func (c content) duplicator(dir string) (string, error) {
	files := map[string][]byte{
		"dup-installer/dup-database__0123456-27073000.sql": []byte(c.dump), "wp-config.php": []byte("<?php\n"), "installer-backup.php": []byte("<?php\n"),
	}
	for name, body := range c.files {
		files["wp-content/"+name] = body
	}
	at := filepath.Join(dir, "20261127_blog_0123456_archive.zip")
	b, err := zipped(files)
	return at, errors.Join(err, os.WriteFile(at, b, 0o600))
}

// archives imports each tool's backup into a site with the command line. The site then has the archive's posts and
// pictures, under its own URL.
func (h *installation) archives(s siteBody) {
	t := h.t
	moved := h.ready(h.create("Moved").ID)
	of := h.contentOf(h.export(s))
	v := h.visitor(moved.URL)
	last := ""
	for _, a := range []struct {
		kind, says string
		write      func(c content, dir string) (string, error)
	}{
		{"updraftplus", "UpdraftPlus backup of " + s.URL, content.updraft},
		{"wpress", "All-in-One WP Migration archive of " + s.URL, content.wpress},
		{"duplicator", "Duplicator package of " + s.URL, content.duplicator},
	} {
		file, err := a.write(of.marked(a.kind), t.TempDir())
		ok(t, err)
		said, err := h.client("import", "wordpress", file, "--site", moved.Slug, "--yes")
		if err != nil || !strings.Contains(said, a.says+"\n") || !strings.Contains(said, "Imported to Moved: "+moved.URL) {
			t.Fatalf("%s: %v\n%s", a.kind, err, said)
		}
		status, _, text := v.get("/news-of-the-day/?x=" + a.kind)
		if status != 200 || !strings.Contains(text, "News of "+a.kind) || strings.Contains(text, s.URL) {
			t.Errorf("%s: the post answers %d, has its title: %v, names the old address: %v", a.kind, status,
				strings.Contains(text, "News of "+a.kind), strings.Contains(text, s.URL))
		}
		at := strings.Index(text, moved.URL+"/wp-content/uploads/")
		if at < 0 {
			t.Fatalf("%s: the picture is elsewhere: %.2000s", a.kind, text)
		}
		image := text[at:]
		if status, _, text := v.get(image[:strings.IndexAny(image, `"'`)]); status != 200 || text != string(picture) {
			t.Errorf("%s: the picture answers %d", a.kind, status)
		}
		if status, _, text := v.get("/wp-content/uploads/" + a.kind + ".txt"); status != 200 || text != "came by "+a.kind {
			t.Errorf("%s: its file answers %d: %.100s", a.kind, status, text)
		}
		if status, _, text := v.get("/wp-content/uploads/" + last + ".txt"); last != "" && strings.Contains(text, "came by") {
			t.Errorf("%s: the file of %s is still there: %d", a.kind, last, status)
		}
		last = a.kind
	}
	owner, _ := h.login(moved)
	if status, _, _ := owner.get("/wp-admin/"); status != 200 {
		t.Errorf("wp-admin after the imports: %d", status)
	}
	h.call("DELETE", "/sites/"+moved.ID, nil, nil)
}

// client runs a slipway command as the owner and returns its output.
func (h *installation) client(args ...string) (said string, err error) {
	h.t.Helper()
	ctx, done := context.WithTimeout(h.t.Context(), patience)
	defer done()
	home := h.t.TempDir()
	cmd := exec.CommandContext(ctx, binary, append(args, "--server", "http://"+h.Listen)...)
	cmd.Dir = home
	cmd.Env = append(os.Environ(), "HOME="+home, "XDG_CONFIG_HOME="+home, "SLIPWAY_TOKEN="+h.key, "NO_PROXY=127.0.0.1", "no_proxy=127.0.0.1")
	out, err := cmd.CombinedOutput()
	return string(out), err
}
