package framework

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"slipway/internal/build/worktree"
	"slipway/internal/platform/fault"
)

// Symbolic links out of the repository are neither listed nor read, and committed dependencies are skipped.
func TestFromFSFollowsNoLink(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	secret := filepath.Join(t.TempDir(), "index.html")
	for name, data := range map[string]string{
		secret: "secret", filepath.Join(dir, "a/b.txt"): "b", filepath.Join(dir, "node_modules/x/package.json"): "{}",
		filepath.Join(dir, ".git/config"): "x",
	} {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(data), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"index.html": secret, "public": filepath.Dir(secret)} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	files, err := FromFS(root.FS())
	if err != nil {
		t.Fatal(err)
	}
	if got := files.Paths(); !slices.Equal(got, []string{"a/b.txt"}) {
		t.Errorf("Paths() = %q", got)
	}
	if plan, err := Detect(files, Overrides{}); !fault.Is(err, fault.Invalid) {
		t.Errorf("Detect found a page through a link: %+v, %v", plan, err)
	}
}

func TestReadFileIsBounded(t *testing.T) {
	t.Parallel()
	files, err := FromFS(fstest.MapFS{"big": {Data: []byte("0123456789")}})
	if err != nil {
		t.Fatal(err)
	}
	if b, err := files.ReadFile("big", 10); err != nil || len(b) != 10 {
		t.Errorf("ReadFile at its limit: %q, %v", b, err)
	}
	if b, err := files.ReadFile("big", 9); !errors.Is(err, worktree.ErrTooLarge) || string(b) != "012345678" {
		t.Errorf("ReadFile over its limit: %q, %v", b, err)
	}
	if _, err := files.ReadFile("none", 9); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("ReadFile of nothing: %v", err)
	}
}

func TestOutputDirectory(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		files  []string
		toml   string
		output string
		want   string // "!" means a fault
	}{
		"root":              {files: []string{"index.html", "docs/x.md"}, want: ""},
		"order":             {files: []string{"index.html", "docs/index.html", "dist/index.html", "public/index.html"}, want: "public"},
		"top before docs":   {files: []string{"index.html", "docs/index.html"}, want: ""},
		"docs last":         {files: []string{"README.md", "docs/index.html"}, want: "docs"},
		"folder before top": {files: []string{"index.html", "build/index.html"}, want: "build"},
		"deeper is not it":  {files: []string{"public/a/index.html"}, want: "!"},
		"toml names it":     {files: []string{"index.html", "web/a.html"}, toml: `output = "web"`, want: "web"},
		"toml, build":       {files: []string{"index.html", "web/a.html"}, toml: "[build]\noutput = \"./web/\"", want: "web"},
		"settings win":      {files: []string{"a/x", "b/x"}, toml: `output = "a"`, output: "b", want: "b"},
		"below a root": {
			files: []string{"site/public/index.html", "index.html"},
			toml:  "[build]\nroot = \"site\"",
			want:  "site/public",
		},
		"climbs":  {files: []string{"index.html"}, toml: `output = "../web"`, want: "!"},
		"nothing": {files: []string{"README.md"}, want: "!"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			repo := fstest.MapFS{}
			for _, f := range tt.files {
				repo[f] = &fstest.MapFile{Data: []byte("x")}
			}
			if tt.toml != "" {
				repo["slipway.toml"] = &fstest.MapFile{Data: []byte(tt.toml)}
			}
			files, err := FromFS(repo)
			if err != nil {
				t.Fatal(err)
			}
			var o Overrides
			if tt.output != "" {
				o.Output = &tt.output
			}
			plan, err := Detect(files, o)
			got := worktree.Join(plan.Root, plan.Output)
			if tt.want == "!" {
				if !fault.Is(err, fault.Invalid) {
					t.Errorf("output %q, %v, want a fault", got, err)
				}
				return
			}
			if err != nil || got != tt.want {
				t.Errorf("output %q, %v, want %q", got, err, tt.want)
			}
		})
	}
}

// Detect returns a plan or an error for malicious repositories without taking long.
func TestHostileSizes(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a*", 60)
	manifest := `{"workspaces":["` + strings.Repeat(`**/`+long+`","`, 5000) + `x"]}`
	var many listed
	for i := range 30_000 {
		name := strings.Repeat(
			"a",
			100,
		) + "/" + strings.Repeat("a", 100) + "/" + string(rune('a'+i%26)) + strings.Repeat("b", i%40) + "/package.json"
		many = append(many, struct {
			Name string
			Data []byte
		}{name, []byte("{}")})
	}
	for name, files := range map[string]listed{
		"patterns": append(many, listed{{Name: "package.json", Data: []byte(manifest)}}...),
		"brackets": {{Name: "slipway.toml", Data: []byte("a = " + strings.Repeat("[", 900_000))}},
		"tables":   {{Name: "netlify.toml", Data: []byte("[" + strings.Repeat("a.", 400_000) + "a]\n")}, {Name: "index.html"}},
		"json":     {{Name: "package.json", Data: []byte(strings.Repeat(`{"a":`, 200_000))}, {Name: "index.html"}},
		"code": {
			{Name: "package.json", Data: []byte(`{"devDependencies":{"vite":"8"}}`)},
			{Name: "index.html"},
			{Name: "vite.config.js", Data: []byte(strings.Repeat("/* ", 100_000) + strings.Repeat("build: {", 80_000))},
		},
		"large": {{Name: "package.json", Data: make([]byte, worktree.MaxFile+1)}, {Name: "index.html"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			start := time.Now()
			plan, err := Detect(files, Overrides{})
			if err != nil && !fault.Is(err, fault.Invalid) {
				t.Errorf("Detect: %v", err)
			}
			if took := time.Since(start); took > time.Minute { // only if it hangs
				t.Errorf("took %v", took)
			} else {
				t.Logf("%s in %v, %v", plan.Framework, took, err)
			}
		})
	}
}
