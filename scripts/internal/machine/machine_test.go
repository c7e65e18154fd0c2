package machine

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A program must be found at its usual place and anywhere in PATH.
func TestMissing(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "sluice"), []byte("#!/bin/true\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "plain"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
	programs["in-path"], programs["elsewhere"] = "/nowhere/bin/sluice", filepath.Join(dir, "s*e")
	programs["not-executable"], programs["absent"] = "/nowhere/bin/plain", "/nowhere/*/bin/absent"
	all := []string{"absent", "in-path", "not-executable", "elsewhere"}
	if got, want := Missing(all...), []string{"absent", "not-executable"}; !slices.Equal(got, want) {
		t.Errorf("missing are %v, want %v", got, want)
	}
	if all[1] != "in-path" {
		t.Errorf("the list asked for became %v", all)
	}
	if err := Install("in-path", "elsewhere"); err != nil {
		t.Errorf("nothing is missing: %v", err)
	}
	err := Install("in-path", "absent")
	if err == nil || !strings.Contains(err.Error(), "absent") || strings.Contains(err.Error(), "in-path") ||
		strings.Contains(err.Error(), "\n") {
		t.Errorf("without apt: %v", err)
	}
}

// The command must ask for a password only if somebody can type one, and must otherwise say what to do.
func TestMeans(t *testing.T) {
	t.Parallel()
	yes, no := func() bool { return true }, func() bool { return false }
	for name, tt := range map[string]struct {
		m    means
		want string // the command that runs apt-get, or part of the error
	}{
		"another system":    {means{root: true, asked: true, silent: yes}, "a and b with your system's package manager"},
		"root":              {means{apt: true, root: true, asked: true, silent: yes}, ""},
		"at a terminal":     {means{apt: true, asked: true, silent: no}, "sudo"},
		"without password":  {means{apt: true, silent: yes}, "sudo -n"},
		"nobody to ask":     {means{apt: true, silent: no}, "as root: apt-get install a b"},
		"root, no terminal": {means{apt: true, root: true, silent: no}, ""},
	} {
		prefix, err := tt.m.prefix([]string{"a", "b"})
		if err == nil && strings.Join(prefix, " ") != tt.want || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, %v; want %q", name, prefix, err, tt.want)
		}
	}
}

func TestColorsOnlyOnTerminals(t *testing.T) {
	t.Parallel()
	file, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	for _, f := range []*os.File{file, null} {
		if Terminal(f) || Colors(f)("1", "text") != "text" {
			t.Errorf("%s is taken for a terminal", f.Name())
		}
	}
}

// Every Debian package that the Makefile and the checks install must be in the table, because otherwise the command
// cannot check whether it is installed.
func TestInstalledIsKnown(t *testing.T) {
	t.Parallel()
	quoted := regexp.MustCompile(`"([^"]*)"`)
	lists := regexp.MustCompile(`scripts/need ([a-z0-9 -]+)|(?s:var needed = \[\]\[\]string\{(.*?)\n\})`)
	found := 0
	for _, file := range []string{"../../../Makefile", "../../check/main.go"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range lists.FindAllStringSubmatch(string(text), -1) {
			names := strings.Fields(m[1])
			for _, name := range quoted.FindAllStringSubmatch(m[2], -1) {
				names = append(names, name[1])
			}
			for _, name := range names {
				found++
				if programs[name] == "" {
					t.Errorf("%s installs %s, and nobody knows where it is then", file, name)
				}
			}
		}
	}
	if found < 15 {
		t.Errorf("only %d packages were found", found)
	}
}
