package framework

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"slipway/internal/build/worktree"
	"slipway/internal/platform/fault"
)

// listed is a tree without a file system, like a Git listing, with arbitrary paths.
type listed []txtar.File

func (l listed) Paths() []string {
	var out []string
	for _, f := range l {
		out = append(out, f.Name)
	}
	return out
}

func (listed) Dangling() []string { return nil }

func (l listed) ReadFile(name string, max int64) ([]byte, error) {
	for _, f := range l {
		if f.Name == name {
			if int64(len(f.Data)) > max {
				return f.Data[:max], worktree.ErrTooLarge
			}
			return f.Data, nil
		}
	}
	return nil, os.ErrNotExist
}

// parse reads the cases' format without checking names (txtar.Parse panics on the marker "-- --").
func parse(s string) listed {
	var out listed
	for _, part := range strings.Split("\n"+s, "\n-- ")[1:] {
		name, data, ok := strings.Cut(part, " --\n")
		if ok && !strings.HasPrefix(name, "WANT") {
			out = append(out, txtar.File{Name: name, Data: []byte(data)})
		}
	}
	return out
}

// For any repository, Detect returns a plan or a fault with a message. Every folder in the plan is a clean path inside
// the repository, only the user's own text reaches a shell, and the plan survives JSON encoding.
func FuzzDetect(f *testing.F) {
	cases, _ := filepath.Glob("testdata/*.txtar")
	for _, file := range cases {
		b, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, "", "", "")
	}
	f.Add([]byte("-- index.html --\nx\n"), "../..", "/etc", "static")
	f.Add([]byte("-- ../x/package.json --\n{}\n-- /etc/passwd --\n-- a\\b --\n"), "a", "b/../c", "vite")
	f.Add([]byte("-- slipway.toml --\na="+strings.Repeat("[", 5000)+"\n-- package.json --\n"+strings.Repeat(`{"a":`, 5000)), "", "", "next")
	f.Fuzz(func(t *testing.T, repo []byte, root, output, preset string) {
		var o Overrides
		for p, v := range map[**string]*string{&o.Root: &root, &o.Output: &output, &o.Framework: &preset} {
			if *v != "" {
				*p = v
			}
		}
		files := parse(string(repo))
		plan, err := Detect(files, o)
		if err != nil {
			if e := fault.As(err); e == nil || e.Kind != fault.Invalid || e.Message == "" {
				t.Fatalf("not a sentence for the owner: %v", err)
			}
			return
		}
		check(t, files, plan)
	})
}

func check(t *testing.T, files worktree.Files, plan Plan) {
	t.Helper()
	folders := append([]string{plan.Root, plan.Output}, plan.OutputCandidates...)
	folders = append(append(folders, plan.Modules...), plan.Inputs...)
	for _, c := range plan.Cache {
		folders = append(folders, strings.TrimPrefix(c, "~/"))
	}
	said := strings.Join(files.Paths(), "\n")
	for _, c := range append(plan.Install, plan.Build...) {
		folders = append(folders, c.Dir)
		if (len(c.Argv) == 0) == (c.Shell == "") {
			t.Errorf("a command is either ours or the user's: %+v", c)
		}
		if c.Shell != "" && !strings.Contains(
			said,
			"slipway.toml",
		) && !strings.Contains(said, "netlify.toml") && !strings.Contains(said, "vercel.json") {
			t.Errorf("no message names %q", c.Shell)
		}
		for _, a := range c.Argv {
			if strings.ContainsRune(a, 0) {
				t.Errorf("an argument holds NUL: %q", c.Argv)
			}
		}
	}
	for _, f := range folders {
		if !inside(f) {
			t.Errorf("%q is not a clean relative path", f)
		}
	}
	if !known(plan.Framework) || plan.Why == "" {
		t.Errorf("framework %q, why %q", plan.Framework, plan.Why)
	}
	b, err := json.Marshal(plan)
	if err != nil {
		t.Fatal(err)
	}
	var back Plan
	if err := json.Unmarshal(b, &back); err != nil {
		t.Fatal(err)
	}
	again, _ := json.Marshal(back)
	if string(again) != string(b) {
		t.Errorf("kept as %s, read as %s", b, again)
	}
}

func inside(f string) bool { return f == "" || worktree.Clean(f) }
