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

// stockNode makes Node 24.99.0 the newest that the toolchain of a site knows of and has. It only says which version it is.
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

// A project that names no version of Node gets one on which the packages run that it depends on: at its first build after it has
// installed them, from then on at once.
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
	named := plan // what the project says stands, whatever its packages say
	named.Node = "*"
	o = s.build(map[string]string{"package.json": `{"devDependencies": {"dep": "2"}}`}, named)
	if o.err != nil || strings.TrimSpace(o.files["index.html"]) == "v24.99.0" || strings.Count(o.text(), "info: installed") != 1 {
		t.Errorf("named: %v: %v\n%s", o.err, o.files, o.text())
	}
}

// Packages on which no Node suits better than the server's change nothing, nor does one that wants an older one.
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

// An installation that a package refuses for its Node is done again with one that it takes.
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
