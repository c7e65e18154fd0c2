package build

import (
	"context"
	"maps"
	"strings"
	"testing"

	"slipway/internal/build/framework"
	"slipway/internal/platform/fault"
)

// If a build makes no page and the project depends on a server, the built server is found and started, and never
// published. If it isn't clear which file it is, the error asks for the start command.
func TestServersThatBuildsMake(t *testing.T) {
	t.Parallel()
	static := framework.Plan{Runtime: framework.Static, Output: "dist", Server: "express"}
	nest := framework.Plan{Runtime: framework.Node, Start: start("node", "dist/main")}
	command := "node dist/main"
	own := nest
	own.Run = &framework.Run{Command: &command}
	app := static
	app.Root = "apps/api"
	for name, c := range map[string]struct {
		files   map[string]string
		plan    framework.Plan
		server  string // the file that is started
		runtime string
		says    string // the error
	}{
		"main.js":            {files: map[string]string{"dist/api/main.js": "x", "dist/api/chunk.js": "x"}, plan: static, server: "dist/api/main.js", runtime: "node"},
		"the main file":      {files: map[string]string{"package.json": `{"main": "out/start"}`, "out/start.js": "x", "dist/main.js": "x"}, plan: static, server: "out/start.js", runtime: "node"},
		"index.js, no main":  {files: map[string]string{"package.json": `{"main": "gone.js"}`, "build/index.js": "x"}, plan: static, server: "build/index.js", runtime: "node"},
		"in a folder":        {files: map[string]string{"apps/api/dist/server.mjs": "x", "dist/main.js": "x"}, plan: app, server: "dist/server.mjs", runtime: "node"},
		"a front end beside": {files: map[string]string{"dist/web/main.js": "x", "dist/web/index.html": "x", "dist/api/main.js": "x"}, plan: static, runtime: "static"},
		"pages":              {files: map[string]string{"dist/docs/a.html": "x", "dist/main.js": "x"}, plan: static, runtime: "static"},
		"several":            {files: map[string]string{"dist/a/main.js": "x", "dist/b/main.js": "x"}, plan: static, says: "the build wrote dist/a/main.js, dist/b/main.js"},
		"the sources below": {
			files: map[string]string{"dist/api/main.js": "x", "dist/api/src/main.js": "x", "build/main.c": "x"}, plan: static, server: "dist/api/main.js", runtime: "node",
		},
		"none":                {files: map[string]string{"dist/style.css": "x"}, plan: static, says: "set command under [run] in slipway.toml"},
		"no server":           {files: map[string]string{"dist/main.js": "x"}, plan: framework.Plan{Runtime: framework.Static, Output: "dist"}, runtime: "static"},
		"of Nest in a folder": {files: map[string]string{"dist/apps/api/main.js": "x"}, plan: nest, server: "dist/apps/api/main.js", runtime: "node"},
		"of Nest":             {files: map[string]string{"dist/main.js": "x", "dist/x/main.js": "x"}, plan: nest, runtime: "node"},
		"as the file says":    {files: map[string]string{"dist/apps/api/main.js": "x"}, plan: own, runtime: "node"},
	} {
		root := checkout(t, c.files)
		b := &build{Spec: Spec{Plan: c.plan}, report: quiet{}, work: strings.TrimSuffix(root.Name(), "/"+RepoDir)}
		var got *Artefact
		err := b.handOver(t.Context(), func(_ context.Context, a Artefact) error { got = &a; return nil })
		switch f := fault.As(err); {
		case c.says != "":
			if f == nil || f.Code != "start_command_missing" || !strings.Contains(f.Message, "start command") || !strings.Contains(f.Details, c.says) {
				t.Errorf("%s: %v", name, err)
			}
		case err != nil:
			t.Errorf("%s: %v", name, err)
		case got.Server != c.server || got.Runtime != c.runtime:
			t.Errorf("%s: %s, started is %q; want %s, %q", name, got.Runtime, got.Server, c.runtime, c.server)
		case c.server != "" && got.Start.Command.String() != "node "+c.server:
			t.Errorf("%s: started by %s", name, got.Start.Command)
		}
	}
}

