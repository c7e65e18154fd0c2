package nodes

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"slipway/e2e/world"
	"slipway/internal/platform/node"
)

// mounted returns an installation whose nodes can connect to each other and share a storage directory.
func mounted(t *testing.T) (i *installation, dir string) {
	t.Helper()
	i, dir = related(t), t.TempDir()
	if err := os.Chmod(dir, 0o711); err != nil { //nolint:gosec // programs reach their own folder below it
		t.Fatal(err)
	}
	backups := filepath.Join(t.TempDir(), "backups")
	for _, w := range i.nodes {
		w.Flags = append(w.Flags, "--storage", dir, "--backup-to", backups)
	}
	return i, dir
}

// A site's storage in the shared directory survives its node. Another node continues with it when the node is killed or
// drained, and backups include it whichever node they are requested from. While the directory hangs or isn't mounted,
// its sites return 503 and other sites work.
func TestStorageOfAllNodes(t *testing.T) {
	i, dir := mounted(t)
	a, b := i.nodes[0], i.nodes[1]
	i.start(a, b)
	i.commit("shop", counter)
	i.commit("plain", map[string]string{"index.html": "plain"})
	site := i.site(a, "shop")
	i.site(a, "plain")
	i.until("it is deployed", func() bool {
		return i.count(`SELECT count(*) FROM deployments WHERE site_id = $1 AND status = 'success'`, site) == 1
	})
	home, other := i.stays(site)
	i.posts(other, "/first")
	home.Kill()
	died := time.Now()
	status, body := i.visit(other, "shop", "/")
	took := time.Since(died)
	if status != 200 || !strings.Contains(body, "/first") || took > world.Patience(20*time.Second) {
		t.Errorf("after the death of its node: %d %s after %s", status, body, took)
	}
	t.Logf("what was stored was answered by the other node after %s", took.Round(100*time.Millisecond))
	i.start(home)
	i.posts(home, "/second")

	if err := os.WriteFile(filepath.Join(dir, site, "data", "large"), []byte(strings.Repeat("a line\n", 20_000)), 0o644); err != nil {
		t.Fatal(err)
	}
	var backup struct{ ID, Status, Error string }
	if err := home.Call(t.Context(), i.key, "POST", "/sites/"+site+"/backups", nil, &backup); err != nil {
		t.Fatal(err)
	}
	i.until("the backup has ended", func() bool {
		err := home.Call(t.Context(), i.key, "GET", "/backups/"+backup.ID, nil, &backup)
		return err == nil && (backup.Status == "completed" || backup.Status == "failed")
	})
	if n := i.count(`SELECT size_bytes FROM backups WHERE id = $1`, backup.ID); backup.Status != "completed" || n < 140_000 {
		t.Errorf("a backup that was asked of the node without the program has %d bytes: %+v", n, backup)
	}

	// Restore from the node that doesn't run the program. The program is stopped meanwhile, and continues with the
	// backup's files.
	i.posts(other, "/later")
	if status, _, failure := i.operation(home, "POST", "/backups/"+backup.ID+"/restore", map[string]any{"includes": []string{"files"}}); status != "success" {
		t.Errorf("the restore: %s %q", status, failure)
	}
	i.until("the program has what the backup has", func() bool {
		status, body := i.visit(home, "shop", "/")
		return status == 200 && strings.Contains(body, "/second") && !strings.Contains(body, "/later")
	})

	// Drain the program's node. Requests wait until the other node has taken over.
	if out, err := home.CLI("", "node", "drain", "--node", i.id(other)); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	i.until("the node that stays has it", func() bool {
		if status, body := i.visit(other, "shop", "/"); status != 200 || !strings.Contains(body, "/second") {
			t.Errorf("during the drain: %d %s", status, body)
		}
		return i.count(`SELECT count(*) FROM placements WHERE site_id = $1 AND node = $2`, site, i.id(home)) == 1
	})

	// The directory hangs: the mark file is a FIFO, and opening it blocks.
	mark := filepath.Join(dir, node.MarkFile)
	text, err := os.ReadFile(mark)
	if err == nil {
		err = os.Remove(mark)
	}
	if err == nil {
		err = syscall.Mkfifo(mark, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	i.until("its sites are unavailable", func() bool {
		status, _ := i.visit(home, "shop", "/")
		return status == 503
	})
	if status, body := i.visit(home, "plain", "/"); status != 200 || body != "plain" {
		t.Errorf("another site meanwhile: %d %s", status, body)
	}
	if err := home.Call(t.Context(), i.key, "GET", "/sites/"+site, nil, nil); err != nil {
		t.Errorf("the API meanwhile: %v", err)
	}
	pipe, err := os.OpenFile(mark, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(mark); err != nil { // as if the directory weren't mounted
		t.Fatal(err)
	}
	pipe.Close()
	out, err := home.CLI("", "doctor", "--storage", dir)
	if !strings.Contains(out+errorText(err), "is it mounted") {
		t.Errorf("the doctor says %v: %s", err, out)
	}
	if status, _ := i.visit(home, "shop", "/"); status != 503 {
		t.Errorf("while it is not mounted: %d", status)
	}
	if err := os.WriteFile(mark, text, 0o600); err != nil {
		t.Fatal(err)
	}
	i.until("it is back", func() bool {
		status, body := i.visit(home, "shop", "/")
		return status == 200 && strings.Contains(body, "/second")
	})

	// A node with another storage directory, or without one, doesn't start.
	if err := other.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	flags := other.Flags
	for want, with := range map[string][]string{
		"is it mounted":        {"--storage", t.TempDir()},
		"--storage is missing": nil,
	} {
		other.Flags = append(without(flags, "--storage"), with...)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		if err := other.Start(ctx); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
		cancel()
	}

	// The other node is forgotten, and can't start again. The site is complete on the remaining node.
	if out, err := home.CLI("", "node", "forget", i.id(other)); err != nil || !strings.Contains(out, "is forgotten") {
		t.Errorf("%v: %s", err, out)
	}
	other.Flags = flags
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := other.Start(ctx); err == nil || !strings.Contains(err.Error(), "taken this node off the list") {
		t.Errorf("a forgotten node started: %v", err)
	}
	if out, err := home.CLI("", "node", "forget", i.id(home)); err == nil {
		t.Errorf("a node that runs is forgotten: %s", out)
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// without returns the flags without one flag and its value.
func without(flags []string, name string) (out []string) {
	for n := 0; n < len(flags); n++ {
		if flags[n] == name {
			n++
			continue
		}
		out = append(out, flags[n])
	}
	return out
}

// posts stores a path in the shop through a node.
func (i *installation) posts(w *world.World, path string) {
	i.t.Helper()
	browser, err := w.Browser()
	if err != nil {
		i.t.Fatal(err)
	}
	defer browser.CloseIdleConnections()
	answer, err := w.Site(i.t.Context(), browser, world.Request{Method: http.MethodPost, URL: "https://shop.localhost" + path})
	if err != nil || answer.Status != 200 || !strings.Contains(string(answer.Body), path) {
		i.t.Fatalf("POST %s: %v %d %s", path, err, answer.Status, answer.Body)
	}
}
