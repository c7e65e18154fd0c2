package slipway

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// sources calls f with every Go file of the product, except tests and generated files.
func sources(t *testing.T, f func(path string, text []byte)) {
	t.Helper()
	for _, root := range []string{"internal", "cmd"} {
		err := filepath.WalkDir(root, func(p string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() || !strings.HasSuffix(p, ".go") || strings.HasSuffix(p, "_test.go") || strings.HasSuffix(p, "_gen.go") {
				return err
			}
			text, err := os.ReadFile(p)
			if err == nil {
				f(filepath.ToSlash(p), text)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// widest is the maximum number of characters of a line. A tab counts as one.
const widest = 140

// Lines must be short enough to read without scrolling. What cannot be broken may be longer: a field's tag, a
// directive, and text between backquotes that is not SQL (pages, scripts, patterns).
func TestLinesAreShort(t *testing.T) {
	t.Parallel()
	sql := regexp.MustCompile(`\b(SELECT|INSERT|UPDATE|DELETE|WHERE)\b`)
	sources(t, func(p string, text []byte) {
		if !slices.ContainsFunc(strings.Split(string(text), "\n"), long) {
			return
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, p, text, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		mayBe := map[int]bool{}
		whole := func(n ast.Node) {
			for line := set.Position(n.Pos()).Line; line <= set.Position(n.End()).Line; line++ {
				mayBe[line] = true
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch x := n.(type) {
			case *ast.Field:
				if x.Tag != nil {
					whole(x.Tag)
				}
			case *ast.BasicLit:
				if strings.HasPrefix(x.Value, "`") && !sql.MatchString(x.Value) {
					whole(x)
				}
			}
			return true
		})
		for _, group := range file.Comments {
			for _, c := range group.List {
				if strings.HasPrefix(c.Text, "//go:") || strings.HasPrefix(strings.TrimPrefix(c.Text, "// "), "share:") {
					whole(c)
				}
			}
		}
		for i, line := range strings.Split(string(text), "\n") {
			if long(line) && !mayBe[i+1] {
				t.Errorf("%s:%d has %d characters, at most %d", p, i+1, utf8.RuneCountInString(line), widest)
			}
		}
	})
}

// long reports whether a line has too many characters.
func long(line string) bool { return utf8.RuneCountInString(line) > widest }

// rawIDs is the number of parameters that hold an id as text: keys of caches, which do not know what the id belongs to,
// and ids that come from outside. The number may only go down.
const rawIDs = 11

// An id must have its own type, from package id or from the package of its object, so that the id of a site cannot be
// passed for that of an owner.
func TestIDsAreTyped(t *testing.T) {
	t.Parallel()
	noun := regexp.MustCompile(`^(site|owner|deployment|webhook|operation|backup|upload|release|[a-z]\w*ID)s?$`)
	var found []string
	typed := 0
	look := func(p string, set *token.FileSet, f *ast.FuncType) {
		for _, param := range f.Params.List {
			kind := param.Type
			if list, ok := kind.(*ast.ArrayType); ok {
				kind = list.Elt
			}
			for _, name := range param.Names {
				if !noun.MatchString(name.Name) {
					continue
				}
				if text, ok := kind.(*ast.Ident); ok && text.Name == "string" {
					found = append(found, set.Position(param.Pos()).String()+" "+name.Name)
				} else {
					typed++
				}
			}
		}
	}
	sources(t, func(p string, text []byte) {
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, p, text, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch x := n.(type) {
			case *ast.FuncDecl:
				look(p, set, x.Type)
			case *ast.InterfaceType:
				for _, m := range x.Methods.List {
					if f, ok := m.Type.(*ast.FuncType); ok {
						look(p, set, f)
					}
				}
			}
			return true
		})
	})
	if len(found) > rawIDs {
		t.Errorf("%d parameters hold an id as text, at most %d: give it the type of its noun (package id)\n%s", len(found), rawIDs, strings.Join(found, "\n"))
	}
	if typed < 100 {
		t.Errorf("only %d typed ids were found: the test looks at the wrong functions", typed)
	}
}
