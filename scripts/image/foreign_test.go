package main

import (
	"archive/tar"
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// entry is a file in a tar archive of these tests. One with a target is a link.
type entry struct {
	name, text, target string
	kind               byte
	mode               int64
}

func tarOf(t *testing.T, file string, list []entry) {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range list {
		h := &tar.Header{Name: e.name, Mode: e.mode, Size: int64(len(e.text)), Linkname: e.target, Typeflag: e.kind}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(e.text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
}

// A layer for another architecture must have that architecture's programs with the modes that scripts gave to this
// one's, and everything that scripts made, but no program of this architecture.
func TestMerge(t *testing.T) {
	const here, there = "x86_64-linux-gnu", "aarch64-linux-gnu"
	dir := t.TempDir()
	configured, unpacked := filepath.Join(dir, "configured"), filepath.Join(dir, "unpacked")
	tarOf(t, configured, []entry{
		{name: "./", kind: tar.TypeDir, mode: 0o755},
		{name: "./bin", kind: tar.TypeSymlink, target: "usr/bin"},
		{name: "./etc/", kind: tar.TypeDir, mode: 0o755},
		{name: "./etc/passwd", text: "root, and slipway", mode: 0o644},
		{name: "./etc/ld.so.cache", text: "of here", mode: 0o644},
		{name: "./etc/alternatives/blas", kind: tar.TypeSymlink, target: "/usr/lib/" + here + "/blas.so"},
		{name: "./usr/bin/", kind: tar.TypeDir, mode: 0o755},
		{name: "./usr/bin/mount", text: "\x7fELF here", mode: 0o4755},
		{name: "./usr/bin/perl", text: "\x7fELF perl here", mode: 0o755},
		{name: "./usr/bin/perl5", kind: tar.TypeLink, target: "./usr/bin/perl", mode: 0o755},
		{name: "./usr/bin/php", kind: tar.TypeSymlink, target: "/etc/alternatives/php"},
		{name: "./usr/bin/script", text: "#!/bin/sh", mode: 0o755},
		{name: "./usr/lib/" + here + "/cache", text: "made here", mode: 0o644},
		{name: "./usr/lib/only-here", text: "\x7fELF only here", mode: 0o755},
		{name: "./var/lib/dpkg/status", text: "amd64", mode: 0o644},
	})
	tarOf(t, unpacked, []entry{
		{name: "./", kind: tar.TypeDir, mode: 0o755},
		{name: "./bin/", kind: tar.TypeDir, mode: 0o755},
		{name: "./bin/mount", text: "\x7fELF there", mode: 0o755},
		{name: "./etc/", kind: tar.TypeDir, mode: 0o755},
		{name: "./etc/hostname", text: "this machine", mode: 0o644},
		{name: "./etc/passwd", text: "root", mode: 0o644},
		{name: "./lib/" + there + "/libc.so.6", text: "\x7fELF libc", mode: 0o755},
		{name: "./usr/bin/", kind: tar.TypeDir, mode: 0o755},
		{name: "./usr/bin/perl5", text: "\x7fELF perl there", mode: 0o755},
		{name: "./usr/bin/perl", kind: tar.TypeLink, target: "./usr/bin/perl5", mode: 0o755},
		{name: "./usr/bin/script", text: "#!/bin/sh", mode: 0o755},
		{name: "./usr/share/doc/perl/copyright", text: "license", mode: 0o644},
		{name: "./usr/share/doc/perl/README", text: "long", mode: 0o644},
		{name: "./usr/share/doc/perl-base", kind: tar.TypeSymlink, target: "perl", mode: 0o777},
		{name: "./var/lib/dpkg/status", text: "arm64", mode: 0o644},
	})
	var one, two bytes.Buffer
	for _, b := range []*bytes.Buffer{&one, &two} {
		if err := merge(b, configured, unpacked, here, there); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(one.Bytes(), two.Bytes()) {
		t.Error("two runs differ")
	}
	merged := filepath.Join(dir, "merged")
	if err := os.WriteFile(merged, one.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	if err := entries(merged, func(name string, h *tar.Header, r *tar.Reader) error {
		if _, twice := got[name]; twice {
			t.Errorf("%s is there twice", name)
		}
		var b strings.Builder
		_, err := b.WriteString(h.Linkname)
		if err == nil {
			_, err = bytes.NewBuffer(nil).ReadFrom(r)
		}
		if h.Mode&0o4000 != 0 {
			b.WriteString("setuid")
		}
		got[name] = b.String()
		return err
	}); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"": "", "bin": "usr/bin", "etc": "", "etc/passwd": "", "etc/alternatives/blas": "/usr/lib/" + there + "/blas.so", "usr/bin": "", "usr/bin/mount": "setuid",
		"usr/bin/perl5": "", "usr/bin/perl": "./usr/bin/perl5", "usr/bin/php": "/etc/alternatives/php", "usr/bin/script": "",
		"usr/lib/" + there + "/libc.so.6": "", "usr/share/doc/perl/copyright": "", "usr/share/doc/perl-base": "perl", "var/lib/dpkg/status": "",
	}
	if !maps.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
	text := one.String()
	for _, s := range []string{"\x7fELF there", "\x7fELF perl there", "root, and slipway", "arm64"} {
		if !strings.Contains(text, s) {
			t.Errorf("%q is missing", s)
		}
	}
	for _, s := range []string{"ELF here", "perl here", "only here", "made here", "of here", "amd64"} {
		if strings.Contains(text, s) {
			t.Errorf("%q is of this machine's", s)
		}
	}
}
