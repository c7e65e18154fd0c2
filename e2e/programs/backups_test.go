package programs

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"slipway/e2e/world"
)

// keeps is a program that evaluates the JavaScript in the request's path.
const keeps = `const fs = require('fs')
require('http').createServer((q, r) => {
  let said = 'one'
  try { if (q.url !== '/') said = String(eval(decodeURIComponent(q.url.slice(1)))) } catch (e) { said = String(e) }
  r.end(said + ' got 0')
}).listen(process.env.PORT)
`

// A backup contains a program's storage. It is verified by running a copy, and can be restored completely, in part, or
// as a new site.
func TestBackupsOfStorage(t *testing.T) {
	t.Parallel()
	s := install(t)
	dir := t.TempDir()
	err := world.WriteFiles(dir, map[string]string{
		"package.json": `{"name": "app", "private": true, "scripts": {"start": "node ` + script + `"}}`, script: keeps,
		"slipway.toml": "[run]\nstorage = [\"data\", \"public/uploads\"]\n",
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Git.Commit("acme/app", "main", dir, "storage"); err != nil {
		t.Fatal(err)
	}
	var out struct{ DeploymentID string }
	s.call("POST", "/sites/"+s.ID+"/deploy", nil, &out)
	s.ended(out.DeploymentID)
	says := func(code, want string) {
		t.Helper()
		got := ""
		s.until("the answer "+want, func() (ok bool, err error) {
			got, err = s.visit("GET", "/"+url.PathEscape(code), "")
			return err == nil && got != "one got 0", err // the edge switches to the new release a moment later
		})
		if got = strings.TrimSuffix(got, " got 0"); got != want {
			t.Errorf("%s says %q, not %q", code, got, want)
		}
	}
	const look = `['data/a', 'data/sub/b', 'public/uploads/c'].map(f => fs.existsSync(f) ? fs.readFileSync(f) + (fs.statSync(f).mode & 0o777).toString(8) : '-') + ' ' + ` +
		`fs.readdirSync('data') + ' ' + fs.readlinkSync('data/link')`
	const was = "alpha640,beta644,gamma755 a,link,sub /nowhere"
	says(`fs.mkdirSync('data/sub', {recursive: true}); fs.writeFileSync('data/a', 'alpha'); fs.chmodSync('data/a', 0o640); fs.writeFileSync('data/sub/b', 'beta'); `+
		`fs.writeFileSync('public/uploads/c', 'gamma'); fs.chmodSync('public/uploads/c', 0o755); try { fs.symlinkSync('/nowhere', 'data/link') } catch {}; 1`, "1")
	says(look, was)

	var backup struct {
		ID, Status, Error, Answer, VerifiedAt string
	}
	s.call("POST", "/sites/"+s.ID+"/backups", map[string]any{}, &backup)
	s.until("the backup is verified", func() (bool, error) {
		err := s.Call(t.Context(), s.key, "GET", "/backups/"+backup.ID, nil, &backup)
		return backup.VerifiedAt != "" || backup.Error != "", fmt.Errorf("%+v, %w", backup, err)
	})
	if backup.Error != "" || backup.Answer != "Restored copy: GET / returned 200" {
		t.Fatalf("the backup: %+v", backup)
	}

	restore := func(body any) (site string) {
		t.Helper()
		var o struct {
			ID, Status, Error string
			Result            struct{ SiteID string }
		}
		s.call("POST", "/backups/"+backup.ID+"/restore", body, &o)
		s.until("the restore has ended", func() (bool, error) {
			err := s.Call(t.Context(), s.key, "GET", "/operations/"+o.ID, nil, &o)
			return o.Status == "success" || o.Status == "failed", err
		})
		if o.Status != "success" {
			t.Fatalf("the restore of %v: %+v", body, o)
		}
		return o.Result.SiteID
	}
	const change = `fs.writeFileSync('data/a', 'other'); fs.rmSync('data/sub', {recursive: true, force: true}); fs.writeFileSync('data/more', 'x'); fs.rmSync('public/uploads/c', {force: true}); 2`
	says(change, "2")
	restore(map[string]any{"includes": []string{"files"}, "paths": []string{"data/sub", "public/uploads"}})
	says(look, "other640,beta644,gamma755 a,link,more,sub /nowhere")
	restore(map[string]any{"includes": []string{"files"}})
	says(look, was)
	again := restore(map[string]any{"newSite": map[string]string{"name": "Again"}})
	var made struct{ URL string }
	s.call("GET", "/sites/"+again, nil, &made)
	first := s.URL
	s.URL = made.URL
	says(look, was)

	// A backup of the whole installation restores the storage of all sites, wherever it is stored.
	place := t.TempDir()
	if out, err := s.CLI("", "backup", "create", "--to", place); err != nil {
		t.Fatal(out, err)
	}
	says(change, "2")
	s.URL = first
	says(change, "2")
	if _, err := s.CLI("", "backup", "restore-storage", "--from", place); err == nil || !strings.Contains(err.Error(), "add --yes") {
		t.Errorf("without a word of consent: %v", err)
	}
	if _, err := s.CLI("", "backup", "restore-storage", "--from", t.TempDir(), "--yes"); err == nil || !strings.Contains(err.Error(), "No backup") {
		t.Errorf("from an empty place: %v", err)
	}
	said, err := s.CLI("", "backup", "restore-storage", "--from", place, "--id", "bkp_2222222222222222222222abcd", "--yes")
	if err == nil || !strings.Contains(err.Error(), "bkp_2222222222222222222222abcd") {
		t.Errorf("a backup that isn't there: %q, %v", said, err)
	}
	said, err = s.CLI("", "backup", "restore-storage", "--from", place, "--yes")
	if err != nil || !strings.Contains(said, "The storage of 2 sites is that of bkp_") {
		t.Errorf("%q, %v", said, err)
	}
	says(look, was)
	s.URL = made.URL
	says(look, was)

	// Restore from the sites' own newest backups. The second site has no backup and keeps its storage.
	says(change, "2")
	s.URL = first
	says(change, "2")
	said, err = s.CLI("", "backup", "restore-storage", "--yes")
	if err != nil || !strings.Contains(said, "The storage of 1 sites is that of their newest backups") || !strings.Contains(said, "1 sites have no backup") {
		t.Errorf("%q, %v", said, err)
	}
	says(look, was)
	s.URL = made.URL
	says(look, "other640,-,- a,link,more /nowhere")

	if s.Nodes() > 1 { // a shared database isn't lost with a machine; e2e/nodes restores one
		return
	}
	// The whole installation is lost. Its backup is restored on another machine, and then the storage of its sites,
	// wherever it is stored.
	key := filepath.Join(t.TempDir(), "secrets.key")
	secret, err := os.ReadFile(filepath.Join(s.Data, "secrets.key"))
	if err == nil {
		err = os.WriteFile(key, secret, 0o600)
	}
	if err := errors.Join(err, s.Stop(t.Context()), os.Rename(s.Data, s.Data+".lost")); err != nil {
		t.Fatal(err)
	}
	if said, err := s.CLI("", "backup", "restore", "--from", place, "--key", key, "--without-storage"); err != nil || !strings.Contains(said, "slipway backup restore-storage --from") {
		t.Fatalf("%q, %v", said, err)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	said, err = s.CLI("", "backup", "restore-storage", "--from", place, "--yes")
	if err != nil || !strings.Contains(said, "The storage of 2 sites is that of bkp_") {
		t.Errorf("%q, %v", said, err)
	}
	says(look, was)
	s.URL = first
	says(look, was)
}
