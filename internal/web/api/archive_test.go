package api_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"slipway/internal/platform/wait"
	"slipway/internal/tenant/limits"
)

// zipOf returns a zip archive of files given as path, content, path, content…
func zipOf(files ...string) string {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for i := 0; i < len(files); i += 2 {
		w, err := z.Create(files[i])
		if err == nil {
			_, err = io.WriteString(w, files[i+1])
		}
		if err != nil {
			panic(err)
		}
	}
	if err := z.Close(); err != nil {
		panic(err)
	}
	return b.String()
}

// tarOf returns a tar archive. A content that begins with "-> " is a symbolic link's target, with "=> " a hard link's.
func tarOf(files ...string) string {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i := 0; i < len(files); i += 2 {
		h := &tar.Header{Name: files[i], Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(files[i+1]))}
		body := files[i+1]
		if to, ok := strings.CutPrefix(body, "-> "); ok {
			h.Typeflag, h.Linkname, h.Size, body = tar.TypeSymlink, to, 0, ""
		}
		if to, ok := strings.CutPrefix(body, "=> "); ok {
			h.Typeflag, h.Linkname, h.Size, body = tar.TypeLink, to, 0, ""
		}
		if err := w.WriteHeader(h); err != nil {
			panic(err)
		}
		if _, err := io.WriteString(w, body); err != nil {
			panic(err)
		}
	}
	if err := w.Close(); err != nil {
		panic(err)
	}
	return b.String()
}

func gzipOf(s string) string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	io.WriteString(z, s)
	z.Close()
	return b.String()
}

func zstdOf(s string) string {
	var b bytes.Buffer
	z, _ := zstd.NewWriter(&b)
	io.WriteString(z, s)
	z.Close()
	return b.String()
}

// A single request deploys an archive of each format. Forbidden files are skipped and listed.
func TestArchive(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, key := w.user("ada@example.test")
	s := w.folderSite(key, "Harbor")
	files := []string{
		"site/index.html", "one", "./site/about.html", "two", "site/.env", "SECRET=1", "site/.git/config", "[core]", "site/node_modules/x/index.js", "x",
		"site/id_rsa", "-----BEGIN OPENSSH PRIVATE KEY-----\nabc", "site/.env.example", "SECRET=", "__MACOSX/site/._index.html", "mac",
	}
	for name, body := range map[string]string{
		"zip": zipOf(files...), "tar": tarOf(files...), "tar.gz": gzipOf(tarOf(files...)), "tar.zst": zstdOf(tarOf(files...)),
	} {
		a := w.api("POST", "/sites/"+s+"/deploy/archive?title=From+"+name, key, body)
		if a.status != 200 {
			t.Fatalf("%s: %s", name, a)
		}
		got := a.json(t)
		if got["files"] != 3.0 || got["bytes"] != 13.0 || len(got["leftOut"].([]any)) != 4 {
			t.Errorf("%s: %s", name, a)
		}
		for _, want := range []string{"secrets", "version control", "dependencies", "a private key"} {
			if !strings.Contains(a.body, want) {
				t.Errorf("%s: %s is not named in %s", name, want, a)
			}
		}
		dep := w.must(200, "GET", "/deployments/"+got["deploymentId"].(string), key, nil)
		if src := dep["source"].(m); src["kind"] != "upload" || src["files"] != 3.0 || dep["title"] != "From "+name {
			t.Errorf("%s: the deployment is %v", name, dep)
		}
	}
	// Links inside an archive are kept. With an Idempotency-Key, an equal archive replays the deployment and a
	// different one is refused.
	project := tarOf("package.json", "{}", "a/one.js", "1", "a/two.js", "-> one.js", "three.js", "=> a/one.js")
	first := w.api("POST", "/sites/"+s+"/deploy/archive", key, project, "Idempotency-Key: k1")
	again := w.api("POST", "/sites/"+s+"/deploy/archive", key, gzipOf(project), "Idempotency-Key: k1")
	if first.status != 200 || again.body != first.body || again.header.Get("Idempotent-Replayed") != "true" || first.json(t)["files"] != 4.0 {
		t.Errorf("the same archive twice: %s, %s", first, again)
	}
	if a := w.api("POST", "/sites/"+s+"/deploy/archive", key, zipOf("index.html", "x"), "Idempotency-Key: k1"); a.status != 409 {
		t.Errorf("another archive with the same key: %s", a)
	}
	if n := w.count("SELECT count(*) FROM uploads WHERE status = 'open'"); n != 0 {
		t.Errorf("%d uploads are left open", n)
	}
}

