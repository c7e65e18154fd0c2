package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// docs/operating.md lists every flag of slipway serve, and none that does not exist.
func TestOperatingNamesEverySetting(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	parser, err := kong.New(&commands{}, kong.Configuration(tomlFile))
	if err != nil {
		t.Fatal(err)
	}
	exists := map[string]bool{}
	for _, command := range parser.Model.Leaves(false) {
		for _, group := range command.AllFlags(false) {
			for _, flag := range group {
				name := flag.Name
				if flag.Tag.Negatable != "" { // on by default: what one says is its opposite
					name = "no-" + name
				}
				exists[name] = true
				if command.Name == "serve" && name != "help" && !strings.Contains(string(text), "`--"+name+"`") {
					t.Errorf("docs/operating.md doesn't name --%s", name)
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
				t.Errorf("docs/operating.md describes --%s, which does not exist", flag[1])
			}
		}
	}
}
