package dumpfile_test

import (
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"slipway/internal/client/dumpfile"
)

const whole = "-- Database dump by Slipway\nINSERT INTO `t` VALUES (1);\n-- slipway:end\n"

// fetch writes text in pieces of n bytes and then returns err.
func fetch(text string, n int, err error) func(io.Writer) error {
	return func(w io.Writer) error {
		for text != "" {
			k := min(n, len(text))
			if _, err := io.WriteString(w, text[:k]); err != nil {
				return err
			}
			text = text[k:]
		}
		return err
	}
}

// A dump that breaks off at any byte, or lacks its last line, keeps the existing file.
func TestHalfDumpsAreNoFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	name := filepath.Join(dir, "shop.sql")
	if err := os.WriteFile(name, []byte("before"), 0o600); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	for at := range len(whole) {
		for ends, want := range map[error]error{nil: dumpfile.ErrIncomplete, broken: broken} {
			var d dumpfile.Dump
			if err := d.ToFile(name, fetch(whole[:at], 5, ends)); !errors.Is(err, want) {
				t.Fatalf("cut at %d: %v, want %v", at, err, want)
			}
		}
	}
	list, err := os.ReadDir(dir)
	if got, _ := os.ReadFile(name); string(got) != "before" || len(list) != 1 || err != nil {
		t.Errorf("%q, %v, %v", got, list, err)
	}
}

func TestWholeDumps(t *testing.T) {
	t.Parallel()
	for n := 1; n <= len(whole); n++ {
		var d dumpfile.Dump
		var b strings.Builder
		if err := d.To(&b, fetch(whole, n, nil)); err != nil || b.String() != whole || d.Bytes() != int64(len(whole)) {
			t.Errorf("in pieces of %d: %q, %d, %v", n, b.String(), d.Bytes(), err)
		}
	}
	name := filepath.Join(t.TempDir(), "shop.sql.gz")
	var d dumpfile.Dump
	if err := d.ToFile(name, fetch(whole, 7, nil)); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(z); string(got) != whole || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if info, err := f.Stat(); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}
