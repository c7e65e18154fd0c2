// Package configfile owns reading untrusted configuration files: TOML, JSON with comments, scalars and lists of YAML,
// and settings in JavaScript. It checks size, depth and number of keys before parsing.
package configfile

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"slipway/internal/platform/lazyregexp"
)

// Configuration files are read without running them. Those in JavaScript and TypeScript are programs: the package only
// searches for known settings after removing comments. Projects that compute these settings need a slipway.toml.

// Code returns JavaScript, TypeScript or JSON without its comments. Strings are kept, including "https://…". Regular
// expression literals aren't recognized; at worst they hide the rest of their line.
func Code(src string) string {
	var b strings.Builder
	b.Grow(len(src))
	for i := 0; i < len(src); {
		switch c := src[i]; {
		case c == '"' || c == '\'' || c == '`':
			end := i + 1
			for end < len(src) && src[end] != c {
				if src[end] == '\\' {
					end++
				} else if src[end] == '\n' && c != '`' {
					break
				}
				end++
			}
			end = min(end+1, len(src))
			b.WriteString(src[i:end])
			i = end
		case strings.HasPrefix(src[i:], "//"):
			n := strings.IndexByte(src[i:], '\n')
			if n < 0 {
				return b.String()
			}
			i += n
		case strings.HasPrefix(src[i:], "/*"):
			n := strings.Index(src[i+2:], "*/")
			if n < 0 {
				return b.String()
			}
			b.WriteByte(' ')
			b.WriteString(strings.Repeat("\n", strings.Count(src[i:i+n+2], "\n"))) // keep the line numbers of errors
			i += n + 4
		default:
			b.WriteByte(c)
			i++
		}
	}
	return b.String()
}

var commas = lazyregexp.New(`,(\s*[}\]])`)

// JSONC decodes a JSON object that may have comments and trailing commas. It ignores members of an unexpected type.
// Errors name the line.
func JSONC(src string, into any) error {
	var last error
	for _, text := range []func() string{func() string { return src }, func() string { return Plain(src) }} {
		b := text()
		last = CheckJSON(b)
		if last != nil {
			continue // nesting that comments hide from the first pass is found in the second
		}
		last = json.Unmarshal([]byte(b), into)
		var wrong *json.UnmarshalTypeError
		var syntax *json.SyntaxError
		switch object := strings.HasPrefix(strings.TrimSpace(b), "{"); {
		case object && (last == nil || errors.As(last, &wrong)):
			return nil
		case errors.As(last, &syntax):
			at := min(int(syntax.Offset), len(b))
			last = fmt.Errorf("line %d: %w", 1+strings.Count(b[:at], "\n"), last)
		case !object:
			last = errors.New("it doesn't hold an object")
		}
	}
	return last
}

// Plain returns JSON without comments and trailing commas, with the same lines.
func Plain(src string) string { return commas.ReplaceAllString(Code(src), "$1") }

// Conflict returns the first and last line of a merge conflict, or 0.
func Conflict(src string) (first, last int) {
	if !strings.Contains(src, "<<<<<<<") {
		return 0, 0
	}
	n, middle := 0, false
	for line := range strings.Lines(src) {
		n++
		switch line = strings.TrimRight(line, "\r\n"); {
		case first == 0 && strings.HasPrefix(line, "<<<<<<< "):
			first = n
		case first > 0 && line == "=======":
			middle = true
		case middle && strings.HasPrefix(line, ">>>>>>> "):
			return first, n
		}
	}
	return 0, 0
}

// Members returns an object's raw values; none if raw isn't an object.
func Members(raw json.RawMessage) map[string]json.RawMessage {
	var m map[string]json.RawMessage
	if json.Unmarshal(raw, &m) != nil {
		return nil
	}
	return m
}

func Text(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}

// Texts returns the strings of an array, or a single string.
func Texts(raw json.RawMessage) []string {
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil {
		if s := Text(raw); s != "" {
			return []string{s}
		}
		return nil
	}
	var out []string
	for _, r := range list {
		if s := Text(r); s != "" {
			out = append(out, s)
		}
	}
	return out
}

// JSString finds `key: "value"` or key = "value" anywhere in code and returns the first value.
func JSString(src, key string) string {
	m := regexp.MustCompile(`(?:^|[^\w$.])["']?` + key + `["']?\s*[:=]\s*["'` + "`" + `]([^"'` + "`" + `$\n]{1,200})["'` + "`" + `]`).
		FindStringSubmatch(src)
	if m == nil {
		return ""
	}
	return m[1]
}

