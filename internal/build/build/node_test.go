package build

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"slipway/internal/build/framework"
)

// stockNode makes Node.js 24.99.0 the newest version that a site's toolchain knows and has. Its node only prints its
// version.
func stockNode(t *testing.T, s *site) {
	t.Helper()
	pkg := "node-linux-" + map[string]string{"amd64": "x64", "arm64": "arm64"}[runtime.GOARCH]
	dir := filepath.Join(filepath.Dir(s.c.Dir), "tools")
	bin := filepath.Join(dir, "kept", pkg+"-24.99.0", "bin")
	ok(t, os.MkdirAll(bin, 0o755))
	ok(t, os.WriteFile(filepath.Join(bin, "node"), []byte("#!/bin/sh\necho v24.99.0\n"), 0o755))
	ok(t, os.WriteFile(
		filepath.Join(dir, "catalogue", pkg+".json"),
		[]byte(`{"Fetched":"`+time.Now().Format(time.RFC3339Nano)+`","Releases":[{"Version":"24.99.0"},{"Version":"18.20.8"}]}`), 0o600,
	))
}

// A project that specifies no Node.js version gets one that its dependencies support. The first build finds it after
// installing them, later builds immediately.
func TestNodeOfThePackages(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	stockNode(t, s)
	plan := sh("mkdir dist; cp version dist/index.html")
	plan.Manager, plan.Modules, plan.Inputs = "npm", []string{"node_modules"}, []string{"package.json"}
	plan.Install = []framework.Command{{
		Shell: `test ! -e node_modules; mkdir node_modules; cp -r dep node_modules/; node --version > version; echo installed`,
	}}
	files := map[string]string{
		"package.json":     `{"devDependencies": {"dep": "*"}}`,
		"dep/package.json": `{"engines": {"node": ">=24.50"}}`,
	}
	o := s.build(files, plan)
	if o.err != nil || strings.TrimSpace(o.files["index.html"]) != "v24.99.0" || strings.Count(o.text(), "info: installed") != 2 ||
		!strings.Contains(o.text(), "dep needs Node >=24.50") {
		t.Errorf("first: %v: %v\n%s", o.err, o.files, o.text())
	}
	files["package.json"] = `{"devDependencies": {"dep": "1"}}`
	o = s.build(files, plan)
	if o.err != nil || strings.TrimSpace(o.files["index.html"]) != "v24.99.0" || strings.Count(o.text(), "info: installed") != 1 {
		t.Errorf("second: %v: %v\n%s", o.err, o.files, o.text())
	}
	named := plan // the project's own version takes precedence over its packages'
	named.Node = "*"
	o = s.build(map[string]string{"package.json": `{"devDependencies": {"dep": "2"}}`}, named)
	if o.err != nil || strings.TrimSpace(o.files["index.html"]) == "v24.99.0" || strings.Count(o.text(), "info: installed") != 1 {
		t.Errorf("named: %v: %v\n%s", o.err, o.files, o.text())
	}
}

// Dependencies change nothing if no other version supports them better than the server's Node.js, or if they need an
// older one.
func TestNodeOfTheServer(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	stockNode(t, s)
	for _, engines := range []string{`{"node": ">=18"}`, `{"node": "^999"}`, `{"node": "!"}`, `{"node": 20}`, `[]`, `null`} {
		plan := sh("mkdir dist; node --version > dist/index.html")
		plan.Manager, plan.Modules = "npm", []string{"node_modules"}
		plan.Install = []framework.Command{{Shell: `mkdir node_modules; cp -r dep node_modules/; echo installed`}}
		o := s.build(map[string]string{
			"package.json":     `{"dependencies": {"dep": "*", "../dep": "*", "absent": "*"}}`,
			"dep/package.json": `{"engines": ` + engines + `}`,
		}, plan)
		if o.err != nil || strings.HasPrefix(o.files["index.html"], "v24.99") || strings.Count(o.text(), "info: installed") != 1 {
			t.Errorf("%s: %v: %v\n%s", engines, o.err, o.files, o.text())
		}
	}
}

