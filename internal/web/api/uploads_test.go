package api_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"slipway/internal/tenant/account"
	"slipway/internal/tenant/limits"
	"slipway/internal/tenant/site"
)

func digestOf(content string) string {
	d := sha256.Sum256([]byte(content))
	return hex.EncodeToString(d[:])
}

// manifestOf returns the manifest of files given as path, content, path, content…
func manifestOf(files ...string) string {
	var b strings.Builder
	for i := 0; i < len(files); i += 2 {
		fmt.Fprintf(&b, "{\"path\":%q,\"sha256\":%q,\"size\":%d}\n", files[i], digestOf(files[i+1]), len(files[i+1]))
	}
	return b.String()
}

// batchOf encodes a batch of blobs.
func batchOf(contents ...string) string {
	var b []byte
	for _, c := range contents {
		d := sha256.Sum256([]byte(c))
		b = append(b, d[:]...)
		b = binary.BigEndian.AppendUint64(b, uint64(len(c)))
		b = append(b, c...)
	}
	return string(b)
}

// folderSite creates a site without a repository.
func (w *world) folderSite(key, name string) string {
	w.t.Helper()
	a := w.must(201, "POST", "/sites", key, m{"name": name, "type": "static", "source": "upload"})
	return a["data"].(m)["id"].(string)
}

// upload opens an upload and sends its manifest.
func (w *world) upload(key, site string, files ...string) string {
	w.t.Helper()
	id := w.must(201, "POST", "/sites/"+site+"/uploads", key, m{"kind": "output"})["id"].(string)
	w.must(200, "PUT", "/uploads/"+id+"/manifest", key, manifestOf(files...))
	return id
}

// missing returns the number of missing blobs of an upload.
func (w *world) missing(key, id string) (n int) {
	w.t.Helper()
	return int(w.must(200, "GET", "/uploads/"+id, key, nil)["missing"].(m)["files"].(float64))
}

// A folder becomes a deployment: the manifest's response lists the missing files, each blob is stored on arrival, and
// stored blobs aren't requested again.
func TestUpload(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, key := w.user("ada@example.test")
	s := w.folderSite(key, "Harbor")
	if got := w.must(200, "GET", "/sites/"+s, key, nil); got["source"] != "upload" || got["repository"] != nil || got["status"] != "pending" {
		t.Errorf("the site is %v", got)
	}
	if a := w.api("POST", "/sites/"+s+"/deploy", key, nil); a.status != 409 || !strings.Contains(a.body, "nothing_uploaded") {
		t.Errorf("before anything was uploaded: %s", a)
	}
	id := w.upload(key, s, "index.html", "one", "a.html", "two", "copy.html", "one")
	if n := w.missing(key, id); n != 2 {
		t.Errorf("%d are missing, want 2: equal contents are one", n)
	}
	deploy := func() answer { return w.api("POST", "/uploads/"+id+"/deploy", key, nil) }
	if a := deploy(); a.status != 409 || !strings.Contains(a.body, "upload_incomplete") {
		t.Errorf("with blobs missing: %s", a)
	}
	wrong := batchOf("two", "three") // one isn't in the manifest
	flipped := []byte(batchOf("one"))
	flipped[len(flipped)-1] ^= 1
	got := w.must(200, "POST", "/uploads/"+id+"/blobs", key, wrong+string(flipped))
	if got["stored"] != 1.0 || len(got["refused"].([]any)) != 2 || w.missing(key, id) != 1 {
		t.Errorf("a batch with a wrong and a flipped blob: %v", got)
	}
	text := fmt.Sprint(got["refused"])
	if !strings.Contains(text, "not_expected") || !strings.Contains(text, "digest_mismatch") {
		t.Errorf("refused: %s", text)
	}
	if a := w.api("PUT", "/uploads/"+id+"/blobs/"+digestOf("one"), key, "onE"); a.status != 400 || !strings.Contains(a.body, "digest_mismatch") {
		t.Errorf("one flipped blob: %s", a)
	}
	list := w.must(200, "GET", "/uploads/"+id+"/missing", key, nil)
	if d := list["data"].([]any); len(d) != 1 || d[0].(m)["sha256"] != digestOf("one") || d[0].(m)["size"] != 3.0 || list["next"] != nil {
		t.Errorf("missing: %v", list)
	}
	w.must(200, "PUT", "/uploads/"+id+"/blobs/"+digestOf("one"), key, "one")
	first := deploy()
	if first.status != 200 {
		t.Fatal(first)
	}
	if again := deploy(); again.status != 200 || again.body != first.body {
		t.Errorf("deployed twice: %s, before %s", again, first)
	}
	dep := w.must(200, "GET", "/deployments/"+first.json(t)["deploymentId"].(string), key, nil)
	source := dep["source"].(m)
	if source["kind"] != "upload" || source["uploadId"] != id || source["files"] != 3.0 || source["bytes"] != 9.0 || dep["target"] != "production" {
		t.Errorf("the deployment is %v", dep)
	}
	if a := w.api("PUT", "/uploads/"+id+"/manifest", key, manifestOf("x", "y")); a.status != 409 || !strings.Contains(a.body, "upload_deployed") {
		t.Errorf("a manifest after the deployment: %s", a)
	}
	// Blobs sent within the last day count for all sites of the owner.
	other := w.folderSite(key, "Pier")
	if n := w.missing(key, w.upload(key, other, "index.html", "one", "new.html", "four")); n != 1 {
		t.Errorf("%d are missing, want the new one alone", n)
	}
	w.must(200, "POST", "/sites/"+s+"/deploy", key, nil) // builds the last upload again
	if a := w.api("POST", "/sites/"+s+"/deploy", key, m{"commit": strings.Repeat("a", 40)}); a.status != 400 {
		t.Errorf("a commit without a repository: %s", a)
	}
}

