//go:build browser

package dashboard

import (
	"archive/zip"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"

	chromium "slipway/e2e/browser"
	"slipway/internal/deploy/upload"
)

// drop drops a local folder or file onto an element.
func drop(b *chromium.Window, selector, path string) {
	var at struct{ X, Y float64 }
	b.Eval(`(() => { const e = document.querySelector('`+selector+`'); e.scrollIntoView({block: 'center'});
		const r = e.getBoundingClientRect(); return {X: r.x + r.width / 2, Y: r.y + 5}; })()`, &at)
	data := &input.DragData{Items: []*input.DragDataItem{}, Files: []string{path}, DragOperationsMask: 1}
	for _, kind := range []input.DispatchDragEventType{input.DragEnter, input.DragOver, input.Drop} {
		b.Run(input.DispatchDragEvent(kind, at.X, at.Y, data))
	}
}

// A dropped folder or archive becomes a site, and later another deployment of it. Secret and ignored files aren't
// uploaded.
func TestBrowserDrop(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	u := w.user("ada@example.test", false)
	dir := t.TempDir()
	folder := filepath.Join(dir, "harbor")
	long := strings.Repeat("a long name ", 12) + "ü.html"
	for name, content := range map[string]string{
		"index.html": "<h1>hello</h1>", "css/site.css": "body {}", "css/" + long: "long", ".env": "SECRET=1", "node_modules/x/index.js": "x",
	} {
		must(t, os.MkdirAll(filepath.Dir(filepath.Join(folder, name)), 0o755))
		must(t, os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600))
	}
	b := w.window("drop", w.srv.URL)
	signIn(b, u.Email)
	b.Go("/new?type=upload")
	b.Type("#f-name", "Harbor")
	drop(b, "[data-drop-zone]", folder)
	b.Sees("@drop-says", "3 files", "Left out: harbor/", "node_modules")
	b.Look("new-upload")
	b.Click("@create")
	b.Until("the deployment is not shown", `location.pathname.includes('/deployments/dep_')`)
	uploads := func(query string) (n int64) {
		t.Helper()
		must(t, w.db.QueryRow(t.Context(), query).Scan(&n))
		return n
	}
	if n := uploads(`SELECT files FROM uploads WHERE status = 'deployed' AND kind = 'source'`); n != 3 {
		t.Errorf("%d files are deployed, want 3", n)
	}
	site := strings.Split(b.Path(), "/")[2]
	var id upload.ID
	must(t, w.db.QueryRow(t.Context(), `SELECT id FROM uploads`).Scan(&id))
	tree, err := w.uploads.Open(t.Context(), id)
	must(t, err)
	for name, want := range map[string]string{"css/" + long: "long", "index.html": "<h1>hello</h1>", "css/site.css": "body {}"} {
		if got, err := tree.ReadFile(t.Context(), name, 100); string(got) != want {
			t.Errorf("%s is %q, %v", name, got, err)
		}
	}
	// Sending without a file shows a message, and an invalid file's error is shown beside it.
	b.Go("/sites/" + site + "/deployments")
	b.Click("@drop-send")
	b.Sees("@drop-says", "Choose a folder or an archive")
	text, archive := filepath.Join(dir, "text.zip"), filepath.Join(dir, "dist.zip")
	must(t, os.WriteFile(text, []byte("hello"), 0o600))
	b.Run(chromedp.SetUploadFiles("#files", []string{text}, chromedp.ByQuery))
	b.Expect(http.StatusUnprocessableEntity)
	b.Click("@drop-send")
	b.Sees("@drop-says", "Upload failed: The file is not an archive")
	f, err := os.Create(archive)
	must(t, err)
	z := zip.NewWriter(f)
	page, err := z.Create("dist/index.html")
	must(t, err)
	_, err = io.WriteString(page, "built")
	must(t, err)
	must(t, z.Close())
	must(t, f.Close())
	b.Run(chromedp.SetUploadFiles("#files", []string{archive}, chromedp.ByQuery))
	b.Click(`input[name="prebuilt"]`)
	b.Type("#f-title", "By hand")
	b.Look("drop")
	b.Click("@drop-send")
	b.Until("the deployment is not shown", `location.pathname.includes('/deployments/dep_')`)
	if n := uploads(`SELECT count(*) FROM uploads WHERE status = 'deployed' AND kind = 'output' AND title = 'By hand' AND files = 1`); n != 1 {
		t.Errorf("%d uploads of the archive, want 1", n)
	}
	if n := uploads(`SELECT count(*) FROM uploads WHERE status = 'open'`); n != 0 {
		t.Errorf("%d uploads are left open", n)
	}
}