// If a package refuses to be installed with this Node.js version, the installation runs again with a version that it
// supports.
func TestInstallationThatWantsAnotherNode(t *testing.T) {
	t.Parallel()
	for _, says := range []string{
		`error dep@1.0.0: The engine "node" is incompatible with this module. Expected version ">=24.50". Got "20.20.2"`,
		`npm error notsup Required: {"node":">=24.50"}`,
		`Expected version: >=24.50`,
	} {
		s := newSite(t)
		stockNode(t, s)
		plan := sh("mkdir dist; node --version > dist/index.html")
		plan.Manager = "npm"
		plan.Install = []framework.Command{{Shell: `case $(node --version) in v24.99.0) ;; *) echo '` + says + `'; exit 1;; esac`}}
		o := s.build(map[string]string{"package.json": `{}`}, plan)
		if o.err != nil || strings.TrimSpace(o.files["index.html"]) != "v24.99.0" {
			t.Errorf("%s: %v: %v\n%s", says, o.err, o.files, o.text())
		}
	}
}

// A project that specifies no version gets the usual Node.js. A project built earlier with the server's Node.js keeps
// that, and so does a build that can't download another version.
func TestUsualNode(t *testing.T) {
	t.Parallel()
	plan := sh("mkdir dist; node --version > dist/index.html")
	plan.Manager, plan.Modules, plan.Inputs = "npm", []string{"node_modules"}, []string{"package.json"}
	plan.Install = []framework.Command{{Shell: `mkdir -p node_modules`}}
	files := map[string]string{"package.json": `{}`}
	s := newSite(t)
	stockNode(t, s)
	first := s.build(files, plan)
	if first.err != nil || strings.HasPrefix(first.files["index.html"], "v24.99") {
		t.Fatalf("the server's: %v: %v\n%s", first.err, first.files, first.text())
	}
	s.Builds.c.Node = "lts"
	// This doesn't depend on the cache, which is deleted after a boot, a failed build and some time, and differs
	// between branches.
	ok(t, s.Clear())
	ok(t, os.RemoveAll(filepath.Join(s.c.Dir, "caches")))
	server := func(x *Spec) { x.ServerNode = true }
	o := s.build(files, plan, server)
	if o.err != nil || o.files["index.html"] != first.files["index.html"] || !strings.Contains(o.text(), "keeps it") ||
		o.made.Node != "" || o.made.Makeshift {
		t.Errorf("a site that was built before: %v: %v\n%s", o.err, o.files, o.text())
	}
	clear := func(x *Spec) { x.ClearCache = true }
	for _, change := range [][]func(*Spec){{server, clear}, nil} {
		o = s.build(files, plan, change...)
		if o.err != nil || strings.TrimSpace(o.files["index.html"]) != "v24.99.0" ||
			!strings.Contains(o.text(), "Node 24.99.0 from the npm registry, with security updates until 2028-04-30") {
			t.Errorf("the usual: %v: %v\n%s", o.err, o.files, o.text())
		}
	}
	offline := newSite(t)
	offline.Builds.c.Node = "lts"
	o = offline.build(files, plan)
	if o.err != nil || o.files["index.html"] != first.files["index.html"] || !strings.Contains(o.text(), "can't be downloaded now") ||
		o.made.Node != "" || !o.made.Makeshift {
		t.Errorf("offline: %+v: %v\n%s", o.made, o.files, o.text())
	}
	// A program without a build keeps it too.
	ok(t, os.RemoveAll(filepath.Join(s.c.Dir, "caches")))
	asItIs := framework.Plan{Runtime: framework.Node, Start: &framework.Start{}}
	for want, change := range map[string][]func(*Spec){"": {server}, "24.99.0": nil} {
		if o := s.build(files, asItIs, change...); o.err != nil || o.made.Node != want || o.made.Makeshift {
			t.Errorf("without a build: %v: %+v, want %q", o.err, o.made, want)
		}
	}
}
