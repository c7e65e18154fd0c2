package build

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"slipway/internal/build/framework"
)

// checkout returns a project as a build leaves it.
func checkout(t *testing.T, files map[string]string) *os.Root {
	t.Helper()
	dir := filepath.Join(t.TempDir(), RepoDir)
	ok(t, os.Mkdir(dir, 0o755))
	tree(t, dir, files)
	root, err := os.OpenRoot(dir)
	ok(t, err)
	t.Cleanup(func() { root.Close() })
	return root
}

// Packages needed only by devDependencies are skipped, for each package manager's layout of node_modules. Packages
// needed by dependencies, including optional and peer ones, are kept.
func TestPrune(t *testing.T) {
	t.Parallel()
	flat := map[string]string{
		"package-lock.json":                                 "{}",
		"package.json":                                      `{"dependencies": {"web": "1", "@s/a": "1"}, "devDependencies": {"tool": "1", "shared": "1"}, "scripts": {"start": "node server.js"}}`,
		"node_modules/.package-lock.json":                   "{}",
		"node_modules/web/package.json":                     `{"dependencies": {"shared": "1", "nested": "2"}, "optionalDependencies": {"fast": "1"}, "peerDependencies": {"peer": "1"}}`,
		"node_modules/web/node_modules/nested/index.js":     "2",
		"node_modules/web/node_modules/nested/package.json": `{"dependencies": {"deep": "1"}}`,
		"node_modules/shared/package.json":                  "{}",
		"node_modules/fast/package.json":                    "{}",
		"node_modules/peer/package.json":                    "{}",
		"node_modules/deep/package.json":                    "{}",
		"node_modules/nested/package.json":                  `{"name": "the tool's"}`,
		"node_modules/@s/a/package.json":                    "{}",
		"node_modules/@s/dev/package.json":                  "{}",
		"node_modules/tool/package.json":                    `{"dependencies": {"nested": "1", "@s/dev": "1"}}`,
		"node_modules/tool/cli.js":                          "x",
		"node_modules/.bin/tool":                            "-> ../tool/cli.js",
		"node_modules/.bin/web":                             "-> ../web/cli.js",
	}
	pnpm := map[string]string{
		"pnpm-lock.yaml":    "x",
		"package.json":      `{"dependencies": {"web": "1"}, "devDependencies": {"tool": "1"}}`,
		"node_modules/web":  "-> .pnpm/web@1/node_modules/web",
		"node_modules/tool": "-> .pnpm/tool@1/node_modules/tool",
		"node_modules/.pnpm/web@1/node_modules/web/package.json":       `{"dependencies": {"shared": "1"}}`,
		"node_modules/.pnpm/web@1/node_modules/shared":                 "-> ../../shared@1/node_modules/shared",
		"node_modules/.pnpm/shared@1/node_modules/shared/package.json": "{}",
		"node_modules/.pnpm/tool@1/node_modules/tool/package.json":     `{"dependencies": {"shared": "2"}}`,
		"node_modules/.pnpm/tool@1/node_modules/shared":                "-> ../../shared@2/node_modules/shared",
		"node_modules/.pnpm/shared@2/node_modules/shared/package.json": "{}",
		"node_modules/.pnpm/node_modules/shared":                       "-> ../shared@2/node_modules/shared",
		"node_modules/.pnpm/lock.yaml":                                 "x",
	}
	workspace := map[string]string{
		"yarn.lock":                              "x",
		"package.json":                           `{"private": true, "workspaces": ["apps/*", "packages/*"], "devDependencies": {"turbo": "1"}}`,
		"apps/api/package.json":                  `{"dependencies": {"@repo/db": "*"}, "devDependencies": {"vite": "1"}}`,
		"packages/db/package.json":               `{"dependencies": {"pg": "1"}}`,
		"node_modules/@repo/db":                  "-> ../../packages/db",
		"node_modules/pg/package.json":           "{}",
		"node_modules/turbo/package.json":        "{}",
		"node_modules/vite/package.json":         "{}",
		"apps/api/node_modules/own/x":            "x",
		"apps/api/node_modules/own/package.json": "{}",
	}
	with := func(files map[string]string, more map[string]string) map[string]string {
		all := maps.Clone(files)
		maps.Copy(all, more)
		return all
	}
	next := map[string]string{
		"package-lock.json":                    "{}",
		"package.json":                         `{"dependencies": {"next": "16"}, "devDependencies": {"linter": "1"}, "scripts": {"start": "next start"}}`,
		"node_modules/next/package.json":       "{}",
		"node_modules/typescript/package.json": "{}",
		"node_modules/linter/package.json":     `{"dependencies": {"@s/mdx": "1"}}`,
		"node_modules/@s/mdx/package.json":     "{}",
	}
	without := func(files map[string]string, name string) map[string]string {
		all := maps.Clone(files)
		delete(all, name)
		return all
	}
	for name, c := range map[string]struct {
		files    map[string]string
		plan     framework.Plan
		commands []string
		want     string
	}{
		"npm":  {files: flat, want: "node_modules/@s/dev node_modules/nested node_modules/tool"},
		"pnpm": {files: pnpm, want: "node_modules/.pnpm/shared@2 node_modules/.pnpm/tool@1 node_modules/tool"},
		"workspace": {
			files: workspace,
			plan:  framework.Plan{Root: "apps/api", Modules: []string{"node_modules", "apps/api/node_modules", "packages/db/node_modules"}},
			want:  "apps/api/node_modules/own node_modules/turbo node_modules/vite",
		},
		"no lock":             {files: without(flat, "package-lock.json")},
		"own install command": {files: flat, plan: framework.Plan{Modules: []string{}}},
		"a broken manifest":   {files: with(flat, map[string]string{"node_modules/shared/package.json": "{"})},
		"started by a tool": {
			files: with(flat, map[string]string{
				"package.json": strings.Replace(flat["package.json"], "node server.js", "tool server.js", 1),
			}),
			plan: framework.Plan{Start: start("npm", "start")},
		},
		"started through one": {files: flat, plan: framework.Plan{Start: start("node", "--import", "tool/register", "server.js")}},
		"started by its path": {files: flat, plan: framework.Plan{Start: start("node", "node_modules/tool/cli.js")}},
		"a tool before start": {
			files: with(flat, map[string]string{
				"package.json": strings.Replace(flat["package.json"], `"start"`, `"prestart": "tool", "start"`, 1),
			}),
			plan: framework.Plan{Start: start("npm", "start")},
		},
		"released by a tool": {files: flat, commands: []string{"npx tool migrate"}},
		"all of it is needed": {
			files: with(flat, map[string]string{
				"package.json": strings.Replace(flat["package.json"], "devDependencies", "peerDependencies", 1),
			}),
		},
		"imported by what is started": {
			files: with(flat, map[string]string{
				"server.js":        `const web = require("web"); const lib = require('./lib/env'); import("not-there"); require("../../out")`,
				"lib/env/index.js": "export * from\"../more.mjs\"",
				"lib/more.mjs":     "import { a } from '@s/dev/inner'; import \"nested\"; import('./more.mjs')",
				"other.js":         `require("tool")`,
			}),
			want: "node_modules/tool",
		},
		"imported by the main file": {
			files: with(flat, map[string]string{
				"package.json": strings.Replace(flat["package.json"], `{"dep`, `{"main": "lib/app", "dep`, 1), "lib/app.js": "require('tool')",
			}),
			plan: framework.Plan{Start: start("node", ".")},
		},
		"next.config.ts": {
			files: with(next, map[string]string{"next.config.ts": "import type { NextConfig } from 'next'\nimport mdx from \"@s/mdx\""}),
			plan:  framework.Plan{Start: start("next", "start")},
			want:  "node_modules/linter",
		},
		"next.config.mjs": {
			files: with(next, map[string]string{"next.config.mjs": "import './env.js'", "env.js": "require('linter')"}),
			plan:  framework.Plan{Start: start("npm", "start")},
			want:  "node_modules/typescript",
		},
		"links that lead out": {
			files: with(flat, map[string]string{"node_modules/out": "-> ../../../../etc", "node_modules/round": "-> round"}),
			want:  "node_modules/@s/dev node_modules/nested node_modules/out node_modules/round node_modules/tool",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.plan.Modules == nil {
				c.plan.Modules = []string{"node_modules"}
			}
			if c.plan.Start == nil {
				c.plan.Start = start("node", "server.js")
			}
			skip, packages := prune(checkout(t, c.files), c.plan, c.commands)
			if got := strings.Join(slices.Sorted(maps.Keys(skip)), " "); got != c.want {
				t.Errorf("left out %s\nwant     %s", got, c.want)
			}
			if (packages > 0) != (c.want != "") {
				t.Errorf("%d packages", packages)
			}
		})
	}
}