// Concurrent requests that deploy an upload cause one deployment.
func TestUploadIsDeployedOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, key := w.user("ada@example.test")
	id := w.upload(key, w.folderSite(key, "Harbor"), "index.html", "one")
	w.must(200, "PUT", "/uploads/"+id+"/blobs/"+digestOf("one"), key, "one")
	answers := make([]answer, 8)
	var all sync.WaitGroup
	for n := range answers {
		all.Go(func() { answers[n] = w.api("POST", "/uploads/"+id+"/deploy", key, nil) })
	}
	all.Wait()
	for _, a := range answers {
		if a.status != 200 || a.body != answers[0].body {
			t.Errorf("answered with %s and %s", answers[0], a)
		}
	}
	var n int
	if err := w.db.QueryRow(t.Context(), `SELECT COUNT(*) FROM deployments`).Scan(&n); err != nil || n != 1 {
		t.Errorf("%d deployments, %v", n, err)
	}
}

// Blobs that only other accounts store are requested anyway, like blobs that nobody stores.
func TestUploadTellsNothingOfOthers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, ada := w.user("ada@example.test")
	_, eve := w.user("eve@example.test")
	id := w.upload(ada, w.folderSite(ada, "Harbor"), "secret.txt", "a secret")
	w.must(200, "POST", "/uploads/"+id+"/blobs", ada, batchOf("a secret"))
	theirs := w.upload(eve, w.folderSite(eve, "Spy"), "guess.txt", "a secret", "other.txt", "nobody's")
	if n := w.missing(eve, theirs); n != 2 {
		t.Errorf("%d are missing for a stranger, want both", n)
	}
	if a := w.api("POST", "/uploads/"+theirs+"/deploy", eve, nil); a.status != 409 || !strings.Contains(a.body, "upload_incomplete") {
		t.Errorf("deployed without having the bytes: %s", a)
	}
	stored, fresh := w.api("POST", "/uploads/"+theirs+"/blobs", eve, batchOf("a secret")), w.api("GET", "/uploads/"+id, eve, nil)
	if stored.status != 200 || fresh.status != 404 {
		t.Errorf("%s, %s", stored, fresh)
	}
}

