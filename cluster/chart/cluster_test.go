//go:build cluster

package chart

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The chart installs Slipway on a cluster as docs/kubernetes.md describes. An operator creates a user in an edge, who
// creates two sites from Git over the API: static files, and a program that is built in a pod and stores data. Each
// edge serves both. Upgrading all edges and workers, going back and upgrading again fails no request. Uninstalling
// leaves only data, and if that is lost too, a backup of the installation restores everything.
func TestInstall(t *testing.T) {
	i := prepare(t)
	before := i.must(i.objects())
	i.helm("install", "slipway", os.Getenv("SLIPWAY_CLUSTER_CHART"), "--values="+i.values, "--wait", "--timeout=8m")
	for _, p := range i.pods("app.kubernetes.io/component in (edge, worker)") {
		if err := ready(t.Context(), p); err != nil {
			t.Errorf("%s: %v", p.Name, err)
		}
	}
	i.logsOfStart()

	const user = "ada@example.test"
	i.inEdge("correct horse battery staple\n", "slipway", "user", "create", "--email="+user)
	i.key = strings.TrimSpace(i.inEdge("", "slipway", "key", "create", "--user="+user, "--name=test"))

	i.site("leaflet", map[string]string{"index.html": "hello from the cluster"})
	i.site("shop", map[string]string{
		"package.json": `{"name": "shop", "private": true, "scripts": {"build": "node build.js", "start": "node server.js"}}`,
		"slipway.toml": "[run]\nstorage = [\"data\"]\nstorageMiB = 16\n",
		// /slipway/build exists only in the build image.
		"build.js": `const fs = require('fs'); fs.mkdirSync('made'); fs.writeFileSync('made/text', fs.existsSync('/slipway/build') ? 'built in a pod' : 'built elsewhere')`,
		"server.js": `const fs = require('fs')
fs.appendFileSync('data/starts', '.')
require('http').createServer((q, r) => {
  if (q.url === '/keep/') fs.writeFileSync('data/kept', 'kept')
  setTimeout(() => r.end(q.url === '/kept/' ? fs.existsSync('data/kept') ? 'kept' : 'not kept' : fs.readFileSync('made/text')), 50)
}).listen(process.env.PORT)`,
	})
	sites := map[string]string{"leaflet.sites.test": "hello from the cluster", "shop.sites.test": "built in a pod"}
	i.until("each edge answers for all sites", func() error { return i.answer(sites) })

	upgrade := []string{
		"upgrade", "slipway", os.Getenv("SLIPWAY_CLUSTER_NEXT_CHART"), "--values=" + i.values, "--set=images.tag=" + os.Getenv("SLIPWAY_CLUSTER_NEXT"),
		"--wait", "--timeout=8m",
	}
	good, failed := i.load(sites, func() {
		for _, way := range [][]string{upgrade, {"rollback", "slipway", "1", "--wait", "--timeout=8m"}, upgrade} {
			i.helm(way...)
			i.until("the old pods are gone", func() error {
				if n := len(i.pods("app.kubernetes.io/component in (edge, worker)")); n != 4 {
					return fmt.Errorf("there are %d", n)
				}
				return nil
			})
			i.until("each edge answers for all sites", func() error { return i.answer(sites) })
		}
	})
	t.Logf("%d requests during two upgrades and the way back between them, %d failed", good+failed, failed)
	if good < 100 {
		t.Error("fewer than 100 requests succeeded")
	}
	i.until("only nodes that run are listed", func() error {
		list := i.inEdge("", "slipway", "node", "list")
		if strings.Contains(list, "down") || strings.Count(list, "\n") != 5 {
			return fmt.Errorf("nodes:\n%s", list)
		}
		return nil
	})

	if text, err := page(t.Context(), i.edges()[0], "shop.sites.test/keep"); err != nil || text != "built in a pod" {
		t.Errorf("something to keep: %q, %v", text, err)
	}
	said := i.in("worker", "", "slipway", "backup", "create", "--to="+i.place)
	backup := regexp.MustCompile(`bkp_[a-z0-9]+`).FindString(said)
	if backup == "" {
		t.Fatalf("the backup of all of it: %q", said)
	}

	claims, err := i.client.CoreV1().PersistentVolumeClaims(programs).List(t.Context(), meta.ListOptions{})
	if err != nil || len(claims.Items) != 1 {
		t.Fatalf("claims: %v, %v", claims, err)
	}
	i.helm("uninstall", "slipway", "--wait", "--timeout=8m")
	i.until("nothing is left but data", func() error {
		all, err := i.objects()
		if err != nil {
			return err
		}
		left := slices.DeleteFunc(all, func(o string) bool { return slices.Contains(before, o) })
		if want := []string{
			"ConfigMap slipway-programs/kube-root-ca.crt", "Namespace slipway-programs", "PersistentVolumeClaim slipway-programs/" + claims.Items[0].Name,
			"Secret hosting/slipway-key", "ServiceAccount slipway-programs/default",
		}; !slices.Equal(left, want) {
			return fmt.Errorf("left are %q", left)
		}
		return nil
	})

	i.lose()
	i.comesBack(backup)
	i.helm(append([]string{"install"}, upgrade[1:]...)...)
	i.until("each edge answers for all sites again", func() error { return i.answer(sites) })
	if text, err := page(t.Context(), i.edges()[0], "shop.sites.test/kept"); err != nil || text != "not kept" {
		t.Errorf("before storage is back: %q, %v", text, err)
	}
	i.in("worker", "", "slipway", "backup", "restore-storage", "--from="+i.place, "--id="+backup, "--yes")
	i.until("what the shop stored is back", func() error {
		text, err := page(t.Context(), i.edges()[0], "shop.sites.test/kept")
		if text != "kept" {
			return fmt.Errorf("%q, %w", text, err)
		}
		return nil
	})
	i.until("each edge answers for all sites then", func() error { return i.answer(sites) })
}
