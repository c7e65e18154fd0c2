package framework

import (
	"fmt"
	"slices"
	"strings"
)

// Preset is a kind of project that Detect recognizes.
type Preset struct {
	ID      string // value of `framework`: "vite"
	Name    string // display name: "Vite"
	Runtime string // usual runtime: Static, Node or PHP
}

// tier says how certain a match is. Higher tiers come first.
type tier int

const (
	site    tier = iota // certainly deployable
	weak                // possibly deployable: a bundler, a component book
	library             // anything with a build script, if nothing else matches
	plain               // files without any build
)

type preset struct {
	Preset
	tier   tier
	server bool   // an HTTP server, for which a build is optional
	meta   bool   // its build output alone is not a site
	family string // id of all its variants: "next" for next-export
	match  func(*project) string
	plan   func(*project, *draft)
}

// presets returns all presets in the order in which they are tried; the first match wins. Meta frameworks come before
// what they are made of (Next before React, Astro before Vite), static variants before servers, PHP frameworks and
// generators of other languages before bundlers, which they use for assets, component books after all apps, and plain
// files last.
func presets() []preset {
	return slices.Concat(nxApps(), metaFrameworks(), nodeFrameworks(), generators(), phpFrameworks(),
		otherGenerators(), appTools(), nodeServers(), bundlers(), phpPlain(), lastResorts())
}

// Presets lists the presets in the order in which they are tried.
func Presets() []Preset {
	var out []Preset
	for _, p := range presets() {
		out = append(out, p.Preset)
	}
	return out
}

func find(id string) *preset {
	all := presets()
	if i := slices.IndexFunc(all, func(p preset) bool { return p.ID == id }); i >= 0 {
		return &all[i]
	}
	return nil
}

func known(id string) bool { return find(id) != nil }

func metaFramework(id string) bool {
	p := find(id)
	return p != nil && p.meta
}

// first returns the first preset up to a tier that matches the folder. A match of a lower tier counts only if no higher
// one follows.
func (p *project) first(upTo tier) (*preset, string) {
	var best *preset
	var because string
	for _, c := range presets() {
		if c.tier > upTo || best != nil && c.tier >= best.tier {
			continue
		}
		if why := c.match(p); why != "" {
			best, because = &c, why
			if c.tier == site {
				break
			}
		}
	}
	return best, because
}

// choose chooses the preset and the folder. It may move p to the only app of a workspace.
func choose(p *project) (*preset, string, error) {
	if p.s.framework.ok() {
		if by, why := p.forced(); by != nil {
			return by, why, nil
		}
		p.t.Warn(fmt.Sprintf("Framework %.60q (%s) is not a preset; the framework is detected automatically",
			p.s.framework.text, p.s.framework.source))
	}
	by, why := p.first(plain)
	if p.has("nx.json") && !p.has("project.json") { // the dependencies at the root belong to the apps
		if _, ws := p.t.WorkspaceAt(p.root); !ws && !p.s.command.ok() && !p.s.output.ok() {
			if a, err := p.pick(p.nested(), "of the Nx workspace"); a != nil || err != nil {
				return p.move(a, err)
			}
		}
	}
	said := p.s.command.ok() || p.s.output.ok() || p.s.commands.web.source == bySlipway
	if w, ok := p.t.WorkspaceAt(p.root); ok && by != nil && by.tier == site && !said && !p.ownPages() {
		if a, err := p.pick(p.t.Members(w), "of the workspace that "+w.Source+" declares"); a != nil && a.tier == site || err != nil {
			return p.move(a, err) // the framework at the root is the version that the members share
		}
	}
	assets := by != nil && (by.ID == "vite" || by.tier == weak && !by.server) && !p.page() // possibly the assets of a server's pages
	if by != nil && (by.tier >= library || by.ID == "procfile" || assets) && !said {
		if err := p.otherServer(); err != nil {
			return nil, "", err
		}
	}
	if by != nil && by.ID == "php" && !said {
		if err := p.forWordPress(); err != nil {
			return nil, "", err
		}
	}
	if by != nil && by.tier == site {
		return by, why, nil
	}
	if ask := !p.s.command.ok() && !p.s.output.ok(); ask {
		var a *app
		var err error
		if w, ok := p.t.WorkspaceAt(p.root); ok {
			a, err = p.pick(p.t.Members(w), "of the workspace that "+w.Source+" declares")
		} else if by == nil {
			a, err = p.pick(p.nested(), "in the repository")
		}
		if err != nil {
			return nil, "", err
		}
		if a != nil && (by == nil || a.tier < by.tier || by.tier == library) {
			return p.move(a, nil)
		}
	}
	if by != nil {
		return by, why, nil
	}
	if p.s.command.ok() || p.s.output.ok() {
		return find("custom"), customWhy(p), nil
	}
	return nil, "", p.nothing()
}

// ownPages reports whether the folder has pages of an app besides folders of others.
func (p *project) ownPages() bool {
	_, config := p.config("next.config", "nuxt.config", "astro.config", "svelte.config", "gatsby-config",
		"react-router.config", "remix.config")
	return config != "" || p.startScript() != "" ||
		p.any("index.html", "index.php", "angular.json", "composer.json", "server.js", "server.ts", "index.js", "app.js") != "" ||
		slices.ContainsFunc([]string{"src", "app", "pages", "public"}, p.hasDir)
}

// move makes the picked app the planned project.
func (p *project) move(a *app, err error) (*preset, string, error) {
	if err != nil {
		return nil, "", err
	}
	*p = *a.p
	return a.by, a.why, nil
}

// forced returns the requested preset. A family's id leaves the variant to the configuration: `next` with `output:
// "export"` is a static export.
func (p *project) forced() (*preset, string) {
	id := strings.ToLower(strings.TrimSpace(p.s.framework.text))
	var by *preset
	for _, c := range presets() {
		if c.ID == id && by == nil {
			by = &c
		}
		if c.family == id && c.match(p) != "" {
			by = &c
			break
		}
	}
	if by == nil {
		return nil, ""
	}
	p.s.sources["framework"] = p.s.framework.source
	return by, fmt.Sprintf("the framework %s is set in %s", id, p.s.framework.source)
}