// Nitro's server has its own packages, so the installed ones aren't stored unless something else runs too.
func TestNitro(t *testing.T) {
	t.Parallel()
	files := map[string]string{
		".output/server/index.mjs": "x", ".output/server/package.json": "{}", "node_modules/nuxt/x": "x", "data/a.json": "{}",
	}
	for name, c := range map[string]struct {
		start    *framework.Start
		commands []string
		without  string
		skips    bool
	}{
		"alone":               {start: start("node", ".output/server/index.mjs"), skips: true},
		"with a command":      {start: start("node", ".output/server/index.mjs"), commands: []string{"npx prisma migrate deploy"}},
		"started otherwise":   {start: start("npm", "start")},
		"without own modules": {start: start("node", ".output/server/index.mjs"), without: ".output/server/package.json"},
	} {
		all := maps.Clone(files)
		delete(all, c.without)
		plan := framework.Plan{Output: ".output", Runtime: framework.Node, Start: c.start, Modules: []string{"node_modules"}}
		a := (&build{Spec: Spec{Plan: plan, Commands: c.commands}, report: quiet{}}).program(checkout(t, all))
		if got := a.Skip != nil && a.Skip("node_modules") && !a.Skip(".output/server/node_modules") && !a.Skip("data"); got != c.skips {
			t.Errorf("%s: skips node_modules: %v, want %v", name, got, c.skips)
		}
	}
}

