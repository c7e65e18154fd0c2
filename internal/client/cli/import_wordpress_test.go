package cli

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"slipway/internal/client/login"
)

// A plugin's archive is shown, then converted and imported into the named site. Without a site or a yes nothing is
// sent.
func TestImportWordPress(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	t.Setenv("TMPDIR", t.TempDir())
	var sent [][]byte
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Method + " " + r.URL.Path {
		case "GET /api/v1/sites":
			fmt.Fprint(w, `{"data": [{"id": "site_1", "name": "Harbor", "slug": "harbor", "subdomain": "harbor", "url": "http://harbor.test"}]}`)
		case "POST /api/v1/sites/site_1/wordpress/import":
			body, err := io.ReadAll(r.Body)
			if err != nil || r.Header.Get("Authorization") != "Bearer slw_x" {
				t.Errorf("sent with %v, %v", r.Header, err)
			}
			sent = append(sent, body)
			w.WriteHeader(http.StatusAccepted)
			fmt.Fprint(w, `{"id": "op_1", "status": "running"}`)
		case "GET /api/v1/operations/op_1":
			fmt.Fprint(w, `{"id": "op_1", "status": "success"}`)
		default:
			t.Errorf("asked for %s %s", r.Method, r.URL)
		}
	}))
	t.Cleanup(server.Close)
	store, err := login.Open()
	if err != nil {
		t.Fatal(err)
	}
	var pack bytes.Buffer
	z := zip.NewWriter(&pack)
	for name, body := range map[string]string{
		"dup-installer/dup-database__1.sql": "CREATE TABLE `wp_options` (id int);\nINSERT INTO `wp_options` VALUES (1,'siteurl','https://old.example','yes');\n",
		"wp-content/themes/sea/style.css":   "body{}", "wp-config.php": "<?php",
	} {
		f, err := z.Create(name)
		if err == nil {
			_, err = io.WriteString(f, body)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "old_archive.zip")
	if err := os.WriteFile(file, pack.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(i importCommand) (out, said string, err error) {
		var o, e bytes.Buffer
		i.target, i.From, i.Domains = target{Server: server.URL, Token: "slw_x"}, "wordpress", true
		err = i.Run(t.Context(), &Env{In: strings.NewReader(""), Out: &o, Err: &e, Store: store, Dir: t.TempDir()})
		return o.String(), e.String(), err
	}
	out, _, err := run(importCommand{Only: []string{file}, Plan: true})
	if err != nil || !strings.Contains(out, "Duplicator package of https://old.example\n  + 1 file of wp-content, 6 bytes\n") {
		t.Errorf("the plan is %q, %v", out, err)
	}
	for name, i := range map[string]importCommand{
		"without a site": {Only: []string{file}, Yes: true}, "without a yes": {Only: []string{file}, Site: "harbor"},
		"without a file": {Site: "harbor", Yes: true}, "with another's flag": {Only: []string{file}, Site: "harbor", Yes: true, Account: "a"},
		"no such file": {Only: []string{file + "x"}, Site: "harbor", Yes: true},
	} {
		if _, _, err := run(i); err == nil {
			t.Errorf("%s, it is imported", name)
		}
	}
	if len(sent) != 0 {
		t.Fatalf("%d archives were sent", len(sent))
	}
	if _, said, err := run(importCommand{Only: []string{file}, Site: "harbor", Yes: true}); err != nil || !strings.Contains(said, "Imported to Harbor") {
		t.Fatalf("imported: %v\n%s", err, said)
	}
	if len(sent) != 1 {
		t.Fatalf("%d archives were sent", len(sent))
	}
	in, err := gzip.NewReader(bytes.NewReader(sent[0]))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for r := tar.NewReader(in); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, h.Name)
	}
	if got := strings.Join(names, " "); got != "database.sql.gz wp-content/themes/sea/style.css" && got != "wp-content/themes/sea/style.css database.sql.gz" {
		t.Errorf("the archive holds %s", got)
	}
	if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) != 0 {
		t.Errorf("left in the temporary folder: %v, %v", left, err)
	}
	for _, other := range []importCommand{{Site: "harbor"}} {
		other.target, other.From, other.Domains = target{Server: server.URL, Token: "slw_x"}, "netlify", true
		err := other.Run(t.Context(), &Env{In: strings.NewReader("x\n"), Out: io.Discard, Err: io.Discard, Store: store, Dir: t.TempDir()})
		if err == nil || !strings.Contains(err.Error(), "wordpress") {
			t.Errorf("a flag of another import is %v", err)
		}
	}
}
