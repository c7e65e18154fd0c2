package rules

import (
	"fmt"
	"slices"
	"strings"

	"slipway/internal/build/configfile"
	"slipway/internal/platform/text"
)

// table parses the rules of netlify.toml and slipway.toml: [[redirects]] and [[headers]] have the same syntax in both;
// only slipway.toml has [serve]. Package framework reads the rest of the files.
func (p *parser) table(written string) {
	var f struct {
		Redirects []redirectTable `toml:"redirects"`
		Headers   []struct {
			For    string         `toml:"for"`
			Values map[string]any `toml:"values"`
		} `toml:"headers"`
		Serve map[string]any `toml:"serve"`
	}
	md, err := configfile.DecodeTOML(written, &f)
	if err != nil {
		first, _, _ := strings.Cut(strings.TrimPrefix(err.Error(), "toml: "), "\n")
		p.fail(0, "%s", text.Line(first, 200))
		return
	}
	for _, k := range md.Undecoded() {
		if k[0] == "headers" && protects(k[len(k)-1]) {
			p.fail(0, "%s is not understood; Basic-Auth belongs to [headers.values]", text.Line(k.String(), 200))
		}
	}
	lines := tableLines(written, "redirects")
	for i, t := range f.Redirects {
		line := lineAt(lines, i)
		if len(p.rules.Redirects) > maxRedirects {
			break
		}
		if r, why := p.redirectTable(line, t); why != "" {
			p.problem(line, "%s; the rule is ignored", why)
		} else {
			p.add(line, r)
		}
	}
	lines = tableLines(written, "headers")
	for i, t := range f.Headers {
		p.headerTable(lineAt(lines, i), t.For, t.Values)
	}
	if p.file == "slipway.toml" {
		p.serve(f.Serve)
	}
}

type redirectTable struct {
	From       string         `toml:"from"`
	To         string         `toml:"to"`
	Status     int            `toml:"status"`
	Force      bool           `toml:"force"`
	Query      map[string]any `toml:"query"`
	Params     map[string]any `toml:"params"` // name in older files
	Conditions map[string]any `toml:"conditions"`
	Headers    map[string]any `toml:"headers"`
	Signed     string         `toml:"signed"`
}

func (p *parser) redirectTable(line int, t redirectTable) (r Redirect, why string) {
	if t.From == "" {
		return r, "from is missing"
	}
	r.Host, r.From, why = splitFrom(t.From)
	if why != "" {
		return r, why
	}
	r.To, r.Status, r.Force = t.To, t.Status, t.Force
	if len(t.Headers) > 0 {
		p.problem(line, "headers for the other server are not sent")
	}
	if t.Signed != "" {
		return r, "signed proxy requests are not supported"
	}
	for _, table := range []map[string]any{t.Query, t.Params} {
		for _, k := range sortedNames(table) {
			r.Query = append(r.Query, Field{k, fmt.Sprint(table[k])})
		}
	}
	for _, k := range sortedNames(t.Conditions) {
		if why := p.condition(line, &r, k, texts(t.Conditions[k])); why != "" {
			return r, why
		}
	}
	return r, ""
}

func (p *parser) headerTable(line int, path string, values map[string]any) {
	host, path, why := splitFrom(path)
	rule := HeaderRule{Host: host, For: path}
	for _, name := range sortedNames(values) {
		list := texts(values[name])
		if len(list) == 0 && protects(name) {
			list = []string{""}
		}
		for _, v := range list {
			// Netlify's own examples have several lines in one value.
			p.setHeader(line, &rule, name, strings.Join(strings.Fields(v), " "))
		}
	}
	if path == "" || why != "" {
		p.ignore(line, rule.Auth != nil, "for must be a path or an address")
		return
	}
	p.addHeaders(line, rule)
}

// serve parses [serve] of slipway.toml.
func (p *parser) serve(t map[string]any) {
	for _, k := range sortedNames(t) {
		switch v := t[k].(type) {
		case bool:
			if k == "spa" {
				p.spa = &v
				continue
			}
		case string:
			if form := Slash(v); k == "trailing_slash" && (form == Always || form == Never) {
				p.rules.Slash = form
				continue
			} else if k == "trailing_slash" && v == "auto" {
				continue
			}
		}
		p.problem(0, "serve.%s is not understood: spa is true or false, trailing_slash is \"auto\", \"always\" or \"never\"", text.Line(k, 200))
	}
}

// texts returns the strings of an array, or a single value.
func texts(v any) []string {
	list, ok := v.([]any)
	if !ok {
		list = []any{v}
	}
	var out []string
	for _, one := range list {
		if s, ok := one.(string); ok {
			out = append(out, s)
		} else if _, nested := one.(map[string]any); !nested {
			out = append(out, fmt.Sprint(one))
		}
	}
	return out
}

func sortedNames(m map[string]any) []string {
	names := make([]string, 0, len(m))
	for k := range m {
		names = append(names, k)
	}
	slices.Sort(names)
	return names
}

// tableLines returns the lines at which an array's tables begin, because the decoder doesn't report them.
func tableLines(text, name string) (lines []int) {
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.Join(strings.Fields(line), "")
		if strings.HasPrefix(line, "[["+name+"]]") {
			lines = append(lines, n)
		}
	}
	return lines
}

func lineAt(lines []int, i int) int {
	if i < len(lines) {
		return lines[i]
	}
	return 0
}
