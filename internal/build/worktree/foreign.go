package worktree

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
)

// NetlifyFile holds the settings of netlify.toml that Slipway uses: [build], overridden by [context.production].
type NetlifyFile struct {
	Base, Publish, Command *string
	Env                    map[string]string
}

func ReadNetlify(t *Tree, name string) NetlifyFile {
	type build struct {
		Base        *string        `toml:"base"`
		Publish     *string        `toml:"publish"`
		Command     *string        `toml:"command"`
		Environment map[string]any `toml:"environment"`
	}
	var f struct {
		Build   build                     `toml:"build"`
		Context map[string]toml.Primitive `toml:"context"`
	}
	out := NetlifyFile{Env: map[string]string{}}
	md := t.TOML(name, &f, "correct it, or delete it")
	layers := []build{f.Build}
	if p, ok := f.Context["production"]; ok {
		var b build
		if md.PrimitiveDecode(p, &b) == nil {
			layers = append(layers, b)
		}
	}
	for _, b := range layers {
		out.Base = over(b.Base, out.Base)
		out.Publish = over(b.Publish, out.Publish)
		out.Command = over(b.Command, out.Command)
		for k, v := range b.Environment {
			out.Env[k] = fmt.Sprint(v)
		}
	}
	t.Ignored(name, netlifyIgnores(md.Undecoded()))
	for _, c := range slices.Sorted(maps.Keys(f.Context)) {
		if c != "production" {
			t.Ignored(name, []string{"context." + c})
		}
	}
	return out
}

// over returns a, or b if a is missing or empty, which are the same to Netlify.
func over(a, b *string) *string {
	if a == nil || strings.TrimSpace(*a) == "" {
		return b
	}
	return a
}

// Settings in other hosts' files that are used elsewhere or don't matter for a deployment. All others that aren't used
// cause a warning.
var (
	netlifyKnown = []string{"redirects", "headers", // used by package release
		"dev", "template"} // local development, one-click templates
	vercelKnown = []string{"redirects", "rewrites", "headers", "trailingSlash", "routes", // used or reported by package release
		"framework", "buildCommand", "installCommand", "outputDirectory", "build", // used here
		"$schema", "version", "name", "alias", "scope", "public", "devCommand", "github", "git"} // don't affect a deployment's files
)

// netlifyIgnores returns the unused tables and keys of netlify.toml.
func netlifyIgnores(left []toml.Key) []string {
	var names []string
	for _, k := range left {
		name := k[0]
		switch {
		case slices.Contains(netlifyKnown, name):
			continue
		case name == "build" && len(k) > 1:
			name = k[0] + "." + k[1]
		case name == "context", name == "build":
			continue
		}
		names = append(names, name)
	}
	return names
}

// VercelIgnores returns the unused keys of vercel.json. "cleanUrls": true is how every site is served; false is the
// default and isn't reported.
func VercelIgnores(f map[string]json.RawMessage) []string {
	var names []string
	for k, v := range f {
		if slices.Contains(vercelKnown, k) || k == "cleanUrls" && string(v) == "true" || string(v) == "null" {
			continue
		}
		names = append(names, k)
	}
	slices.Sort(names)
	return names
}

// Ignored warns once of each unused setting of a file.
func (t *Tree) Ignored(file string, names []string) {
	for _, name := range Compact(names, 10) {
		t.Warn(fmt.Sprintf("%s: %.60s is not supported and is ignored", file, name))
	}
}

func Compact(in []string, limit int) []string {
	var out []string
	for _, s := range in {
		if !slices.Contains(out, s) && len(out) < limit {
			out = append(out, s)
		}
	}
	return out
}

func FirstLine(err error) string {
	line, _, _ := strings.Cut(strings.TrimPrefix(err.Error(), "toml: "), "\n")
	return line[:min(len(line), 300)]
}