// Invalid or malicious archives are refused with an error message, and nothing of them is deployed or counted.
func TestArchiveRefuses(t *testing.T) {
	t.Parallel()
	settings, err := limits.Parse("[defaults]\nstorage.bytes = 3000000\n")
	if err != nil {
		t.Fatal(err)
	}
	w := newLimitedWorld(t, settings)
	_, key := w.user("ada@example.test")
	s := w.folderSite(key, "Harbor")
	good := zipOf("index.html", strings.Repeat("hello ", 100))
	announced := []byte(good) // its end record claims 65,535 entries, or more in the 64-bit form
	binary.LittleEndian.PutUint16(announced[len(announced)-12:], 0xffff)
	liar := tarOf("index.html", "hello")
	for name, row := range map[string]struct {
		body, says string
		code       int
	}{
		"nothing":        {"", "not an archive", 415},
		"text":           {"hello", "not an archive", 415},
		"rar":            {"Rar!\x1a\x07\x01\x00" + strings.Repeat("x", 500), "not an archive", 415},
		"no file":        {zipOf("a/", ""), "empty_upload", 400},
		"secrets alone":  {zipOf(".env", "A=1"), "empty_upload", 400},
		"cut zip":        {good[:len(good)-30], "invalid_archive", 400},
		"a lie of a zip": {string(announced), "invalid_archive", 400},
		"cut gzip":       {gzipOf(liar)[:60], "invalid_archive", 400},
		"gzip of text":   {gzipOf("hello"), "invalid_archive", 400},
		"up":             {tarOf("../etc/passwd", "x"), "invalid_path", 400},
		"absolute":       {zipOf("/etc/passwd", "x"), "invalid_path", 400},
		"a drive":        {zipOf("C:\\x", "x"), "invalid_path", 400},
		"an escape":      {zipOf("a\x1b[31m", "x"), "\\\\x1b", 400},
		"twins":          {zipOf("cafe", "x", "cafe", "y"), "twice", 400},
		"both":           {tarOf("x", "1", "x/b", "x"), "a file and a folder", 400},
		"a link out":     {tarOf("a", "x", "link", "-> ../../etc/passwd"), "invalid_link", 400},
		"an absolute":    {tarOf("a", "x", "link", "-> /etc/passwd"), "invalid_link", 400},
		"a bomb":         {gzipOf(tarOf("zeros", strings.Repeat("\x00", 4<<20))), "storage.bytes", 402},
		"a zip bomb":     {zipOf("zeros", strings.Repeat("\x00", 4<<20)), "storage.bytes", 402},
	} {
		a := w.api("POST", "/sites/"+s+"/deploy/archive", key, row.body)
		if a.status != row.code || !strings.Contains(a.body, row.says) {
			t.Errorf("%s: %s, want %d %s", name, a, row.code, row.says)
		}
	}
	if n := w.count("SELECT count(*) FROM uploads"); n != 0 {
		t.Errorf("%d uploads are left", n)
	}
	if a := w.api("POST", "/sites/"+s+"/deploy/archive?kind=source&target=nowhere", key, good); a.status != 400 {
		t.Errorf("another target: %s", a)
	}
	if a := w.api("POST", "/sites/"+s+"/deploy/archive?kind=output", key, good); a.status != 200 {
		t.Errorf("a good one afterwards: %s", a)
	}
}

