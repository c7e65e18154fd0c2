package builds

import (
	"net/http"
	"strings"
	"testing"
)

// repo is a small repository that does what real projects do, and the expected result without any settings.
type repo struct {
	files map[string]string
	error string            // of its deployment; empty if it succeeds
	shows map[string]string // path → text, in which URL stands for the site's URL; 404 if empty
}

// local adds a package.json and a local express to files, so that a server needs no registry.
func local(manifest string, files map[string]string) map[string]string {
	files["package.json"] = manifest
	files["express/package.json"] = `{"name":"express","version":"1.0.0","main":"index.js"}`
	files["express/index.js"] = `module.exports = fn => require("http").createServer(fn).listen(process.env.PORT)`
	return files
}

const answers = `require("express")((q, r) => r.end("ok " + q.url))`

var repos = map[string]repo{
	"netlify-variables": {files: map[string]string{
		"netlify.toml": "[build]\ncommand = \"node build.js $URL $CONTEXT $PWD\"\npublish = \"public\"\n",
		"build.js":     `const fs = require("fs"); fs.mkdirSync("public"); fs.writeFileSync("public/index.html", process.argv.slice(2).join(" "))`,
	}, shows: map[string]string{"/": "URL production /build/repo"}},
	"compiled-server": {files: local(
		`{"scripts":{"build":"node build.js","start":"nx serve"},"dependencies":{"express":"file:./express"}}`,
		map[string]string{
			"build.js":    `const fs = require("fs"); fs.mkdirSync("dist/api", {recursive: true}); fs.copyFileSync("src/main.js", "dist/api/main.js")`,
			"src/main.js": answers,
		},
	), shows: map[string]string{"/": "ok /", "/api/main.js": "ok /api/main.js"}},
	"start-builds-first": {files: map[string]string{
		"package.json": `{"scripts":{"build":"node build.js","start":"npm run build && node server.js"}}`,
		"build.js":     `const fs = require("fs"); fs.writeFileSync("where.json", JSON.stringify(__dirname)); fs.writeFileSync("page", "found it")`,
		"server.js":    `const at = require("./where.json"); require("http").createServer((q, r) => r.end(require("fs").readFileSync(at + "/page"))).listen(process.env.PORT)`,
	}, shows: map[string]string{"/": "found it"}},
	"written-output": {files: map[string]string{
		"package.json":    `{"scripts":{"build":"node build.js"}}`,
		"build.js":        `const fs = require("fs"); fs.mkdirSync("build"); fs.writeFileSync("build/index.html", "new")`,
		"dist/index.html": "old",
	}, shows: map[string]string{"/": "new"}},
	"php-beside-html": {files: map[string]string{
		"index.html": "page", "contact.php": `<?php $key = "secret"; echo "thanks";`, "data/.htaccess": "Require all denied\n", "data/a.txt": "closed",
		"notes.txt": "open",
	}, shows: map[string]string{"/": "page", "/contact.php": "thanks", "/data/a.txt": "", "/notes.txt": "open", "/none": ""}},
	"python": {files: map[string]string{
		"requirements.txt": "flask\n", "app.py": "from flask import Flask\n", "Procfile": "web: gunicorn app:app\n",
	}, error: "This is a Python server (requirements.txt, app.py, Procfile)"},
	"merge-conflict": {files: map[string]string{
		"index.html": "source", "package.json": "<<<<<<< HEAD\n{}\n=======\n{\"a\": 1}\n>>>>>>> topic\n",
	}, error: "package.json can't be read: lines 1 to 5 are a merge conflict"},
	"protected-beside-a-build": {files: map[string]string{
		"package.json": `{"scripts":{"build":"node build.js"}}`,
		"build.js":     `const fs = require("fs"); fs.mkdirSync("dist"); fs.writeFileSync("dist/index.html", "page")`,
		"_headers":     "/secret/*/*\n  Basic-Auth: ada:secret\n",
	}, error: "_headers line 1: a path may contain only one *, and the rule protects it with a password"},
	"writes-beside-itself": {files: map[string]string{
		"package.json": `{"scripts":{"start":"node server.js"}}`,
		"server.js": `const fs = require("fs"); fs.mkdirSync("./data", {recursive: true}); fs.writeFileSync("./data/db", "stored")
			require("http").createServer((q, r) => r.end(fs.readFileSync("data/db"))).listen(process.env.PORT)`,
	}, shows: map[string]string{"/": "stored"}},
	"read-only": {files: map[string]string{
		"package.json": `{"scripts":{"start":"node server.js"}}`,
		"server.js":    `require("fs").mkdirSync("./data", {recursive: true})`,
		"slipway.toml": "[run]\nread_only = true\n",
	}, error: `add storage = ["data"] under [run] in slipway.toml`},
}

// Small repositories of common kinds deploy without configuration, or fail with an error that says what to do.
func TestSmallRepositories(t *testing.T) {
	t.Parallel()
	h := newHarness(t, 0)
	for name, r := range repos {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := *h
			h.t = t
			h.commit("acme/"+name, r.files)
			s := h.site("acme/"+name, nil)
			d := h.wait(s, h.first(s))
			if (d.Status == "success") != (r.error == "") || !strings.Contains(d.Error, r.error) {
				t.Fatalf("%s: %s\n%s", d.Status, d.Error, h.log(s, d.ID))
			}
			for path, want := range r.shows {
				if want != "" {
					h.shows(s.URL+path, strings.ReplaceAll(want, "URL", s.URL))
				}
			}
			for path, want := range r.shows { // after a new page was seen, the edge serves the new release
				if a := h.page(s.URL + path); want == "" && a.Status != http.StatusNotFound {
					t.Errorf("%s: %d %s", path, a.Status, a.Body)
				}
			}
		})
	}
}
