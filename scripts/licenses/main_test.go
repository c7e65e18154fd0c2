package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"slipway/packaging"
)

// The license of every part of the program that is built here must be in the list that the program ships. `make
// test-all` checks the other programs and systems too.
func TestListIsComplete(t *testing.T) {
	t.Chdir("../..")
	here := slipway
	here.systems = []string{"linux/amd64"}
	parts, err := collect([]program{here})
	if err != nil || len(parts) < 80 {
		t.Fatalf("%d parts, %v", len(parts), err)
	}
	text, err := render(parts)
	if err != nil {
		t.Error(err)
	}
	want, _, _ := strings.Cut(text, "\n\n")
	list, _, _ := strings.Cut(packaging.Licenses(), "\n\n")
	for line := range strings.Lines(want) {
		if !strings.Contains(list+"\n", strings.TrimRight(line, "\n")+"\n") {
			t.Errorf("packaging/licenses.gz lacks %q: go run ./scripts/licenses -update", strings.TrimSpace(line))
		}
	}
}

// A license must be recognized word for word: with any addition it is another text, and a license that is not in the
// list must be refused.
func TestIdentify(t *testing.T) {
	t.Parallel()
	mit, err := os.ReadFile("texts/MIT.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, text, want string }{
		{"plain", string(mit), "MIT"},
		{"with a heading", "The MIT License (MIT)\n\nCopyright (c) 2026 Ada Lovelace\n\n" + string(mit), "MIT"},
		{"with a condition", string(mit) + "\nThe Software shall be used for Good, not Evil.\n", ""},
		{"with a condition first", "Commons Clause: you may not sell it.\n" + string(mit), ""},
		{"with a condition in between", strings.Replace(string(mit), "to deal", "except competitors, to deal", 1), ""},
		{"another", "GNU GENERAL PUBLIC LICENSE Version 3", ""},
		{"none", "", ""},
	} {
		got, err := identify("LICENSE", tt.text)
		if got != tt.want || (err == nil) != (tt.want != "") {
			t.Errorf("%s: got %q, %v, want %q", tt.name, got, err, tt.want)
		}
	}
}

// A part without a license must give an error.
func TestNoLicense(t *testing.T) {
	t.Parallel()
	notice := filepath.Join(t.TempDir(), "NOTICE")
	if err := os.WriteFile(notice, []byte("Made by Ada."), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, files := range [][]string{nil, {notice}} {
		if _, err := render([]part{{"x", files}}); err == nil || !strings.Contains(err.Error(), "no license") {
			t.Errorf("with %v: %v", files, err)
		}
	}
}
