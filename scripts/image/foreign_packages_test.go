//go:build packages

package main

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// The first layer for the other architecture must contain programs of that architecture only, what the scripts of
// packages make, and a list of its packages. SLIPWAY_IMAGE_FOREIGN names a file in which the layer is kept, for
// inspection.
func TestForeign(t *testing.T) {
	dir := t.TempDir()
	i := image{program: filepath.Join(dir, "program"), arch: map[string]string{"amd64": "arm64", "arm64": "amd64"}[runtime.GOARCH], date: time.Unix(1_700_000_000, 0), kind: &machine}
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte("package main\n\nfunc main() {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	build := func(arch string) {
		t.Helper()
		c := exec.Command("go", "build", "-o", i.program, filepath.Join(dir, "main.go"))
		c.Env = append(os.Environ(), "GOARCH="+arch, "CGO_ENABLED=0")
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	layer := os.Getenv("SLIPWAY_IMAGE_FOREIGN")
	if layer == "" {
		layer = filepath.Join(dir, "layer.tar")
	}
	build(runtime.GOARCH)
	if err := i.foreign(layer, dir); err == nil || !strings.Contains(err.Error(), "not for") {
		t.Errorf("a program of this machine's: %v", err)
	}
	build(i.arch)
	if err := i.foreign(layer, dir); err != nil {
		t.Fatal(err)
	}
	programs, texts, there := 0, map[string]string{}, map[string]bool{}
	if err := entries(layer, func(name string, _ *tar.Header, r *tar.Reader) error {
		if there[name] {
			t.Errorf("%s is there twice", name)
		}
		there[name] = true
		text, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		if !bytes.HasPrefix(text, []byte(elf.ELFMAG)) {
			texts[name] = string(text)
			return nil
		}
		programs++
		f, err := elf.NewFile(bytes.NewReader(text))
		if err != nil || f.Machine != machines[i.arch] {
			t.Errorf("%s: %v, of another machine than %s", name, err, i.arch)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if programs < 500 {
		t.Errorf("the layer has %d programs", programs)
	}
	for name, want := range map[string]string{
		"etc/passwd": "\nslipway:x:10001:", "etc/ssl/certs/ca-certificates.crt": "BEGIN CERTIFICATE", "usr/lib/slipway/image": "", "etc/alternatives/php": "",
		"var/lib/dpkg/status": "\nPackage: mariadb-server\nStatus: install ok installed\n",
	} {
		if text, ok := texts[name]; !ok || !strings.Contains(text, want) {
			t.Errorf("%s lacks %q: %.200q", name, want, text)
		}
	}
	for _, name := range []string{"etc/hostname", "etc/resolv.conf", "etc/machine-id"} {
		if there[name] {
			t.Errorf("the layer has %s of this architecture", name)
		}
	}
	t.Logf("%d programs", programs)
}
