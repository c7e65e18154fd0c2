package nodes

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"slipway/e2e/world"
)

// counter is a program that stores the path of each POST request.
var counter = map[string]string{
	"package.json": `{"scripts": {"start": "node server.js"}, "engines": {"node": ">=18"}}`,
	"slipway.toml": "[run]\nstorage = [\"data\"]\n",
	"data/.keep":   "",
	"server.js": `
const http = require('http'), fs = require('fs');
http.createServer((q, r) => {
  if (q.method === 'POST') fs.appendFileSync('data/visits', q.url + '\\n');
  r.end(process.env.NAME + ' has ' + (fs.existsSync('data/visits') ? fs.readFileSync('data/visits', 'utf8') : 'nothing'));
}).listen(process.env.PORT);`,
}

// stays returns the node on which a site's program runs, and another node.
func (i *installation) stays(site string) (home, other *world.World) {
	i.t.Helper()
	var id string
	if err := i.db.QueryRow(i.t.Context(), `SELECT node FROM placements WHERE site_id = $1`, site).Scan(&id); err != nil {
		i.t.Fatal(err)
	}
	for _, w := range i.nodes {
		if i.id(w) == id {
			home = w
		} else {
			other = w
		}
	}
	if home == nil || other == nil {
		i.t.Fatalf("the site is on %s", id)
	}
	return home, other
}

// id returns a node's ID.
func (i *installation) id(w *world.World) string {
	i.t.Helper()
	text, err := os.ReadFile(filepath.Join(w.Data, "node-id"))
	if err != nil {
		i.t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

// operation sends a request and waits until the operation that it starts has ended.
func (i *installation) operation(w *world.World, method, path string, body any) (status, message, failure string) {
	i.t.Helper()
	var o struct {
		ID, OperationID, Status, Message, Error string
	}
	if err := w.Call(i.t.Context(), i.key, method, path, body, &o); err != nil {
		i.t.Fatal(err)
	}
	if o.ID == "" {
		o.ID = o.OperationID
	}
	i.until(path+" has ended", func() bool {
		err := w.Call(i.t.Context(), i.key, "GET", "/operations/"+o.ID, nil, &o)
		return err == nil && o.Status != "pending" && o.Status != "running"
	})
	return o.Status, o.Message, o.Error
}

// A site's storage is on one node. Backups, restarts and commands requested from the other node run on the first, the
// other node never creates storage for the site, and deleting the site deletes its storage. While the first node is
// down, the other one reports that.
func TestStorageStaysOnItsNode(t *testing.T) {
	i := install(t)
	a, b := i.nodes[0], i.nodes[1]
	backups := filepath.Join(t.TempDir(), "backups")
	for _, w := range i.nodes {
		w.Flags = append(w.Flags, "--backup-to", backups)
	}
	i.start(a, b)
	i.commit("shop", counter)
	site := i.site(a, "shop")
	i.until("it is deployed", func() bool {
		return i.count(`SELECT count(*) FROM deployments WHERE site_id = $1 AND status = 'success'`, site) == 1
	})
	home, other := i.stays(site)
	if status, body := i.visit(home, "shop", "/"); status != 200 || !strings.Contains(body, "has nothing") {
		t.Fatalf("at home: %d %s", status, body)
	}
	if err := os.WriteFile(filepath.Join(home.Data, "storage", site, "data", "visits"), []byte(strings.Repeat("a visit\n", 10_000)), 0o644); err != nil {
		t.Fatal(err)
	}
	folders := func(w *world.World) int {
		all, err := filepath.Glob(filepath.Join(w.Data, "storage", site+"*")) // verifying a backup uses a folder beside it, on any node
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	for range 4 {
		var backup struct {
			ID, Status, Error string
			SizeBytes         int64
		}
		if err := other.Call(t.Context(), i.key, "POST", "/sites/"+site+"/backups", nil, &backup); err != nil {
			t.Fatal(err)
		}
		i.until("the backup has ended", func() bool {
			err := other.Call(t.Context(), i.key, "GET", "/backups/"+backup.ID, nil, &backup)
			return err == nil && (backup.Status == "completed" || backup.Status == "failed")
		})
		if backup.Status != "completed" || i.count(`SELECT size_bytes FROM backups WHERE id = $1`, backup.ID) < 80_000 {
			t.Errorf("a backup that was asked of the other node is %+v", backup)
		}
		if status, message, failure := i.operation(other, "POST", "/sites/"+site+"/restart", nil); message != "Restarted" {
			t.Errorf("a restart that was asked of the other node: %s %q %q", status, message, failure)
		}
		status, _, failure := i.operation(other, "POST", "/sites/"+site+"/commands", map[string]string{"command": "test -s data/visits"})
		if status != "success" {
			t.Errorf("a command that was asked of the other node: %s %q", status, failure)
		}
	}
	if n := folders(other); n != 0 {
		t.Errorf("the other node made storage of its own")
	}

	home.Kill()
	// The kill may strike while a backup is tried, whose storage must not count as a site's at the next start.
	if err := os.MkdirAll(filepath.Join(home.Data, "storage", "backup-trial", "data"), 0o755); err != nil {
		t.Fatal(err)
	}
	i.until("the list says that it is down", func() bool {
		out, err := other.CLI("", "node", "list")
		return err == nil && strings.Contains(out, " down ")
	})
	if status, _ := i.visit(other, "shop", "/"); status != 503 {
		t.Errorf("while its node is down: %d", status)
	}
	if status, _, failure := i.operation(other, "POST", "/sites/"+site+"/restart", nil); status != "failed" || !strings.Contains(failure, "which is down") {
		t.Errorf("a restart while its node is down: %s %q", status, failure)
	}
	if n := folders(other); n != 0 {
		t.Errorf("the other node made storage of its own")
	}
	i.start(home)
	i.until("it is back", func() bool {
		status, body := i.visit(home, "shop", "/")
		return status == 200 && strings.Contains(body, "a visit")
	})
	if err := other.Call(t.Context(), i.key, "DELETE", "/sites/"+site, nil, nil); err != nil {
		t.Fatal(err)
	}
	i.until("its files are gone", func() bool { return folders(home) == 0 })
	i.until("so is its place", func() bool { return i.count(`SELECT count(*) FROM placements`) == 0 })
}

// A node without the installation's secrets key, with another key, or with different settings doesn't start, and its
// error says why.
func TestNodeThatDoesNotFit(t *testing.T) {
	i := install(t)
	a, b := i.nodes[0], i.nodes[1]
	i.start(a)
	refused := func(want string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := b.Start(ctx); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	key := filepath.Join(b.Data, "secrets.key")
	right, err := os.ReadFile(key)
	if err == nil {
		err = os.Remove(key)
	}
	if err != nil {
		t.Fatal(err)
	}
	refused("copy the file from another node")
	if _, err := os.Stat(key); err == nil {
		t.Error("it generated a new key")
	}
	if err := os.WriteFile(key, []byte(strings.Repeat("ab", 32)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	refused("is not this installation's key")
	if err := os.WriteFile(key, right, 0o600); err != nil {
		t.Fatal(err)
	}
	flags := b.Flags
	b.Flags = append(append([]string(nil), flags...), "--site-domain", "other.test")
	refused("--site-domain: node")
	b.Flags = append(append([]string(nil), flags...), "--blobs", filepath.Join(t.TempDir(), "blobs"))
	refused("--blobs: node")
	b.Flags = flags
	i.start(b)
	out, err := a.CLI("", "node", "list")
	if err != nil || strings.Count(out, " up ") != 2 {
		t.Errorf("%v: %s", err, out)
	}
}
