package clients

import (
	_ "embed"
	"fmt"
	"go/format"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

//go:embed runtime.go.txt
var runtimeGo string

// Go generates a Go package, as one file, from an OpenAPI document.
func Go(openAPI []byte) ([]byte, error) {
	d, err := read(openAPI)
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	b.WriteString(strings.ReplaceAll(runtimeGo, "https://slipway.example.com", d.base))
	for _, o := range d.operations {
		writeGo(&b, o, d)
	}
	for _, s := range d.shapes {
		about := s.Description
		if about == "" {
			about = s.Name + " is a shape of the API."
		}
		b.WriteString("\n")
		commentGo(&b, about)
		if s.kind() == "object" && s.values() == nil {
			fmt.Fprintf(&b, "type %s ", s.Name)
			fieldsGo(&b, s.schema, s.Sent)
			b.WriteString("\n")
			continue
		}
		fmt.Fprintf(&b, "type %s = %s\n", s.Name, typeGo(s.schema, s.Sent))
	}
	text, err := format.Source([]byte(b.String()))
	if err != nil {
		return nil, fmt.Errorf("format client: %w", err)
	}
	return text, nil
}

func writeGo(b *strings.Builder, o operation, d *document) {
	name := upper(o.ID)
	args := []string{"ctx context.Context"}
	for _, p := range o.Params {
		kind := "string"
		if p.Schema.kind() == "integer" {
			kind = "int64"
		}
		args = append(args, p.Name+" "+kind)
	}
	path := strconv.Quote(o.Path)
	for _, p := range o.Params {
		value := "url.PathEscape(" + p.Name + ")"
		if p.Schema.kind() == "integer" {
			value = "strconv.FormatInt(" + p.Name + ", 10)"
		}
		path = strings.Replace(path, "{"+p.Name+"}", `" + `+value+` + "`, 1)
	}
	path = strings.TrimSuffix(path, ` + ""`)
	body, kind := "nil", ""
	var before strings.Builder
	switch {
	case o.Body != nil && o.BodyRequired:
		args, body = append(args, "body "+typeGo(o.Body, true)), "body"
	case o.Body != nil:
		args, body = append(args, "body *"+typeGo(o.Body, true)), "payload"
		before.WriteString("var payload any\nif body != nil {\npayload = body\n}\n")
	case len(o.Files) == 1:
		args, kind = append(args, "file io.Reader"), strconv.Quote(o.Files[0])
	case len(o.Files) > 1:
		args, kind = append(args, "file io.Reader", "contentType string"), "contentType"
	}
	query := "nil"
	if slices.ContainsFunc(o.Query, func(p parameter) bool { return p.Name != "" }) {
		fmt.Fprintf(b, "\n// %sQuery narrows %s. Zero values are left out.\ntype %sQuery struct {\n", name, name, name)
		for _, p := range o.Query {
			commentGo(b, p.Description)
			if p.Schema.kind() == "integer" {
				fmt.Fprintf(b, "%s int64\n", fieldGo(p.Name))
				fmt.Fprintf(&before, "setNumber(q, %q, query.%s)\n", p.Name, fieldGo(p.Name))
				continue
			}
			fmt.Fprintf(b, "%s string\n", fieldGo(p.Name))
			fmt.Fprintf(&before, "setText(q, %q, query.%s)\n", p.Name, fieldGo(p.Name))
		}
		b.WriteString("}\n")
		args, query = append(args, "query "+name+"Query"), "q"
	}
	setup := before.String()
	if query == "q" {
		setup = "q := url.Values{}\n" + setup
	}
	all := strings.Join(args, ", ")
	about := name + ": " + o.about()
	if len(o.Files) > 1 {
		about += "\n\nThe file is of " + strings.Join(o.Files, ", ") + "."
	}
	b.WriteString("\n")
	commentGo(b, about)
	switch {
	case o.Raw:
		commentGo(b, "\nClose the body of what it returns.")
		fmt.Fprintf(b, "func (c *Client) %s(%s) (*http.Response, error) {\n%sreturn c.send(ctx, %q, %s, %s, nil, nil, \"\", \"*/*\")\n}\n",
			name, all, setup, o.Method, path, query)
	case o.Answer == nil:
		fmt.Fprintf(b, "func (c *Client) %s(%s) error {\n%sanswer, err := c.send(ctx, %q, %s, %s, nil, nil, \"\", \"*/*\")\n"+
			"if err == nil {\nanswer.Body.Close()\n}\nreturn err\n}\n", name, all, setup, o.Method, path, query)
	case kind != "":
		fmt.Fprintf(b, "func (c *Client) %s(%s) (*%s, error) {\n%sreturn callFile[%s](ctx, c, %q, %s, %s, file, %s)\n}\n",
			name, all, typeGo(o.Answer, false), setup, typeGo(o.Answer, false), o.Method, path, query, kind)
	default:
		fmt.Fprintf(b, "func (c *Client) %s(%s) (*%s, error) {\n%sreturn call[%s](ctx, c, %q, %s, %s, %s)\n}\n",
			name, all, typeGo(o.Answer, false), setup, typeGo(o.Answer, false), o.Method, path, query, body)
	}
	if o.Stream {
		stream := upper(o.stream())
		fmt.Fprintf(b, "\n// %s follows what %s returns as server-sent events.\nfunc (c *Client) %s(%s) iter.Seq2[StreamEvent, "+
			"error] {\n%sreturn c.stream(ctx, %s, %s)\n}\n",
			stream, name, stream, all, setup, path, query)
	}
	if iterate, ok := o.iterator(); ok {
		var pass []string
		for _, a := range args {
			word, _, _ := strings.Cut(a, " ")
			pass = append(pass, word)
		}
		fmt.Fprintf(b, "\n// %[1]s yields the items of all pages of %[2]s.\nfunc (c *Client) %[1]s(%[3]s) iter.Seq2[%[4]s, error] {\n"+
			"return pages(func(page int64) ([]%[4]s, *Pagination, error) {\nquery.Page, query.Limit = page, 100\n"+
			"list, err := c.%[2]s(%[5]s)\nif err != nil {\nreturn nil, nil, err\n}\nreturn list.Data, %[6]slist.Pagination, nil\n})\n}\n",
			upper(iterate), name, all, typeGo(o.Item, false), strings.Join(pass, ", "), d.pagination(o))
	}
}

// pagination returns the expression for a pointer to a list's pagination.
func (d *document) pagination(o operation) string {
	i := slices.IndexFunc(d.shapes, func(s shape) bool { return s.Name == upper(named(o.Answer.Ref)) })
	list := d.shapes[i]
	if _, null := list.Properties["pagination"].nullable(); null || !slices.Contains(list.Required, "pagination") {
		return ""
	}
	return "&"
}

// typeGo returns the Go type of a schema without null.
func typeGo(s *schema, sent bool) string {
	s, _ = s.nullable()
	if s.Ref != "" {
		return upper(named(s.Ref))
	}
	if len(s.OneOf) > 0 {
		return openGo(sent)
	}
	switch s.kind() {
	case "string":
		if s.Format == "date-time" {
			return "time.Time"
		}
		return "string"
	case "integer":
		return "int64"
	case "number":
		return "float64"
	case "boolean":
		return "bool"
	case "array":
		return "[]" + typeGo(s.Items, sent)
	case "object":
		if v := s.values(); v != nil {
			return "map[string]" + typeGo(v, sent)
		}
		if len(s.Properties) > 0 {
			var b strings.Builder
			fieldsGo(&b, s, sent)
			return b.String()
		}
		return "map[string]any"
	}
	return openGo(sent)
}

// openGo returns the type of a value that can be anything: raw JSON in responses, any in requests.
func openGo(sent bool) string {
	if sent {
		return "any"
	}
	return "json.RawMessage"
}

func fieldsGo(b *strings.Builder, s *schema, sent bool) {
	b.WriteString("struct {\n")
	for _, name := range s.names() {
		p := s.Properties[name]
		plain, null := p.nullable()
		about := plain.Description
		if p.Description != "" {
			about = p.Description
		}
		if words := plain.choices(); len(words) > 0 {
			about = strings.TrimSpace(about + "\nOne of " + strings.Join(words, ", ") + ".")
		}
		commentGo(b, about)
		kind, tag := typeGo(p, sent), name
		// A nil value of these kinds means missing.
		empty := strings.HasPrefix(kind, "[]") || strings.HasPrefix(kind, "map[") || kind == "any" || kind == "json.RawMessage"
		required := slices.Contains(s.Required, name)
		switch {
		case !required && null && sent:
			kind = "Optional[" + kind + "]"
		case (!required || null) && !empty:
			kind = "*" + kind
		}
		if !required {
			tag += ",omitzero"
		}
		fmt.Fprintf(b, "%s %s `json:%q`\n", fieldGo(name), kind, tag)
	}
	b.WriteString("}")
}

// initialisms lists words that Go writes in capitals.
var initialisms = map[string]string{
	"Api": "API", "Cpu": "CPU", "Db": "DB", "Dns": "DNS", "Html": "HTML", "Http": "HTTP", "Https": "HTTPS", "Id": "ID", "Ids": "IDs",
	"Ip": "IP", "Json": "JSON", "Mib": "MiB", "Php": "PHP", "Sql": "SQL", "Sso": "SSO", "Tls": "TLS", "Ttl": "TTL", "Uri": "URI",
	"Uris": "URIs", "Url": "URL", "Urls": "URLs",
}

// fieldGo returns the Go name of a field: siteId becomes SiteID.
func fieldGo(name string) string {
	var words []string
	word := ""
	for _, r := range name {
		switch {
		case r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r):
			r = '_'
		case unicode.IsUpper(r) && word != "" && !unicode.IsUpper(rune(word[len(word)-1])):
			words, word = append(words, word), ""
		}
		word += string(r)
	}
	var b strings.Builder
	for _, w := range append(words, word) {
		w = upper(w)
		if known, ok := initialisms[w]; ok {
			w = known
		}
		b.WriteString(w)
	}
	if unicode.IsDigit(rune(name[0])) {
		return "N" + b.String() // names can't begin with a digit, such as 2xx
	}
	return b.String()
}

func commentGo(b *strings.Builder, text string) {
	if text == "" {
		return
	}
	for line := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n") {
		b.WriteString(strings.TrimRight("// "+line, " ") + "\n")
	}
}
