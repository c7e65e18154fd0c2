package framework

import (
	"encoding/json"
	"errors"
	"regexp"
	"strings"

	"slipway/internal/platform/lazyregexp"
)

// Configuration files of strangers, read without running them. JavaScript and
// TypeScript are programs: we only look for the few words that decide, after comments
// are gone, and a file that computes those words is a case for slipway.toml.

// code returns JavaScript, TypeScript or JSON with comments without its comments.
// Strings are kept as they are, so "https://…" survives. Regular expression literals
// are not understood; the worst they do is hide the rest of their line.
func code(src string) string {
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
			i += n + 4
		default:
			b.WriteByte(c)
			i++
		}
	}
	return b.String()
}

var commas = lazyregexp.New(`,(\s*[}\]])`)

// jsonc decodes JSON that may have comments and trailing commas. A value of an
// unexpected type leaves its field alone.
func jsonc(src string, into any) bool {
	for _, text := range []func() string{
		func() string { return src },
		func() string { return commas.ReplaceAllString(code(src), "$1") },
	} {
		b := text()
		if checkJSON(b) != nil {
			continue // comments may hide what counts from the first pass, but not from the second
		}
		err := json.Unmarshal([]byte(b), into)
		var wrong *json.UnmarshalTypeError
		if err == nil || errors.As(err, &wrong) {
			return true
		}
	}
	return false
}

// members returns an object's raw values, none for anything but an object.
func members(raw json.RawMessage) map[string]json.RawMessage {
	var m map[string]json.RawMessage
	if json.Unmarshal(raw, &m) != nil {
		return nil
	}
	return m
}

func text(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}

// texts returns the strings of an array, or of a string alone.
func texts(raw json.RawMessage) []string {
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil {
		if s := text(raw); s != "" {
			return []string{s}
		}
		return nil
	}
	var out []string
	for _, r := range list {
		if s := text(r); s != "" {
			out = append(out, s)
		}
	}
	return out
}

// jsString finds `key: "value"` (or key = "value") in code and returns the first
// value, wherever in the file it stands.
func jsString(src, key string) string {
	m := regexp.MustCompile(`(?:^|[^\w$.])["']?` + key + `["']?\s*[:=]\s*["'` + "`" + `]([^"'` + "`" + `$\n]{1,200})["'` + "`" + `]`).
		FindStringSubmatch(src)
	if m == nil {
		return ""
	}
	return m[1]
}

// jsBool finds `key: true` or `key: false` in code.
func jsBool(src, key string) (value, found bool) {
	m := regexp.MustCompile(`(?:^|[^\w$.])["']?` + key + `["']?\s*[:=]\s*(true|false|!0|!1)\b`).FindStringSubmatch(src)
	if m == nil {
		return false, false
	}
	return m[1] == "true" || m[1] == "!0", true
}

// jsBlock returns what follows `key: {` (or `key(`) up to its closing bracket, so that
// a word can be looked for where it means something.
func jsBlock(src, key string) string {
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
			if depth--; depth == 0 {
				return src[at[1]:i]
			}
		}
	}
	return src[at[1]:]
}

// yamlScalar returns the value of a key at the top level of a YAML file, as far as it
// is written on the key's own line. It is all that this package needs of YAML, and it
// survives the custom tags that MkDocs files are full of.
func yamlScalar(src, key string) string {
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

// yamlList returns the strings of a top-level list, in block or in flow style.
func yamlList(src, key string) []string {
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
					if s = yamlValue(s); s != "" && len(out) < maxPatterns {
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
		if s := yamlValue(item); s != "" && len(out) < maxPatterns {
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
