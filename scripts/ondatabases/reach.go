package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// databases is the package that provides tests with a database.
const databases = "slipway/internal/platform/dbtest"

// opensDatabase matches what scripts/check recognizes as several nodes with one database.
var opensDatabase = regexp.MustCompile(`\bdbtest\.(URL|Open|Empty)\(`)

// onDatabase returns the -test.run argument for those tests of the package in dir that use a database, directly or
// through other declarations in test files; nil if that may be all. Other tests do the same on each database. With
// nodes, it selects the tests that use declarations of a file that opens its own database, as tests of several nodes
// do.
func onDatabase(dir string, nodes bool) ([]string, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		return nil, err
	}
	gives := imports{}
	uses := map[string]map[string]bool{}                   // top-level declaration → names in it
	found := map[string]bool{path.Base(databases): !nodes} // names that lead to a database
	for _, name := range names {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		opens := nodes && opensDatabase.Match(text)
		for _, spec := range file.Imports {
			if nodes {
				break
			}
			at, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return nil, err
			}
			reaches, err := gives.reach(dir, at)
			if err != nil {
				return nil, err
			}
			if !reaches {
				continue
			}
			if spec.Name != nil {
				found[spec.Name.Name] = true
			} else {
				found[path.Base(at)] = true
			}
		}
		for _, decl := range file.Decls {
			for name, node := range declared(decl) {
				collect(uses, name, node)
				found[name] = found[name] || opens
			}
		}
	}
	if found["."] || found["_"] {
		return nil, nil
	}
	for more := true; more; {
		more = false
		for name, in := range uses {
			if found[name] {
				continue
			}
			for n := range in {
				if found[n] {
					found[name], more = true, true
					break
				}
			}
		}
	}
	var run []string
	for name := range uses {
		switch {
		case name == "TestMain" || name == "init" || name == "_":
			if found[name] {
				return nil, nil
			}
		case found[name] && (strings.HasPrefix(name, "Test") || strings.HasPrefix(name, "Fuzz") || strings.HasPrefix(name, "Example")):
			run = append(run, regexp.QuoteMeta(name))
		}
	}
	slices.Sort(run)
	return []string{"-test.run=^(" + strings.Join(run, "|") + ")$"}, nil
}

// declared returns the names that a top-level declaration declares. Methods of the same name are treated as one.
func declared(decl ast.Decl) map[string]ast.Node {
	out := map[string]ast.Node{}
	switch d := decl.(type) {
	case *ast.FuncDecl:
		out[d.Name.Name] = d
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.ValueSpec:
				for _, name := range s.Names {
					out[name.Name] = s
				}
			case *ast.TypeSpec:
				out[s.Name.Name] = s
			}
		}
	}
	return out
}

// collect adds the names in a declaration. A local variable with a top-level name counts as that name.
func collect(uses map[string]map[string]bool, name string, node ast.Node) {
	if uses[name] == nil {
		uses[name] = map[string]bool{}
	}
	ast.Inspect(node, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			x, ok := n.X.(*ast.Ident)
			return !ok || x.Name != path.Base(databases) || n.Sel.Name != "Bubble" // Bubble always uses SQLite
		case *ast.Ident:
			uses[name][n.Name] = true
		case *ast.BasicLit:
			if strings.Contains(n.Value, cluster) { // uses the cluster itself
				uses[name][path.Base(databases)] = true
			}
		}
		return true
	})
}

// imports caches which packages provide tests with a database: dbtest, and our packages that import one of them.
type imports map[string]bool

func (i imports) reach(from, at string) (bool, error) {
	if at == databases {
		return true, nil
	}
	rest, ours := strings.CutPrefix(at, "slipway/")
	if known, ok := i[at]; ok || !ours {
		return known, nil
	}
	i[at] = false
	root := from
	for {
		if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil {
			break
		}
		if root == filepath.Dir(root) {
			return false, os.ErrNotExist
		}
		root = filepath.Dir(root)
	}
	names, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(rest), "*.go"))
	if err != nil {
		return false, err
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			return false, err
		}
		for _, spec := range file.Imports {
			next, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return false, err
			}
			reaches, err := i.reach(root, next)
			if err != nil {
				return false, err
			}
			if reaches {
				i[at] = true
				return true, nil
			}
		}
	}
	return false, nil
}
