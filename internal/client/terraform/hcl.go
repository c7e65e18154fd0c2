package terraform

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
)

// field is an attribute of a resource.
type field struct {
	name  string
	value any
}

type fields []field

// verbatim is an expression, such as a reference.
type verbatim string

// resource writes a resource with its import block and returns its label.
func (e *export) resource(kind, name, id string, attributes fields) string {
	label := e.label(kind, name)
	fmt.Fprintf(&e.out, "\nresource %q %q {\n%s}\n", kind, label, lines(attributes, "  "))
	fmt.Fprintf(&e.out, "\nimport {\n  to = %s.%s\n  id = %s\n}\n", kind, label, quote(id))
	return label
}

// label makes a unique identifier from a name.
func (e *export) label(kind, name string) string {
	name = strings.ToLower(strings.Map(func(r rune) rune {
		if r < 0x80 && (unicode.IsLetter(r) || unicode.IsDigit(r)) {
			return r
		}
		return '_'
	}, name))
	if name == "" || !unicode.IsLetter(rune(name[0])) {
		name = "_" + name
	}
	free := name
	for n := 2; e.used[kind+"."+free]; n++ {
		free = fmt.Sprintf("%s_%d", name, n)
	}
	e.used[kind+"."+free] = true
	return free
}

// lines formats attributes like terraform fmt: equal signs of adjacent one-line attributes are aligned. Attributes
// without a value are omitted.
func lines(attributes fields, indent string) string {
	var names, values []string
	for _, a := range attributes {
		if v := expression(a.value, indent); v != "" {
			names, values = append(names, a.name), append(values, v)
		}
	}
	var b strings.Builder
	for at := 0; at < len(names); {
		end, wide := at, 0
		for end < len(names) && !strings.Contains(values[end], "\n") {
			wide = max(wide, len(names[end]))
			end++
		}
		for ; at < end; at++ {
			fmt.Fprintf(&b, "%s%-*s = %s\n", indent, wide, names[at], values[at])
		}
		if at < len(names) {
			fmt.Fprintf(&b, "%s%s = %s\n", indent, names[at], values[at])
			at++
		}
	}
	return b.String()
}

// expression formats a value in HCL, or returns "" if there is none.
func expression(v any, indent string) string {
	switch v := v.(type) {
	case verbatim:
		return string(v)
	case string:
		return quote(v)
	case bool:
		return fmt.Sprint(v)
	case json.Number:
		return v.String()
	case []any:
		if len(v) == 0 {
			return ""
		}
		list := make([]string, len(v))
		for i := range v {
			list[i] = expression(v[i], indent)
		}
		return "[" + strings.Join(list, ", ") + "]"
	case fields:
		if of := lines(v, indent+"  "); of != "" {
			return "{\n" + of + indent + "}"
		}
	}
	return ""
}

// pick selects attributes of an API object by their names in configurations.
func pick(v any, names ...string) fields {
	of, _ := v.(object)
	var out fields
	for _, name := range names {
		words := strings.Split(name, "_")
		for i, w := range words[1:] {
			words[i+1] = strings.ToUpper(w[:1]) + w[1:]
			if w == "mib" {
				words[i+1] = "MiB"
			}
		}
		value := of[strings.Join(words, "")]
		switch name {
		case "health_check":
			value = pick(value, "path", "timeout_seconds")
		case "keep":
			value = pick(value, "daily", "weekly", "monthly")
		}
		out = append(out, field{name, value})
	}
	return out
}

// quote quotes text in HCL and escapes templates.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteRune('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case (r == '$' || r == '%') && strings.HasPrefix(s[i+1:], "{"):
			b.WriteRune(r)
			b.WriteRune(r)
		case unicode.IsControl(r) || unicode.In(r, unicode.Cf):
			fmt.Fprintf(&b, `\U%08x`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
