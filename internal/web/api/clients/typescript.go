package clients

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

//go:embed runtime.ts
var runtimeTS string

// TypeScript generates a TypeScript client from an OpenAPI document.
func TypeScript(openAPI []byte) ([]byte, error) {
	d, err := read(openAPI)
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	head, tail, ok := strings.Cut(runtimeTS, "  // METHODS\n")
	if !ok {
		return nil, fmt.Errorf("runtime.ts has no place for methods")
	}
	b.WriteString(strings.ReplaceAll(head, "https://slipway.example.com", d.base))
	for _, o := range d.operations {
		writeTS(&b, o)
	}
	b.WriteString(tail)
	for _, o := range d.operations {
		if len(o.Query) == 0 {
			continue
		}
		fmt.Fprintf(&b, "\nexport interface %sQuery {\n", upper(o.ID))
		for _, p := range o.Query {
			commentTS(&b, "  ", p.Description)
			mark := "?"
			if p.Required {
				mark = ""
			}
			fmt.Fprintf(&b, "  %s%s: %s;\n", nameTS(p.Name), mark, typeTS(p.Schema, true))
		}
		b.WriteString("}\n")
	}
	for _, s := range d.shapes {
		b.WriteString("\n")
		commentTS(&b, "", s.Description)
		if s.kind() == "object" && s.values() == nil {
			fmt.Fprintf(&b, "export interface %s ", shapeTS(s.Name))
			fieldsTS(&b, "", s.schema, s.Sent)
			b.WriteString("\n")
			continue
		}
		fmt.Fprintf(&b, "export type %s = %s;\n", shapeTS(s.Name), typeTS(s.schema, s.Sent))
	}
	return []byte(b.String()), nil
}

func writeTS(b *strings.Builder, o operation) {
	var args, path []string
	for _, p := range o.Params {
		kind := "string"
		if p.Schema.kind() == "integer" {
			kind = "number"
		}
		args = append(args, p.Name+": "+kind)
	}
	for part := range strings.SplitSeq(o.Path, "/") {
		if name, ok := strings.CutPrefix(part, "{"); ok {
			part = "${encodeURIComponent(" + strings.TrimSuffix(name, "}") + ")}"
		}
		path = append(path, part)
	}
	call := []string{strconv.Quote(o.Method), "`" + strings.Join(path, "/") + "`"}
	body := "undefined"
	switch {
	case o.Body != nil:
		mark := map[bool]string{false: "?"}[o.BodyRequired]
		args, body = append(args, "body"+mark+": "+typeTS(o.Body, true)), "body"
	case len(o.Files) > 0:
		args = append(args, "file: BodyInit")
		body = "file"
		if len(o.Files) > 1 {
			args = append(args, "contentType: "+quotedTS(o.Files, " | "))
		}
	}
	query := "undefined"
	if len(o.Query) > 0 {
		query = "query"
	}
	call = append(call, query, body)
	if len(o.Query) > 0 {
		arg := "query: " + upper(o.ID) + "Query"
		if !slices.ContainsFunc(o.Query, func(p parameter) bool { return p.Required }) {
			arg += " = {}"
		}
		args = append(args, arg)
	}
	args = append(args, "options?: CallOptions")
	sending := strings.Join(call, ", ") + ", options"
	switch len(o.Files) {
	case 0:
	case 1:
		sending += ", " + strconv.Quote(o.Files[0])
	default:
		sending += ", contentType"
	}
	all := strings.Join(args, ", ")
	b.WriteString("\n")
	commentTS(b, "  ", o.about())
	switch {
	case o.Raw:
		fmt.Fprintf(b, "  %s(%s): Promise<Response> {\n    return this.raw(%s);\n  }\n", o.ID, all, sending)
	case o.Answer == nil:
		fmt.Fprintf(b, "  async %s(%s): Promise<void> {\n    await this.raw(%s);\n  }\n", o.ID, all, sending)
	default:
		fmt.Fprintf(b, "  %s(%s): Promise<%s> {\n    return this.json(%s);\n  }\n",
			o.ID, all, typeTS(o.Answer, false), sending)
	}
	if o.Stream {
		b.WriteString("\n")
		commentTS(b, "  ", "Follows "+o.ID+" as server-sent events.")
		fmt.Fprintf(b, "  %s(%s): AsyncGenerator<StreamEvent> {\n    return this.events(%s, %s, options);\n  }\n", o.stream(), all,
			call[1], query)
	}
	if name, ok := o.iterator(); ok {
		b.WriteString("\n")
		commentTS(b, "  ", "Yields the items of all pages of "+o.ID+".")
		fmt.Fprintf(b, "  %s(%s): AsyncGenerator<%s> {\n    return this.pages(%s, %s, options);\n  }\n",
			name, all, typeTS(o.Item, false), call[1], query)
	}
}

