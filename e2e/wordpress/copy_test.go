package wordpress

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"slices"
	"strings"

	"slipway/e2e/world"
)

// copies checks that a clone has all content under its own URL, that its changes can be pushed back, and that an export
// can be imported into another site.
func (h *installation) copies(s siteBody) {
	t := h.t
	var op workBody
	h.call("POST", "/sites/"+s.ID+"/clone", map[string]any{"name": "Staging"}, &op)
	op = h.ended(op.ID, "success")
	id, _ := op.Result["siteId"].(string)
	staging := h.ready(id)
	v := h.visitor(staging.URL)
	status, _, text := v.get("/news-of-the-day/")
	if status != 200 || !strings.Contains(text, "dot.png") || strings.Contains(text, s.URL) || !strings.Contains(text, staging.URL) {
		t.Errorf("the clone: %d, names the original: %v", status, strings.Contains(text, s.URL))
	}
	at := strings.Index(text, staging.URL+"/wp-content/uploads/")
	if at < 0 {
		t.Fatalf("the clone's picture is elsewhere: %.2000s", text)
	}
	image := text[at:]
	image = image[:strings.IndexAny(image, `"'`)]
	if status, _, text := v.get(image); status != 200 || text != string(picture) {
		t.Errorf("the clone's picture: %d", status)
	}
	if _, header, text := v.get("/?x=1"); !strings.Contains(text, "noindex") {
		t.Errorf("search engines may have the clone: %v", header)
	}

	owner, _ := h.login(staging)
	owner.rest(
		"POST",
		"/posts",
		"application/json",
		strings.NewReader(`{"title": "Tried out", "content": "see `+staging.URL+`/x", "status": "publish"}`),
		&struct{}{},
	)
	h.compared(s, staging)
	h.call("POST", "/sites/"+staging.ID+"/push", map[string]any{"to": s.ID, "database": true, "files": true}, &op)
	op = h.ended(op.ID, "success")
	if op.Result["backupId"] == nil {
		t.Errorf("the push names no backup: %v", op.Result)
	}
	if status, _, text := h.visitor(s.URL).get("/tried-out/"); status != 200 || !strings.Contains(
		text,
		s.URL+"/x",
	) || strings.Contains(text, staging.URL) {
		t.Errorf("after the push: %d, names staging: %v", status, strings.Contains(text, staging.URL))
	}
	if _, _, text := h.visitor(s.URL).get("/?x=pushed"); strings.Contains(text, "noindex") {
		t.Error("the push hides the site from search engines")
	}
	if owner, _ := h.login(s); owner != nil {
		if status, _, _ := owner.get("/wp-admin/"); status != 200 {
			t.Errorf("wp-admin after the push: %d", status)
		}
	}

	// Push only a folder. Other differences stay.
	h.plant(staging, "uploads/chosen/a.txt", "chosen")
	h.plant(staging, "uploads/other/b.txt", "other")
	h.call("POST", "/sites/"+staging.ID+"/push", map[string]any{"to": s.ID, "files": true, "paths": []string{"uploads/chosen"}}, &op)
	h.ended(op.ID, "success")
	for path, want := range map[string]int{"/wp-content/uploads/chosen/a.txt": 200, "/wp-content/uploads/other/b.txt": 404} {
		if status, _, _ := h.visitor(s.URL).get(path); status != want {
			t.Errorf("after a folder was pushed, %s: %d, want %d", path, status, want)
		}
	}
	if status, _, _ := h.visitor(s.URL).get("/tried-out/?x=folder"); status != 200 {
		t.Errorf("a page after a folder was pushed: %d", status)
	}

	archive := h.export(s)
	for name, body := range map[string][]byte{"cut off": archive[:len(archive)/2], "no archive": []byte("hello"), "empty": {}} {
		op, status := h.upload(staging, body)
		if status == 202 {
			op = h.ended(op.ID, "failed")
		}
		if status != 202 && status != 400 {
			t.Errorf("an archive that is %s: %d", name, status)
		}
	}
	if status, _, _ := v.get("/tried-out/?x=1"); status != 200 {
		t.Errorf("the site after bad imports: %d", status)
	}
	// Import from a URL, only if the archive has the given SHA-256.
	h.Hooks.Serve("/site.tar.gz", archive)
	sum := sha256.Sum256(archive)
	from := map[string]string{"url": h.Hooks.URL + "/site.tar.gz", "sha256": strings.Repeat("0", 64)}
	h.call("POST", "/sites/"+staging.ID+"/wordpress/import", from, &op)
	if op = h.ended(op.ID, "failed"); !strings.Contains(op.Error, "its SHA-256 is "+hex.EncodeToString(sum[:])) {
		t.Errorf("another archive: %s", op.Error)
	}
	from["url"] = "http://localhost/site.tar.gz"
	if err := h.Call(
		t.Context(),
		h.key,
		"POST",
		"/sites/"+staging.ID+"/wordpress/import",
		from,
		&op,
	); err == nil || !strings.Contains(err.Error(), "https address") {
		t.Errorf("an address without TLS: %v", err)
	}
	from["url"], from["sha256"] = h.Hooks.URL+"/site.tar.gz", hex.EncodeToString(sum[:])
	h.call("POST", "/sites/"+staging.ID+"/wordpress/import", from, &op)
	h.ended(op.ID, "success")
	if status, _, text := v.get("/tried-out/?x=2"); status != 200 || !strings.Contains(
		text,
		staging.URL+"/x",
	) || strings.Contains(text, s.URL) {
		t.Errorf("after the import: %d, names the other: %v", status, strings.Contains(text, s.URL))
	}
	if status, _, text := v.get(image); status != 200 || text != string(picture) {
		t.Errorf("the imported picture: %d", status)
	}
	owner, _ = h.login(staging)
	if status, _, _ := owner.get("/wp-admin/"); status != 200 {
		t.Errorf("wp-admin after the import: %d", status)
	}
	h.call("DELETE", "/sites/"+staging.ID, nil, nil)
}