func start(argv ...string) *framework.Start {
	return &framework.Start{Command: framework.Command{Argv: argv}}
}

// Next.js's standalone server gets its missing static files, and paths that the application's own rules may change are
// left to the application.
func TestNext(t *testing.T) {
	t.Parallel()
	built := map[string]string{
		"package.json":                       `{"scripts": {"start": "next start"}, "dependencies": {"next": "16"}}`,
		".next/routes-manifest.json":         `{"version": 3, "basePath": "", "redirects": [{"internal": true, "regex": "^(?:/((?:[^/]+?)))/$"}], "headers": [], "rewrites": {"beforeFiles": []}}`,
		".next/static/chunks/a-1.js":         "chunk",
		"public/robots.txt":                  "robots",
		".next/standalone/server.js":         "server",
		".next/standalone/node_modules/a.js": "a",
		"src/page.js":                        "source",
	}
	with := func(change ...string) map[string]string {
		all := maps.Clone(built)
		for i := 0; i < len(change); i += 2 {
			if all[change[i]] = change[i+1]; change[i+1] == "" {
				delete(all, change[i])
			}
		}
		return all
	}
	routes := func(from, to string) []string {
		return []string{".next/routes-manifest.json", strings.Replace(built[".next/routes-manifest.json"], from, to, 1)}
	}
	for name, c := range map[string]struct {
		files    map[string]string
		root     string
		start    *framework.Start
		commands []string
		dir      string // working directory; "" means the plan's
		assets   string
		only     bool // only standalone is needed to run
	}{
		"standalone": {
			files:  built,
			dir:    ".next/standalone",
			assets: ".next/standalone/.next/static>_next/static .next/standalone/public>",
			only:   true,
		},
		"with a command": {
			files:    built,
			commands: []string{"npx prisma migrate deploy"},
			dir:      ".next/standalone",
			assets:   ".next/standalone/.next/static>_next/static .next/standalone/public>",
		},
		"not standalone": {files: with(".next/standalone/server.js", ""), assets: ".next/static>_next/static public>"},
		"own server":     {files: built, start: start("node", "server.mjs"), assets: ".next/static>_next/static public>"},
		"no public": {
			files:  with("public/robots.txt", ""),
			dir:    ".next/standalone",
			assets: ".next/standalone/.next/static>_next/static .next/standalone/public>",
			only:   true,
		},
		"middleware": {
			files:  with(".next/server/middleware-manifest.json", `{"middleware": {"/": {}}}`),
			dir:    ".next/standalone",
			assets: ".next/standalone/.next/static>_next/static",
			only:   true,
		},
		"node middleware": {
			files:  with(".next/server/functions-config-manifest.json", `{"functions": {"/_middleware": {}}}`),
			dir:    ".next/standalone",
			assets: ".next/standalone/.next/static>_next/static",
			only:   true,
		},
		"redirects": {
			files:  with(routes(`[{"internal": true,`, `[{`)...),
			dir:    ".next/standalone",
			assets: ".next/standalone/.next/static>_next/static",
			only:   true,
		},
		"some headers": {
			files:  with(routes(`"headers": []`, `"headers": [{"regex": "^/api(?:/.*)?$"}]`)...),
			dir:    ".next/standalone",
			assets: ".next/standalone/.next/static>_next/static",
			only:   true,
		},
		"all headers": {
			files: with(routes(`"headers": []`, `"headers": [{"regex": "^(?:/(.*))(?:/)?$"}]`)...),
			dir:   ".next/standalone",
			only:  true,
		},
		"odd headers": {
			files: with(routes(`"headers": []`, `"headers": [{"regex": "^/(?!api)"}]`)...),
			dir:   ".next/standalone",
			only:  true,
		},
		"base path": {
			files:  with(routes(`"basePath": ""`, `"basePath": "/docs"`)...),
			dir:    ".next/standalone",
			assets: ".next/standalone/.next/static>docs/_next/static .next/standalone/public>docs",
			only:   true,
		},
		"unknown form": {files: with(routes(`"version": 3`, `"version": "x"`)...), dir: ".next/standalone", only: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.start == nil {
				c.start = start("npm", "start")
			}
			plan := framework.Plan{Framework: "next", Runtime: framework.Node, Root: c.root, Start: c.start}
			b := &build{Spec: Spec{Plan: plan, Commands: c.commands}, report: quiet{}}
			root := checkout(t, c.files)
			a := b.program(root)
			got := ""
			for _, f := range a.Assets {
				got += " " + f.Folder + ">" + f.At
			}
			if got = strings.TrimSpace(got); got != c.assets {
				t.Errorf("served as files: %s\nwant %s", got, c.assets)
			}
			if a.Start.Command.Dir != c.dir {
				t.Errorf("started in %q, want %q", a.Start.Command.Dir, c.dir)
			}
			if c.only != (a.Skip != nil && a.Skip("src") && a.Skip(".next/cache") && !a.Skip(".next") && !a.Skip(".next/standalone/node_modules")) {
				t.Error("it runs from other files than it should")
			}
			if c.dir != "" && name != "no public" {
				if _, err := root.Stat(".next/standalone/public/robots.txt"); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
