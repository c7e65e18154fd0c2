package backup

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"filippo.io/age"

	"slipway/internal/backup/repository"
	"slipway/internal/backup/snapshot"
	"slipway/internal/platform/blob"
	"slipway/internal/platform/seal"
)

var updateVector = flag.Bool("update-vector", false, "write testdata/vector anew: only when the format has a new version")

const vector = "testdata/vector"

// vectorFiles are the files of the test vector's backup.
var vectorFiles = map[string]string{
	"storage/uploads/cat.txt":          "meow\n",
	"storage/uploads/2026/empty.txt":   "",
	"storage/uploads/again.txt":        "meow\n",
	"storage/uploads/large.bin":        strings.Repeat("a line of a large file\n", 250_000), // two pieces
	"storage/uploads/über/naïve\n.txt": "a name with a line break",
	"database/main.sql":                "CREATE TABLE t (a INT);\n",
}

// writeVector creates the test vector's repository.
func writeVector(t *testing.T, dir string) {
	t.Helper()
	ok(t, os.RemoveAll(dir))
	key, err := seal.Load(filepath.Join(dir, "secrets.key"))
	ok(t, err)
	identity, err := age.GenerateX25519Identity()
	ok(t, err)
	ok(t, os.WriteFile(filepath.Join(dir, "identity.txt"), []byte("# of the test vector\n"+identity.String()+"\n"), 0o600))
	at, err := blob.Dir(filepath.Join(dir, "place"))
	ok(t, err)
	defer at.Close()
	r := repository.New(repository.Config{Backend: at, Seal: key, Recipients: []age.Recipient{identity.Recipient()}})
	w := repository.NewWriter(t.Context(), r)
	m := &snapshot.Manifest{
		ID:       "bkp_vector",
		Site:     "site_vector",
		Includes: parts,
		Folders:  []string{"uploads"},
		Places:   map[string]int64{"main": 0},
	}
	for _, name := range slices.Sorted(maps.Keys(vectorFiles)) {
		list, sum, size, err := w.Add(strings.NewReader(vectorFiles[name]))
		ok(t, err)
		m.Files = append(m.Files, repository.File{Path: name, Size: size, Mode: 0o640, Sum: sum, Pieces: list})
	}
	m.Files = append(m.Files, repository.File{Path: "storage/uploads/link", Link: "cat.txt"})
	ok(t, w.Close())
	w.List(&m.Contents)
	raw, err := m.Encode()
	ok(t, err)
	_, _, err = r.Put(t.Context(), raw)
	ok(t, err)
}

// The test vector of docs/backup-format.md, which was written once, can still be read. A change of the format needs a
// new version.
func TestVector(t *testing.T) {
	if *updateVector {
		writeVector(t, vector)
	}
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "place") // a copy, because the directory is written to
	ok(t, os.CopyFS(dir, os.DirFS(filepath.Join(vector, "place"))))
	key, err := seal.Load(filepath.Join(vector, "secrets.key"))
	ok(t, err)
	text, err := os.ReadFile(filepath.Join(vector, "identity.txt"))
	ok(t, err)
	identities, err := age.ParseIdentities(bytes.NewReader(text))
	ok(t, err)
	for name, c := range map[string]repository.Config{"key": {Seal: key}, "identity": {Identities: identities}} {
		at, err := blob.Dir(dir)
		ok(t, err)
		defer at.Close()
		c.Backend, c.ReadOnly = at, true
		r := repository.New(c)
		found := 0
		for e, err := range at.List(t.Context()) {
			ok(t, err)
			if e.Name == repository.KeySlot {
				continue
			}
			m, err := snapshot.Load(t.Context(), r, e.Name)
			if err != nil {
				continue // a pack
			}
			found++
			got := map[string]string{}
			for _, f := range m.Files {
				if f.Link != "" {
					continue
				}
				var out strings.Builder
				ok(t, snapshot.NewReader(r, "", m).Copy(t.Context(), &out, f))
				got[f.Path] = out.String()
			}
			if m.ID != "bkp_vector" || !maps.Equal(got, vectorFiles) {
				t.Errorf("by its %s: %s has %q", name, m.ID, slices.Sorted(maps.Keys(got)))
			}
		}
		if found != 1 {
			t.Errorf("by its %s: %d manifests", name, found)
		}
	}
}

// Backups can be read without Slipway: docs/backup-reader.py, an independent implementation, reads the test vector with
// the key or an identity, refuses a wrong key and detects damage.
func TestReaderElsewhere(t *testing.T) {
	t.Parallel()
	const script = "../../../docs/backup-reader.py"
	if out, err := exec.Command("/usr/bin/python3", "-c", "import zstandard, cryptography").CombinedOutput(); err != nil {
		t.Fatalf("python3-cryptography and python3-zstandard are not here, which make test installs: %v\n%s", err, out)
	}
	read := func(place string, args ...string) (string, error) {
		out, err := exec.CommandContext(t.Context(), "/usr/bin/python3", append([]string{script, place}, args...)...).CombinedOutput()
		return string(out), err
	}
	place := filepath.Join(vector, "place")
	size := 0
	for _, text := range vectorFiles {
		size += len(text)
	}
	for _, by := range [][]string{{"--key", filepath.Join(vector, "secrets.key")}, {"--identity", filepath.Join(vector, "identity.txt")}} {
		out, err := read(place, by...)
		if want := fmt.Sprintf(
			"site_vector %d %d\n",
			len(vectorFiles)+1,
			size,
		); err != nil || !strings.HasPrefix(out, "bkp_vector ") || !strings.HasSuffix(out, want) {
			t.Errorf("%s lists %q, %v; want … %q", by[0], out, err, want)
		}
		to := filepath.Join(t.TempDir(), "to")
		if out, err := read(place, append(by, "bkp_vector", to)...); err != nil {
			t.Fatalf("%s: %v\n%s", by[0], err, out)
		}
		for name, text := range vectorFiles {
			got, err := os.ReadFile(filepath.Join(to, name))
			if err != nil || string(got) != text {
				t.Errorf("%s: %s: %d bytes, %v; want %d", by[0], name, len(got), err, len(text))
			}
		}
		if link, err := os.Readlink(filepath.Join(to, "storage/uploads/link")); err != nil || link != "cat.txt" {
			t.Errorf("the link leads to %q, %v", link, err)
		}
		var head struct{ ID, Site string }
		raw, err := os.ReadFile(filepath.Join(to, "manifest.json"))
		ok(t, err)
		ok(t, json.Unmarshal(raw, &head))
		if head.Site != "site_vector" {
			t.Errorf("the manifest says %+v", head)
		}
	}
	other := filepath.Join(t.TempDir(), "secrets.key")
	_, err := seal.Load(other)
	ok(t, err)
	if out, err := read(place, "--key", other); err == nil || !strings.Contains(out, "doesn't open") {
		t.Errorf("another key: %v, %q", err, out)
	}
	hurt := filepath.Join(t.TempDir(), "place")
	ok(t, os.CopyFS(hurt, os.DirFS(place)))
	ok(t, filepath.WalkDir(hurt, func(p string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() || e.Name() == repository.KeySlot {
			return err
		}
		b, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		b[len(b)/2] ^= 1
		return os.WriteFile(p, b, 0o600)
	}))
	if out, err := read(hurt, "--key", filepath.Join(vector, "secrets.key")); err == nil || !strings.Contains(out, "damaged") {
		t.Errorf("damaged objects: %v, %q", err, out)
	}
}
