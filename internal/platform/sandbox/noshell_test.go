package sandbox

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// shells are programs that interpret commands. The control plane must not start them.
var shells = map[string]bool{
	"sh":         true,
	"bash":       true,
	"dash":       true,
	"ash":        true,
	"zsh":        true,
	"ksh":        true,
	"fish":       true,
	"csh":        true,
	"tcsh":       true,
	"busybox":    true,
	"env":        true,
	"xargs":      true,
	"eval":       true,
	"cmd":        true,
	"powershell": true,
	"python":     true,
	"python3":    true,
	"perl":       true,
}

// shellAllowed lists the files, as slash paths from the module's root, that may start one, and why. Commands that run
// in a sandbox are in Command.Argv and need no entry.
var shellAllowed = map[string]string{
	"e2e/world/scenario.go": "a test: the examples of the documentation are pasted into a shell, as their readers do",
	"e2e/world/terminal.go": "a test: the commands of the guides are run as their readers do, in a shell at a terminal",
	"e2e/world/world.go":    "a test: a process that takes systemd's sockets must be told its own number before it starts",
}

var gitSetting = regexp.MustCompile(`^[a-z]+(\.[A-Za-z]+)+=`)

// Outside tests, the module never passes a shell, or "-c" before a command text, to os/exec, os.StartProcess or
// syscall.Exec. The test checks the syntax tree of all files.
func TestNoShell(t *testing.T) {
	t.Parallel()
	root := moduleRoot(t)
	files := 0
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); p != root &&
				(strings.HasPrefix(name, ".") || name == "testdata" || name == "node_modules" || name == "vendor") {
				return filepath.SkipDir
			}
			return nil
		}
		rel, _ := filepath.Rel(root, p)
		rel = filepath.ToSlash(rel)
		if !strings.HasSuffix(p, ".go") || strings.HasSuffix(p, "_test.go") || shellAllowed[rel] != "" {
			return nil
		}
		src, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		files++
		found, err := shellCalls(rel, src)
		for _, f := range found {
			t.Error(f)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 10 {
		t.Errorf("only %d files were read", files)
	}
}

// shellCalls finds shells in all their spellings, so that the test above works.
func TestNoShellFinds(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		body string
		bad  bool
	}{
		"plain":            {`exec.Command("sh", "-c", x)`, true},
		"by path":          {`exec.CommandContext(ctx, "/bin/bash", x)`, true},
		"-c alone":         {`exec.Command(shell, "-c", x)`, true},
		"-lc":              {`exec.Command(shell, "-lc", x)`, true},
		"struct":           {`_ = exec.Cmd{Path: "/bin/sh", Args: a}`, true},
		"args of a struct": {`_ = &exec.Cmd{Path: p, Args: []string{"sh", "-c", x}}`, true},
		"through env":      {`exec.Command("/usr/bin/env", "sh")`, true},
		"constant":         {`const s = "sh"; exec.Command(s, x)`, true},
		"StartProcess":     {`os.StartProcess("/bin/sh", nil, nil)`, true},
		"syscall.Exec":     {`syscall.Exec("/bin/sh", nil, nil)`, true},
		"git -c":           {`exec.Command("git", "-c", "protocol.allow=never", "fetch")`, false},
		"git by path":      {`exec.Command(git, "-c", "protocol.https.allow=always", "fetch")`, false},
		"other":            {`exec.Command("git", "fetch", "--", x)`, false},
		"LookPath":         {`exec.LookPath("bwrap")`, false},
		"sandboxed":        {`_ = Command{Argv: []string{"sh", "-c", x}}`, false},
	} {
		found, err := shellCalls("x.go", []byte("package x\nimport (\"os/exec\"; \"os\"; \"syscall\")\nfunc f() { "+tt.body+" }\n"))
		if err != nil {
			t.Fatal(err)
		}
		if (len(found) > 0) != tt.bad {
			t.Errorf("%s: %v", name, found)
		}
	}
}

func moduleRoot(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		up := filepath.Dir(dir)
		if up == dir {
			t.Fatal("no go.mod above")
		}
		dir = up
	}
}

// shellCalls lists the places in a file that start a shell.
func shellCalls(name string, src []byte) ([]string, error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, src, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	starters := map[string]string{"os/exec": "", "os": "", "syscall": "", "golang.org/x/sys/unix": ""}
	local := map[string]string{} // package name in this file → import path
	for _, i := range file.Imports {
		p, _ := strconv.Unquote(i.Path.Value)
		if _, ok := starters[p]; ok {
			local[path.Base(p)] = p
			if i.Name != nil {
				local[i.Name.Name] = p
			}
		}
	}
	constants := map[string]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok {
			for i, id := range v.Names {
				if i < len(v.Values) {
					if s, ok := said(v.Values[i], nil); ok {
						constants[id.Name] = s
					}
				}
			}
		}
		return true
	})
	var found []string
	report := func(n ast.Node, why string) {
		found = append(found, set.Position(n.Pos()).String()+": starts a shell ("+why+")")
	}
	check := func(n ast.Node, args []ast.Expr) {
		program := ""
		for i, a := range args {
			s, ok := said(a, constants)
			if !ok {
				continue
			}
			if program == "" {
				program = path.Base(s)
			}
			if shells[path.Base(s)] && (i == 0 || program == path.Base(s)) {
				report(n, s)
			}
			if strings.HasPrefix(s, "-") && !strings.HasPrefix(s, "--") && strings.HasSuffix(s, "c") && len(s) <= 4 && program != "git" {
				if i+1 < len(args) { // git -c section.key=value, with any path of git
					if next, ok := said(args[i+1], constants); ok && gitSetting.MatchString(next) {
						continue
					}
				}
				report(n, s)
			}
		}
	}
	is := func(e ast.Expr, names ...string) bool {
		sel, ok := e.(*ast.SelectorExpr)
		if !ok {
			return false
		}
		id, ok := sel.X.(*ast.Ident)
		if !ok || local[id.Name] == "" {
			return false
		}
		for _, n := range names {
			if local[id.Name]+"."+sel.Sel.Name == n {
				return true
			}
		}
		return false
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			switch {
			case is(n.Fun, "os/exec.CommandContext") && len(n.Args) > 0:
				check(n, flatten(n.Args[1:]))
			case is(n.Fun, "os/exec.Command", "os.StartProcess", "syscall.Exec", "syscall.ForkExec",
				"syscall.StartProcess", "golang.org/x/sys/unix.Exec"):
				check(n, flatten(n.Args))
			}
		case *ast.CompositeLit:
			if is(n.Type, "os/exec.Cmd") {
				for _, e := range n.Elts {
					if kv, ok := e.(*ast.KeyValueExpr); ok {
						check(n, flatten([]ast.Expr{kv.Value}))
					}
				}
			}
		}
		return true
	})
	return found, nil
}

// flatten returns the arguments with the elements of slices and append calls.
func flatten(args []ast.Expr) (flat []ast.Expr) {
	for _, a := range args {
		switch a := a.(type) {
		case *ast.CompositeLit:
			flat = append(flat, flatten(a.Elts)...)
		case *ast.CallExpr:
			if id, ok := a.Fun.(*ast.Ident); ok && id.Name == "append" {
				flat = append(flat, flatten(a.Args)...)
				continue
			}
			flat = append(flat, a)
		default:
			flat = append(flat, a)
		}
	}
	return flat
}

func said(e ast.Expr, constants map[string]string) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind == token.STRING {
			s, err := strconv.Unquote(e.Value)
			return s, err == nil
		}
	case *ast.Ident:
		s, ok := constants[e.Name]
		return s, ok
	}
	return "", false
}