// compared changes the original after cloning. A comparison before a push must report these changes, and nothing that
// is the same in both, such as rewritten URLs.
func (h *installation) compared(s, staging siteBody) {
	t := h.t
	type count struct {
		Type  string
		Count int64
	}
	type comparison struct {
		SameSince string
		Newer     []count
		Options   *struct{ Names []string }
		Files     *struct {
			OnlyInTarget, Different, OnlyInSource, NotCompared int
			Examples                                           []string
		}
		To struct {
			Error   *string
			Content struct {
				Posts []count
				Users *struct{ Count int64 }
				Files *struct{ Count int64 }
			}
		}
	}
	compare := func() (c comparison) {
		t.Helper()
		h.call("GET", "/sites/"+staging.ID+"/push/compare?to="+s.ID, nil, &c)
		if c.To.Error != nil || c.SameSince == "" || c.Options == nil || c.Files == nil || c.To.Content.Users == nil || c.To.Content.Files == nil {
			t.Fatalf("the comparison is not whole: %+v", c)
		}
		return c
	}
	c := compare()
	if len(c.Newer) != 0 || c.Files.OnlyInTarget+c.Files.Different+c.Files.NotCompared != 0 {
		t.Errorf("after a clone differ: %+v, files %+v", c.Newer, *c.Files)
	}
	for _, name := range c.Options.Names {
		if name == "blogname" || name == "widget_block" || name == "active_plugins" || name == "blogdescription" {
			t.Errorf("the option %s differs after a clone", name)
		}
	}
	owner, _ := h.login(s)
	for _, title := range []string{"Order one", "Order two"} {
		owner.rest("POST", "/posts", "application/json", strings.NewReader(`{"title": "`+title+`", "status": "publish"}`), &struct{}{})
	}
	owner.rest("POST", "/settings", "application/json", strings.NewReader(`{"description": "Told apart"}`), &struct{}{})
	h.plant(s, "uploads/only-here.txt", "new")
	after := compare()
	if len(after.Newer) != 1 || after.Newer[0] != (count{"post", 2}) {
		t.Errorf("newer in the target: %+v", after.Newer)
	}
	if !slices.Contains(after.Options.Names, "blogdescription") {
		t.Errorf("options that differ: %v, before %v", after.Options.Names, c.Options.Names)
	}
	if f := after.Files; f.OnlyInTarget != 1 || !slices.Contains(f.Examples, "uploads/only-here.txt") {
		t.Errorf("files: %+v", *f)
	}
	if n := after.To.Content.Files.Count - c.To.Content.Files.Count; n != 1 {
		t.Errorf("the target has %d more files, want one", n)
	}
}

