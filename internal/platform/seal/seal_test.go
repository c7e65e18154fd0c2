package seal

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func load(t *testing.T, path string) *Sealer {
	t.Helper()
	s, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSealOpensForItsPurposeOnly(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "sub", "secrets.key")
	s := load(t, path)
	box := s.Seal([]byte("hunter2"), "env/site_1/TOKEN")
	if strings.Contains(box, "hunter2") || box == s.Seal([]byte("hunter2"), "env/site_1/TOKEN") {
		t.Fatalf("%q shows the secret, or sealing twice gives the same", box)
	}
	again := load(t, path) // as after a restart
	if got, err := again.Open(box, "env/site_1/TOKEN"); err != nil || string(got) != "hunter2" {
		t.Fatalf("got %q, %v", got, err)
	}
	for name, in := range map[string]struct{ box, purpose string }{
		"another purpose": {box, "env/site_2/TOKEN"},
		"changed":         {box[:len(box)-2] + "AA", "env/site_1/TOKEN"},
		"empty":           {"", "env/site_1/TOKEN"},
		"unknown key":     {"v1.00000000.AAAA", "env/site_1/TOKEN"},
		"no base64":       {box[:12] + "!!!", "env/site_1/TOKEN"},
	} {
		if _, err := again.Open(in.box, in.purpose); !errors.Is(err, ErrOpen) {
			t.Errorf("%s: got %v, want ErrOpen", name, err)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("key file: %v %v, want 0600", info.Mode(), err)
	}
}

func TestOlderKeysStillOpen(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "secrets.key")
	old := load(t, path).Seal([]byte("x"), "p")
	text, _ := os.ReadFile(path)
	os.WriteFile(path, append(text, bytes.Repeat([]byte("ab"), 32)...), 0o600)
	s := load(t, path)
	if got, err := s.Open(old, "p"); err != nil || string(got) != "x" {
		t.Fatalf("got %q, %v", got, err)
	}
	if strings.Split(old, ".")[1] == strings.Split(s.Seal(nil, "p"), ".")[1] {
		t.Fatal("the newest key does not seal")
	}
}

func TestLoadRefusesWhatIsNoKey(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{"empty": "", "short": "abcd\n", "no hex": strings.Repeat("z", 64)} {
		path := filepath.Join(t.TempDir(), "k")
		os.WriteFile(path, []byte(text), 0o600)
		if _, err := Load(path); err == nil || strings.Contains(err.Error(), strings.Repeat("z", 8)) {
			t.Errorf("%s: got %v, want a refusal that does not show the key", name, err)
		}
	}
}

// Concurrent first starts in an empty folder share one key.
func TestTwoAtOnceShareOneKey(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "k")
	var wg sync.WaitGroup
	boxes := make([]string, 8)
	for i := range boxes {
		wg.Go(func() {
			if s, err := Load(path); err == nil {
				boxes[i] = s.Seal([]byte("x"), "p")
			}
		})
	}
	wg.Wait()
	s := load(t, path)
	for _, b := range boxes {
		if _, err := s.Open(b, "p"); err != nil {
			t.Fatal(err)
		}
	}
}
