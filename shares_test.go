package slipway

import (
	"cmp"
	"flag"
	"fmt"
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
)

var update = flag.Bool("update", false, "write docs/shares.md anew")

// shared is a place in the code that creates something which many requests, sites or owners use at once: a pool, a
// semaphore, a queue, a cache, or a long-lived map.
type shared struct {
	file string
	line int
	kind string
	name string
	// These come from the directive at that place, "//share: total …; owner …; edge …": how much there is in all, how
	// much one owner may have, and what happens to whoever wants more.
	total, owner, edge string
}

// A directive says how a place is shared, or that it is not. gofmt adds the space to directives in doc comments.
var (
	directive = regexp.MustCompile(`^// ?share: total (.+?); owner (.+?); edge (.+)$`)
	unshared  = regexp.MustCompile(`^// ?share: none, (.+)$`)
)

// shares searches the product's sources for shared places.
func shares(t *testing.T) (found []shared, problems []string) {
	t.Helper()
	err := filepath.WalkDir("internal", func(p string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasSuffix(p, ".go") || strings.HasSuffix(p, "_test.go") || testOnly(p) {
			return err
		}
		source, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		of, wrong, err := sharesOf(filepath.ToSlash(p), source)
		found, problems = append(found, of...), append(problems, wrong...)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(found, func(a, b shared) int { return cmp.Or(cmp.Compare(a.file, b.file), cmp.Compare(a.line, b.line)) })
	slices.Sort(problems)
	return found, problems
}

// sharesOf reads one file, and returns its shared places and what is wrong with their directives.
func sharesOf(name string, source []byte) (found []shared, problems []string, err error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, source, parser.ParseComments)
	if err != nil {
		return nil, nil, err
	}
	said, used := map[int][]string{}, map[int]bool{} // by line
	for _, group := range file.Comments {
		for _, c := range group.List {
			if !strings.HasPrefix(c.Text, "//share:") && !strings.HasPrefix(c.Text, "// share:") {
				continue
			}
			line := files.Position(c.Pos()).Line
			if m := directive.FindStringSubmatch(c.Text); m != nil {
				said[line] = m
			} else if unshared.MatchString(c.Text) {
				said[line] = []string{c.Text}
			} else {
				problems = append(
					problems,
					fmt.Sprintf("%s:%d: %q is neither share: total …; owner …; edge … nor share: none, …", name, line, c.Text),
				)
			}
		}
	}
	for _, s := range sharedIn(file) {
		at := files.Position(s.at)
		line := at.Line
		if said[line] == nil {
			line--
		}
		m := said[line]
		if m == nil {
			if s.kind != "queue" { // most slices are no queue
				problems = append(
					problems,
					fmt.Sprintf("%s:%d: the %s %s has no line //share: total …; owner …; edge …", name, at.Line, s.kind, s.name),
				)
			}
			continue
		}
		if used[line] = true; len(m) > 1 {
			found = append(found, shared{name, at.Line, s.kind, s.name, m[1], m[2], m[3]})
		}
	}
	for line := range said {
		if !used[line] {
			problems = append(problems, fmt.Sprintf("%s:%d: share: stands at nothing that is shared", name, line))
		}
	}
	return found, problems, nil
}

// testOnly reports whether a file's package is only for tests. ARCHITECTURE.md defines the names of such packages, for
// example dbtest.
func testOnly(file string) bool { return strings.HasSuffix(filepath.Base(filepath.Dir(file)), "test") }

// place is a shared place found in the syntax tree.
type place struct {
	at         token.Pos
	kind, name string
}

// sharedIn finds the shared places of a file by how they are created, for which Go has only a few ways.
func sharedIn(file *ast.File) (found []place) {
	add := func(n ast.Node, kind, name string) { found = append(found, place{n.Pos(), kind, name}) }
	var parents []ast.Node
	ast.Inspect(file, func(n ast.Node) bool {
		if n == nil {
			parents = parents[:len(parents)-1]
			return true
		}
		switch n := n.(type) {
		case *ast.CallExpr:
			switch callee := text(n.Fun); {
			case callee == "make" && len(n.Args) == 2 && isChan(n.Args[0]) && !small(n.Args[1]):
				add(n, "channel", assigned(parents, n))
			case strings.HasSuffix(callee, ".SetLimit"), strings.HasSuffix(callee, ".SetMaxOpenConns"):
				add(n, "workers", callee[:strings.LastIndexByte(callee, '.')])
			case callee == "semaphore.NewWeighted", callee == "fair.New", strings.HasPrefix(callee, "fair.New"):
				add(n, "pool", assigned(parents, n))
			case strings.HasPrefix(callee, "cache.New"), strings.HasPrefix(callee, "lru.New"), callee == "list.New":
				add(n, "cache", assigned(parents, n))
			}
		case *ast.CompositeLit:
			switch text(n.Type) {
			case "sync.Pool":
				add(n, "buffers", assigned(parents, n))
			case "job.Loop":
				add(n, "workers", assigned(parents, n))
			}
		case *ast.BinaryExpr: // a counter with a limit: if x.Add(1) > most
			if call, ok := n.X.(*ast.CallExpr); ok && strings.HasSuffix(
				text(call.Fun),
				".Add",
			) && n.Op != token.EQL && n.Op != token.NEQ && len(call.Args) == 1 && text(call.Args[0]) == "1" {
				add(n, "counter", strings.TrimSuffix(text(call.Fun), ".Add"))
			}
		case *ast.StructType:
			if !locked(n) {
				break
			}
			for _, f := range n.Fields.List {
				switch a, slice := f.Type.(*ast.ArrayType); {
				case isMap(f.Type):
					add(f, "map", names(f))
				case slice && a.Len == nil:
					add(f, "queue", names(f))
				}
			}
		case *ast.ValueSpec: // of the package
			if len(parents) == 2 && n.Type != nil && (text(n.Type) == "sync.Map" || isMap(n.Type)) {
				add(n, "map", n.Names[0].Name)
			}
		}
		parents = append(parents, n)
		return true
	})
	return found
}

// locked reports whether many goroutines use a struct's fields, which is so if it has a mutex or a sync.Map.
func locked(s *ast.StructType) bool {
	return slices.ContainsFunc(s.Fields.List, func(f *ast.Field) bool {
		return text(f.Type) == "sync.Mutex" || text(f.Type) == "sync.RWMutex" || text(f.Type) == "sync.Map"
	})
}

func isChan(e ast.Expr) bool { _, ok := e.(*ast.ChanType); return ok }

func isMap(e ast.Expr) bool {
	_, ok := e.(*ast.MapType)
	return ok || text(e) == "sync.Map"
}

// small reports whether a channel's capacity is at most one: it holds a signal or an answer, and is no queue.
func small(e ast.Expr) bool { return text(e) == "1" || text(e) == "0" }

func names(f *ast.Field) string {
	var all []string
	for _, n := range f.Names {
		all = append(all, n.Name)
	}
	return strings.Join(all, ", ")
}

// assigned returns the name of the variable or field that gets the value.
func assigned(parents []ast.Node, value ast.Node) string {
	for i := len(parents) - 1; i >= 0; i-- {
		switch p := parents[i].(type) {
		case *ast.KeyValueExpr:
			return text(p.Key)
		case *ast.AssignStmt:
			for k, v := range p.Rhs {
				if v.Pos() <= value.Pos() && value.End() <= v.End() && k < len(p.Lhs) {
					return text(p.Lhs[k])
				}
			}
			return text(p.Lhs[0])
		case *ast.ValueSpec:
			return p.Names[0].Name
		case *ast.FuncDecl:
			return p.Name.Name
		}
	}
	return ""
}

// text returns an expression of names and dots as it is written.
func text(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return text(e.X) + "." + e.Sel.Name
	case *ast.BasicLit:
		return e.Value
	case *ast.IndexExpr:
		return text(e.X)
	case *ast.IndexListExpr:
		return text(e.X)
	case *ast.StarExpr:
		return text(e.X)
	}
	return ""
}

