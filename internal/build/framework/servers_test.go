package framework

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"slipway/internal/build/worktree"
)

// repository returns files with a package.json, and files with these names.
func repository(t *testing.T, pkg, names string) worktree.Files {
	t.Helper()
	fsys := fstest.MapFS{}
	if pkg != "" {
		fsys["package.json"] = &fstest.MapFile{Data: []byte(pkg)}
	}
	for _, name := range strings.Fields(names) {
		fsys[name] = &fstest.MapFile{Data: []byte("x")}
	}
	files, err := FromFS(fsys)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// The start command is what `npm start` would run.
func TestHowServersAreStarted(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ pkg, files, want string }{
		"npm's own file":             {`{"name":"a"}`, "server.js", "node server.js"},
		"npm's own file and pages":   {`{"name":"a","main":"index.js"}`, "index.js server.js public/index.html", "node server.js"},
		"npm's own file before main": {`{"main":"index.js","dependencies":{"express":"5"}}`, "index.js server.js", "node server.js"},
		"a page at the top":          {`{"name":"a"}`, "server.js index.html", "static"},
		"files that were built":      {`{"name":"a"}`, "server.js dist/index.html", "static"},
		"a build and its own server": {`{"scripts":{"build":"node build.js","dev":"node server.js"}}`, "server.js build.js", "static"},
		"Strapi": {
			`{"scripts":{"build":"strapi build","start":"strapi start"},"dependencies":{"@strapi/strapi":"5"}}`,
			"src/index.js",
			"npm run start",
		},
		"another script": {
			`{"scripts":{"build":"tsc","serve":"node dist/a.js","start":"npm run serve"}}`,
			"a.ts",
			"npm run start",
		},
		"another script of yarn": {
			`{"scripts":{"build":"tsc","serve":"node dist/a.js","start":"yarn serve"},"dependencies":{"express":"5"}}`,
			"yarn.lock a.ts",
			"node dist/a.js",
		},
		"a circle of scripts": {`{"scripts":{"build":"x","start":"npm run serve","serve":"npm run start"}}`, "", "static"},
		"a shell script":      {`{"scripts":{"start":"./start.sh"}}`, "start.sh", "npm run start"},
		"a shell script behind tsc": {
			`{"scripts":{"start":"npm run compile && ./start.sh","compile":"tsc"}}`,
			"start.sh",
			"./start.sh after npm run compile",
		},
		"a shell script and pages": {
			`{"scripts":{"start":"./start.sh"},"dependencies":{"express":"5"}}`,
			"start.sh public/index.html",
			"npm run start",
		},
		"a name with dev in it": {
			`{"scripts":{"start":"node device-server.js"},"dependencies":{"express":"5"}}`,
			"device-server.js index.js",
			"node device-server.js",
		},
		"a start for development": {
			`{"main":"index.js","scripts":{"start":"npm run dev","dev":"nodemon index.js"},"dependencies":{"express":"5"}}`,
			"index.js",
			"node index.js",
		},
		"nothing but development": {
			`{"scripts":{"start":"npm run dev","dev":"tsx src/a.ts"},"dependencies":{"express":"5"},"devDependencies":{"tsx":"4"}}`,
			"src/a.ts",
			"npm run start",
		},
		"a main file that is built": {
			`{"main":"dist/index.js","scripts":{"build":"tsc"},"dependencies":{"express":"5"}}`,
			"src/index.ts",
			"node dist/index.js",
		},
		"Vite's pages on a server": {
			`{"scripts":{"dev":"node server","build":"npm run build:client && npm run build:server","build:client":"vite build","build:server":"vite build --ssr src/s.js"},"dependencies":{"express":"5"},"devDependencies":{"vite":"7"}}`,
			"index.html server.js src/s.js vite.config.js",
			"node server.js",
		},
		"a server of files": {
			`{"scripts":{"build":"node b.js","start":"serve -s build"},"dependencies":{"serve":"14"}}`,
			"b.js",
			"static",
		},
		"a script with one": {
			`{"scripts":{"build":"node b.js","start":"npm run build && npm run preview","preview":"serve dist"}}`,
			"b.js",
			"static",
		},
		"a desktop program": {
			`{"main":"main.js","scripts":{"start":"electron ."},"devDependencies":{"electron":"40"}}`,
			"main.js",
			"nothing",
		},
		"an app below": {`{"scripts":{"start":"cd client && npm start"}}`, "client/hugo.toml", "static"},
		"an app below and a server": {
			`{"scripts":{"start":"cd client && npm start"},"dependencies":{"express":"5"}}`,
			"client/hugo.toml",
			"static",
		},
		"an app below by a script": {`{"scripts":{"start":"./run-client.sh"}}`, "run-client.sh client/hugo.toml", "static"},
		"a build for Heroku": {
			`{"scripts":{"start":"node a.js","heroku-postbuild":"npm run build --prefix client"},"dependencies":{"express":"5"}}`,
			"a.js",
			"node a.js after npm run heroku-postbuild",
		},
		"a member's odd start": {
			`{"workspaces":["packages/*"],"scripts":{"start":"turbo run start"}}`,
			"packages/ui/index.js",
			"nothing",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := "nothing"
			if plan, err := Detect(repository(t, tt.pkg, tt.files), Overrides{}); err == nil {
				got = plan.Runtime
				if plan.Start != nil {
					got = plan.Start.Command.String()
				}
				if plan.Runtime == Node && len(plan.Build) > 0 && plan.Build[0].Argv[2] != "build" {
					got += " after " + plan.Build[0].String()
				}
			}
			if got != tt.want {
				t.Errorf("the site is started by %q, want %q", got, tt.want)
			}
		})
	}
}

