package main

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A package counts if its tests import exactly this package, and not one whose name only begins with it.
func TestImporting(t *testing.T) {
	t.Parallel()
	list := `slipway/internal/platform/blob [] [testing slipway/internal/platform/blob/blobtest]
slipway/internal/tenant/site [testing slipway/internal/platform/dbtest] []
slipway/internal/platform/job [] [slipway/internal/platform/dbtest testing]
slipway/internal/other [slipway/internal/platform/dbtests] [x/slipway/internal/platform/dbtest]
slipway/internal/platform/dbtest [] []
`
	if got, want := importing(
		list,
		"slipway/internal/platform/dbtest",
	), []string{"slipway/internal/tenant/site", "slipway/internal/platform/job"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// A package must be tested on both databases if it has SQL statements, including those that begin with WITH or stand in
// one line, or if its tests have several nodes. Other packages must be tested on one, whatever SQL their tests have.
func TestNeedsBoth(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		files map[string]string
		want  bool
	}{
		"none":        {map[string]string{"a.go": "package a // SELECTED, UPDATE", "a_test.go": "`SELECT 1 `"}, false},
		"one line":    {map[string]string{"a.go": "package a", "b.go": "var q = `DELETE FROM x`"}, true},
		"a block":     {map[string]string{"a.go": "q = `\n\tSELECT\n\ta FROM x`"}, true},
		"an update":   {map[string]string{"a.go": "q = `UPDATE sites SET a = 1`"}, true},
		"a with":      {map[string]string{"a.go": "q = `WITH old AS (`"}, true},
		"an insert":   {map[string]string{"a.go": "q = `INSERT INTO sites`"}, true},
		"nodes":       {map[string]string{"a.go": "package a", "a_test.go": "dbtest.Open(t, url)"}, true},
		"one node":    {map[string]string{"a.go": "package a", "a_test.go": "dbtest.New(t)"}, false},
		"text beside": {map[string]string{"a.txt": "SELECT 1 "}, false},
	} {
		dir := t.TempDir()
		for file, text := range tt.files {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got := needsBoth(dir); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// Services must be tested on both databases. For packages that only call services, only tests of several nodes must be.
func TestOnBoth(t *testing.T) {
	t.Chdir("../..")
	has := func(list []string, path string) bool {
		return slices.ContainsFunc(list, func(dir string) bool { return strings.HasSuffix(dir, filepath.FromSlash(path)) })
	}
	on, nodes := onBoth(), onNodes()
	for path, want := range map[string][2]bool{
		"internal/tenant/site": {true, false}, "internal/platform/db": {true, false}, "internal/web/api": {true, true}, "internal/web/docs": {},
	} {
		if got := [2]bool{has(on, path), has(nodes, path)}; got != want {
			t.Errorf("%s on both, for nodes alone: %v", path, got)
		}
	}
}

// Lines must be printed whole, however they are written, and packages without tests must print nothing.
func TestIndented(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	w := &indented{to: &out}
	for _, part := range strings.SplitAfter("ok a\n?   b [no test files]\nok c\nnot ended", "") {
		if n, err := w.Write([]byte(part)); n != 1 || err != nil {
			t.Fatal(n, err)
		}
	}
	if out.String() != "  ok a\n  ok c\n" {
		t.Errorf("got %q", out.String())
	}
}

// The output of failed tests must be kept, and none of passed tests.
func TestKeepsWhatFailed(t *testing.T) {
	t.Parallel()
	w := &indented{to: io.Discard}
	io.WriteString(
		w,
		"ok  \ta\t0.1s\nlog of b\n--- FAIL: TestB (0.00s)\n    b_test.go:7: wrong\n--- PASS: TestC (0.00s)\n    fine\nFAIL\nFAIL\tb\t0.2s\nok  \tc\t0.1s\n",
	)
	if got, want := strings.Join(w.failed, ""), "--- FAIL: TestB (0.00s)\n    b_test.go:7: wrong\nFAIL\tb\t0.2s\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for range 2 * linesOfFailing {
		io.WriteString(w, "--- FAIL: TestD\n")
	}
	if len(w.failed) != linesOfFailing {
		t.Errorf("%d lines", len(w.failed))
	}
}

func TestExitCode(t *testing.T) {
	t.Parallel()
	if got := exitCode(exec.Command("git", "no-such-command").Run()); got != 1 {
		t.Errorf("git without a command: %d", got)
	}
	if got := exitCode(errors.New("not found")); got != -1 {
		t.Errorf("no exit: %d", got)
	}
	if got := short(append([]string{"go"}, strings.Repeat("x", 200))); len([]rune(got)) != 88 || !strings.HasSuffix(got, "…") {
		t.Errorf("short: %q", got)
	}
}

// A step that runs in the background must run with a lower priority than the others, and must print all its output if
// it failed.
func TestBeside(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	s := step{argv: []string{"sh", "-c", "nice; echo broken >&2; exit 3"}, beside: "5"}
	if e := s.run(&out); exitCode(e.err) != 3 || e.without != "" || !strings.HasSuffix(
		out.String(),
		"  broken\n",
	) || strings.HasPrefix(out.String(), "  0\n") {
		t.Errorf("failed: %v, %q", e.err, out.String())
	}
	out.Reset()
	if e := (step{argv: []string{"echo", "fine"}, beside: "5"}).run(&out); e.err != nil || out.Len() > 0 {
		t.Errorf("well: %v, %q", e.err, out.String())
	}
	if e := (step{argv: []string{"sh", "-c", "exit 77"}, without: []string{"true"}}).run(&out); e.err != nil || e.without == "" {
		t.Errorf("without what it needs: %+v", e)
	}
}

// A silent step must fail if its status is not 0 or if it prints a finding. What the go command prints about downloads
// is not a finding.
func TestSilent(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]string{
		"echo 'go: downloading mvdan.cc/gofumpt v0.12.0' >&2": "",
		"echo loading >&2; echo main.go":                      "  loading\n  main.go\n",
		"echo broken >&2; exit 2":                             "  broken\n",
	} {
		var out bytes.Buffer
		if e := (step{argv: []string{"sh", "-c", script}, silent: true}).run(&out); (e.err == nil) != (want == "") || out.String() != want {
			t.Errorf("%s: %v, %q", script, e.err, out.String())
		}
	}
}

// A step whose requirements are missing must not be run. That is not a failure, and the reason must be given.
func TestNeeds(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	s := step{argv: []string{"sh", "-c", "echo runs; exit 3"}, needs: func() error { return errors.New("no compiler") }}
	if e := s.run(&out); e.err != nil || e.without != "no compiler" || out.Len() > 0 {
		t.Errorf("%+v, %q", e, out.String())
	}
	s.needs = func() error { return nil }
	if e := s.run(&out); exitCode(e.err) != 3 || e.without != "" {
		t.Errorf("a finding of the step: %+v", e)
	}
}

// The database of vulnerabilities counts as available if it answers the request.
func TestAnswers(t *testing.T) {
	t.Setenv("no_proxy", "127.0.0.1")
	db := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/index/db.json" {
			w.WriteHeader(http.StatusForbidden)
		}
	}))
	if err := answers(db.URL + "/index/db.json"); err != nil {
		t.Error(err)
	}
	if err := answers(db.URL + "/other"); err == nil || !strings.Contains(err.Error(), "403") {
		t.Errorf("a refusal: %v", err)
	}
	db.Close()
	if err := answers(db.URL + "/index/db.json"); err == nil {
		t.Error("answers reports an unreachable database as available")
	}
}