// The folder that the build wrote is published rather than an old committed one.
func TestTheFolderThatTheBuildWrote(t *testing.T) {
	t.Parallel()
	old := map[string]string{"dist/index.html": "old", "docs/index.html": "manual"}
	plan := func(command string) framework.Plan {
		p := sh(command)
		p.OutputCandidates = []string{"build", "public", "docs", ""}
		return p
	}
	said := plan("mkdir build; echo new > build/index.html")
	said.Sources = map[string]string{"output": "netlify.toml"}
	for name, c := range map[string]struct {
		plan framework.Plan
		want string
	}{
		"another one":       {plan("mkdir build; echo new > build/index.html"), "new\n"},
		"the same one":      {plan("echo new > dist/index.html"), "new\n"},
		"one without pages": {plan("mkdir public; echo new > public/style.css"), "old"},
		"none":              {plan("echo x > log.html"), "old"},
		"with dates kept":   {plan("mkdir build; echo new > build/index.html; touch -d 2001-01-01 build build/index.html"), "new\n"},
		"another is named":  {said, "old"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if o := newSite(t).build(maps.Clone(old), c.plan); o.err != nil || o.files["index.html"] != c.want {
				t.Errorf("%v: %q, want %q\n%s", o.err, o.files["index.html"], c.want, o.text())
			}
		})
	}
}

// The static files of a PHP site exclude source code, closed paths and storage.
func TestHiddenFilesOfPHP(t *testing.T) {
	t.Parallel()
	hidden := hiddenPHP(&framework.Start{DocumentRoot: "public", Closed: []string{"data", "keys.txt"}, Storage: []string{"public/up"}}, nil, "")
	for name, want := range map[string]bool{
		"a.css": false, "a.php": true, "data": true, "data/x.txt": true, "database.txt": false, "keys.txt": true, "up/a.png": true,
	} {
		if got := hidden(name); got != want {
			t.Errorf("%s is hidden: %v", name, got)
		}
	}
}

// Installing packages may create a .htaccess. Its rules are part of the stored plan, and files that it closes or
// rewrites are left to PHP.
func TestInstalledRules(t *testing.T) {
	t.Parallel()
	start := &framework.Start{DocumentRoot: "web"}
	b := &build{report: quiet{}, Spec: Spec{Plan: framework.Plan{
		Runtime: framework.PHP, Start: start, Install: []framework.Command{framework.ParseCommand("composer install")},
	}}}
	a := Artefact{Runtime: framework.PHP, Start: start, Files: checkout(t, map[string]string{
		"web/index.php": "x", "web/old.css": "x", "web/.htaccess": "RewriteRule ^old\\.css$ new.css\nRewriteCond %{REQUEST_FILENAME} !-f\nRewriteRule ^ index.php [L]",
		"web/data/.htaccess": "<Files *.txt>\nRequire all denied\n</Files>", "node_modules/.htaccess": "RewriteRule ( - [F]",
	})}
	if err := b.apache(&a); err != nil {
		t.Fatal(err)
	}
	if len(a.Start.Rules) != 2 || len(start.Rules) != 0 {
		t.Fatalf("rules: %+v", a.Start.Rules)
	}
	for name, want := range map[string]bool{"old.css": true, "data/a.txt": true, "data/a.css": false, "a.css": false, "index.php": true} {
		if a.Hidden(name) != want {
			t.Errorf("%s: hidden is %v", name, !want)
		}
	}
	a.Files = checkout(t, map[string]string{"web/.htaccess": "RewriteRule ^( - [F]"})
	if err := b.apache(&a); err == nil || !strings.Contains(err.Error(), "web/.htaccess: line 1: ") {
		t.Errorf("a file that can't be obeyed: %v", err)
	}
}

// A deployment fails if the document root or front controller doesn't exist after the build.
func TestPlaceOfPHP(t *testing.T) {
	t.Parallel()
	files := checkout(t, map[string]string{"web/index.php": "x", "web/folder.php/a": "x"})
	for want, start := range map[string]framework.Start{
		"":                         {DocumentRoot: "web", FrontController: "index.php"},
		"document_root_missing":    {DocumentRoot: "public"},
		"front_controller_missing": {DocumentRoot: "web", FrontController: "app.php"},
	} {
		err := placed(&Artefact{Files: files, Start: &start}, "")
		if f := fault.As(err); (f == nil) != (want == "") || f != nil && f.Code != want {
			t.Errorf("%+v: %v", start, err)
		}
	}
	if err := placed(&Artefact{Files: files, Start: &framework.Start{FrontController: "folder.php"}}, "web"); err == nil {
		t.Error("a folder was accepted as the front controller")
	}
}