// Each unsupported setting of another platform is named in a warning, also for servers.
func TestOtherPlatformsAreNamed(t *testing.T) {
	t.Parallel()
	const express = `{"scripts":{"start":"node a.js","vercel-build":"prisma generate && tsc","build":"tsc"},"dependencies":{"express":"5"}}`
	files := map[string]string{
		"package.json": express, "a.js": "x",
		"render.yaml": "services: []\n", "railway.toml": "[deploy]\n", "fly.toml": "app = 'a'\n", "Aptfile": "ffmpeg\n",
		"app.json":     `{"buildpacks": [{"url": "heroku/nodejs"}]}`,
		"static.json":  `{"name": "of the program itself"}`,
		"vercel.json":  `{"rewrites": [{"source": "/a", "destination": "/b"}]}`,
		"netlify.toml": "[[redirects]]\nfrom = \"/a\"\nto = \"/b\"\n",
		"slipway.toml": "[[headers]]\nfor = \"/*\"\n[headers.values]\nX-A = \"b\"\n",
		"_headers":     "/*\n  X-A: b\n",
	}
	fsys := fstest.MapFS{}
	for name, text := range files {
		fsys[name] = &fstest.MapFile{Data: []byte(text)}
	}
	tree, err := FromFS(fsys)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := Detect(tree, Overrides{})
	if err != nil || plan.Runtime != Node {
		t.Fatalf("Detect = %+v, %v", plan, err)
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		n := 0
		for _, w := range plan.Warnings {
			if strings.HasPrefix(w, name+": ") {
				n++
			}
		}
		want := 1
		if name == "a.js" || name == "static.json" {
			want = 0
		}
		if n != want {
			t.Errorf("%d warnings of %s, want %d:\n%s", n, name, want, strings.Join(plan.Warnings, "\n"))
		}
	}
}

// A warning names what isn't supported of a Procfile and of other platforms' installation settings.
func TestNotDoneIsNamed(t *testing.T) {
	t.Parallel()
	const express = `{"scripts":{"start":"node a.js"},"dependencies":{"express":"5"}}`
	for name, tt := range map[string]struct {
		files map[string]string
		want  string // beginning of a warning; "" if there is none
	}{
		"another program":  {map[string]string{"package.json": express, "Procfile": "web: node b.js"}, "Procfile: the process web"},
		"the start script": {map[string]string{"package.json": express, "Procfile": "web: npm start"}, ""},
		"what it does":     {map[string]string{"package.json": express, "Procfile": "web: node a.js"}, ""},
		"files": {
			map[string]string{"index.html": "x", "Procfile": "web: python -m http.server"},
			"Procfile: the process web",
		},
		"a server of PHP": {
			map[string]string{"public/index.php": "x", "Procfile": "web: php artisan octane:start"},
			"Procfile: the process web",
		},
		"PHP as it runs here": {
			map[string]string{"public/index.php": "x", "Procfile": "web: vendor/bin/heroku-php-nginx public/"},
			"",
		},
		"files that Apache closes": {
			map[string]string{"index.php": "x", "data/.htaccess": "<FilesMatch \"\\.db$\">\n  Require all denied\n</FilesMatch>\n"},
			"",
		},
		"paths that Apache closes": {
			map[string]string{"index.php": "x", ".htaccess": "RewriteRule ^content/(.*)\\.txt error [R=404,F]\n"},
			"",
		},
		"a folder that Apache closes": {
			map[string]string{"index.php": "x", "data/.htaccess": "<IfModule x>\n  Require all denied\n</IfModule>\n"},
			"",
		},
		"settings for Apache": {
			map[string]string{"public/index.php": "x", "public/.htaccess": "php_value memory_limit 64M\n"},
			"public/.htaccess line 1: not supported: php_value",
		},
		"a front controller": {
			map[string]string{
				"public/index.php": "x",
				"public/.htaccess": "RewriteCond %{REQUEST_FILENAME} !-f\nRewriteRule ^ index.php [L]\n",
				".htaccess":        "Deny from all\n",
			},
			"",
		},
		"only a Procfile": {map[string]string{"Procfile": "web: ./server"}, ""},
		"options of npm": {
			map[string]string{"index.html": "x", "netlify.toml": "[build.environment]\nNPM_FLAGS = \"--force\""},
			"NPM_FLAGS in netlify.toml",
		},
		"files left out": {map[string]string{"index.html": "x", ".vercelignore": "secret"}, ".vercelignore: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fsys := fstest.MapFS{}
			for name, text := range tt.files {
				fsys[name] = &fstest.MapFile{Data: []byte(text)}
			}
			tree, err := FromFS(fsys)
			if err != nil {
				t.Fatal(err)
			}
			plan, err := Detect(tree, Overrides{})
			if err != nil {
				t.Fatal(err)
			}
			said := slices.ContainsFunc(plan.Warnings, func(w string) bool {
				return strings.HasPrefix(
					w,
					tt.want,
				) && !strings.HasPrefix(w, "No ")
			})
			if said != (tt.want != "") {
				t.Errorf("started by %v, it warns of %q", plan.Start, plan.Warnings)
			}
		})
	}
}

