package framework

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"slipway/internal/platform/fault"
)

const conflict = "<<<<<<< HEAD\n%s\n=======\n%s\n>>>>>>> feature\n"

// If a file that decides how a project is built can't be read, the detection fails rather than ignoring the file, which
// would publish the sources.
func TestUnreadableFilesFail(t *testing.T) {
	t.Parallel()
	const link = "a link"
	broken := map[string]map[string]string{ // file → content → text in the error
		"package.json": {
			"":                            "it is empty",
			" \n":                         "it is empty",
			"null":                        "object",
			"[]":                          "object",
			"{\"name\": \"x\",\n\n oops}": "line 3: ",
			"{\n/* a\n b */ \"name\": \"x\",\n \"scripts\": {!}}":   "line 4: ",
			fmt.Sprintf(conflict, `{"name": "a"}`, `{"name": "b"}`): "lines 1 to 5 are a merge conflict",
			`{"name": "` + strings.Repeat("x", 1<<20) + `"}`:        "it is larger than 1024 KiB",
			link: "link",
		},
		"composer.json":       {"": "it is empty", "{\n!}": "line 2: ", link: "link"},
		"vercel.json":         {"": "it is empty", "{\n!}": "line 2: ", link: "link"},
		"lerna.json":          {"{\n!}": "line 2: ", link: "link"},
		"netlify.toml":        {"[build]\ncommand =": "line 2", "[build]\ncommand = 3": "line 2", link: "link"},
		"slipway.toml":        {"[build]\ncommand =": "line 2", "[build]\ncommand = 3": "line 2", link: "link"},
		"pnpm-workspace.yaml": {fmt.Sprintf("packages:\n"+conflict, " - a", " - b"): "lines 2 to 6 are a merge conflict", link: "link"},
	}
	for file, texts := range broken {
		for text, says := range texts {
			t.Run(fmt.Sprintf("%s %.20q", file, text), func(t *testing.T) {
				t.Parallel()
				tree := fstest.MapFS{"index.html": {Data: []byte("x")}, "app/index.html": {Data: []byte("x")}}
				detect := func(o Overrides) {
					t.Helper()
					files, err := FromFS(tree)
					if err != nil {
						t.Fatal(err)
					}
					if text == link { // a broken link
						files.(*dirFiles).links = []string{file, "app/" + file}
					}
					plan, err := Detect(files, o)
					f := fault.As(err)
					if f == nil || f.Kind != fault.Invalid || !strings.Contains(f.Message, file) ||
						!strings.Contains(f.Message, says) || f.Details == "" {
						t.Errorf("%q, %v", plan.Name, err)
					}
				}
				if text != link {
					tree[file] = &fstest.MapFile{Data: []byte(text)}
					tree["app/"+file] = tree[file]
				}
				detect(Overrides{})
				app := "app"
				detect(Overrides{Root: &app})
			})
		}
	}
}

// A server ignores the Basic-Auth of static sites, so a rule that relies on it is an error: its paths would be open.
func TestPasswordsOfServers(t *testing.T) {
	t.Parallel()
	const table = "[[headers]]\nfor = \"/a/*\"\n[headers.values]\n\"basic-auth\" = \"a:b\"\n"
	for file, text := range map[string]string{
		"_headers": "/a/*\n  Basic-Auth: a:b\n", "public/_headers": "/a/*\n  basic-auth: a:b\n", "netlify.toml": table, "slipway.toml": table,
	} {
		files, err := FromFS(fstest.MapFS{
			"package.json": {Data: []byte(`{"dependencies": {"express": "5"}, "scripts": {"start": "node x.js"}}`)},
			"x.js":         {}, file: {Data: []byte(text)},
		})
		if err != nil {
			t.Fatal(err)
		}
		if plan, err := Detect(files, Overrides{}); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: %q, %v", file, plan.Name, err)
		}
	}
}

// A variable with this name isn't an error, because it protects nothing.
func TestVariablesAreNoPasswords(t *testing.T) {
	t.Parallel()
	files, err := FromFS(fstest.MapFS{
		"package.json": {Data: []byte(`{"dependencies": {"express": "5"}, "scripts": {"start": "node x.js"}}`)},
		"x.js":         {}, "netlify.toml": {Data: []byte("[build.environment]\nBASIC_AUTH = \"a:b\"\n")},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Detect(files, Overrides{}); err != nil {
		t.Error(err)
	}
}

// A long manifest is read.
func TestLongManifests(t *testing.T) {
	t.Parallel()
	var scripts strings.Builder
	for i := range 9000 {
		fmt.Fprintf(&scripts, `"script%d": "echo %d", `, i, i)
	}
	files, err := FromFS(fstest.MapFS{
		"index.html":   {Data: []byte("x")},
		"package.json": {Data: []byte(`{"scripts": {` + scripts.String() + `"build": "vite build"}, "devDependencies": {"vite": "7"}}`)},
	})
	if err != nil {
		t.Fatal(err)
	}
	if plan, err := Detect(files, Overrides{}); err != nil || plan.Framework != "vite" {
		t.Errorf("%q, %v", plan.Framework, err)
	}
}
