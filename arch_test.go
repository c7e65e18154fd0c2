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

// folder is one package of the product, read from its sources.
type folder struct {
	name    string // below internal: "tenant/site", "platform/blob/blobtest"; or "cmd/slipway"
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
			if err != nil || e.IsDir() || !strings.HasSuffix(p, ".go") || strings.HasSuffix(p, "_test.go") ||
				e.Name() == "deps.go" || e.Name() == "doc.go" {
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

// districts reads the folders of internal from the fenced block of ARCHITECTURE.md that begins with server. It returns
// their names from top to bottom, and the packages of each. A district without packages is a package itself.
func districts(t *testing.T) (order []string, rooms map[string][]string) {
	t.Helper()
	text, err := os.ReadFile("ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, ok := strings.Cut(string(text), "```\nserver ")
	block, _, closed := strings.Cut(block, "```")
	if !ok || !closed {
		t.Fatal("ARCHITECTURE.md has no fenced block that begins with server")
	}
	rooms = map[string][]string{}
	for line := range strings.Lines("server " + block) {
		words := strings.Fields(line)
		order = append(order, words[0])
		if _, err := os.Stat(filepath.Join("internal", words[0], words[0]+".go")); err != nil && words[0] != "server" {
			rooms[words[0]] = words[1:]
		}
	}
	return order, rooms
}

// An import must lead to the same district or to a lower one, the edge must not import tenant, and ARCHITECTURE.md must
// list exactly what exists.
func TestDistricts(t *testing.T) {
	t.Parallel()
	order, rooms := districts(t)
	if len(order) > 20 {
		t.Errorf("%d districts: nobody keeps so many in mind", len(order))
	}
	of := func(name string) string { d, _, _ := strings.Cut(name, "/"); return d }
	seen := map[string]bool{}
	packages := product(t)
	for _, name := range slices.Sorted(maps.Keys(packages)) {
		district, rest, inside := strings.Cut(name, "/")
		room, _, _ := strings.Cut(rest, "/")
		seen[district+"/"+room] = true
		at := slices.Index(order, district)
		switch {
		case district == "cmd":
			continue
		case at < 0:
			t.Errorf("package %s is in no district of ARCHITECTURE.md", name)
			continue
		case inside && !slices.Contains(rooms[district], room):
			t.Errorf("package %s is not in its district's line of ARCHITECTURE.md", name)
		}
		for _, to := range packages[name].imports {
			switch {
			case to == "docs": // the guides: files without code
			case slices.Index(order, of(to)) < at:
				t.Errorf("%s imports %s: an import leads down", name, to)
			case district == "edge" && of(to) == "tenant":
				t.Errorf("%s imports %s: the edge asks no tenant", name, to)
			case strings.HasSuffix(to, "test") && path.Base(to) != "ruletest" && !strings.HasSuffix(name, "test"):
				t.Errorf("%s imports %s, which is for tests alone", name, to)
			}
		}
	}
	for district, names := range rooms {
		if _, err := os.Stat(filepath.Join("internal", district, "doc.go")); err != nil {
			t.Errorf("the district %s doesn't say what lives in it: %v", district, err)
		}
		for _, name := range names {
			if !seen[district+"/"+name] {
				t.Errorf("ARCHITECTURE.md lists %s/%s, which does not exist", district, name)
			}
		}
	}
}

// An exported function field hides who calls whom. Only a few may remain: callbacks of one call, and functions that a
// test replaces.
func TestFunctionFields(t *testing.T) {
	t.Parallel()
	var found []string
	err := filepath.WalkDir("internal", func(p string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasSuffix(p, ".go") || strings.HasSuffix(p, "_test.go") ||
			strings.HasSuffix(filepath.Dir(p), "test") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), p, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok || !spec.Name.IsExported() {
				return true
			}
			fields, ok := spec.Type.(*ast.StructType)
			if !ok {
				return true
			}
			for _, f := range fields.Fields.List {
				if _, ok := f.Type.(*ast.FuncType); !ok {
					continue
				}
				for _, name := range f.Names {
					if !name.IsExported() {
						continue
					}
					found = append(found, filepath.Dir(p)+" "+spec.Name.Name+"."+name.Name)
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(found) > 35 {
		t.Errorf(
			"%d function fields of exported structs, at most 35: an import or a small interface beside its consumer says more\n%s",
			len(found),
			strings.Join(found, "\n"),
		)
	}
	if len(found) < 5 {
		t.Errorf("only %d function fields were found: the test looks at the wrong files", len(found))
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

// schema reads from the migrations which packages write each table, which package reads it for all others, and which
// views exist.
func schema(t *testing.T) (writers map[string][]string, readers map[string]string, views map[string]bool) {
	t.Helper()
	writers, readers, views = map[string][]string{}, map[string]string{}, map[string]bool{}
	files, err := filepath.Glob("internal/platform/db/migrations/*.sql")
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

// A table may be read only by the package that writes it, or by the one that its comment names as its reader. Every
// other package must read a view, which defines what others may rely on.
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
				if may, table := writers[m[1]]; table && !slices.Contains(may, path.Base(name)) && readers[m[1]] != path.Base(name) {
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

// Only the package that the comment above a CREATE TABLE names may write that table. To find out who may change a row,
// one has to read only one package.
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
				case known && !slices.Contains(may, path.Base(name)):
					t.Errorf("%s writes table %s, which is %s's", name, m[1], strings.Join(may, "'s and "))
				}
			}
		}
	}
}

// The first sentence of a package comment must say what the package owns.
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

// Every path in code font in the documents must exist.
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

// Each decision must have a unique number, the same in its file name and in its heading.
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

// The example's style sheet is served as immutable, so its name must follow its content.
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
