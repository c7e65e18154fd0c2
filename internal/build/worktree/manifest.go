package worktree

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"

	"slipway/internal/build/configfile"
	"slipway/internal/platform/lazyregexp"
)

// Manifest holds the relevant fields of package.json. Fields of the wrong type are ignored.
type Manifest struct {
	Name        string
	module      bool // "type": "module"
	Main        string
	Manager     string // packageManager, unparsed
	scripts     map[string]string
	Prod, Dev   map[string]string // dependencies; devDependencies and optionalDependencies
	Engines     map[string]string
	Volta       map[string]string
	workspaces  []string
	isWorkspace bool
	Raw         map[string]json.RawMessage
	DevNode     string // devEngines.runtime, if it is node
	devManager  string // devEngines.packageManager: name@version
}

func newManifest(raw map[string]json.RawMessage) *Manifest {
	m := &Manifest{
		Name: configfile.Text(raw["name"]), module: configfile.Text(raw["type"]) == "module", Main: configfile.Text(raw["main"]),
		Manager: configfile.Text(raw["packageManager"]),
		scripts: Table(raw["scripts"]), Prod: Table(raw["dependencies"]), Dev: Table(raw["devDependencies"]),
		Engines: Table(raw["engines"]), Volta: Table(raw["volta"]), Raw: raw,
	}
	for k, v := range Table(raw["optionalDependencies"]) {
		m.Dev[k] = v
	}
	if w, ok := raw["workspaces"]; ok {
		m.isWorkspace = true
		m.workspaces = configfile.Texts(w)
		if m.workspaces == nil {
			m.workspaces = configfile.Texts(configfile.Members(w)["packages"])
		}
	}
	dev := configfile.Members(raw["devEngines"])
	for _, r := range oneOrMore(dev["runtime"]) {
		if configfile.Text(r["name"]) == "node" {
			m.DevNode = configfile.Text(r["version"])
		}
	}
	for _, r := range oneOrMore(dev["packageManager"]) {
		if n := configfile.Text(r["name"]); n != "" && m.devManager == "" {
			m.devManager = n + "@" + configfile.Text(r["version"])
		}
	}
	return m
}

func oneOrMore(raw json.RawMessage) []map[string]json.RawMessage {
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil {
		list = []json.RawMessage{raw}
	}
	var out []map[string]json.RawMessage
	for _, r := range list {
		if m := configfile.Members(r); m != nil {
			out = append(out, m)
		}
	}
	return out
}

// Table returns the string values of an object.
func Table(raw json.RawMessage) map[string]string {
	out := map[string]string{}
	for k, v := range configfile.Members(raw) {
		if s := configfile.Text(v); s != "" {
			out[k] = s
		}
	}
	return out
}

// Dep returns the first of these packages that is a dependency of any kind, or "".
func (m *Manifest) Dep(names ...string) string {
	if m == nil {
		return ""
	}
	for _, n := range names {
		if m.Prod[n] != "" || m.Dev[n] != "" {
			return n
		}
	}
	return ""
}

// ProdDep is Dep for the dependencies of a running program.
func (m *Manifest) ProdDep(names ...string) string {
	if m == nil {
		return ""
	}
	for _, n := range names {
		if m.Prod[n] != "" {
			return n
		}
	}
	return ""
}

func (m *Manifest) Version(name string) string {
	if m == nil {
		return ""
	}
	if v := m.Prod[name]; v != "" {
		return v
	}
	return m.Dev[name]
}

var firstNumber = lazyregexp.New(`\d{1,4}`)

// Major returns the first number of a version or range; 0 if there is none ("latest", "workspace:*", "git+https://…").
func Major(version string) int {
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

func (m *Manifest) Script(names ...string) (name, body string) {
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

// ScriptCalling returns a script that calls a program: the given names first, then the others in order.
func (m *Manifest) ScriptCalling(call *lazyregexp.Regexp, names ...string) (name, body string) {
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

// Wraps reports whether a script is the pre or post script of an existing one.
func (m *Manifest) Wraps(name string) bool {
	for _, prefix := range []string{"pre", "post"} {
		if main, ok := strings.CutPrefix(name, prefix); ok && m.scripts[main] != "" {
			return true
		}
	}
	return false
}

// Option returns the value of a command-line flag in a script; "" if it is missing or computed by the shell.
func Option(script string, names ...string) string {
	for _, n := range names {
		m := regexp.MustCompile(`(?:^|\s)` + regexp.QuoteMeta(n) + `(?:=|\s+)["']?([^\s"'&|;$` + "`" + `<>]+)`).FindStringSubmatch(script)
		if m != nil && !strings.HasPrefix(m[1], "-") {
			return m[1]
		}
	}
	return ""
}

// calledScript matches a script that only calls another one.
var calledScript = lazyregexp.New(
	`^(?:npm\s+run(?:-script)?|(?:yarn|pnpm|bun)(?:\s+run)?)\s+(?:-s\s+|--silent\s+)?([\w:.-]+)(?:\s+--\s.*)?$`,
)

// Followed replaces a call of another script at the end of a script by that script.
func (m *Manifest) Followed(body string) string {
	for range 4 {
		last := LastCommand(body)
		f := calledScript.FindStringSubmatch(last)
		if f == nil || m.scripts[f[1]] == "" {
			break
		}
		body = strings.TrimSuffix(strings.TrimSpace(body), last) + m.scripts[f[1]]
	}
	return body
}

// LastCommand returns the last command of a script, which is the one that keeps running.
func LastCommand(script string) string {
	return strings.TrimSpace(script[strings.LastIndexAny(script, "&;")+1:])
}

func (m *Manifest) ScriptBody(name string) string {
	if m == nil {
		return ""
	}
	return m.scripts[name]
}
