//go:build linux

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"slipway/internal/operator/flags"
)

// docs/configuration.md lists every flag of slipway serve, and none that does not exist.
func TestOperatingNamesEverySetting(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	parser, err := kong.New(&commands{}, kong.Configuration(flags.TOML))
	if err != nil {
		t.Fatal(err)
	}
	exists := map[string]bool{}
	for _, command := range parser.Model.Leaves(false) {
		for _, group := range command.AllFlags(false) {
			for _, flag := range group {
				names := []string{flag.Name}
				if flag.Tag.Negatable != "" { // the environment and the file know the name without no-
					names = append(names, "no-"+flag.Name)
				}
				for _, name := range names {
					exists[name] = true
					if command.Name == "serve" && command.Parent.Type == kong.ApplicationNode && name != "help" && !strings.Contains(string(text), "`--"+name+"`") {
						t.Errorf("docs/configuration.md doesn't name --%s", name)
					}
				}
			}
		}
	}
	if len(exists) < 50 {
		t.Fatalf("only %d flags found", len(exists))
	}
	for _, row := range regexp.MustCompile("(?m)^\\| (`--.*?) \\|").FindAllStringSubmatch(string(text), -1) {
		for _, flag := range regexp.MustCompile("`--([a-z0-9-]+)`").FindAllStringSubmatch(row[1], -1) {
			if !exists[flag[1]] {
				t.Errorf("docs/configuration.md describes --%s, which does not exist", flag[1])
			}
		}
	}
}

// The calls that the documents show can be pasted: curl sends a body as a form where nobody says
// that it is JSON, and a form is refused.
func TestDocumentedCallsSendJSON(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(pages) < 10 {
		t.Fatal(pages, err)
	}
	form := regexp.MustCompile(`\s(-d|--data|--data-raw)\s+['"]`)
	for _, page := range append(pages, "../../README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(text), "\n") {
			if form.MatchString(line) {
				t.Errorf("%s:%d: the body is sent as a form: %s", page, i+1, line)
			}
		}
	}
}