// Every pool, semaphore, queue, cache and long-lived map of the program must say how much one owner may have of it, and
// docs/shares.md must list them all.
func TestShares(t *testing.T) {
	t.Parallel()
	found, problems := shares(t)
	for _, p := range problems {
		t.Error(p)
	}
	if t.Failed() {
		return
	}
	page := sharesPage(found)
	if *update {
		if err := os.WriteFile("docs/shares.md", []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile("docs/shares.md")
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != page {
		t.Error("docs/shares.md is not what the sources say: go test . -run TestShares -update")
	}
}

func sharesPage(found []shared) string {
	var b strings.Builder
	b.WriteString(`# What is shared, and how

Every pool, semaphore, queue, cache and long-lived map of the program: how much there is of it, how much of it one owner can take, and what happens to
requests beyond that. ` + "`TestShares`" + ` makes this page from the ` + "`//share:`" + ` comments in the code, and fails where one is missing.
`)
	last, mark := "", ""
	for _, s := range found {
		if dir := strings.TrimPrefix(filepath.ToSlash(filepath.Dir(s.file)), "internal/"); dir != last {
			last, mark = dir, ""
			if dir == "tenant/billing" || dir == "tenant/stripe" { // where there is no billing, the page is shown without them
				mark = " <!-- billing -->"
			}
			fmt.Fprintf(&b, "\n## %s%[2]s\n%[2]s\n| where | kind | in all | of one owner | at the limit |%[2]s\n| --- | --- | --- | --- | --- |%[2]s\n", dir, mark)
		}
		fmt.Fprintf(&b, "| %s `%s` | %s | %s | %s | %s |%s\n", filepath.Base(s.file), s.name, s.kind, s.total, s.owner, s.edge, mark)
	}
	return b.String()
}

// sharesOf must report a shared place that has no directive, and must list one that has.
func TestSharesOf(t *testing.T) {
	t.Parallel()
	const said = "//share: total 2; owner 1; edge waits"
	for name, tt := range map[string]struct {
		code string
		want string // the kind and the name
	}{
		"pool":       {"func f() { p := fair.New(fair.Config{Places: 2}); _ = p }", "pool p"},
		"attempts":   {"func f() { a = fair.NewAttempts(l) }", "pool a"},
		"semaphore":  {"func f() { s := semaphore.NewWeighted(2); _ = s }", "pool s"},
		"channel":    {"func f() { c := make(chan struct{}, n); _ = c }", "channel c"},
		"cache":      {"var c = cache.New[string, int](1, 1)", "cache c"},
		"list":       {"func f() { l := list.New(); _ = l }", "cache l"},
		"buffers":    {"var b = sync.Pool{}", "buffers b"},
		"workers":    {"func f() { job.Loop{Places: 2}.Run(ctx) }", "workers f"},
		"group":      {"func f() { g.SetLimit(4) }", "workers g"},
		"conns":      {"func f() { d.SetMaxOpenConns(4) }", "workers d"},
		"counter":    {"func f() { if n.Add(1) > most { return } }", "counter n"},
		"map":        {"type x struct {\n mu sync.Mutex\n//HERE\n of map[string]int\n}", "map of"},
		"sync.Map":   {"type x struct {\n mu sync.RWMutex\n//HERE\n of sync.Map\n}", "map of"},
		"global map": {"var known sync.Map", "map known"},
	} {
		bare, lined := "package p\n"+strings.Replace(tt.code, "//HERE\n", "", 1), "package p\n"+said+"\n"+tt.code
		if strings.Contains(tt.code, "//HERE") {
			lined = "package p\n" + strings.Replace(tt.code, "//HERE", said, 1)
		}
		found, problems, err := sharesOf("p.go", []byte(bare))
		if err != nil || len(found) > 0 || len(problems) != 1 || !strings.Contains(problems[0], "the "+tt.want+" has no line") {
			t.Errorf("%s without a line: %v, %v, %v; want a problem with the %s", name, found, problems, err, tt.want)
		}
		found, problems, err = sharesOf("p.go", []byte(lined))
		if err != nil || len(problems) > 0 || len(found) != 1 || found[0].kind+" "+found[0].name != tt.want || found[0].owner != "1" {
			t.Errorf("%s with a line: %v, %v, %v; want the %s", name, found, problems, err, tt.want)
		}
		found, problems, _ = sharesOf("p.go", []byte(strings.Replace(lined, said, "//share: none, one request's", 1)))
		if len(found) > 0 || len(problems) > 0 {
			t.Errorf("%s that is not shared: %v, %v", name, found, problems)
		}
	}
	for name, code := range map[string]string{
		"a signal":             "func f() { c := make(chan struct{}, 1); _ = c }",
		"a map of one request": "type x struct { of map[string]int }",
		"a table":              "var names = map[string]int{}",
		"a count":              "func f() { n.Add(1) }",
	} {
		if found, problems, err := sharesOf("p.go", []byte("package p\n"+code)); err != nil || len(found)+len(problems) > 0 {
			t.Errorf("%s: %v, %v, %v; want nothing", name, found, problems, err)
		}
	}
	for _, line := range []string{"//share: total 2; owner 1", "//share: none", said} {
		if _, problems, _ := sharesOf("p.go", []byte("package p\n"+line+"\nvar x int")); len(problems) != 1 {
			t.Errorf("%q at nothing: %v, want one problem", line, problems)
		}
	}
}
