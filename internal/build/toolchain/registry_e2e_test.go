package toolchain

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"slipway/internal/platform/egress"
	"slipway/internal/platform/sandbox"
)

// With the real npm registry, the toolchain works. SLIPWAY_TEST_NPM must be set: to "1", or to the private networks
// (CIDRs, separated by commas) that contain this machine's registry. If it can't be reached, the test fails.
func TestRealRegistry(t *testing.T) {
	how := os.Getenv("SLIPWAY_TEST_NPM")
	if how == "" {
		t.Skip("set SLIPWAY_TEST_NPM to fetch from the real registry; the other tests bring their own")
	}
	var allow []netip.Prefix
	if how != "1" {
		var err error
		if allow, err = egress.ParseNetworks(strings.Split(how, ",")); err != nil {
			t.Fatal(err)
		}
	}
	dir := newDir(t)
	s, err := sandbox.New(sandbox.Config{Dir: filepath.Join(dir, "sandbox"), Cgroup: newCgroup(t)})
	if err != nil {
		t.Fatal(err)
	}
	out, err := egress.New(egress.Config{Allow: allow})
	if err != nil {
		t.Fatal(err)
	}
	tc, err := New(Config{
		Dir: filepath.Join(dir, "tools"), Sandbox: s, UID: testUID, Log: testLog(t), CAFile: os.Getenv("SLIPWAY_TEST_CA"),
		Network: door(t, dir, out.Proxy(egress.ProxyConfig{})),
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range []Want{
		{Node: "18", Manager: "npm"},
		{Node: "22", Manager: "pnpm", ManagerVersion: "^9 || ^10"},
		{Node: "16", Manager: "pnpm"},
		{Node: "lts/*", Manager: "pnpm"},
		{Manager: "yarn", ManagerVersion: "^1"},
		{Manager: "yarn", ManagerVersion: "^4"},
		{Manager: "yarn", ManagerVersion: "2.0.0"},
		{Manager: "bun"},
		{Node: "latest", Manager: "npm"},
	} {
		tools, err := tc.Ready(t.Context(), w, t.Logf)
		if err != nil {
			t.Errorf("Ready(%+v) = %v", w, err)
			continue
		}
		if got := run(t, tc, tools, "node", "--version"); got != "v"+tools.Node {
			t.Errorf("%+v: node says %s, want %s", w, got, tools.Node)
		}
		if got := run(t, tc, tools, w.Manager, "--version"); got != tools.Manager {
			t.Errorf("%+v: it says %s, want %s", w, got, tools.Manager)
		}
		run(t, tc, tools, "npx", "--version")
		if w.Manager == "bun" {
			run(t, tc, tools, "bunx", "--version")
		}
		t.Logf("%+v: Node %s, %s %s", w, tools.Node, w.Manager, tools.Manager)
		tools.Release()
	}
	if _, err := tc.Ready(t.Context(), Want{Node: "18.99.99"}, nil); err == nil {
		t.Error("Node 18.99.99 was accepted")
	}
}
