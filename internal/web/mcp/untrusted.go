package mcp

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxResult caps a tool's result in bytes.
const maxResult = 32 << 10

// Limits of texts in a result, in characters.
const (
	maxTrusted   = 300
	maxUntrusted = 2000
)

// trusted lists the fields whose texts Slipway generates, or validates as names of hosts, sites or variables. All other
// fields, including future ones of the API, are marked as untrusted.
var trusted = map[string]bool{
	"id": true, "siteId": true, "deploymentId": true, "uploadId": true, "domainId": true, "backupId": true, "operationId": true,
	"user": true, "team": true, "status": true, "type": true, "kind": true, "trigger": true, "target": true, "url": true,
	"previewUrl": true, "subdomain": true, "createdAt": true, "startedAt": true, "completedAt": true, "updatedAt": true,
	"expiresAt": true, "lastUsedAt": true, "nextAttemptAt": true, "timestamp": true, "time": true, "at": true, "since": true,
	"until": true, "step": true, "level": true, "stage": true, "stream": true, "process": true, "engine": true,
	"framework": true, "runtime": true, "rollbackOf": true, "promotedFrom": true, "commitHash": true, "digest": true,
	"key": true, "name": true, "scopes": true, "sites": true, "includes": true, "env": true, "nextCursor": true, "expires": true,
}

// dropped lists fields that no tool returns, because they are long and repeat other fields.
var dropped = map[string]bool{"raw": true, "plan": true, "thumbnail": true, "thumbnailUrl": true}

// mark moves texts that others may have written into their object's field untrusted, and cleans all texts.
func mark(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out, theirs := map[string]any{}, map[string]any{}
		for name, value := range v {
			switch {
			case value == nil || dropped[name] || name == "value" && !isNumber(value):
			case !isToken(name) || name == "untrusted":
				theirs[clean(name, maxTrusted)] = bound(value)
			case written(name, value):
				theirs[name] = bound(value)
			default:
				out[name] = mark(value)
			}
		}
		if len(theirs) > 0 {
			out["untrusted"] = theirs
		}
		return out
	case []any:
		out := make([]any, 0, len(v))
		for _, one := range v {
			out = append(out, mark(one))
		}
		return out
	case string:
		return clean(v, maxTrusted)
	}
	return v
}

func isNumber(v any) bool {
	_, ok := v.(json.Number)
	return ok
}

// written reports whether a field contains text that others may have written.
func written(name string, value any) bool {
	switch v := value.(type) {
	case string:
		return !trusted[name] || !isToken(v)
	case []any:
		return slices.ContainsFunc(v, func(one any) bool {
			s, text := one.(string)
			_, list := one.([]any)
			return list || text && (!trusted[name] || !isToken(s))
		})
	}
	return false
}

// isToken reports whether s is a single ASCII word such as an ID, URL, time or host name.
func isToken(s string) bool {
	return len(s) <= maxTrusted && !strings.ContainsFunc(s, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || strings.ContainsRune("<>`\"\\", r)
	})
}

// bound cleans every text within a value that is marked as a whole.
func bound(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for name, value := range v {
			out[clean(name, maxTrusted)] = bound(value)
		}
		return out
	case []any:
		out := make([]any, 0, len(v))
		for _, one := range v {
			out = append(out, bound(one))
		}
		return out
	case string:
		return clean(v, maxUntrusted)
	}
	return v
}

// clean removes control characters, bidirectional overrides and invisible characters, and cuts the text to limit
// characters.
func clean(s string, limit int) string {
	var out strings.Builder
	n := 0
	for _, r := range s {
		if r == utf8.RuneError || r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || unicode.Is(unicode.Co, r)) {
			continue
		}
		n++
		if n > limit {
			out.WriteString("…")
			break
		}
		out.WriteRune(r)
	}
	return out.String()
}

// encode returns JSON without HTML escapes.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}
