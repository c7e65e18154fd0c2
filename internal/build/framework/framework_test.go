package framework

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"slipway/internal/build/worktree"
	"slipway/internal/platform/fault"
)

var update = flag.Bool("update", false, "rewrite the wanted plans in testdata")

// Each case is a repository. Lines `set key=value` above its files are the site's settings. The last file is the plan
// as JSON, or the error.
func TestDetect(t *testing.T) {
	t.Parallel()
	cases, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(cases) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, file := range cases {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			t.Parallel()
			ar, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			repo, want := split(ar)
			files, err := FromFS(repo)
			if err != nil {
				t.Fatal(err)
			}
			got := answer(files, settingsOf(t, ar.Comment))
			if *update {
				var kept []txtar.File
				for _, f := range ar.Files {
					if !strings.HasPrefix(f.Name, "WANT") {
						kept = append(kept, f)
					}
				}
				ar.Files = append(kept, got)
				if err := os.WriteFile(file, txtar.Format(ar), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(string(want.Data), string(got.Data)); diff != "" || want.Name != got.Name {
				t.Errorf("%s (want %s) differs (-want +got); go test -update rewrites it:\n%s", got.Name, want.Name, diff)
			}
		})
	}
}

func split(ar *txtar.Archive) (repo fstest.MapFS, want txtar.File) {
	repo = fstest.MapFS{}
	for _, f := range ar.Files {
		if strings.HasPrefix(f.Name, "WANT") {
			want = f
			continue
		}
		repo[f.Name] = &fstest.MapFile{Data: f.Data, Mode: 0o644}
	}
	return repo, want
}

func settingsOf(t testing.TB, comment []byte) Overrides {
	var o Overrides
	fields := map[string]**string{
		"framework": &o.Framework, "root": &o.Root, "install": &o.Install,
		"command": &o.Command, "output": &o.Output, "node": &o.Node,
	}
	for line := range strings.Lines(string(comment)) {
		line = strings.TrimSpace(line)
		if rest, ok := strings.CutPrefix(line, "set "); ok {
			key, value, _ := strings.Cut(rest, "=")
			f, ok := fields[key]
			if !ok {
				t.Fatalf("unknown setting %q", key)
			}
			*f = &value
		}
	}
	return o
}

func answer(files worktree.Files, o Overrides) txtar.File {
	plan, err := Detect(files, o)
	if err != nil {
		f := fault.As(err)
		if f == nil || f.Kind != fault.Invalid {
			return txtar.File{Name: "WANT.error", Data: []byte("not a fault: " + err.Error() + "\n")}
		}
		return txtar.File{Name: "WANT.error", Data: []byte(f.Message + "\n" + f.Details + "\n")}
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(plan); err != nil {
		panic(err)
	}
	return txtar.File{Name: "WANT.json", Data: b.Bytes()}
}

// Every preset is the result of at least one case.
func TestEveryPresetHasACase(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	cases, _ := filepath.Glob("testdata/*.txtar")
	for _, file := range cases {
		ar, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		_, want := split(ar)
		var p Plan
		if want.Name == "WANT.json" {
			if err := json.Unmarshal(want.Data, &p); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			seen[p.Framework] = true
		}
	}
	ids := map[string]bool{}
	for _, p := range Presets() {
		if ids[p.ID] {
			t.Errorf("preset id %s stands twice", p.ID)
		}
		ids[p.ID] = true
		if !seen[p.ID] {
			t.Errorf("preset %s has no case in testdata", p.ID)
		}
	}
}

// Framework names in vercel.json exist as presets, because unknown ones would be ignored.
func TestVercelNamesAreKnown(t *testing.T) {
	t.Parallel()
	for _, slug := range []string{
		"nextjs", "vite", "create-react-app", "gatsby", "astro", "sveltekit", "nuxtjs",
		"docusaurus-2", "eleventy", "hexo", "hugo", "jekyll", "angular", "ember", "vuepress", "vitepress", "vue",
		"remix", "react-router", "storybook", "parcel", "zola", "stencil", "gridsome", "nestjs", "express", "fastify",
	} {
		if id := fromVercel(slug); id == "" || !known(id) {
			t.Errorf("fromVercel(%q) = %q, which is no preset", slug, id)
		}
	}
}
