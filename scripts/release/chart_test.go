package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The chart of a version must name that version in both of its fields, must contain every file of its folder and the
// licenses, and must have the same bytes each time.
func TestChart(t *testing.T) {
	t.Chdir("../..")
	read := func() []byte {
		r := release{out: t.TempDir()}
		if err := r.chartAlone("1.2.3+20260102.gabc"); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(r.out, "slipway-1.2.3+20260102.gabc.tgz"))
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	one := read()
	if !bytes.Equal(one, read()) {
		t.Error("two charts of one version differ")
	}
	z, err := gzip.NewReader(bytes.NewReader(one))
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]string{}
	for in := tar.NewReader(z); ; {
		h, err := in.Next()
		if err == io.EOF {
			break
		}
		text, readErr := io.ReadAll(in)
		if err != nil || readErr != nil {
			t.Fatal(err, readErr)
		}
		if h.Mode != 0o644 || h.Uid != 0 {
			t.Errorf("%s has the mode %o and the owner %d", h.Name, h.Mode, h.Uid)
		}
		have[h.Name] = string(text)
	}
	about := have["slipway/Chart.yaml"]
	if !strings.Contains(about, "\nversion: 1.2.3+20260102.gabc\n") || !strings.Contains(about, "\nappVersion: 1.2.3+20260102.gabc ") {
		t.Errorf("Chart.yaml:\n%s", about)
	}
	tracked, err := git("ls-files", chartFolder)
	if err != nil {
		t.Fatal(err)
	}
	for file := range strings.Lines(tracked + "\n") {
		name := "slipway/" + strings.TrimPrefix(strings.TrimSpace(file), chartFolder+"/")
		if _, ok := have[name]; !ok {
			t.Errorf("the chart lacks %s", name)
		}
		delete(have, name)
	}
	if have["slipway/LICENSE"] == "" || have["slipway/NOTICE"] == "" || len(have) != 2 {
		t.Errorf("beside its folder the chart has %v", have)
	}
}
