package framework

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"slipway/internal/platform/lazyregexp"
)

// manifest is the part of package.json that decides anything. Fields of the wrong
// type are as good as absent.
type manifest struct {
	name        string
	module      bool // "type": "module"
	main        string
	manager     string // packageManager as it stands
	scripts     map[string]string
	prod, dev   map[string]string // dependencies; devDependencies and optional ones
	engines     map[string]string
	volta       map[string]string
	workspaces  []string
	isWorkspace bool
	raw         map[string]json.RawMessage
	devNode     string // devEngines.runtime, where it is node
	devManager  string // devEngines.packageManager: name@version
}

func parseManifest(src string) (*manifest, bool) {
	var raw map[string]json.RawMessage
	if !jsonc(src, &raw) || raw == nil {
		return nil, false
	}
	m := &manifest{
		name: text(raw["name"]), module: text(raw["type"]) == "module", main: text(raw["main"]),
		manager: text(raw["packageManager"]),
		scripts: table(raw["scripts"]), prod: table(raw["dependencies"]), dev: table(raw["devDependencies"]),
		engines: table(raw["engines"]), volta: table(raw["volta"]), raw: raw,
	}
	for k, v := range table(raw["optionalDependencies"]) {
		m.dev[k] = v
	}
	if w, ok := raw["workspaces"]; ok {
		m.isWorkspace = true
		if m.workspaces = texts(w); m.workspaces == nil {
			m.workspaces = texts(members(w)["packages"])
		}
	}
	dev := members(raw["devEngines"])
	for _, r := range oneOrMore(dev["runtime"]) {
		if text(r["name"]) == "node" {
			m.devNode = text(r["version"])
		}
	}
	for _, r := range oneOrMore(dev["packageManager"]) {
		if n := text(r["name"]); n != "" && m.devManager == "" {
			m.devManager = n + "@" + text(r["version"])
		}
	}
	return m, true
}

func oneOrMore(raw json.RawMessage) []map[string]json.RawMessage {
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil {
		list = []json.RawMessage{raw}
	}
	var out []map[string]json.RawMessage
	for _, r := range list {
		if m := members(r); m != nil {
			out = append(out, m)
		}
	}
	return out
}

// table returns an object's string values.
func table(raw json.RawMessage) map[string]string {
	out := map[string]string{}
	for k, v := range members(raw) {
		if s := text(v); s != "" {
			out[k] = s
		}
	}
	return out
}

// dep reports whether any of these packages is a dependency of any kind, and which.
func (m *manifest) dep(names ...string) string {
	if m == nil {
		return ""
	}
	for _, n := range names {
		if m.prod[n] != "" || m.dev[n] != "" {
			return n
		}
	}
	return ""
}

// prodDep is dep among the dependencies that a running program has.
func (m *manifest) prodDep(names ...string) string {
	if m == nil {
		return ""
	}
	for _, n := range names {
		if m.prod[n] != "" {
			return n
		}
	}
	return ""
}

func (m *manifest) version(name string) string {
	if m == nil {
		return ""
	}
	if v := m.prod[name]; v != "" {
		return v
	}
	return m.dev[name]
}

var firstNumber = lazyregexp.New(`\d{1,4}`)

// major returns the first number of a version or range, 0 when there is none
// ("latest", "workspace:*", "git+https://…").
func major(version string) int {
	if strings.ContainsAny(version, "/@") && !strings.HasPrefix(version, "npm:") {
		return 0
	}
	if i := strings.LastIndexByte(version, '@'); i >= 0 {
		version = version[i:]
	}
	n := 0
	for _, c := range firstNumber.FindString(version) {
		n = n*10 + int(c-'0')
	}
	return n
}

func (m *manifest) script(names ...string) (name, body string) {
	if m == nil {
		return "", ""
	}
	for _, n := range names {
		if m.scripts[n] != "" {
			return n, m.scripts[n]
		}
	}
	return "", ""
}

// scriptCalling returns the script that calls a program, the likeliest names first,
// then the others in order.
func (m *manifest) scriptCalling(call *lazyregexp.Regexp, names ...string) (name, body string) {
	if m == nil {
		return "", ""
	}
	for _, n := range append(names, slices.Sorted(maps.Keys(m.scripts))...) {
		if s := m.scripts[n]; s != "" && call.MatchString(s) {
			return n, s
		}
	}
	return "", ""
}
