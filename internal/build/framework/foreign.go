package framework

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"slipway/internal/build/configfile"
	"slipway/internal/build/worktree"
	"slipway/internal/platform/lazyregexp"
)

// Settings in files for other hosts: netlify.toml and vercel.json.

func (s *settings) netlify(t *worktree.Tree, f worktree.NetlifyFile, root string) {
	if inner := worktree.Join(root, ByNetlify); root != "" && t.Names(inner) {
		f = worktree.ReadNetlify(t, inner)
	} else if f.Base != nil {
		if other, _ := worktree.CleanDir(*f.Base); other != root {
			return
		}
	}
	s.foreign(t, &s.command, f.Command, ByNetlify)
	s.folder(t, f.Publish, root, ByNetlify)
	for _, k := range worktree.SortedKeys(f.Env) {
		v := f.Env[k]
		s.setting(t, k, v, ByNetlify)
	}
}

// setting adds a variable of the build. NODE_VERSION selects the version of Node.js instead.
func (s *settings) setting(t *worktree.Tree, k, v, source string) {
	if k == "NODE_VERSION" {
		s.foreign(t, &s.node, &v, source)
		return
	}
	if !s.variable(k, v, source) {
		t.Warn(fmt.Sprintf("%s: the variable %.60q can't be set by a file and is ignored", source, k))
	}
}

// foreign is say for a file of another host: invalid values cause a warning.
func (s *settings) foreign(t *worktree.Tree, f *said, v *string, source string) {
	if err := s.say(f, v, source); err != nil {
		t.Warn(source + ": a value is too long or not text and is ignored")
	}
}

func (s *settings) folder(t *worktree.Tree, v *string, root, source string) {
	if v == nil || s.output.ok() {
		return
	}
	out, ok := worktree.CleanDir(*v)
	if strings.HasPrefix(*v, "/") && root != "" { // relative to the repository's root
		switch rest, inside := strings.CutPrefix(out, root+"/"); {
		case inside:
			out = rest
		case out == root:
			out = ""
		}
	}
	if !ok {
		t.Warn(fmt.Sprintf("%s: output folder %.100q is outside the root directory and is ignored", source, *v))
		return
	}
	s.foreign(t, &s.output, &out, source)
}

var variableName = lazyregexp.New(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)

// reserved lists variables that the sandbox sets and a repository's file can't.
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

func (s *settings) vercel(t *worktree.Tree, root string) {
	name := ByVercel
	if inner := worktree.Join(root, ByVercel); t.Names(inner) {
		name = inner
	}
	var f map[string]json.RawMessage
	if !t.JSON(name, &f) {
		return
	}
	// null and a missing value both mean detection.
	if v := configfile.Text(f["framework"]); v != "" {
		if id := fromVercel(v); id != "" {
			s.foreign(t, &s.framework, &id, ByVercel)
		} else {
			t.Warn(fmt.Sprintf("%s: no preset is called %.60q; the framework is detected", name, v))
		}
	}
	t.Ignored(name, worktree.VercelIgnores(f))
	for key, field := range map[string]*said{"buildCommand": &s.command, "installCommand": &s.install} {
		var v *string
		if json.Unmarshal(f[key], &v) == nil && v != nil {
			s.foreign(t, field, v, ByVercel)
		}
	}
	var out *string
	if json.Unmarshal(f["outputDirectory"], &out) == nil {
		s.folder(t, out, root, ByVercel)
	}
	env := worktree.Table(configfile.Members(f["build"])["env"])
	for _, k := range worktree.SortedKeys(env) {
		if v := env[k]; !strings.HasPrefix(v, "@") { // "@name" refers to a secret at Vercel
			s.setting(t, k, v, ByVercel)
		}
	}
}

// fromVercel converts Vercel's framework names to preset ids; "" means detection.
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
