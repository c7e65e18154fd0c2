package builds

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"slipway/e2e/world"
)

// project is a real project in testdata/projects, and the expected result.
type project struct {
	name      string
	framework string
	page      string            // path on the site …
	want      string            // … and text in its page
	asset     string            // pattern that finds the URL of a script in the page, and
	holds     string            // text in that script
	log       []string          // more text in the first build's log
	env       map[string]string // for the build
	long      bool              // only in make test-all: another project covers the same in less time
	once      bool              // build it only once: it takes half a minute, and other projects cover the second build
}

// One installation builds all projects, so that it downloads most packages only once.
var projects = []project{
	{
		name:      "vite-react",
		framework: "vite",
		want:      `<div id="root">`,
		asset:     `src="(/assets/[^"]+\.js)"`,
		holds:     "hello from a variable",
		env:       map[string]string{"VITE_GREETING": "hello from a variable"},
	},
	{name: "astro", long: true, framework: "astro", want: "<h1>built by Astro</h1>", once: true},
	{name: "eleventy", long: true, framework: "eleventy", want: "The answer is 42."},
	{name: "next", long: true, framework: "next-export", page: "/about", want: "All about Next", once: true},
	{name: "vitepress", long: true, framework: "vitepress", want: "<strong>VitePress</strong>"},
	{
		name:      "pnpm-workspace",
		framework: "vite",
		want:      `id="out"`,
		asset:     `src="(/assets/[^"]+\.js)"`,
		holds:     "Hello from the library",
		log:       []string{"pnpm"},
	},
	{name: "yarn-classic", want: "yarn/1.", log: []string{"yarn"}},
	{name: "nvmrc", want: "<em>v22.23.3</em>", log: []string{"22.23.3"}},
	{name: "corepack-pnpm", long: true, want: "pnpm/9.15.4", log: []string{"9.15.4"}},
}

// A real repository becomes a site without configuration. With each package manager, the next build with the same
// dependencies doesn't install them again.
func TestProjects(t *testing.T) {
	t.Parallel()
	h := newHarness(t, 0, "--builds", "2")
	for _, p := range projects {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			if p.long {
				world.Long(t)
			}
			h := *h
			h.t = t
			repo := "acme/" + p.name
			if _, err := h.Git.Commit(repo, "main", "testdata/projects/"+p.name, "first"); err != nil {
				t.Fatal(err)
			}
			s := h.site(repo, nil)
			id := h.first(s)
			if len(p.env) > 0 {
				h.cancel(s, id)
				h.wait(s, id)
				for k, v := range p.env {
					h.call(s.key, "POST", "/sites/"+s.ID+"/env", map[string]any{"key": k, "value": v, "target": []string{"build"}}, nil)
				}
				id = h.deploy(s, nil)
			}
			d := h.built(s, id)
			if p.framework != "" && d.Framework != p.framework {
				t.Errorf("framework is %q, want %q", d.Framework, p.framework)
			}
			for _, name := range []string{"fetch", "prepare", "install", "build", "publish", "activate"} {
				if d.stage(name) != "success" {
					t.Errorf("stage %s is %q: %+v", name, d.stage(name), d.Stages)
				}
			}
			t.Logf("first: %s", times(d))
			log := h.log(s, id)
			for _, want := range append(p.log, "fetch ", "install ", "build ", "publish ", "Live at "+s.URL) {
				if !strings.Contains(log, want) {
					t.Errorf("the log does not say %q:\n%s", want, log)
				}
			}
			a := h.shows(s.URL+p.page, p.want)
			if p.asset != "" {
				m := regexp.MustCompile(p.asset).FindSubmatch(a.Body)
				if m == nil {
					t.Fatalf("no %s in %s", p.asset, a.Body)
				}
				h.shows(s.URL+string(m[1]), p.holds)
			}
			h.shows(d.URL+p.page, p.want)
			if p.once {
				return
			}

			again := h.deploy(s, nil)
			d = h.built(s, again)
			t.Logf("second: %s", times(d))
			if d.stage("install") != "skipped" || d.stage("build") != "success" {
				t.Errorf("second build: %+v\n%s", d.Stages, h.log(s, again))
			}
			if log := h.log(s, again); !strings.Contains(log, "installation skipped") {
				t.Errorf("the second log does not say that installation was skipped:\n%s", log)
			}
			h.shows(s.URL+p.page, p.want)
		})
	}
}

// times formats the duration of each stage.
func times(d deployment) string {
	var out []string
	for _, s := range d.Stages {
		if !s.StartedAt.IsZero() {
			out = append(out, fmt.Sprintf("%s %.1f s", s.Name, s.CompletedAt.Sub(s.StartedAt).Seconds()))
		}
	}
	return strings.Join(out, ", ")
}