// For a key restricted to one site, blobs of the account's other sites are requested again, because naming a known
// digest would publish its content. This includes deployed files, open uploads and partial files.
func TestUploadTellsNothingOfOtherSites(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	u, ada := w.user("ada@example.test")
	harbor, shop := w.folderSite(ada, "Harbor"), w.folderSite(ada, "Shop")
	restricted := w.key(u, account.NewKey{Sites: []site.ID{site.ID(shop)}})
	large := strings.Repeat("secret in parts ", 1<<17)
	live := w.upload(ada, harbor, "index.html", "deployed secret")
	w.must(200, "POST", "/uploads/"+live+"/blobs", ada, batchOf("deployed secret"))
	w.must(200, "POST", "/uploads/"+live+"/deploy", ada, nil)
	open := w.upload(ada, harbor, "a.txt", "sent secret", "b.txt", large)
	w.must(200, "POST", "/uploads/"+open+"/blobs", ada, batchOf("sent secret"))
	w.must(200, "PATCH", "/uploads/"+open+"/blobs/"+digestOf(large), ada, large[:1<<20], "Upload-Offset: 0")
	files := []string{"1", "deployed secret", "2", "sent secret", "3", large}
	part := func(key, upload string) any {
		return w.must(200, "GET", "/uploads/"+upload+"/blobs/"+digestOf(large), key, nil)["offset"]
	}
	theirs := w.upload(restricted, shop, files...)
	if n, got := w.missing(restricted, theirs), part(restricted, theirs); n != 3 || got != 0. {
		t.Errorf("%d of 3 are missing for the other site's key, and %v bytes of one are there", n, got)
	}
	if a := w.api("POST", "/uploads/"+theirs+"/deploy", restricted, nil); a.status != 409 {
		t.Errorf("deployed without having the bytes: %s", a)
	}
	if a := w.api("PUT", "/uploads/"+theirs+"/manifest", restricted, strings.Replace(manifestOf("1", "sent secret"), `"size":11`, `"size":12`, 1)); a.status != 200 {
		t.Errorf("the other site's key learns of a length: %s", a)
	}
	if n := w.missing(ada, w.upload(ada, shop, files...)); n != 1 {
		t.Errorf("%d are missing for the whole account's key, want the one that has come in part", n)
	}
	again := w.upload(ada, harbor, files...)
	if got := part(ada, again); got != float64(1<<20) {
		t.Errorf("the next upload to the site continues at %v", got)
	}
}

