package slipway

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"regexp"
	"strings"
	"testing"
)

// A panic in a goroutine ends the process, and with it everybody's requests. A goroutine must be started through
// package panics, or a line // uncaught: must give the reason why no tenant's input can make it panic, or say who else
// catches the panic. Code that runs on a developer's machine (internal/client) is exempt, because it ends only itself.
func TestGoroutinesCatchPanics(t *testing.T) {
	t.Parallel()
	files, groups := map[string][]byte{}, map[string]map[string]bool{}
	sources(t, func(p string, source []byte) {
		if strings.HasPrefix(p, "internal/client/") || strings.HasPrefix(p, "internal/platform/panics/") || testOnly(p) {
			return
		}
		files[p] = source
		dir := path.Dir(p)
		if groups[dir] == nil {
			groups[dir] = map[string]bool{}
		}
		panicGroups(t, p, source, groups[dir])
	})
	reasons := 0
	for p, source := range files {
		n, problems := uncaught(t, p, source, groups[path.Dir(p)])
		reasons += n
		for _, problem := range problems {
			t.Error(problem)
		}
	}
	if reasons < 10 {
		t.Errorf("only %d goroutines have a reason: the test looks at the wrong statements", reasons)
	}
}

// panicGroups adds the names of variables, parameters and fields that are a panics.Group or a panics.Background.
func panicGroups(t *testing.T, name string, source []byte, names map[string]bool) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), name, source, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	add := func(kind ast.Expr, of []*ast.Ident) {
		if k := text(kind); k == "panics.Group" || k == "panics.Background" {
			for _, id := range of {
				names[id.Name] = true
			}
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Field:
			add(n.Type, n.Names)
		case *ast.ValueSpec:
			add(n.Type, n.Names)
		}
		return true
	})
}

// uncaught returns how many goroutines of a file have a reason, and which ones have none and do not use package panics.
func uncaught(t *testing.T, name string, source []byte, groups map[string]bool) (reasons int, problems []string) {
	t.Helper()
	const want = ": start it with package panics, or say // uncaught: why it can't panic, or who catches it"
	return marked(t, name, source, regexp.MustCompile(`^// ?uncaught: \S`), func(n ast.Node) string {
		switch n := n.(type) {
		case *ast.GoStmt:
			if !catches(n.Call) {
				return "go" + want
			}
		case *ast.CallExpr:
			to, ok := n.Fun.(*ast.SelectorExpr)
			if !ok || to.Sel.Name != "Go" || catches(n) {
				return ""
			}
			of := text(to.X)
			if of = of[strings.LastIndexByte(of, '.')+1:]; of != "panics" && !groups[of] {
				return of + ".Go" + want
			}
		}
		return ""
	})
}

// catches reports whether the function of a goroutine itself calls package panics.
func catches(call *ast.CallExpr) (found bool) {
	ast.Inspect(call, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok && text(s.X) == "panics" {
			found = true
		}
		return !found
	})
	return found
}

// uncaught must find a goroutine whose panic nothing catches, even in a group of another package, but not one with a
// reason or one that uses package panics.
func TestUncaught(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]string{
		"func f() { go g() }":                                                      "p.go:2: go: ",
		"func f() { var w sync.WaitGroup; w.Go(g) }":                               "p.go:2: w.Go: ",
		"func f() { e.group.Go(g) }":                                               "p.go:2: group.Go: ",
		"func f() { go func() { defer close(c); g() }() }":                         "p.go:2: go: ",
		"func f() {\n// uncaught: copies bytes\ngo g() }":                          "",
		"func f() {\n// uncaught:\ngo g() }":                                       "p.go:4: go: ",
		"func f() { panics.Go(g) }":                                                "",
		"func f() { go func() { err = panics.Call(g) }() }":                        "",
		"func f() { e.Go(panics.Safe(g)) }":                                        "",
		"func f() { var w panics.Group; w.Go(g) }":                                 "",
		"type x struct { all panics.Background }\nfunc (x *x) f() { x.all.Go(g) }": "",
		"func f() {\n// uncaught: copies bytes\ng() }":                             "p.go:3: a directive at nothing",
	} {
		groups := map[string]bool{}
		panicGroups(t, "p.go", []byte("package p\n"+code), groups)
		_, problems := uncaught(t, "p.go", []byte("package p\n"+code), groups)
		if got := strings.Join(problems, "\n"); want == "" && got != "" || !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q, want %q", code, got, want)
		}
	}
}
