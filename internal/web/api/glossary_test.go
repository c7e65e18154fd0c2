package api_test

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"slipway/internal/tenant/webhook/event"
	"slipway/internal/web/api"
)

var glossaryRow = regexp.MustCompile(`(?m)^\| ([^|]+) \| ([^|]+) \|$`)

// glossary returns the terms of docs/glossary.md in lower case, with each name of a term as a separate entry.
func glossary(t *testing.T) map[string]bool {
	t.Helper()
	text, err := os.ReadFile("../../../docs/glossary.md")
	if err != nil {
		t.Fatal(err)
	}
	terms := map[string]bool{}
	table, _, _ := strings.Cut(strings.ReplaceAll(string(text), " <!-- billing -->", ""), "\n## Words to avoid\n")
	for _, row := range glossaryRow.FindAllStringSubmatch(table, -1) {
		if row[1] == "Term" {
			continue
		}
		for name := range strings.SplitSeq(row[1], ", ") {
			name, _, _ = strings.Cut(strings.ToLower(name), " (")
			if terms[name] {
				t.Errorf("%q is in the glossary twice", name)
			}
			terms[name] = true
		}
		if !strings.HasSuffix(row[2], ".") && !strings.HasPrefix(row[2], "-") {
			t.Errorf("%q ends without a full stop", row[2])
		}
	}
	return terms
}

// Every noun of the API has an entry in docs/glossary.md: headings of the reference, nouns in error messages, and the
// subjects of scopes and events.
func TestGlossaryHasTheNouns(t *testing.T) {
	t.Parallel()
	terms := glossary(t)
	nouns := map[string]string{}
	note := func(noun, from string) { nouns[strings.ToLower(noun)] = from }
	w := newWorld(t)
	for _, r := range api.New(w.c).Routes() {
		note(r.Tag, "tag of "+r.ID)
		note(r.Noun, "noun of "+r.ID)
		resource, _, _ := strings.Cut(string(r.Scope), ":")
		note(resource, "scope of "+r.ID)
	}
	for _, e := range event.Catalogue(true) {
		group, _, _ := strings.Cut(e.Name, ".")
		note(group, "event "+e.Name)
	}
	var doc struct {
		Tags []struct{ Name string }
	}
	if err := json.Unmarshal([]byte(w.api("GET", "/openapi.json", "", nil).body), &doc); err != nil {
		t.Fatal(err)
	}
	for _, tag := range doc.Tags {
		note(tag.Name, "tag of the document")
	}
	// Headings that aren't nouns, events that only billing sends, and short forms with their full terms.
	known := map[string]string{
		"":             "",
		"*":            "",
		"git":          "",
		"reference":    "",
		"subscription": "",
		"payment":      "",
		"wordpress":    "wordpress site",
		"env":          "environment variable",
		"key":          "api key",
		"keys":         "api key",
		"variable":     "environment variable",
		"ssl":          "certificate",
		"audit":        "audit log",
	}
	for noun, from := range nouns {
		singular := strings.TrimSuffix(noun, "s")
		full, short := known[noun]
		if short && (full == "" || terms[full]) || terms[noun] || terms[singular] {
			continue
		}
		t.Errorf("%q (%s) is not in docs/glossary.md", noun, from)
	}
	if len(nouns) < 25 {
		t.Errorf("only %d nouns were found: %v", len(nouns), slices.Collect(func(yield func(string) bool) {
			for n := range nouns {
				if !yield(n) {
					return
				}
			}
		}))
	}
}
