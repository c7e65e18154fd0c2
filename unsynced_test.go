package slipway

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strings"
	"testing"
)

// A file that is written without waiting for the disk can be empty after a power cut. The service must write small
// files with disk.Write, or a line // unsynced: must give the reason why no later start relies on the file. Code on a
// developer's machine (internal/client) is exempt, because that is not a server.
func TestFilesAreSynced(t *testing.T) {
	t.Parallel()
	seen := 0
	sources(t, func(p string, text []byte) {
		if strings.HasPrefix(p, "internal/client/") || testOnly(p) {
			return
		}
		n, problems := unsynced(t, p, text)
		seen += n
		for _, problem := range problems {
			t.Error(problem)
		}
	})
	if seen < 10 {
		t.Errorf("only %d files are written with a reason: the test looks at the wrong calls", seen)
	}
}

// unsynced returns how many calls have a reason, and which have none.
func unsynced(t *testing.T, name string, source []byte) (reasons int, problems []string) {
	t.Helper()
	return marked(t, name, source, regexp.MustCompile(`^// ?unsynced: \S`), func(n ast.Node) string {
		if call, ok := n.(*ast.CallExpr); ok {
			if to := text(call.Fun); strings.HasSuffix(to, ".WriteFile") || to == "os.Create" {
				return to + ": use disk.Write, or say // unsynced: why no later start relies on it"
			}
		}
		return ""
	})
}

// marked finds places in a file that need a directive on their line or the line above. what returns the problem if the
// directive is missing, and is empty for nodes that need none.
func marked(t *testing.T, name string, source []byte, directive *regexp.Regexp, what func(ast.Node) string) (found int, problems []string) {
	t.Helper()
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, source, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	said := map[int]bool{}
	for _, group := range file.Comments {
		for _, c := range group.List {
			if directive.MatchString(c.Text) {
				said[files.Position(c.Pos()).Line] = true
			}
		}
	}
	used := map[int]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		if n == nil {
			return false
		}
		why := what(n)
		if why == "" {
			return true
		}
		switch line := files.Position(n.Pos()).Line; {
		case said[line]:
			used[line] = true
		case said[line-1]:
			used[line-1] = true
		default:
			problems = append(problems, fmt.Sprintf("%s:%d: %s", name, line, why))
		}
		return true
	})
	for line := range said {
		if !used[line] {
			problems = append(problems, fmt.Sprintf("%s:%d: a directive at nothing", name, line))
		}
	}
	return len(used), problems
}

// unsynced must find a call without a reason but not one with a reason, and a reason must belong to a call.
func TestUnsynced(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]string{
		"func f() { os.WriteFile(a, b, c) }":                       "p.go:2: os.WriteFile: ",
		"func f() { root.WriteFile(a, b, c) }":                     "p.go:2: root.WriteFile: ",
		"func f() { os.Create(a) }":                                "p.go:2: os.Create: ",
		"func f() { sites.Create(a) }":                             "",
		"func f() {\n//unsynced: scratch\nos.WriteFile(a, b, c) }": "",
		"func f() {\n//unsynced:\nos.WriteFile(a, b, c) }":         "p.go:4: os.WriteFile: ",
		"//unsynced: scratch\nfunc f() { disk.Write(a, b, c) }":    "p.go:2: a directive at nothing",
	} {
		_, problems := unsynced(t, "p.go", []byte("package p\n"+code))
		if got := strings.Join(problems, "\n"); want == "" && got != "" || !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q, want %q", code, got, want)
		}
	}
}
