//go:build packages

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// Images of a cluster that are built twice must have the same bytes. Their programs must run without root, without
// capabilities and on a read-only root file system. A list beside each image must name its contents.
func TestClusterImages(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(root)
	dir := t.TempDir()
	for _, out := range []string{"one", "two"} {
		i := image{out: filepath.Join(dir, out), arch: runtime.GOARCH, version: "0.0.1"}
		if err := i.cluster("all", 1_700_000_000); err != nil {
			t.Fatal(err)
		}
	}
	e := &engine{t, []string{"--storage-driver=vfs", "--root=" + filepath.Join(dir, "store"), "--runroot=" + filepath.Join(dir, "run"), "--cgroup-manager=cgroupfs"}}
	t.Cleanup(func() { _, _ = e.run("system", "reset", "--force") })
	for _, k := range clusterKinds {
		i := image{kind: &k, version: "0.0.1"}
		file := strings.ReplaceAll(i.tag(), ":", "_") + "_" + runtime.GOARCH
		one, err1 := os.ReadFile(filepath.Join(dir, "one", file+".oci.tar"))
		two, err2 := os.ReadFile(filepath.Join(dir, "two", file+".oci.tar"))
		if err1 != nil || err2 != nil || !bytes.Equal(one, two) {
			t.Errorf("%s: two runs differ (%v, %v)", file, err1, err2)
		}
		list, err := os.ReadFile(filepath.Join(dir, "one", file+".cdx.json"))
		for _, want := range []string{"pkg:deb/debian/ca-certificates@", "pkg:generic/go@"} {
			if err != nil || !bytes.Contains(list, []byte(want)) {
				t.Errorf("the list of %s lacks %s: %v", file, want, err)
			}
		}
		e.must("load", "--input", filepath.Join(dir, "one", file+".oci.tar"))
		inside := func(argv ...string) string {
			return e.must(slices.Concat(e.start(t.TempDir()), []string{"--rm", "--entrypoint=" + argv[0], "localhost/" + i.tag()}, argv[1:])...)
		}
		if out := inside("id", "-u"); strings.TrimSpace(out) != "10001" {
			t.Errorf("%s runs as %s", file, out)
		}
		switch {
		case k.beside != "":
			for _, command := range []string{"slipway", "slipway-cluster"} {
				if out := inside(command, "version"); !strings.Contains(out, "0.0.1") {
					t.Errorf("%s: %s version prints %q", file, command, out)
				}
			}
			inside("git", "version")
		case k.node != nil:
			if out := inside("sh", "-c", "node --version; npm --version"); out != "v"+k.node.version+"\n"+k.node.npm.version+"\n" {
				t.Errorf("%s has %q", file, out)
			}
			if k.name == builds.name {
				inside("sh", "-ec", "git version; composer --version; php --version; php-fpm8.2 --version; bash --version; test /slipway/program -ef /slipway/build")
			}
		case strings.Contains(k.suffix, "php"):
			if out := inside("php", "-m"); !strings.Contains(out, "mysqli") || !strings.Contains(out, "intl") {
				t.Errorf("%s has %q", file, out)
			}
			if out := inside("sh", "-c", "exec /usr/sbin/php-fpm8.2 -v"); !strings.Contains(out, "PHP "+k.suffix[len("-php"):]) {
				t.Errorf("%s has %q", file, out)
			}
		}
	}
}