// export converts a backup to what a migration plugin exports: wp-content and a dump whose tables have another prefix.
func (h *installation) export(s siteBody) []byte {
	t := h.t
	t.Helper()
	var b struct{ ID, Status, Error string }
	h.call("POST", "/sites/"+s.ID+"/backups", nil, &b)
	h.until("the backup", func() bool {
		h.call("GET", "/backups/"+b.ID, nil, &b)
		return b.Status == "completed" || b.Status == "failed"
	})
	var a world.Answer
	h.until("the download", func() bool { // on a busy machine, a download may have to be retried
		var err error
		a, err = h.Do(t.Context(), world.Request{
			Method: "GET",
			URL:    "http://" + h.Listen + "/api/v1/backups/" + b.ID + "/download?format=zip",
			Header: http.Header{"Authorization": {"Bearer " + h.key}},
		})
		ok(t, err)
		return a.Status != http.StatusServiceUnavailable
	})
	ok(t, a.Err())
	z, err := zip.NewReader(bytes.NewReader(a.Body), int64(len(a.Body)))
	ok(t, err)
	var out bytes.Buffer
	gz := gzip.NewWriter(&out)
	w := tar.NewWriter(gz)
	for _, f := range z.File {
		in, err := f.Open()
		ok(t, err)
		body, err := io.ReadAll(in)
		ok(t, err)
		name, ok1 := strings.CutPrefix(f.Name, "storage/")
		if !ok1 {
			if name, ok1 = strings.CutPrefix(f.Name, "database/"); !ok1 {
				continue
			}
			body = []byte(strings.NewReplacer(
				"`wp_", "`moved_", "'wp_capabilities'", "'moved_capabilities'", "'wp_user_level'",
				"'moved_user_level'", "'wp_user_roles'", "'moved_user_roles'",
			).Replace(string(body)))
		}
		ok(t, w.WriteHeader(&tar.Header{Name: "public_html/" + name, Mode: 0o644, Size: int64(len(body)), Typeflag: tar.TypeReg}))
		_, err = w.Write(body)
		ok(t, err)
	}
	ok(t, w.WriteHeader(&tar.Header{Name: "public_html/wp-content/../../../../../../tmp/escaped", Mode: 0o644, Typeflag: tar.TypeReg}))
	ok(t, w.WriteHeader(&tar.Header{Name: "public_html/wp-content/link", Linkname: "/etc/passwd", Typeflag: tar.TypeSymlink}))
	ok(t, w.Close())
	ok(t, gz.Close())
	return out.Bytes()
}

func (h *installation) upload(s siteBody, archive []byte) (op workBody, status int) {
	h.t.Helper()
	r, err := http.NewRequestWithContext(
		context.Background(),
		"POST",
		"http://"+h.Listen+"/api/v1/sites/"+s.ID+"/wordpress/import",
		bytes.NewReader(archive),
	)
	ok(h.t, err)
	r.Header.Set("Authorization", "Bearer "+h.key)
	r.Header.Set("Content-Type", "application/gzip")
	a, err := world.Read(http.DefaultClient.Do(r))
	ok(h.t, err)
	if a.Status == 202 {
		ok(h.t, a.JSON(&op))
	}
	return op, a.Status
}

