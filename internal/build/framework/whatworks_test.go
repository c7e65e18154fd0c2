package framework

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

const (
	whatWorks  = "../../../docs/what-works.md"
	tableBegin = "<!-- table: go test ./internal/build/framework -run TestWhatWorks -update -->\n"
	tableEnd   = "<!-- end -->\n"
)

// The page "What works" lists each kind of project that Detect recognizes, with the plan of a repository in testdata.
func TestWhatWorks(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(whatWorks)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok1 := strings.Cut(string(page), tableBegin)
	_, tail, ok2 := strings.Cut(rest, tableEnd)
	if !ok1 || !ok2 {
		t.Fatalf("%s has no place for the table", whatWorks)
	}
	want := head + tableBegin + frameworksTable(t) + tableEnd + tail
	if want == string(page) {
		return
	}
	if !*update {
		t.Fatalf("%s is not what Detect does; go test -update writes it", whatWorks)
	}
	if err := os.WriteFile(whatWorks, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}

func frameworksTable(t *testing.T) string {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	plans, repositories := map[string]Plan{}, map[string]int{}
	for _, file := range files {
		ar, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if _, want := split(ar); want.Name == "WANT.json" {
			var p Plan
			if err := json.Unmarshal(want.Data, &p); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			// The simplest repository is the example: in the root, and without settings.
			if old, seen := plans[p.Framework]; !seen || len(p.Sources) < len(old.Sources) || old.Root != "" && p.Root == "" {
				plans[p.Framework] = p
			}
			repositories[p.Framework]++
		}
	}
	var b strings.Builder
	b.WriteString("| project | `framework` | built with, for example | then, for example | repositories in the tests |\n|---|---|---|---|---|\n")
	for _, preset := range Presets() {
		p, n := plans[preset.ID], repositories[preset.ID]
		built, then := "–", "–"
		if n > 0 {
			built, then = code(p.Build), "publishes `"+strings.TrimSuffix("/"+p.Output, "/")+"/`"
			switch {
			case p.Runtime == PHP:
				then = "runs PHP"
			case p.Start != nil:
				then = "starts " + code([]Command{p.Start.Command})
			}
		}
		fmt.Fprintf(&b, "| %s | `%s` | %s | %s | %d |\n", preset.Name, preset.ID, built, then, n)
	}
	return b.String()
}

// code formats commands for a table cell.
func code(list []Command) string {
	var out []string
	for _, c := range list {
		out = append(out, "`"+strings.ReplaceAll(c.String(), "|", "\\|")+"`")
	}
	if len(out) == 0 {
		return "–"
	}
	return strings.Join(out, ", ")
}
