package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A test needs a database if the names in it lead to one: through helpers, methods, tables and packages that have one
// in tests, or through the variable that names the cluster. All other tests must run once.
func TestOnDatabase(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	write := func(files map[string]string) string {
		t.Helper()
		for name, text := range files {
			name = filepath.Join(root, name)
			if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		return filepath.Join(root, "internal", "a")
	}
	dir := write(map[string]string{
		"go.mod":                  "module slipway",
		"internal/stand/stand.go": "package stand\nimport \"slipway/internal/near\"\nvar _ = near.X",
		"internal/near/near.go":   "package near\nimport \"" + databases + "\"\nvar X = dbtest.New",
		"internal/far/far.go":     "package far\nimport \"strings\"\nvar X = strings.Cut",
		"internal/far/f_test.go":  "package far\nimport _ \"" + databases + "\"",
		"internal/a/a_test.go": `package a
import (
	"os"
	"testing"
	of "` + databases + `"
	"slipway/internal/far"
	"slipway/internal/stand"
)
func TestDirect(t *testing.T) { of.New(t) }
func TestByHelper(t *testing.T) { t.Run("x", func(t *testing.T) { world(t) }) }
func TestByTable(t *testing.T) { for _, f := range table { f(t) } }
func TestByMethod(t *testing.T) { kit{}.makes(t) }
func TestByPackage(t *testing.T) { stand.X() }
func TestByVariable(t *testing.T) { os.Getenv("SLIPWAY_TEST_DSN") }
func FuzzIt(f *testing.F) { world(f) }
func TestNone(t *testing.T) { far.X("dbtest", "") }
func FuzzNone(f *testing.F) {}
`,
		"internal/a/b_test.go": "package a_test\nvar table = []func(testing.TB){func(t testing.TB) { world(t) }}\n" +
			"type kit struct{}\nfunc (kit) makes(t testing.TB) { world(t) }\nfunc world(t testing.TB) { deep(t) }",
		"internal/a/c_test.go": "package a\nimport \"" + databases + "\"\nfunc deep(t testing.TB) { dbtest.New(t) }\n" +
			"func TestSimulated(t *testing.T) { dbtest.Bubble(t) }\nfunc TestBothKinds(t *testing.T) { dbtest.Bubble(t); dbtest.New(t) }",
		"internal/a/a.go": "package a",
	})
	args, err := onDatabase(dir, false)
	if err != nil || len(args) != 1 {
		t.Fatalf("got %q: %v", args, err)
	}
	pattern := regexp.MustCompile(strings.TrimPrefix(args[0], "-test.run="))
	for name, want := range map[string]bool{
		"TestDirect": true, "TestByHelper": true, "TestByTable": true, "TestByMethod": true, "TestByPackage": true, "TestByVariable": true,
		"FuzzIt": true, "TestBothKinds": true, "TestSimulated": false, "TestNone": false, "FuzzNone": false, "TestDirectly": false, "": false,
	} {
		if got := pattern.MatchString(name); got != want {
			t.Errorf("%q runs on PostgreSQL: %v", name, got)
		}
	}

	// If only tests of several nodes are wanted, those are selected that use a declaration that opens such a database.
	args, err = onDatabase(write(map[string]string{
		"internal/a/e_test.go": "package a\nfunc second() { dbtest.Open(nil, dbtest.URL(nil)) }\nfunc TestNodes() {}",
		"internal/a/f_test.go": "package a\nfunc TestNodesToo() { second() }\nfunc TestOneNode() { dbtest.New(nil) }",
	}), true)
	if err != nil || len(args) != 1 || args[0] != "-test.run=^(TestNodes|TestNodesToo)$" {
		t.Errorf("of several nodes: %q, %v", args, err)
	}

	// If every test runs some code, such as TestMain, or if the names in a file are ambiguous, all tests must be
	// selected.
	for what, text := range map[string]string{
		"TestMain":    "package a\nfunc TestMain(m *testing.M) { deep(nil) }",
		"init":        "package a\nfunc init() { deep(nil) }",
		"dot import":  "package a\nimport . \"" + databases + "\"",
		"only linked": "package a\nimport _ \"slipway/internal/stand\"",
	} {
		if args, err := onDatabase(write(map[string]string{"internal/a/d_test.go": text}), false); err != nil || args != nil {
			t.Errorf("%s: %q, %v", what, args, err)
		}
	}
	if _, err := onDatabase(write(map[string]string{"internal/a/d_test.go": "package"}), false); err == nil {
		t.Error("invalid sources gave no error")
	}
}
