package upgrade

import (
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"aead.dev/minisign"
)

// publish adds a release to the releases' directory.
func (w *world) publish(dir, version string, b behaviour) {
	w.t.Helper()
	if err := os.Rename(filepath.Dir(w.release(version, b).Archive), filepath.Join(dir, version)); err != nil {
		w.t.Fatal(err)
	}
}

// An automatic upgrade installs the newest patch release that the server lists. It never installs a newer minor version,
// or a release that failed or was undone before.
func TestAuto(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	dir := t.TempDir()
	server := httptest.NewTLSServer(http.FileServer(http.Dir(dir)))
	t.Cleanup(server.Close)
	list := func(versions string) {
		for name, text := range map[string][]byte{"versions": []byte(versions), "versions.minisig": minisign.Sign(w.keys, []byte(versions))} {
			if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	expect := func(says string, err error, wantErr bool) {
		t.Helper()
		if (err != nil) != wantErr {
			t.Errorf("got %v", err)
		}
		got, at, err := LastAuto(w.Store)
		if err != nil || time.Since(at) > time.Hour || !strings.Contains(got, says) {
			t.Errorf("it says %q of %s, %v; want %q", got, at, err, says)
		}
	}
	trust := Source{Keys: []string{w.public}}
	auto := func() error { return w.Auto(t.Context(), server.URL+"/", trust) }

	if _, _, err := LastAuto(w.Store); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("before any: %v", err)
	}
	expect("404", auto(), true)
	list("0.9.9\n1.0.0\n1.0.1-rc1\n1.1.0\n2.0.0\nnonsense\n1.0\n\n")
	expect(NothingNewer, auto(), false)
	w.serves("1.0.0")

	w.publish(dir, "1.0.1", behaviour{About: about("")})
	w.publish(dir, "1.0.10", behaviour{About: about("")})
	list("1.0.10\n1.0.1\n1.0.2\n1.1.0\n")
	expect(UpgradedTo+"1.0.10", auto(), false)
	w.serves("1.0.10")
	if x := w.ended(Upgraded); x.From.Version != "1.0.0" {
		t.Errorf("it went from %s", x.From.Version)
	}
	expect(NothingNewer, auto(), false)

	// A release that was undone isn't installed again.
	if err := w.Undo(t.Context()); err != nil {
		t.Fatal(err)
	}
	list("1.0.10\n")
	expect(NothingNewer, auto(), false)
	w.serves("1.0.0")

	// A release that fails is tried once.
	w.publish(dir, "1.0.11", behaviour{about(""), "dies"})
	list("1.0.10\n1.0.11\n")
	w.Watch = 2 * time.Minute
	expect("1.0.0 serves again", auto(), true)
	w.Watch = time.Second
	w.serves("1.0.0")
	list("1.0.11\n")
	expect(NothingNewer, auto(), false)

	// An unsigned list of versions is refused.
	if err := os.WriteFile(filepath.Join(dir, "versions"), []byte("1.0.10\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	expect("versions is not signed", auto(), true)
	list("1.0.12\n")
	if err := os.Rename(filepath.Join(dir, "1.0.1"), filepath.Join(dir, "1.0.12")); err != nil {
		t.Fatal(err)
	}
	expect("doesn't list slipway_1.0.12_", auto(), true)
	stranger := strangersKey(t)
	if err := w.Auto(t.Context(), server.URL, Source{Keys: []string{stranger}}); err == nil || !strings.Contains(err.Error(), "not signed by a key that you trust") {
		t.Errorf("another's key: %v", err)
	}
	expect("--release-key", w.Auto(t.Context(), server.URL, Source{}), true)
	if err := w.Run(t.Context(), func() Source { s := w.release("1.0.12", behaviour{About: about("")}); s.Version = "1.0.13"; return s }()); err == nil ||
		!strings.Contains(err.Error(), "has the program of 1.0.12") {
		t.Errorf("another program than its name says: %v", err)
	}
	w.serves("1.0.0")
	w.program(w.Program+".built", behaviour{About: about("dev")})
	if err := os.Rename(w.Program+".built", w.Program); err != nil {
		t.Fatal(err)
	}
	expect("is not a release", auto(), true)
}

// strangersKey returns a key that signed none of these releases.
func strangersKey(t *testing.T) string {
	t.Helper()
	public, _, err := minisign.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := public.MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