// Malformed manifests and batches are refused with an error message and have no effect.
func TestUploadRefusesMalformedBodies(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, key := w.user("ada@example.test")
	s := w.folderSite(key, "Harbor")
	id := w.upload(key, s, "index.html", "hello")
	line := func(path string) string { return manifestOf(path, "x") }
	for name, row := range map[string]struct {
		body string
		says string
		code int
	}{
		"nothing":     {"", "empty_upload", 400},
		"no JSON":     {"index.html\n", "invalid_manifest", 400},
		"unknown":     {`{"path":"a","sha256":"` + digestOf("") + `","size":0,"owner":"me"}`, "invalid_manifest", 400},
		"no size":     {`{"path":"a","sha256":"` + digestOf("") + `"}`, "invalid_manifest", 400},
		"a lie":       {manifestOf("a", "x") + strings.Replace(manifestOf("b", "x"), `"size":1`, `"size":2`, 1), "different sizes", 400},
		"up":          {line("../etc/passwd"), "invalid_path", 400},
		"absolute":    {line("/etc/passwd"), "invalid_path", 400},
		"a drive":     {line("C:/x"), "invalid_path", 400},
		"a backslash": {line("a\\b"), "invalid_path", 400},
		"NUL":         {strings.Replace(line("aQb"), "Q", "\\u0000", 1), "invalid_path", 400},
		"an escape":   {strings.Replace(line("aQb"), "Q", "\\u001b[31m", 1), "\\\\x1b", 400},
		"git":         {line("x/.GIT/config"), "Git folder", 400},
		"twins":       {line("a") + line("a"), "twice", 400},
		"both":        {line("a") + line("a/b"), "a file and a folder", 400},
		"a link":      {strings.Replace(line("a"), "}", `,"mode":"l"}`, 1), "symbolic link", 400},
		"a long line": {strings.Repeat("x", 9<<10), "manifest_too_large", 413},
		"a giant":     {strings.Replace(line("a"), `"size":1`, `"size":9000000000`, 1), "upload_file_bytes", 413},
	} {
		if a := w.api("PUT", "/uploads/"+id+"/manifest", key, row.body); a.status != row.code || !strings.Contains(a.body, row.says) {
			t.Errorf("%s: %s, want %d %s", name, a, row.code, row.says)
		}
	}
	head := func(size uint64, content string) string {
		d := sha256.Sum256([]byte("hello"))
		return string(binary.BigEndian.AppendUint64(d[:], size)) + content
	}
	for name, row := range map[string]struct {
		body, says string
		code       int
	}{
		"2^63":        {head(1<<63, "hello"), "malformed_batch", 400},
		"65 MiB":      {head(65<<20, "hello"), "batch_too_large", 413},
		"short":       {head(5, "hel"), "malformed_batch", 400},
		"half a head": {head(5, "")[:20], "malformed_batch", 400},
	} {
		if a := w.api("POST", "/uploads/"+id+"/blobs", key, row.body); a.status != row.code || !strings.Contains(a.body, row.says) {
			t.Errorf("%s: %s, want %d %s", name, a, row.code, row.says)
		}
	}
	if got := w.must(200, "POST", "/uploads/"+id+"/blobs", key, head(0, "")); got["stored"] != 0.0 ||
		!strings.Contains(fmt.Sprint(got["refused"]), "size_mismatch") {
		t.Errorf("a length of 0: %v", got)
	}
	if n := w.missing(key, id); n != 1 {
		t.Errorf("%d are missing, want 1", n)
	}
	if a := w.api("PUT", "/uploads/"+id+"/manifest", key, "x", "Content-Encoding: br"); a.status != 415 {
		t.Errorf("brotli: %s", a)
	}
	// Compressed manifests are accepted. A decompression bomb is stopped early.
	var z, bomb bytes.Buffer
	g := gzip.NewWriter(&z)
	g.Write([]byte(manifestOf("index.html", "hello")))
	g.Close()
	w.must(200, "PUT", "/uploads/"+id+"/manifest", key, z.String(), "Content-Encoding: gzip")
	e, _ := zstd.NewWriter(&bomb)
	e.Write(bytes.Repeat([]byte("\n"), 80<<20))
	e.Close()
	if a := w.api("PUT", "/uploads/"+id+"/manifest", key, bomb.String(), "Content-Encoding: zstd"); a.status != 413 {
		t.Errorf("a bomb of %d bytes: %s", bomb.Len(), a)
	}
}

// The storage limit is checked before any blob is sent, and open uploads count.
func TestUploadCountsStorage(t *testing.T) {
	t.Parallel()
	settings, err := limits.Parse("[defaults]\nstorage.bytes = 100\n")
	if err != nil {
		t.Fatal(err)
	}
	w := newLimitedWorld(t, settings)
	u, key := w.user("ada@example.test")
	s := w.folderSite(key, "Harbor")
	first := w.upload(key, s, "a", strings.Repeat("a", 60))
	id := w.must(201, "POST", "/sites/"+s+"/uploads", key, m{"kind": "output"})["id"].(string)
	put := func() answer {
		return w.api("PUT", "/uploads/"+id+"/manifest", key, manifestOf("b", strings.Repeat("b", 60)))
	}
	if a := put(); a.status != 402 || !strings.Contains(a.body, "storage.bytes") {
		t.Errorf("over the limit: %s", a)
	}
	if a := w.api("POST", "/uploads/"+id+"/blobs", key, batchOf(strings.Repeat("b", 60))); a.status != 409 {
		t.Errorf("its bytes: %s", a)
	}
	w.must(200, "DELETE", "/uploads/"+first, key, nil)
	if a := put(); a.status != 200 {
		t.Errorf("with room again: %s", a)
	}
	preview := w.key(u, account.NewKey{Scopes: account.Scopes{account.PreviewsWrite}})
	if a := w.api("POST", "/sites/"+s+"/uploads", preview, m{"kind": "output"}); a.status != 403 {
		t.Errorf("production with a key for previews: %s", a)
	}
	w.must(201, "POST", "/sites/"+s+"/uploads", preview, m{"kind": "output", "target": "preview"})
}
