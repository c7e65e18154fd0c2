package framework

import (
	"fmt"
	"strings"

	"slipway/internal/build/worktree"
)

// node determines the version of Node.js: from the site's settings, or else the nearest file from the project's folder
// up to the repository's root.
func (p *project) node(d *draft) {
	try := func(value, source string) bool {
		if strings.TrimSpace(value) == "" {
			return false
		}
		v, ok := worktree.NodeVersion(value)
		if !ok {
			d.warn(fmt.Sprintf("%s asks for Node %.60q, which is not a version; it is ignored", source, value))
			return false
		}
		d.Node, d.Sources["node"] = v, source
		return true
	}
	if try(p.s.node.text, p.s.node.source) {
		return
	}
	for _, dir := range worktree.Upward(p.root) {
		m := p.t.Manifest(dir)
		for _, f := range []string{".nvmrc", ".node-version"} {
			if name := worktree.Join(dir, f); try(worktree.FirstWord(p.t.Read(name)), name) {
				return
			}
		}
		if m != nil && try(m.Volta["node"], worktree.Join(dir, "package.json")+" volta") {
			return
		}
		if name := worktree.Join(dir, ".tool-versions"); try(worktree.ToolVersion(p.t.Read(name), "nodejs", "node"), name) {
			return
		}
		if name := p.t.AnyIn(dir, "mise.toml", ".mise.toml"); name != "" && try(worktree.MiseVersion(p.t.Config(name), "node"), name) {
			return
		}
		if m != nil && (try(m.DevNode, worktree.Join(dir, "package.json")+" devEngines") ||
			try(m.Engines["node"], worktree.Join(dir, "package.json")+" engines")) {
			return
		}
	}
}