// Angular with outputMode "server" is a server without an index.html; with "static" it is a static site.
func TestAngularServer(t *testing.T) {
	t.Parallel()
	for options, want := range map[string]string{
		`"outputMode":"server","ssr":{"entry":"src/server.ts"}`:                                            "node dist/shop/server/server.mjs, files of dist/shop/browser",
		`"outputMode":"server","ssr":{"entry":"src/server.ts"},"outputPath":{"base":"out","server":"api"}`: "node out/api/server.mjs, files of out/browser",
		`"outputMode":"static","ssr":{"entry":"src/server.ts"}`:                                            "static",
		`"outputMode":"server","ssr":false`:                                                                "static",
	} {
		fsys := fstest.MapFS{
			"package.json": {
				Data: []byte(
					`{"scripts":{"build":"ng build","start":"ng serve"},"dependencies":{"@angular/ssr":"20","express":"5"},"devDependencies":{"@angular/build":"20"}}`,
				),
			},
			"angular.json": {
				Data: []byte(
					`{"projects":{"shop":{"projectType":"application","architect":{"build":{"builder":"@angular/build:application","options":{` + options + `}}}}}}`,
				),
			},
		}
		tree, err := FromFS(fsys)
		if err != nil {
			t.Fatal(err)
		}
		plan, err := Detect(tree, Overrides{})
		if err != nil {
			t.Fatal(err)
		}
		got := plan.Runtime
		if plan.Start != nil && len(plan.Assets) == 1 {
			got = plan.Start.Command.String() + ", files of " + plan.Assets[0].Folder
		}
		if got != want {
			t.Errorf("%s: %s, want %s", options, got, want)
		}
	}
}

// mise.toml sets the Node.js version, like .tool-versions.
func TestMiseVersion(t *testing.T) {
	t.Parallel()
	for src, want := range map[string]string{
		"[tools]\nnode = \"22\"\n":                          "22",
		"[tools]\nnode = 24\n":                              "24",
		"[tools]\nnode = [\"20.11\", \"18\"]\n":             "20.11",
		"[tools]\nnode = {version = \"lts\", os = [\"a\"]}": "lts",
		"[tools]\nhugo = \"0.120\"\n":                       "",
		"tools = 1":                                         "",
		"[tools":                                            "",
	} {
		if got := worktree.MiseVersion(src, "node"); got != want {
			t.Errorf("miseVersion(%q) = %q, want %q", src, got, want)
		}
	}
}

// The document root is the framework's folder, such as CakePHP's webroot, even if another index.php is in the root.
func TestDocumentRoots(t *testing.T) {
	t.Parallel()
	for files, want := range map[string]string{
		"index.php webroot/index.php":      "webroot",
		"pub/index.php":                    "pub",
		"public/index.php index.php":       "public",
		"index.php web/other.php":          "",
		"web/index.php core/lib/index.php": "web",
	} {
		plan, err := Detect(repository(t, "", files), Overrides{})
		if err != nil || plan.Start == nil || plan.Start.DocumentRoot != want {
			t.Errorf("of %s: %+v, %v; want the document root %q", files, plan.Start, err, want)
		}
	}
}

// Scripts that call themselves repeatedly are expanded only to a limit.
func TestScriptsThatCallThemselves(t *testing.T) {
	t.Parallel()
	start := strings.Repeat("yarn start && ", 1000) + "node index.js"
	files, err := FromFS(fstest.MapFS{
		"package.json": {Data: []byte(`{"scripts": {"start": "` + start + `"}, "dependencies": {"express": "5"}}`)},
		"yarn.lock":    {}, "index.js": {},
	})
	if err != nil {
		t.Fatal(err)
	}
	plan, err := Detect(files, Overrides{})
	if err != nil || plan.Start == nil {
		t.Fatalf("%v: %+v", err, plan)
	}
	if got := plan.Start.Command.String(); len(got) < len(start) || len(got) > (maxCalls+1)*len(start) {
		t.Errorf("%d bytes", len(got))
	}
}