// The race detector needs a C compiler.
func TestCompiler(t *testing.T) {
	t.Setenv("CC", "sh -x")
	if err := compiler(); err != nil {
		t.Errorf("a compiler with arguments: %v", err)
	}
	t.Setenv("CC", "no-such-compiler")
	if err := compiler(); err == nil || !strings.Contains(err.Error(), "no-such-compiler") {
		t.Errorf("without one: %v", err)
	}
}

// The tools that steps run must be built before them, in a separate step, so that no other step downloads one. What
// tests and staticcheck need must be compiled once, by the earlier step go vet.
func TestToolsComeFirst(t *testing.T) {
	t.Chdir("../..")
	all := steps("/root", true)
	at := func(name string) int { return slices.IndexFunc(all, func(s step) bool { return s.name == name }) }
	if vet := at("go vet"); all[vet].beside != "" || vet > at("staticcheck") || vet > at("tests") {
		t.Error("a step runs beside go vet, or staticcheck or the tests run before it")
	}
	for i, s := range all {
		text := strings.Join(append(s.argv, s.without...), " ")
		if strings.Contains(text, "/root/bin/") && i < at("tools") {
			t.Errorf("%s runs before its tools are built", s.name)
		}
		if s.name != "tools" && strings.Contains(text, "-modfile=tools") {
			t.Errorf("%s builds a tool", s.name)
		}
		for _, m := range regexp.MustCompile(`/root/bin/(\w+)`).FindAllStringSubmatch(text, -1) {
			if !regexp.MustCompile(`/` + m[1] + `\b`).MatchString(strings.Join(tools(true).argv, " ")) {
				t.Errorf("%s runs %s, which the tools lack", s.name, m[1])
			}
		}
	}
}

// Every package must be tested once, and those that take long must begin first.
func TestLongestFirst(t *testing.T) {
	t.Parallel()
	got := longestFirst([]string{
		"slipway", "slipway/e2e", "slipway/e2e/builds", "slipway/e2e/world", "slipway/internal/e2e", "slipway/internal/web/dashboard/sites",
	})
	if want := []string{
		"slipway/e2e/builds", "slipway/e2e", "slipway/e2e/world", "slipway/internal/web/dashboard/sites", "slipway", "slipway/internal/e2e",
	}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, path := range slices.Concat(longest, slow) {
		if _, err := os.Stat(filepath.Join("../..", strings.TrimPrefix(path, "slipway/"))); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
}
