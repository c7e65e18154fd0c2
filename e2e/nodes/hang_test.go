package nodes

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"slipway/e2e/world"
	"slipway/internal/platform/node"
)

// writer stores a line with its own name every 50 ms.
var writer = map[string]string{
	"package.json": `{"scripts": {"start": "node server.js"}, "engines": {"node": ">=18"}}`,
	"slipway.toml": "[run]\nstorage = [\"data\"]\n",
	"data/.keep":   "",
	"server.js": `
const fs = require('fs'), name = require('crypto').randomUUID();
setInterval(() => fs.appendFileSync('data/lines', name + '\n'), 50);
require('http').createServer((q, r) => r.end(name)).listen(process.env.PORT);`,
}

// While a node hangs, its programs don't write to storage after another node has started them. The test stops only the
// service, freezes everything except the watchdog (like a frozen cgroup), or freezes everything (like a suspended
// machine). The node then recovers by itself.
func TestHungNodeWritesNothing(t *testing.T) {
	world.Long(t)
	i, dir := mounted(t)
	i.start(i.nodes...)
	i.commit("writer", writer)
	site := i.site(i.nodes[0], "writer")
	i.until("it is deployed", func() bool {
		return i.count(`SELECT count(*) FROM deployments WHERE site_id = $1 AND status = 'success'`, site) == 1
	})
	file := filepath.Join(dir, site, "data", "lines")
	for name, tt := range map[string]struct {
		hang func(*testing.T, *world.World) (resume func())
		late int // number of lines that the old program may write before the watchdog continues
	}{
		"stopped": {stopped, 0}, "frozen": {frozen(false), 0}, "suspended": {frozen(true), 20},
	} {
		t.Run(name, func(t *testing.T) {
			home, other := i.stays(site)
			status, old := i.visit(home, "writer", "/")
			if status != 200 {
				t.Fatalf("at home: %d %s", status, old)
			}
			resume := tt.hang(t, home)
			hung := time.Now()
			var heir string
			i.until("the other node has taken it", func() bool {
				status, body := i.visit(other, "writer", "/")
				heir = body
				return status == 200 && body != old
			})
			if took := time.Since(hung); took > world.Patience(40*time.Second) {
				t.Errorf("another node has it after %s", took)
			}
			i.until("the lease has ended for long", func() bool { return time.Since(hung) > 40*time.Second })
			resume()
			i.until("the node is back", func() bool {
				return i.count(`SELECT count(*) FROM live_nodes WHERE id = $1 AND state = $2 AND lease_until > $3`, i.id(home), node.Up, i.db.Now()) == 1
			})
			i.until("it answers as the other one does", func() bool {
				status, body := i.visit(home, "writer", "/")
				return status == 200 && body == heir
			})
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			lines := strings.Fields(string(text))
			first, late := -1, 0
			for n, line := range lines {
				switch {
				case line == heir && first < 0:
					first = n
				case first >= 0 && line != heir:
					late++
				}
			}
			t.Logf("the old program wrote %d lines after the new one's first", late)
			if first < 0 || late > tt.late {
				t.Errorf("of %d lines the new node's begin at %d, and %d of the old node follow", len(lines), first, late)
			}
		})
	}
}

// stopped sends SIGSTOP to a node's service only.
func stopped(t *testing.T, w *world.World) (resume func()) {
	pid := w.PID()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	return func() { _ = syscall.Kill(pid, syscall.SIGCONT) }
}

// frozen freezes a node's service and sandboxes. With all, it also freezes the watchdog.
func frozen(all bool) func(t *testing.T, w *world.World) (resume func()) {
	const root = "/sys/fs/cgroup/freezer"
	return func(t *testing.T, w *world.World) func() {
		if _, err := os.Stat(filepath.Join(root, "cgroup.procs")); err != nil {
			t.Fatalf("NOT TESTED: a node that is frozen, because this machine has no freezer of cgroups of version 1: %v", err)
		}
		sum := sha256.Sum256([]byte(filepath.Join(w.Data, "builds", "sandbox")))
		sandboxes, err := filepath.Glob(filepath.Join(root, "slipway", hex.EncodeToString(sum[:6]), "*", "freezer.state"))
		if err != nil || len(sandboxes) < 2 {
			t.Fatalf("sandboxes and a watchdog: %v, %v", sandboxes, err)
		}
		service := filepath.Join(root, fmt.Sprint("slipway-e2e-", w.PID()))
		if err := os.Mkdir(service, 0o755); err != nil {
			t.Fatal(err)
		}
		write := func(path, text string) {
			if err := os.WriteFile(path, []byte(text), 0); err != nil && !os.IsNotExist(err) {
				t.Error(err)
			}
		}
		write(filepath.Join(service, "cgroup.procs"), strconv.Itoa(w.PID()))
		var groups []string
		for _, state := range append(sandboxes, filepath.Join(service, "freezer.state")) {
			if all || !strings.Contains(state, "/aside-") {
				groups = append(groups, state)
				write(state, "FROZEN")
			}
		}
		return func() {
			for _, state := range groups {
				write(state, "THAWED")
			}
			write(filepath.Join(root, "cgroup.procs"), strconv.Itoa(w.PID()))
			if err := os.Remove(service); err != nil {
				t.Error(err)
			}
		}
	}
}
