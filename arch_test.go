package slipway

import (
	"crypto/sha256"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// folder is one package of the product as its sources show it.
type folder struct {
	name    string // as the drawing writes it: "site", "blob/blobtest", "cmd/slipway"
	doc     string
	imports []string // of other packages of the product, without those of tests
	strings []string // every string in the code, as it is at run time
}

// product reads every package under internal and cmd.
func product(t *testing.T) map[string]folder {
	t.Helper()
	out := map[string]folder{}
	for _, root := range []string{"internal", "cmd"} {
		err := filepath.WalkDir(root, func(p string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() || !strings.HasSuffix(p, ".go") || strings.HasSuffix(p, "_test.go") || e.Name() == "deps.go" {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), p, nil, parser.ParseComments)
			if err != nil {
				return err
			}
			name := strings.TrimPrefix(filepath.ToSlash(filepath.Dir(p)), "internal/")
			f := out[name]
			f.name = name
			f.doc = strings.TrimSpace(f.doc + file.Doc.Text())
			for _, i := range file.Imports {
				to, _ := strconv.Unquote(i.Path.Value)
				if rest, ours := strings.CutPrefix(to, "slipway/"); ours {
					f.imports = append(f.imports, strings.TrimPrefix(rest, "internal/"))
				}
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
					if text, err := strconv.Unquote(lit.Value); err == nil {
						f.strings = append(f.strings, text)
					}
				}
				return true
			})
			out[name] = f
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// drawing reads the arrows from the fenced block of ARCHITECTURE.md that begins with cmd/slipway.
func drawing(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, ok := strings.Cut(string(text), "```\ncmd/slipway:")
	block, _, closed := strings.Cut(block, "```")
	if !ok || !closed {
		t.Fatal("ARCHITECTURE.md has no fenced block that begins with cmd/slipway:")
	}
	out := map[string][]string{}
	for line := range strings.Lines("cmd/slipway:" + block) {
		name, to, ok := strings.Cut(line, ":")
		if !ok {
			continue
		}
		to, _, _ = strings.Cut(to, "(") // remarks
		for one := range strings.SplitSeq(name, ",") {
			out[strings.TrimSpace(one)] = strings.Fields(to)
		}
	}
	return out
}

// Every import between two packages is an arrow of the drawing, and every arrow of the
// drawing is an import: what ARCHITECTURE.md shows is what is there.
func TestDrawing(t *testing.T) {
	t.Parallel()
	drawn := drawing(t)
	packages := product(t)
	for _, name := range slices.Sorted(maps.Keys(packages)) {
		want, ok := drawn[name]
		if !ok {
			t.Errorf("package %s is not in the drawing of ARCHITECTURE.md", name)
			continue
		}
		have := slices.Compact(slices.Sorted(slices.Values(packages[name].imports)))
		for _, to := range have {
			switch {
			case path.Base(to) == "dbtest" || path.Base(to) == "blobtest" || path.Base(to) == "s3test" || path.Base(to) == "mailtest" || path.Base(to) == "dnstest" || path.Base(to) == "acmetest":
				t.Errorf("%s imports %s, which is for tests alone", name, to)
			case !slices.Contains(want, to):
				t.Errorf("%s imports %s: this arrow is not drawn in ARCHITECTURE.md", name, to)
			}
		}
		for _, to := range want {
			if !slices.Contains(have, to) {
				t.Errorf("ARCHITECTURE.md draws an arrow from %s to %s that is not there", name, to)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(drawn)) {
		if _, ok := packages[name]; !ok {
			t.Errorf("ARCHITECTURE.md draws package %s, which does not exist", name)
		}
	}
}

var (
	created = regexp.MustCompile(`(?m)^CREATE TABLE (?:IF NOT EXISTS )?([a-z_]+)`)
	owner   = regexp.MustCompile(`Written by package ([a-z]+)(?: \(and ([a-z]+)\))?`)
	reader  = regexp.MustCompile(`Written by package [a-z]+, read by package ([a-z]+)`)
	renamed = regexp.MustCompile(`(?m)^ALTER TABLE ([a-z_]+) RENAME TO ([a-z_]+)`)
	view    = regexp.MustCompile(`(?m)^CREATE VIEW ([a-z_]+)`)
	read    = regexp.MustCompile(`\b(?:FROM|JOIN)\s+([a-z][a-z_]*)\b`)
	written = regexp.MustCompile(`\b(?:INSERT (?:OR [A-Z]+ )?INTO|DELETE FROM|UPDATE)\s+([a-z][a-z_]*)\b`)
)

// schema reads from the migrations which packages write each table, which one reads it for
// them, and which views there are.
func schema(t *testing.T) (writers map[string][]string, readers map[string]string, views map[string]bool) {
	t.Helper()
	writers, readers, views = map[string][]string{}, map[string]string{}, map[string]bool{}
	files, err := filepath.Glob("internal/db/migrations/*.sql")
	if err != nil || len(files) == 0 {
		t.Fatalf("no migrations: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range created.FindAllSubmatchIndex(text, -1) {
			table := string(text[at[2]:at[3]])
			above := string(text[:at[0]])
			comment := above[strings.LastIndex(above, "\n\n")+1:] // the lines right above
			m := owner.FindStringSubmatch(comment)
			if m == nil {
				t.Errorf("%s: the comment above CREATE TABLE %s doesn't say which package writes it", file, table)
				continue
			}
			writers[table] = slices.DeleteFunc(m[1:], func(s string) bool { return s == "" })
			if m := reader.FindStringSubmatch(comment); m != nil {
				readers[table] = m[1]
			}
		}
		for _, m := range renamed.FindAllSubmatch(text, -1) {
			writers[string(m[2])] = writers[string(m[1])]
			delete(writers, string(m[1]))
		}
		for _, m := range view.FindAllSubmatch(text, -1) {
			views[string(m[1])] = true
		}
	}
	return writers, readers, views
}

// A table is read by the package that writes it, or by the one that its comment says reads it
// for all, and by no other: who reads across nouns reads a view, which says what others may
// rely on.
func TestOthersReadViews(t *testing.T) {
	t.Parallel()
	writers, readers, views := schema(t)
	if len(views) < 4 {
		t.Fatalf("views: %v", views)
	}
	seen := 0
	for name, p := range product(t) {
		for _, text := range p.strings {
			for _, m := range read.FindAllStringSubmatch(text, -1) {
				if may, table := writers[m[1]]; table && !slices.Contains(may, name) && readers[m[1]] != name {
					t.Errorf("%s reads table %s of %s: read a view, or ask its package", name, m[1], strings.Join(may, " and "))
				} else if table || views[m[1]] {
					seen++
				}
			}
		}
	}
	if seen < 100 {
		t.Errorf("only %d reads were found: the test looks at the wrong strings", seen)
	}
}

// A table is written by the package that the comment above its CREATE TABLE names, and
// by no other: whoever wants to know who may change a row reads one package.
func TestOneWriterPerTable(t *testing.T) {
	t.Parallel()
	writers, _, _ := schema(t)
	for name, p := range product(t) {
		for _, text := range p.strings {
			for _, m := range written.FindAllStringSubmatch(text, -1) {
				may, known := writers[m[1]]
				switch {
				case !known && strings.Contains(text, "$1"):
					t.Errorf("%s writes %s, which no migration makes", name, m[1])
				case known && !slices.Contains(may, name):
					t.Errorf("%s writes table %s, which is %s's", name, m[1], strings.Join(may, "'s and "))
				}
			}
		}
	}
}

// A package says in its first sentence what it owns.
func TestPackageComments(t *testing.T) {
	t.Parallel()
	for name, p := range product(t) {
		want := "Package " + path.Base(name) + " owns "
		if strings.HasPrefix(name, "cmd/") {
			want = "Command " + path.Base(name) + " "
		}
		if !strings.HasPrefix(p.doc, want) {
			first, _, _ := strings.Cut(p.doc, "\n")
			t.Errorf("%s: the package comment must begin %q, and begins %q", name, want, first)
		}
	}
}

// Every path that the documents name in code font is there: a map that points nowhere
// is worse than none.
func TestDocumentsPointSomewhere(t *testing.T) {
	t.Parallel()
	pointer := regexp.MustCompile("`((?:internal|cmd|docs|e2e|scripts|examples|bench|changes)/[a-zA-Z0-9_./*-]*)`")
	documents := []string{"ARCHITECTURE.md", "README.md"}
	more, _ := filepath.Glob("docs/*.md")
	for _, doc := range append(documents, more...) {
		text, err := os.ReadFile(doc)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range pointer.FindAllSubmatch(text, -1) {
			if found, err := filepath.Glob(string(m[1])); err != nil || len(found) == 0 {
				t.Errorf("%s names %s, which does not exist", doc, m[1])
			}
		}
	}
}

// Every decision has a number of its own, in its name and in its heading.
func TestDecisionsAreNumbered(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("docs/adr/*.md")
	if err != nil || len(files) == 0 {
		t.Fatalf("no decisions: %v", err)
	}
	taken := map[string]string{}
	for _, file := range files {
		number, _, _ := strings.Cut(filepath.Base(file), "-")
		if first := taken[number]; first != "" {
			t.Errorf("%s and %s have the same number", first, file)
		}
		taken[number] = file
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if want := "# " + number + ": "; !strings.HasPrefix(string(text), want) {
			t.Errorf("the heading of %s doesn't begin %q", file, want)
		}
	}
	for _, p := range product(t) {
		for _, m := range regexp.MustCompile(`ADR (\d{4})`).FindAllStringSubmatch(p.doc, -1) {
			if taken[m[1]] == "" {
				t.Errorf("package %s refers to ADR %s, which does not exist", p.name, m[1])
			}
		}
	}
}

// The example's stylesheet is served as immutable, so the name must follow the content.
func TestExampleFingerprints(t *testing.T) {
	t.Parallel()
	sheets, err := filepath.Glob("examples/hello/assets/style.*.css")
	if err != nil || len(sheets) != 1 {
		t.Fatalf("style sheets of the example: %v, %v; want one", sheets, err)
	}
	text, err := os.ReadFile(sheets[0])
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(text)
	want := fmt.Sprintf("style.%x.css", sum[:4])
	if got := filepath.Base(sheets[0]); got != want {
		t.Errorf("the example's style sheet is called %s; its content says %s", got, want)
	}
	pages, _ := filepath.Glob("examples/hello/*.html")
	for _, page := range pages {
		html, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(html), "/assets/"+want) {
			t.Errorf("%s doesn't use %s", page, want)
		}
		if regexp.MustCompile(`(src|href)="(https?:)?//`).Match(html) {
			t.Errorf("%s fetches something from elsewhere", page)
		}
	}
}
