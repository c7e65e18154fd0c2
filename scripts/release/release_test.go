package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"aead.dev/minisign"
)

// The same commit must give the same bytes in another folder and with another umask. The checksums must match, and the
// list of contents must name what the program is built from.
func TestRelease(t *testing.T) {
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		t.Fatal("dpkg-deb is missing: packages are made on Debian or Ubuntu")
	}
	t.Chdir("../..")
	// Any Go program will do that prints something for man and completion; a small one is packed faster.
	program := filepath.Join(t.TempDir(), "program")
	source := program + ".go"
	text := []byte("package main\n\nimport \"os\"\n\nfunc main() { _, _ = os.Stdout.WriteString(os.Args[1]) }\n")
	if err := os.WriteFile(source, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", "build", "-o", program, source).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	public, private, err := minisign.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	locked, err := minisign.EncryptKey("a password", private)
	if err != nil {
		t.Fatal(err)
	}
	secret := filepath.Join(t.TempDir(), "secret.key")
	if err := os.WriteFile(secret, locked, 0o600); err != nil {
		t.Fatal(err)
	}
	base := filepath.Join(t.TempDir(), "base-amd64.tar")
	if out, err := exec.Command("tar", "-cf", base, "-C", t.TempDir(), ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	make := func(umask int) string {
		before := syscall.Umask(umask)
		defer syscall.Umask(before)
		r := release{out: filepath.Join(t.TempDir(), "dist"), version: "1.2.3", program: program, archs: []string{"amd64"}}
		r.images, r.base = true, strings.ReplaceAll(base, "amd64", "ARCH")
		if err := r.signWith(secret, "a password"); err != nil {
			t.Fatal(err)
		}
		if err := r.run(); err != nil {
			t.Fatal(err)
		}
		return r.out
	}
	one, two := make(0o022), make(0o077)
	sums, err := os.ReadFile(filepath.Join(one, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	names := []string{
		"install.sh", "slipway_1.2.3.cdx.json", "slipway_1.2.3_amd64.deb", "slipway_1.2.3_linux_amd64.tar.gz", "slipway_1.2.3_notes.md",
		"slipway_1.2.3_amd64.oci.tar", "slipway-seccomp.json",
	}
	if n := strings.Count(string(sums), "\n"); n != len(names) {
		t.Errorf("%d checksums, want %d:\n%s", n, len(names), sums)
	}
	signature, err := os.ReadFile(filepath.Join(one, "SHA256SUMS.minisig"))
	if err != nil || !minisign.Verify(public, sums, signature) {
		t.Errorf("SHA256SUMS is not signed: %v", err)
	}
	again, err := os.ReadFile(filepath.Join(two, "SHA256SUMS.minisig"))
	if err != nil || !bytes.Equal(signature, again) {
		t.Errorf("the signature differs between two runs: %v", err)
	}
	for _, name := range names {
		a, err := os.ReadFile(filepath.Join(one, name))
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(two, name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(a, b) {
			t.Errorf("%s differs between two runs", name)
		}
		if line := fmt.Sprintf("%x  %s\n", sha256.Sum256(a), name); !strings.Contains(string(sums), line) {
			t.Errorf("SHA256SUMS has no line %s", line)
		}
	}
	text, err = os.ReadFile(filepath.Join(one, names[1]))
	if err != nil {
		t.Fatal(err)
	}
	var bom struct {
		BOMFormat  string
		Components []struct {
			Name, PURL string
			Licenses   []struct{ Expression string }
		}
	}
	if err := json.Unmarshal(text, &bom); err != nil || bom.BOMFormat != "CycloneDX" || len(bom.Components) == 0 || bom.Components[0].Name != "Go" ||
		bom.Components[0].Licenses[0].Expression != "BSD-3-Clause" {
		t.Errorf("the list of contents: %v\n%.300s", err, text)
	}
	if text, err := os.ReadFile(filepath.Join(one, names[4])); err != nil || !strings.Contains(string(text), "\n- ") {
		t.Errorf("the notes list no change: %v\n%.300s", err, text)
	}
	out, err := exec.Command("dpkg-deb", "--contents", filepath.Join(one, names[2])).Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"-rwxr-xr-x root/root", "./usr/bin/slipway", "-rw-r----- root/root", "./etc/slipway/server.toml", "./lib/systemd/system/slipway.socket",
		"./usr/share/man/man1/slipway.1.gz", "./usr/share/bash-completion/completions/slipway", "./usr/share/zsh/vendor-completions/_slipway",
		"./usr/share/doc/slipway/copyright", "./usr/share/doc/slipway/NOTICE",
		"./usr/share/doc/slipway/LICENSES.txt.gz",
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the package lacks %s:\n%s", want, out)
		}
	}
	list, err := exec.Command("tar", "-tzf", filepath.Join(one, names[3])).Output()
	for _, want := range []string{"/LICENSE\n", "/NOTICE\n", "/LICENSES.txt\n"} {
		if err != nil || !strings.Contains(string(list), want) {
			t.Errorf("the archive lacks %q: %v\n%s", want, err, list)
		}
	}
	if strings.Contains(string(out), "drwx------") {
		t.Errorf("a folder of the package has the umask's mode:\n%s", out)
	}
}