// typeTS returns the type of a schema. Enums in responses are open, because later versions may add values.
func typeTS(s *schema, sent bool) string {
	if other, ok := s.nullable(); ok {
		return typeTS(other, sent) + " | null"
	}
	if s.Ref != "" {
		return shapeTS(named(s.Ref))
	}
	if words := s.choices(); len(words) > 0 {
		if sent {
			return quotedTS(words, " | ")
		}
		return quotedTS(words, " | ") + " | (string & {})"
	}
	if len(s.OneOf) > 0 {
		var parts []string
		for _, p := range s.OneOf {
			parts = append(parts, typeTS(p, sent))
		}
		return strings.Join(parts, " | ")
	}
	switch s.kind() {
	case "string":
		return "string"
	case "integer", "number":
		return "number"
	case "boolean":
		return "boolean"
	case "array":
		of := typeTS(s.Items, sent)
		if strings.Contains(of, "|") {
			of = "(" + of + ")"
		}
		return of + "[]"
	case "object":
		if v := s.values(); v != nil {
			return "Record<string, " + typeTS(v, sent) + ">"
		}
		if len(s.Properties) > 0 {
			var b strings.Builder
			fieldsTS(&b, "  ", s, sent)
			return b.String()
		}
		return "Record<string, unknown>"
	}
	return "unknown"
}

func fieldsTS(b *strings.Builder, indent string, s *schema, sent bool) {
	b.WriteString("{\n")
	for _, name := range s.names() {
		p := s.Properties[name]
		commentTS(b, indent+"  ", p.Description)
		mark := "?"
		if slices.Contains(s.Required, name) {
			mark = ""
		}
		fmt.Fprintf(b, "%s  %s%s: %s;\n", indent, nameTS(name), mark, typeTS(p, sent))
	}
	b.WriteString(indent + "}")
}

// shapeTS returns the TypeScript name of a shape, avoiding names of built-in types.
func shapeTS(name string) string {
	switch name = upper(name); name {
	case "Blob", "Error", "Event", "File", "Record", "Request", "Response", "Storage":
		return "Api" + name
	}
	return name
}

func nameTS(name string) string {
	if unicode.IsDigit(rune(name[0])) ||
		strings.ContainsFunc(name, func(r rune) bool { return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
		return quoteTS(name)
	}
	return name
}

// quoteTS quotes text as JSON, which is valid TypeScript.
func quoteTS(text string) string {
	b, _ := json.Marshal(text) // strings can always be encoded
	return string(b)
}

func quotedTS(words []string, between string) string {
	var out []string
	for _, w := range words {
		out = append(out, quoteTS(w))
	}
	return strings.Join(out, between)
}

func commentTS(b *strings.Builder, indent, text string) {
	text = strings.ReplaceAll(strings.TrimSpace(text), "*/", "*\\/")
	switch {
	case text == "":
	case !strings.Contains(text, "\n"):
		fmt.Fprintf(b, "%s/** %s */\n", indent, text)
	default:
		fmt.Fprintf(b, "%s/**\n", indent)
		for line := range strings.SplitSeq(text, "\n") {
			fmt.Fprintf(b, "%s\n", strings.TrimRight(indent+" * "+line, " "))
		}
		fmt.Fprintf(b, "%s */\n", indent)
	}
}
