package dashboard

import (
	"archive/zip"
	"bytes"
	"io"
	"strings"
	"testing"
)

// Without scripts, a site without a repository can be created, and the form on its deployments page accepts an archive.
func TestDeployArchiveForm(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.user("ada@example.test", false)
	b := w.as("ada@example.test")
	b.get("/new?type=upload").want(t, 200, "Upload a folder", `name="name"`)
	made := b.post("/new", "type", "upload", "step", "create", "name", "Harbor")
	first := made.header.Get("Location")
	if made.status != 303 || !strings.HasSuffix(first, "/first") {
		t.Fatalf("created: %d to %q", made.status, first)
	}
	at := strings.TrimSuffix(first, "/first")
	if got := b.get(first); got.status != 303 || got.header.Get("Location") != at+"/deployments" {
		t.Errorf("the first page: %d to %q", got.status, got.header.Get("Location"))
	}
	b.get(at+"/deployments").want(t, 200, `enctype="multipart/form-data"`, at+"/drop", "/deploy/archive")
	b.get(at).want(t, 200, "Deploy files")
	var archive bytes.Buffer
	z := zip.NewWriter(&archive)
	for name, content := range map[string]string{"site/index.html": "hello", "site/.env": "SECRET=1"} {
		f, err := z.Create(name)
		must(t, err)
		_, err = io.WriteString(f, content)
		must(t, err)
	}
	must(t, z.Close())
	send := func(content string) reply { t.Helper(); return b.upload(at+"/drop", "", "site.zip", content) }
	send("hello").want(t, 422, "The file is not an archive")
	sent := send(archive.String())
	if to := sent.header.Get("Location"); sent.status != 303 || !strings.HasPrefix(to, at+"/deployments/dep_") {
		t.Fatalf("sent: %d to %q", sent.status, to)
	}
	b.get(sent.header.Get("Location")).want(t, 200, "Not deployed: site/.env (secrets)")
	b.post(at+"/drop").want(t, 422, "No file is selected")
}