// A large file is uploaded in parts. If the connection breaks, the next part continues where the last one ended.
func TestUploadInParts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, key := w.user("ada@example.test")
	s := w.folderSite(key, "Harbor")
	var b strings.Builder
	for i := 0; b.Len() < 6<<20+12345; i++ {
		fmt.Fprintf(&b, "%d ", i)
	}
	content := b.String()
	id := w.upload(key, s, "big.bin", content, "small", "x")
	at := "/uploads/" + id + "/blobs/" + digestOf(content)
	offset := func() int64 {
		t.Helper()
		return int64(w.must(200, "GET", at, key, nil)["offset"].(float64))
	}
	if a := w.api("HEAD", at, key, nil); a.status != 200 || a.header.Get("Upload-Offset") != "0" || a.body != "" {
		t.Errorf("HEAD: %s %v", a, a.header)
	}
	for name, row := range map[string]struct {
		path, body, header, says string
		code                     int
	}{
		"no offset":      {at, "x", "X-Nothing: 1", "invalid_offset", 400},
		"elsewhere":      {at, "x", "Upload-Offset: 5", "continue with Upload-Offset: 0", 409},
		"too small":      {at, "x", "Upload-Offset: 0", "part_too_small", 400},
		"too large":      {at, content + "x", "Upload-Offset: 0", "size_mismatch", 400},
		"another blob":   {"/uploads/" + id + "/blobs/" + digestOf("other"), "other", "Upload-Offset: 0", "not_expected", 404},
		"another upload": {"/uploads/upl_none/blobs/" + digestOf("other"), "other", "Upload-Offset: 0", "not found", 404},
	} {
		if a := w.api("PATCH", row.path, key, row.body, row.header); a.status != row.code || !strings.Contains(a.body, row.says) {
			t.Errorf("%s: %s, want %d %s", name, a, row.code, row.says)
		}
	}
	// Each connection breaks shortly after its first MiB.
	for want := int64(1 << 20); want <= 5<<20; want += 1 << 20 {
		w.cutOff("PATCH", at, key, want-1<<20, content[want-1<<20:], 1<<20+999)
		wait.Until(t, fmt.Sprintf("%d bytes are kept", want), func() bool { return offset() == want })
	}
	// After a restart of the client, a new upload of the same file continues there, too.
	id = w.upload(key, s, "moved/big.bin", content, "index.html", "hello")
	at = "/uploads/" + id + "/blobs/" + digestOf(content)
	if n := offset(); n != 5<<20 {
		t.Errorf("another upload begins at %d", n)
	}
	a := w.api("PATCH", at, key, content[5<<20:], fmt.Sprint("Upload-Offset: ", 5<<20))
	if a.status != 200 || a.json(t)["offset"] != float64(len(content)) || a.header.Get("Upload-Offset") != fmt.Sprint(len(content)) ||
		a.json(t)["missing"].(m)["files"] != 1.0 {
		t.Fatalf("the last part: %s", a)
	}
	if n := offset(); n != int64(len(content)) {
		t.Errorf("afterwards the offset is %d", n)
	}
	w.must(200, "POST", "/uploads/"+id+"/blobs", key, batchOf("hello"))
	w.must(200, "POST", "/uploads/"+id+"/deploy", key, nil)
	if n := w.count("SELECT count(*) FROM upload_parts"); n != 0 {
		t.Errorf("%d parts are left", n)
	}
	// A complete file with the wrong digest is refused, and its upload starts over.
	wrong := strings.Repeat("y", 2<<20)
	id = w.upload(key, s, "wrong.bin", wrong)
	at = "/uploads/" + id + "/blobs/" + digestOf(wrong)
	w.must(200, "PATCH", at, key, wrong[:1<<20], "Upload-Offset: 0")
	if a := w.api("PATCH", at, key, strings.Repeat("z", 1<<20), fmt.Sprint("Upload-Offset: ", 1<<20)); a.status != 400 ||
		!strings.Contains(a.body, "digest_mismatch") || offset() != 0 {
		t.Errorf("wrong bytes: %s", a)
	}
}

// cutOff sends the first n bytes of a body and closes the connection.
func (w *world) cutOff(method, path, key string, offset int64, body string, n int) {
	w.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(w.srv.URL, "http://"))
	if err != nil {
		w.t.Fatal(err)
	}
	fmt.Fprintf(conn, "%s /api/v1%s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nUpload-Offset: %d\r\nContent-Length: %d\r\n\r\n%s",
		method, path, conn.RemoteAddr(), key, offset, len(body), body[:min(n, len(body))])
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		w.t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, conn)
	conn.Close()
}

func (w *world) count(query string) (n int) {
	w.t.Helper()
	if err := w.db.QueryRow(w.t.Context(), query).Scan(&n); err != nil {
		w.t.Fatal(err)
	}
	return n
}