// tables pushes only two tables, whose addresses must be rewritten, and restores one of them from the backup. Other
// tables must stay as they are.
func (h *installation) tables(staging, s siteBody) {
	t := h.t
	var op workBody
	h.wp(staging, "option update blogname Staged", "success")
	h.wp(staging, "post Tables "+staging.URL+"/kept", "success")
	h.wp(s, "option update blogdescription Mine", "success")
	push := map[string]any{"to": s.ID, "database": true, "tables": []string{"wp_posts", "wp_postmeta"}}
	h.call("POST", "/sites/"+staging.ID+"/push", push, &op)
	op = h.ended(op.ID, "success")
	if out, _ := h.wp(s, "content tables", "success"); out != s.URL+"/kept" {
		t.Errorf("the pushed post says %q", out)
	}
	if out, _ := h.wp(s, "option get blogname", "success"); out == "Staged" {
		t.Error("a table that wasn't named was pushed")
	}
	backup, _ := op.Result["backupId"].(string)
	h.wp(s, "option update blogdescription Later", "success")
	h.call("POST", "/backups/"+backup+"/restore", map[string]any{"tables": []string{"wp_posts"}}, &op)
	op = h.ended(op.ID, "success")
	if out, _ := h.wp(s, "content tables", "success"); out != "" {
		t.Errorf("after its table was restored, the pushed post says %q", out)
	}
	if out, _ := h.wp(s, "option get blogdescription", "success"); out != "Later" {
		t.Errorf("an option after the posts were restored is %q", out)
	}
	h.call("POST", "/backups/"+backup+"/restore", map[string]any{"tables": []string{"wp_nothing"}}, &op)
	if op = h.ended(op.ID, "failed"); !strings.Contains(op.Error, "no such table") {
		t.Errorf("a table that isn't there: %s", op.Error)
	}
}

// console reads and changes a database through the API, once the site's owner allows terminals.
func (h *installation) console(s siteBody) {
	t := h.t
	var list struct{ Data []struct{ ID string } }
	h.call("GET", "/sites/"+s.ID+"/databases", nil, &list)
	of := "/databases/" + list.Data[0].ID
	ask := func(status int, method, path string, body any) string {
		t.Helper()
		a, err := h.Do(t.Context(), world.Request{Method: method, Path: of + path, Key: h.key, Body: body})
		ok(t, err)
		if a.Status != status {
			t.Errorf("%s %s: %d %s, want %d", method, path, a.Status, a.Body, status)
		}
		return string(a.Body)
	}
	ask(409, "GET", "/tables", nil)
	ask(409, "POST", "/query", map[string]any{"sql": "SELECT 1"})
	ask(409, "GET", "/export?table=wp_options", nil)
	h.call("PATCH", "/sites/"+s.ID, map[string]any{"run": map[string]any{"terminal": true}}, nil)
	if text := ask(200, "GET", "/tables", nil); !strings.Contains(text, `"wp_posts"`) {
		t.Errorf("the tables: %s", text)
	}
	rows := "table=wp_options&sort=option_name&column=option_name&is=equals&value=blogname"
	if text := ask(200, "GET", "/rows?"+rows, nil); !strings.Contains(text, `"blogname"`) || strings.Contains(text, "siteurl") {
		t.Errorf("the rows: %s", text)
	}
	const change = "UPDATE wp_options SET option_value = 'Queried' WHERE option_name = 'blogname'"
	ask(400, "POST", "/query", map[string]any{"sql": change})
	if text := ask(200, "POST", "/query", map[string]any{"sql": change, "write": true}); !strings.Contains(text, `"affected":1`) {
		t.Errorf("a change: %s", text)
	}
	if text := ask(200, "GET", "/export?format=csv&"+rows, nil); !strings.Contains(text, "blogname,Queried,") {
		t.Errorf("the export: %s", text)
	}
	ask(404, "GET", "/export?table=nothing", nil)
	ask(400, "GET", "/export?format=xlsx&table=wp_options", nil)
}