// JSBool finds `key: true` or `key: false` in code.
func JSBool(src, key string) (value, found bool) {
	m := regexp.MustCompile(`(?:^|[^\w$.])["']?` + key + `["']?\s*[:=]\s*(true|false|!0|!1)\b`).FindStringSubmatch(src)
	if m == nil {
		return false, false
	}
	return m[1] == "true" || m[1] == "!0", true
}

// JSTop returns the code outside nested blocks: for a configuration that exports one object, the object's own settings.
func JSTop(src string) string {
	depth := 0
	return strings.Map(func(r rune) rune {
		switch r {
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
		if depth > 1 {
			return -1
		}
		return r
	}, src)
}

// JSBlock returns the text between `key: {` (or `key(`) and its closing bracket, to search for a setting in its section
// only.
func JSBlock(src, key string) string {
	at := regexp.MustCompile(`(?:^|[^\w$.])["']?` + key + `["']?\s*(?:[:=]\s*)?[{(]`).FindStringIndex(src)
	if at == nil {
		return ""
	}
	depth := 0
	for i := at[1] - 1; i < len(src); i++ {
		switch src[i] {
		case '{', '(':
			depth++
		case '}', ')':
			depth--
			if depth == 0 {
				return src[at[1]:i]
			}
		}
	}
	return src[at[1]:]
}

// YAMLScalar returns the value of a top-level key of a YAML file if it is on the key's line. It ignores custom tags,
// which MkDocs files often contain.
func YAMLScalar(src, key string) string {
	for line := range strings.Lines(src) {
		rest, ok := strings.CutPrefix(line, key)
		if !ok {
			continue
		}
		rest, ok = strings.CutPrefix(strings.TrimLeft(rest, " \t"), ":")
		if ok {
			return yamlValue(rest)
		}
	}
	return ""
}

// YAMLList returns the strings of a top-level list, in block or in flow style.
func YAMLList(src, key string) []string {
	var out []string
	inside := false
	for line := range strings.Lines(src) {
		trimmed := strings.TrimSpace(line)
		if trimmed == "" || trimmed[0] == '#' {
			continue
		}
		if !inside {
			rest, ok := strings.CutPrefix(line, key)
			if !ok {
				continue
			}
			if rest, ok = strings.CutPrefix(strings.TrimLeft(rest, " \t"), ":"); !ok {
				continue
			}
			inside = true
			if flow, ok := strings.CutPrefix(strings.TrimSpace(rest), "["); ok {
				flow, _, _ = strings.Cut(flow, "]")
				for s := range strings.SplitSeq(flow, ",") {
					s = yamlValue(s)
					if s != "" && len(out) < MaxPatterns {
						out = append(out, s)
					}
				}
				return out
			}
			continue
		}
		item, ok := strings.CutPrefix(trimmed, "-")
		if !ok {
			return out
		}
		if s := yamlValue(item); s != "" && len(out) < MaxPatterns {
			out = append(out, s)
		}
	}
	return out
}

func yamlValue(s string) string {
	s = strings.TrimSpace(s)
	if s == "" {
		return ""
	}
	if q := s[0]; q == '"' || q == '\'' {
		if end := strings.IndexByte(s[1:], q); end >= 0 {
			return s[1 : end+1]
		}
		return ""
	}
	if i := strings.Index(s, " #"); i >= 0 {
		s = s[:i]
	}
	if s[0] == '#' || s[0] == '|' || s[0] == '>' || s[0] == '{' || s[0] == '[' || s[0] == '&' || s[0] == '!' {
		return ""
	}
	return strings.TrimSpace(s)
}

// JSPath is JSString for a folder, which is often written path.resolve(__dirname, "dist").
func JSPath(src, key string) string {
	m := regexp.MustCompile(`(?:^|[^\w$.])["']?` + key +
		`["']?\s*[:=]\s*(?:\w+\.)?(?:resolve|join)\(\s*(?:__dirname|import\.meta\.dirname|process\.cwd\(\)|\w+)\s*,\s*["'` +
		"`]([^\"'`$\n]{1,200})[\"'`]" + `\s*\)`).
		FindStringSubmatch(src)
	if m != nil {
		return m[1]
	}
	return JSString(src, key)
}
