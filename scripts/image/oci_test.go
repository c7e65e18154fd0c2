package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"slipway/packaging"
)

// read returns the files of a tar archive.
func read(t *testing.T, from io.Reader) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for r := tar.NewReader(from); ; {
		h, err := r.Next()
		if err == io.EOF {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}

// made builds an image from a first layer and a program, and returns its bytes.
func made(t *testing.T, version string) []byte {
	t.Helper()
	dir := t.TempDir()
	var base bytes.Buffer
	w := tar.NewWriter(&base)
	if err := w.WriteHeader(&tar.Header{Name: "etc/os-release", Size: 4, Mode: 0o644}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte("ID=x")); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	i := image{program: filepath.Join(dir, "program"), out: filepath.Join(dir, "out.tar"), arch: "amd64", version: version, base: filepath.Join(dir, "base.tar")}
	for file, text := range map[string][]byte{i.base: base.Bytes(), i.program: []byte("a program")} {
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := i.run(1_700_000_000); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(i.out)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// Docker's list and the index must name every part of an image by the digest of its bytes. The program must be in the
// top layer, nothing may run as root, and the same input must give the same bytes.
func TestArchive(t *testing.T) {
	text := made(t, "1.2.3+20260101.gabc")
	if !bytes.Equal(text, made(t, "1.2.3+20260101.gabc")) {
		t.Error("two runs differ")
	}
	files := read(t, bytes.NewReader(text))
	blob := func(d descriptor, into any) []byte {
		t.Helper()
		text, ok := files["blobs/sha256/"+strings.TrimPrefix(d.Digest, "sha256:")]
		if !ok || d.Digest != fmt.Sprintf("sha256:%x", sha256.Sum256(text)) || d.Size != int64(len(text)) {
			t.Fatalf("%+v is not in the archive", d)
		}
		if into != nil {
			if err := json.Unmarshal(text, into); err != nil {
				t.Fatal(err)
			}
		}
		return text
	}
	var index struct{ Manifests []descriptor }
	var manifest struct {
		Config descriptor
		Layers []descriptor
	}
	var config struct {
		Config struct {
			User       string
			Entrypoint []string
		}
		RootFS struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}
	var list []struct {
		Config           string
		RepoTags, Layers []string
	}
	if err := json.Unmarshal(files["index.json"], &index); err != nil || len(index.Manifests) != 1 {
		t.Fatalf("index %s: %v", files["index.json"], err)
	}
	blob(index.Manifests[0], &manifest)
	blob(manifest.Config, &config)
	if err := json.Unmarshal(files["manifest.json"], &list); err != nil || len(list) != 1 || files[list[0].Config] == nil ||
		!slices.Equal(list[0].RepoTags, []string{"slipway:1.2.3-20260101.gabc"}) {
		t.Errorf("Docker's list %s: %v", files["manifest.json"], err)
	}
	if config.Config.User != "10001:10001" || len(config.Config.Entrypoint) == 0 || len(manifest.Layers) != 2 || len(config.RootFS.DiffIDs) != 2 {
		t.Fatalf("config %+v of %d layers", config, len(manifest.Layers))
	}
	for n, want := range []map[string]string{{"etc/os-release": "ID=x"}, {"usr/bin/slipway": "a program", "usr/share/doc/slipway/LICENSES.txt": packaging.Licenses()}} {
		zip, err := gzip.NewReader(bytes.NewReader(blob(manifest.Layers[n], nil)))
		if err != nil {
			t.Fatal(err)
		}
		plain, err := io.ReadAll(zip)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprintf("sha256:%x", sha256.Sum256(plain)); got != config.RootFS.DiffIDs[n] {
			t.Errorf("layer %d is %s, the config says %s", n, got, config.RootFS.DiffIDs[n])
		}
		got := read(t, bytes.NewReader(plain))
		for name, text := range got {
			if want[name] != string(text) {
				t.Errorf("layer %d has %s: %.100q", n, name, text)
			}
		}
		if len(got) != len(want) {
			t.Errorf("layer %d has %d files, want %d", n, len(got), len(want))
		}
	}
}

// System calls that a sandbox needs without a capability must be allowed. Those that lead out of a container must still
// need a capability or be refused.
func TestSeccomp(t *testing.T) {
	text, err := os.ReadFile("../../packaging/image/seccomp.json")
	if err != nil {
		t.Fatal(err)
	}
	var p struct {
		DefaultAction string
		Syscalls      []struct {
			Names    []string
			Action   string
			Includes struct{ Caps []string }
		}
	}
	if err := json.Unmarshal(text, &p); err != nil || p.DefaultAction != "SCMP_ACT_ERRNO" {
		t.Fatalf("by default %q, %v", p.DefaultAction, err)
	}
	free := map[string]bool{}
	for _, s := range p.Syscalls {
		for _, name := range s.Names {
			if s.Action == "SCMP_ACT_ALLOW" && len(s.Includes.Caps) == 0 {
				free[name] = true
			}
		}
	}
	for _, name := range []string{"clone", "clone3", "unshare", "setns", "mount", "umount2", "pivot_root", "sethostname", "chroot", "seccomp", "prctl"} {
		if !free[name] {
			t.Errorf("%s is not allowed: no sandbox can start", name)
		}
	}
	for _, name := range []string{"bpf", "init_module", "finit_module", "kexec_load", "open_by_handle_at", "perf_event_open", "swapon", "iopl", "settimeofday"} {
		if free[name] {
			t.Errorf("%s is allowed without a capability", name)
		}
	}
}

// The layer of our own programs must be a complete tar archive, which stricter tools than Go's require.
func TestTopEnds(t *testing.T) {
	file := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(file, []byte("a program"), 0o600); err != nil {
		t.Fatal(err)
	}
	i := image{kind: &machine, program: file, date: time.Unix(1_700_000_000, 0)}
	top, err := i.top()
	if err != nil || len(top)%512 != 0 || !bytes.HasSuffix(top, make([]byte, 1024)) {
		t.Errorf("%d bytes: %v", len(top), err)
	}
}
