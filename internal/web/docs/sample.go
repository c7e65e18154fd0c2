package docs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

func resolve(r huma.Registry, s *huma.Schema) *huma.Schema {
	if s != nil && s.Ref != "" {
		return r.SchemaFromRef(s.Ref)
	}
	return s
}

// ordered returns a schema's properties in the order of the Go type that it came from.
func ordered(r huma.Registry, s *huma.Schema) []string {
	var names []string
	var walk func(t reflect.Type)
	walk = func(t reflect.Type) {
		for t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		if t.Kind() != reflect.Struct {
			return
		}
		for i := range t.NumField() {
			f := t.Field(i)
			if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
				names = append(names, name)
			} else if f.Anonymous {
				walk(f.Type)
			}
		}
	}
	if s.Ref != "" {
		walk(r.TypeFromRef(s.Ref))
		s = r.SchemaFromRef(s.Ref)
	}
	var rest []string
	for name := range s.Properties {
		if !slices.Contains(names, name) {
			rest = append(rest, name)
		}
	}
	slices.Sort(rest)
	return slices.DeleteFunc(append(names, rest...), func(n string) bool { return s.Properties[n] == nil })
}

// fields lists a body's fields, nested ones after their parent.
func fields(r huma.Registry, s *huma.Schema, depth int) (out []field) {
	full := resolve(r, s)
	if full == nil || depth > 3 {
		return nil
	}
	if alt := append(full.OneOf, full.AnyOf...); len(alt) > 0 {
		return fields(r, alt[0], depth)
	}
	for _, name := range ordered(r, s) {
		p := full.Properties[name]
		out = append(out, field{
			Name:     name,
			Type:     kind(r, p),
			Required: slices.Contains(full.Required, name),
			Doc:      p.Description,
			Depth:    depth,
		})
		inner := p
		if q := resolve(r, p); q != nil && q.Type == huma.TypeArray {
			inner = q.Items
		}
		out = append(out, fields(r, inner, depth+1)...)
	}
	return out
}

// kind returns a schema's type in words.
func kind(r huma.Registry, s *huma.Schema) string {
	full := resolve(r, s)
	if full == nil {
		return ""
	}
	text := full.Type
	switch {
	case full.Type == huma.TypeArray:
		text = "array of " + kind(r, full.Items)
	case len(full.Enum) > 0:
		var words []string
		for _, v := range full.Enum {
			words = append(words, fmt.Sprint(v))
		}
		text = strings.Join(words, " | ")
	case full.Format == "date-time":
		text = "timestamp"
	case len(full.AnyOf) > 0:
		text = kind(r, full.AnyOf[0]) + " | null"
	case text == "":
		text = "any"
	}
	if full.Nullable {
		text += " | null"
	}
	return text
}

// sample returns an example value of a schema.
func sample(r huma.Registry, s *huma.Schema, name string, depth int) any {
	if s != nil && len(s.Examples) > 0 {
		return s.Examples[0]
	}
	full := resolve(r, s)
	switch {
	case full == nil || depth > 8:
		return nil
	case len(full.OneOf)+len(full.AnyOf) > 0:
		return sample(r, append(full.OneOf, full.AnyOf...)[0], name, depth)
	case len(full.Enum) > 0:
		return full.Enum[0]
	}
	switch full.Type {
	case huma.TypeObject:
		out := object{}
		for _, n := range ordered(r, s) {
			v := sample(r, full.Properties[n], n, depth+1)
			if inner, empty := v.(object); !slices.Contains(full.Required, n) && (v == "…" || empty && len(inner) == 0) {
				continue // omit empty values
			}
			out = append(out, member{n, v})
		}
		return out
	case huma.TypeArray:
		return []any{sample(r, full.Items, strings.TrimSuffix(name, "s"), depth+1)}
	case huma.TypeInteger, huma.TypeNumber:
		if name == "limit" {
			return 25
		}
		if full.Minimum != nil {
			return int(*full.Minimum)
		}
		return 1
	case huma.TypeBoolean:
		return name == "active" || name == "available"
	case huma.TypeString:
		if full.Format == "date-time" {
			return "2027-01-31T12:00:00.000Z"
		}
		if v, ok := samples[name]; ok {
			return v
		}
		if strings.HasSuffix(name, "Id") {
			return strings.TrimSuffix(name, "Id") + "_25o5kzh3mc7yw4tn6pqd2xlfae"
		}
		return "…"
	}
	return nil
}

// samples holds example values by field name.
var samples = map[string]string{
	"name":         "My Site",
	"slug":         "my-site",
	"subdomain":    "my-site",
	"branch":       "main",
	"email":        "ada@example.com",
	"scope":        "sites:read",
	"message":      "…",
	"url":          "https://example.com/hook",
	"event":        "deployment.completed",
	"site":         "site_25o5kzh3mc7yw4tn6pqd2xlfae",
	"deploymentId": "dep_25o5kzh3mc7yw4tn6pqd2xlfae",
	"siteId":       "site_25o5kzh3mc7yw4tn6pqd2xlfae",
	"addresse":     "203.0.113.0/24",
	"framework":    "astro",
	"runtime":      "static",
	"commitHash":   "4b825dc642cb6eb9a060e54bf8d69288fbee4904",
	"title":        "Release 12",
	"value":        "s3cret",
	"key":          "API_TOKEN",
	"secret":       "a long random text",
}

// object is a JSON object with ordered members.
type object []member

type member struct {
	name  string
	value any
}

// MarshalJSON implements [json.Marshaler].
func (o object) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, m := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		name, err := json.Marshal(m.name)
		if err != nil {
			return nil, err
		}
		value, err := json.Marshal(m.value)
		if err != nil {
			return nil, err
		}
		b.Write(name)
		b.WriteByte(':')
		b.Write(value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}
