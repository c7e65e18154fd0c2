package egress

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// inward lists the packages that may open connections themselves, and why: none of them connects to an address that a
// user chose.
var inward = map[string]string{
	"internal/platform/egress":   "this is the egress proxy",
	"internal/platform/db":       "the operator's database",
	"internal/program/database":  "the sites' database server, which is ours or the operator's",
	"internal/program/redis":     "the operator's Redis server",
	"internal/tenant/domain":     "DNS questions to the operator's resolver",
	"internal/platform/blob":     "the operator's object store",
	"internal/tenant/mail":       "the operator's mail server",
	"internal/program/runtime":   "health checks of own processes, over loopback or unix sockets",
	"internal/platform/sandbox":  "the unix socket between a build and its proxy",
	"internal/client/rest":       "a developer's own machine: the installation that its user signs in at",
	"internal/web/listen":        "a developer's own machine: the installation and the target that its user names",
	"internal/program/remote":    "this installation's own programs, through other nodes",
	"internal/program/transport": "this installation's own programs, through their engine",
	"internal/web/api":           "nothing but its own listener",
	"internal/deploy/screenshot": "the edge of this machine, for the site that is pictured",
	"internal/operator/try":      "the listener of the service that it starts",
	"internal/platform/dbtest":   "tests alone: the database that they have, through a proxy",
	"internal/operator/setup":    "ports of this machine, and the mail server that the operator names",
	"internal/operator/upgrade":  "this machine's own listeners, and the release that the operator names",
	"internal/platform/systemd":  "the unix socket of the systemd that started it, and the service's own listener, to know that it works",
	"internal/program/relay":     "the installation's other nodes, at the addresses that the operator gave them, by certificates of its own",

	"cluster": "the cluster's API server, the pods of own programs, and from these the control plane and the program itself",

	"internal/tenant/stripe/stripetest": "tests alone: what checks the stand-in's requests, on this machine",
}

// forbidden lists the functions and types that open connections without the egress checks.
var forbidden = map[string][]string{
	"net":        {"Dial", "DialTimeout", "DialTCP", "DialUDP", "DialIP", "DialUnix", "Dialer"},
	"net/http":   {"Get", "Head", "Post", "PostForm", "DefaultClient", "DefaultTransport", "Client", "Transport", "ProxyFromEnvironment"},
	"crypto/tls": {"Dial", "DialWithDialer", "Dialer"},
	"net/smtp":   {"Dial", "SendMail"},
	"net/rpc":    {"Dial", "DialHTTP"},
}

// Only this package and those of inward open connections.
func TestOnlyWayOut(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..", "..")
	seen := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if n := d.Name(); n == "testdata" || n == "node_modules" || n == "e2e" || n == "bench" || n == "scripts" ||
				strings.HasPrefix(n, ".") && n != ".." {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		seen++
		dir, _ := filepath.Rel(root, filepath.Dir(path))
		for d := filepath.ToSlash(dir); d != "."; d = filepath.ToSlash(filepath.Dir(d)) {
			if inward[d] != "" {
				return nil
			}
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, at := range ways(f) {
			t.Errorf("%s: connections are made by egress alone", fset.Position(at))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen < 5 {
		t.Fatalf("only %d files seen: the walk is wrong", seen)
	}
}

// ways returns the uses of forbidden names. The type *http.Client is allowed, because checked clients are passed around
// with it.
func ways(f *ast.File) (out []token.Pos) {
	names := map[string]string{}
	for _, im := range f.Imports {
		path, _ := strconv.Unquote(im.Path.Value)
		name := path[strings.LastIndex(path, "/")+1:]
		if im.Name != nil {
			name = im.Name.Name
		}
		if forbidden[path] != nil {
			if name == "." {
				out = append(out, im.Pos())
			}
			names[name] = path
		}
	}
	pointed := map[ast.Expr]bool{}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.StarExpr:
			pointed[n.X] = true
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && !pointed[n] && slices.Contains(forbidden[names[x.Name]], n.Sel.Name) {
				out = append(out, n.Pos())
			}
		}
		return true
	})
	return out
}

func TestWays(t *testing.T) {
	t.Parallel()
	for src, want := range map[string]int{
		`import "net/http"; func f() { http.Get("x") }`:                                1,
		`import "net/http"; var c = &http.Client{}`:                                    1,
		`import h "net/http"; var c = h.DefaultClient`:                                 1,
		`import . "net"; func f() { Dial("tcp", "x") }`:                                1,
		`import "net"; var d net.Dialer`:                                               1,
		`import "net/http"; type T struct { c *http.Client }; func f(http.Handler) {}`: 0,
		`import "net"; func f() { net.Listen("tcp", ":0") }`:                           0,
	} {
		f, err := parser.ParseFile(token.NewFileSet(), "x.go", "package x; "+src, 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := len(ways(f)); got != want {
			t.Errorf("%s: %d found, want %d", src, got, want)
		}
	}
}
