package framework

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"slipway/internal/platform/lazyregexp"
)

// What files written for other hosts say: netlify.toml and vercel.json.

// netlifyFile holds what we take from netlify.toml: [build] and, over it,
// [context.production].
type netlifyFile struct {
	base, publish, command *string
	env                    map[string]string
}

func readNetlify(t *tree, name string) netlifyFile {
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
	out := netlifyFile{env: map[string]string{}}
	md, err := decodeTOML(t.config(name), &f)
	if err != nil {
		t.warn(name + " cannot be read and is ignored: " + firstLine(err))
		return out
	}
	layers := []build{f.Build}
	if p, ok := f.Context["production"]; ok {
		var b build
		if md.PrimitiveDecode(p, &b) == nil {
			layers = append(layers, b)
		}
	}
	for _, b := range layers {
		out.base = over(b.Base, out.base)
		out.publish = over(b.Publish, out.publish)
		out.command = over(b.Command, out.command)
		for k, v := range b.Environment {
			out.env[k] = fmt.Sprint(v)
		}
	}
	t.ignored(name, netlifyIgnores(md.Undecoded()))
	for _, c := range slices.Sorted(maps.Keys(f.Context)) {
		if c != "production" {
			t.ignored(name, []string{"context." + c})
		}
	}
	return out
}

// over returns a, or b where a is absent or empty: to Netlify both are the same.
func over(a, b *string) *string {
	if a == nil || strings.TrimSpace(*a) == "" {
		return b
	}
	return a
}

func (s *settings) netlify(t *tree, f netlifyFile, root string) {
	if inner := join(root, byNetlify); root != "" && t.has(inner) {
		f = readNetlify(t, inner)
	} else if f.base != nil {
		if other, _ := cleanDir(*f.base); other != root {
			return
		}
	}
	s.foreign(t, &s.command, f.command, byNetlify)
	s.folder(t, f.publish, root, byNetlify)
	for _, k := range sortedKeys(f.env) {
		v := f.env[k]
		s.setting(t, k, v, byNetlify)
	}
}

// setting takes a variable of the build, one of which chooses the version of Node.
func (s *settings) setting(t *tree, k, v, source string) {
	if k == "NODE_VERSION" {
		s.foreign(t, &s.node, &v, source)
		return
	}
	if !s.variable(k, v, source) {
		t.warn(fmt.Sprintf("%s: the variable %.60q can't be set by a file and is ignored", source, k))
	}
}

// foreign is say for a file that another host reads: what we cannot use is a warning.
func (s *settings) foreign(t *tree, f *said, v *string, source string) {
	if err := s.say(f, v, source); err != nil {
		t.warn(source + ": a value is too long or not text and is ignored")
	}
}

func (s *settings) folder(t *tree, v *string, root, source string) {
	if v == nil || s.output.ok() {
		return
	}
	out, ok := cleanDir(*v)
	if strings.HasPrefix(*v, "/") && root != "" { // from the top of the repository
		switch rest, inside := strings.CutPrefix(out, root+"/"); {
		case inside:
			out = rest
		case out == root:
			out = ""
		}
	}
	if !ok {
		t.warn(fmt.Sprintf("%s: output folder %.100q is outside the root directory and is ignored", source, *v))
		return
	}
	s.foreign(t, &s.output, &out, source)
}

var variableName = lazyregexp.New(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)

// reserved are variables that a repository's file cannot set: the sandbox owns them.
var reserved = []string{"PATH", "HOME", "SHELL", "USER", "TMPDIR", "LD_PRELOAD", "LD_LIBRARY_PATH"}

func (s *settings) variable(k, v, source string) bool {
	upper := strings.ToUpper(k)
	if len(s.env) >= 100 || len(v) > 32<<10 || !variableName.MatchString(k) || slices.Contains(reserved, upper) ||
		strings.HasPrefix(upper, "SLIPWAY_") || strings.HasSuffix(upper, "_PROXY") || strings.ContainsRune(v, 0) {
		return false
	}
	if _, twice := s.env[k]; !twice {
		s.env[k] = v
		s.sources["env"] = source
	}
	return true
}

func (s *settings) vercel(t *tree, root string) {
	name := byVercel
	if inner := join(root, byVercel); t.has(inner) {
		name = inner
	}
	src := t.config(name)
	if src == "" {
		return
	}
	var f map[string]json.RawMessage
	if !jsonc(src, &f) {
		t.warn(name + " cannot be read and is ignored")
		return
	}
	// null and absent are the same: let detection decide.
	if v := text(f["framework"]); v != "" {
		if id := fromVercel(v); id != "" {
			s.foreign(t, &s.framework, &id, byVercel)
		} else {
			t.warn(fmt.Sprintf("%s: no preset is called %.60q; the framework is detected", name, v))
		}
	}
	t.ignored(name, vercelIgnores(f))
	for key, field := range map[string]*said{"buildCommand": &s.command, "installCommand": &s.install} {
		var v *string
		if json.Unmarshal(f[key], &v) == nil && v != nil {
			s.foreign(t, field, v, byVercel)
		}
	}
	var out *string
	if json.Unmarshal(f["outputDirectory"], &out) == nil {
		s.folder(t, out, root, byVercel)
	}
	env := table(members(f["build"])["env"])
	for _, k := range sortedKeys(env) {
		if v := env[k]; !strings.HasPrefix(v, "@") { // "@name" was a secret of theirs
			s.setting(t, k, v, byVercel)
		}
	}
}

// The settings of other hosts' files that are obeyed elsewhere, or that mean nothing for a
// deployment. Every other one that we don't take is named in a warning: this is the list.
var (
	netlifyKnown = []string{"redirects", "headers", // package release obeys them
		"dev", "template"} // local development, one-click templates
	vercelKnown = []string{"redirects", "rewrites", "headers", "trailingSlash", "routes", // package release obeys or names them
		"framework", "buildCommand", "installCommand", "outputDirectory", "build", // above
		"$schema", "version", "name", "alias", "scope", "public", "devCommand", "github", "git"} // nothing to do with a deployment's files
)

// netlifyIgnores names the tables and keys of netlify.toml that nobody took.
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

// vercelIgnores names the keys of vercel.json that nobody took. cleanUrls is how every
// site is served; only its absence asks for something else, and that is the default.
func vercelIgnores(f map[string]json.RawMessage) []string {
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

// ignored warns of each setting of a file once.
func (t *tree) ignored(file string, names []string) {
	for _, name := range compact(names, 10) {
		t.warn(fmt.Sprintf("%s: %.60s is not supported and is ignored", file, name))
	}
}

// fromVercel translates the names that Vercel gives to frameworks, "" for those that
// we leave to detection.
func fromVercel(slug string) string {
	switch slug {
	case "nextjs":
		return "next"
	case "nuxtjs":
		return "nuxt"
	case "docusaurus-2":
		return "docusaurus"
	case "sveltekit-1":
		return "sveltekit"
	case "solidstart", "solidstart-1":
		return "solid-start"
	case "vue":
		return "vue-cli"
	case "ionic-angular":
		return "angular"
	case "ionic-react":
		return ""
	}
	if known(slug) {
		return slug
	}
	return ""
}
