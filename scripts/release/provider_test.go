package main

import (
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"slipway/internal/edge/front"
	"slipway/internal/web/mirror"
)

// An installation must serve the provider that the release contains, and OpenTofu or Terraform must install it from
// there with the hash that the release names. Without either tool, the test reads the files of the protocol.
func TestProvider(t *testing.T) {
	program := filepath.Join(t.TempDir(), "provider") // it is installed but not started
	if err := os.WriteFile(program, []byte("a program\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	make := func() []byte {
		r := release{out: t.TempDir(), version: "1.2.3+20260101.g0123456789ab", program: program, terraform: true, date: time.Unix(1_700_000_000, 0)}
		if err := r.provider(t.TempDir()); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(r.out, "slipway_"+r.version+"_terraform.tar.gz"))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	archive := make()
	if string(archive) != string(make()) {
		t.Error("the same release makes other bytes")
	}
	data := t.TempDir()
	unpack := exec.CommandContext(t.Context(), "tar", "-xz", "-C", data)
	unpack.Stdin = strings.NewReader(string(archive))
	if out, err := unpack.CombinedOutput(); err != nil {
		t.Fatalf("tar: %v\n%s", err, out)
	}
	srv := httptest.NewTLSServer(mirror.Handler(data, front.Proxies{}))
	t.Cleanup(srv.Close)
	const at = "/terraform/slipway.internal/slipway/slipway/"
	read := func(name string, v any) {
		t.Helper()
		resp, err := srv.Client().Get(srv.URL + at + name)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err == nil && v != nil {
			err = json.Unmarshal(text, v)
		}
		if err != nil || resp.StatusCode != 200 || len(text) == 0 {
			t.Fatalf("%s: %d %v", name, resp.StatusCode, err)
		}
	}
	var index struct{ Versions map[string]struct{} }
	read("index.json", &index)
	if _, ok := index.Versions["1.2.3"]; !ok || len(index.Versions) != 1 {
		t.Fatalf("the versions are %v", index.Versions)
	}
	var version struct {
		Archives map[string]struct {
			URL    string
			Hashes []string
		}
	}
	read("1.2.3.json", &version)
	if len(version.Archives) != len(platforms) {
		t.Errorf("there are archives for %v", version.Archives)
	}
	for platform, a := range version.Archives {
		if len(a.Hashes) != 1 || !strings.HasPrefix(a.Hashes[0], "h1:") {
			t.Errorf("%s has the hashes %v", platform, a.Hashes)
		}
		read(a.URL, nil)
	}

	tool := ""
	for _, name := range []string{os.Getenv("SLIPWAY_TOFU"), "tofu", "terraform"} {
		if path, err := exec.LookPath(name); err == nil && tool == "" {
			tool = path
		}
	}
	if tool == "" {
		t.Log("NOT TESTED with a tool: neither tofu nor terraform is here; SLIPWAY_TOFU names one")
		return
	}
	dir := t.TempDir()
	for name, text := range map[string]string{
		"main.tf": "terraform {\n  required_providers {\n    slipway = {\n      source = \"slipway.internal/slipway/slipway\"\n    }\n  }\n}\n",
		"config.tfrc": "provider_installation {\n  network_mirror {\n    url     = \"" + srv.URL + "/terraform/\"\n" +
			"    include = [\"slipway.internal/*/*\"]\n  }\n  direct {\n    exclude = [\"slipway.internal/*/*\"]\n  }\n}\n",
		"ca.pem": string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := exec.CommandContext(t.Context(), tool, "init", "-no-color", "-input=false")
	run.Dir = dir
	run.Env = append(os.Environ(), "TF_CLI_CONFIG_FILE="+filepath.Join(dir, "config.tfrc"), "SSL_CERT_FILE="+filepath.Join(dir, "ca.pem"),
		"CHECKPOINT_DISABLE=1", "NO_PROXY=127.0.0.1", "no_proxy=127.0.0.1")
	if out, err := run.CombinedOutput(); err != nil {
		t.Fatalf("%s init: %v\n%s", tool, err, out)
	}
	lock, err := os.ReadFile(filepath.Join(dir, ".terraform.lock.hcl"))
	if err != nil {
		t.Fatal(err)
	}
	if want := version.Archives[runtime.GOOS+"_"+runtime.GOARCH].Hashes[0]; !strings.Contains(string(lock), want) {
		t.Errorf("the lock file hasn't %s:\n%s", want, lock)
	}
}
