package slipway

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// The product must use the terms of docs/glossary.md, and none of the words that the glossary says to avoid.
func TestGlossary(t *testing.T) {
	t.Parallel()
	terms, rivals := readGlossary(t)
	if len(terms) < 100 || len(rivals) < 10 {
		t.Fatalf("the glossary has only %d terms and %d rivals", len(terms), len(rivals))
	}
	avoid := regexp.MustCompile(`(?i)\b(` + strings.Join(rivals, "|") + `)s?\b`)
	var all strings.Builder
	for path, text := range shownTexts(t) {
		for _, word := range avoid.FindAllString(text, -1) {
			t.Errorf("%s: %q: docs/glossary.md has a better word", path, word)
		}
		all.WriteString(strings.ToLower(text) + "\n")
	}
	for _, term := range terms {
		if !strings.Contains(all.String(), strings.ToLower(term)) {
			t.Errorf("%q is in docs/glossary.md but not in the product", term)
		}
	}
}

// readGlossary returns the terms of the glossary's tables, and the words that its last table says to avoid.
func readGlossary(t *testing.T) (terms, rivals []string) {
	text, err := os.ReadFile("docs/glossary.md")
	if err != nil {
		t.Fatal(err)
	}
	glossary, avoid, _ := strings.Cut(string(text), "\n## Words to avoid\n")
	for _, m := range tableRow.FindAllStringSubmatch(glossary, -1) {
		if m[1] != "Term" {
			terms = append(terms, splitTerms(m[1])...)
		}
	}
	for _, m := range tableRow.FindAllStringSubmatch(avoid, -1) {
		if m[1] != "Use" {
			rivals = append(rivals, splitTerms(m[2])...)
		}
	}
	return terms, rivals
}

var (
	tableRow = regexp.MustCompile(`(?m)^\| ([^|-][^|]*) \| ([^|]*) \|$`)
	// These match what people do not read: code in documents, and attributes, comments and names in templates.
	codeSpan = regexp.MustCompile("(?s)```.*?```|`[^`]*`|<!--.*?-->")
	markup   = regexp.MustCompile(`(?s)\{\{/\*.*?\*/\}\}|(data-[a-z-]+|class|id)="[^"]*"|\$?\.[A-Z][\w.]*`)
)

// splitTerms splits "certificate authority (CA), issuer" into its three terms.
func splitTerms(cell string) []string {
	return strings.Split(strings.NewReplacer(" (", ", ", ")", "").Replace(cell), ", ")
}

// shownTexts returns what people read of each file: documents, templates, and those strings of Go files that are
// sentences.
func shownTexts(t *testing.T) map[string]string {
	texts := map[string]string{}
	for _, root := range []string{"README.md", "docs", "internal", "cmd"} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				if path == "docs/adr" || d != nil && d.Name() == "testdata" {
					return filepath.SkipDir
				}
				return err
			}
			switch ext := filepath.Ext(path); {
			case path == "docs/glossary.md" || strings.HasSuffix(path, "_test.go"):
			case ext == ".go":
				texts[path] = sentences(t, path)
			case ext == ".md" || ext == ".html":
				text, err := os.ReadFile(path)
				if err != nil {
					return err
				}
				hidden := codeSpan
				if ext == ".html" {
					hidden = markup
				}
				texts[path] = strings.Join(strings.Fields(hidden.ReplaceAllString(string(text), " ")), " ")
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return texts
}

// sentences returns the strings of a Go file that contain a space, one per line.
func sentences(t *testing.T, path string) string {
	f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	ast.Inspect(f, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			if text, err := strconv.Unquote(lit.Value); err == nil && strings.Contains(text, " ") {
				out.WriteString(text + "\n")
			}
		}
		return true
	})
	return out.String()
}
