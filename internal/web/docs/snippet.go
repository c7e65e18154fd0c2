package docs

import (
	"fmt"
	"go/format"
	"path"
	"strings"

	"slipway/internal/platform/lazyregexp"
)

// language is a language of the examples.
type language struct {
	ID, Name string
	snippet  func(call) string
}

var languages = []language{
	{"curl", "curl", curl},
	{"javascript", "JavaScript", javaScript},
	{"go", "Go", goSource},
	{"php", "PHP", php},
}

var variables = lazyregexp.New(`\$[A-Z][A-Z_]*`)

// expand replaces each $NAME with name(NAME) and passes the text between through plain.
func expand(text string, name, plain func(string) string) string {
	var b strings.Builder
	at := 0
	for _, m := range variables.FindAllStringIndex(text, -1) {
		b.WriteString(plain(text[at:m[0]]) + name(text[m[0]+1:m[1]]))
		at = m[1]
	}
	b.WriteString(plain(text[at:]))
	return b.String()
}

func (c call) contentType() string {
	switch path.Ext(c.upload) {
	case ".zip":
		return "application/zip"
	case ".ndjson":
		return "application/x-ndjson"
	case ".blobs":
		return "application/vnd.slipway.blobs"
	case ".gz":
		return "application/gzip"
	}
	return "application/octet-stream"
}

// curl renders a call for a POSIX shell.
func curl(c call) string {
	lines := []string{"curl"}
	if c.method != "GET" && !c.json {
		lines[0] += " -X " + c.method
	} else if c.json && c.method != "POST" {
		lines[0] += " -X " + c.method
	}
	lines[0] += ` "` + c.url + `"`
	if c.key != "" {
		lines = append(lines, `-H "Authorization: Bearer $`+c.key+`"`)
	}
	for _, h := range c.headers {
		lines = append(lines, `-H "`+h+`"`)
	}
	switch {
	case c.upload != "":
		lines = append(lines, `-H "Content-Type: `+c.contentType()+`"`, "--data-binary @"+c.upload)
	case c.json:
		body := expand(c.body, func(v string) string { return `'"$` + v + `"'` },
			func(s string) string { return strings.ReplaceAll(s, "'", `'\''`) })
		lines = append(lines, "--json '"+body+"'")
	}
	if c.output != "" {
		lines = append(lines, "--output "+c.output)
	}
	return strings.Join(lines, " \\\n  ")
}

func same(s string) string { return s }

// javaScript renders a call as a module for Node.js 22 and compatible runtimes.
func javaScript(c call) string {
	env := func(v string) string { return "${process.env." + v + "}" }
	var b strings.Builder
	if c.upload != "" || c.output != "" {
		b.WriteString("import { readFile, writeFile } from \"node:fs/promises\";\n\n")
	}
	fmt.Fprintf(&b, "const response = await fetch(`%s`, {\n", expand(c.url, env, same))
	if c.method != "GET" {
		fmt.Fprintf(&b, "  method: %q,\n", c.method)
	}
	var headers []string
	if c.key != "" {
		headers = append(headers, "    Authorization: `Bearer "+env(c.key)+"`,\n")
	}
	for _, h := range c.headers {
		name, value, _ := strings.Cut(h, ": ")
		headers = append(headers, fmt.Sprintf("    %q: `%s`,\n", name, expand(value, env, same)))
	}
	switch {
	case c.upload != "":
		headers = append(headers, fmt.Sprintf("    \"Content-Type\": %q,\n", c.contentType()))
	case c.json:
		headers = append(headers, "    \"Content-Type\": \"application/json\",\n")
	}
	if len(headers) > 0 {
		b.WriteString("  headers: {\n" + strings.Join(headers, "") + "  },\n")
	}
	switch {
	case c.upload != "":
		fmt.Fprintf(&b, "  body: await readFile(%q),\n", c.upload)
	case c.json:
		b.WriteString("  body: JSON.stringify(" + indented(javaScriptValue(c.body), "  ") + "),\n")
	}
	b.WriteString("});\nif (!response.ok) throw new Error(await response.text());\n")
	if c.output != "" {
		fmt.Fprintf(&b, "await writeFile(%q, Buffer.from(await response.arrayBuffer()));", c.output)
	} else {
		b.WriteString("console.log(await response.text());")
	}
	return b.String()
}

var wholeVariable = lazyregexp.New(`"\$([A-Z][A-Z_]*)"`)

// javaScriptValue renders a JSON value as an expression.
func javaScriptValue(body string) string {
	return wholeVariable.ReplaceAllString(body, "process.env.$1")
}

// goSource renders a call as a Go program.
func goSource(c call) string {
	imports := []string{"fmt", "io", "log", "net/http", "os"}
	env := func(v string) string { return "\" + os.Getenv(\"" + v + "\") + \"" }
	text := func(s string) string {
		return strings.TrimSuffix(strings.TrimPrefix("\""+expand(s, env, same)+"\"", `"" + `), ` + ""`)
	}
	body := "nil"
	var before string
	switch {
	case c.upload != "":
		before = fmt.Sprintf("\tfile, err := os.Open(%q)\n\tif err != nil {\n\t\tlog.Fatal(err)\n\t}\n\tdefer file.Close()\n", c.upload)
		body = "file"
	case c.json:
		imports = append(imports, "strings")
		quoted := expand(c.body, func(v string) string { return "` + os.Getenv(\"" + v + "\") + `" }, same)
		before = "\tbody := strings.NewReader(`" + quoted + "`)\n"
		body = "body"
	}
	if c.key == "" && !strings.Contains(c.url+c.body+strings.Join(c.headers, ""), "$") && c.upload == "" && c.output == "" {
		imports = []string{"fmt", "io", "log", "net/http"}
	}
	var b strings.Builder
	b.WriteString("package main\n\nimport (\n")
	for _, i := range imports {
		fmt.Fprintf(&b, "\t%q\n", i)
	}
	b.WriteString(")\n\nfunc main() {\n" + before)
	fmt.Fprintf(&b, "\treq, err := http.NewRequest(%q, %s, %s)\n\tif err != nil {\n\t\tlog.Fatal(err)\n\t}\n", c.method, text(c.url), body)
	if c.key != "" {
		b.WriteString("\treq.Header.Set(\"Authorization\", \"Bearer \"+os.Getenv(\"" + c.key + "\"))\n")
	}
	for _, h := range c.headers {
		name, value, _ := strings.Cut(h, ": ")
		fmt.Fprintf(&b, "\treq.Header.Set(%q, %s)\n", name, text(value))
	}
	switch {
	case c.upload != "":
		fmt.Fprintf(&b, "\treq.Header.Set(\"Content-Type\", %q)\n", c.contentType())
	case c.json:
		b.WriteString("\treq.Header.Set(\"Content-Type\", \"application/json\")\n")
	}
	b.WriteString("\tresp, err := http.DefaultClient.Do(req)\n\tif err != nil {\n\t\tlog.Fatal(err)\n\t}\n\tdefer resp.Body.Close()\n")
	b.WriteString("\tanswer, err := io.ReadAll(resp.Body)\n\tif err != nil {\n\t\tlog.Fatal(err)\n\t}\n")
	b.WriteString("\tif resp.StatusCode >= 300 {\n\t\tlog.Fatalf(\"%s: %s\", resp.Status, answer)\n\t}\n")
	if c.output != "" {
		fmt.Fprintf(&b, "\tif err := os.WriteFile(%q, answer, 0o600); err != nil {\n\t\tlog.Fatal(err)\n\t}\n\tfmt.Println(len(answer), "+
			"\"bytes\")\n", c.output)
	} else {
		b.WriteString("\tfmt.Println(string(answer))\n")
	}
	b.WriteString("}")
	formatted, err := format.Source([]byte(b.String()))
	if err != nil {
		panic(err) // generated code is always valid, or every test would fail
	}
	return strings.TrimSpace(string(formatted))
}

// php renders a call as a script that uses PHP's curl extension.
func php(c call) string {
	env := func(v string) string { return "' . getenv('" + v + "') . '" }
	text := func(s string) string {
		return strings.TrimSuffix(strings.TrimPrefix("'"+expand(s, env,
			func(s string) string { return strings.ReplaceAll(s, "'", `\'`) })+"'", "'' . "), " . ''")
	}
	var headers []string
	if c.key != "" {
		headers = append(headers, "'Authorization: Bearer ' . getenv('"+c.key+"')")
	}
	for _, h := range c.headers {
		headers = append(headers, text(h))
	}
	switch {
	case c.upload != "":
		headers = append(headers, "'Content-Type: "+c.contentType()+"'")
	case c.json:
		headers = append(headers, "'Content-Type: application/json'")
	}
	var b strings.Builder
	fmt.Fprintf(&b, "<?php\n$curl = curl_init(%s);\ncurl_setopt_array($curl, [\n", text(c.url))
	if c.method != "GET" {
		fmt.Fprintf(&b, "    CURLOPT_CUSTOMREQUEST => '%s',\n", c.method)
	}
	if len(headers) > 0 {
		b.WriteString("    CURLOPT_HTTPHEADER => [\n        " + strings.Join(headers, ",\n        ") + ",\n    ],\n")
	}
	switch {
	case c.upload != "":
		fmt.Fprintf(&b, "    CURLOPT_POSTFIELDS => file_get_contents('%s'),\n", c.upload)
	case c.json:
		b.WriteString("    CURLOPT_POSTFIELDS => " + text(c.body) + ",\n")
	}
	b.WriteString("    CURLOPT_RETURNTRANSFER => true,\n]);\n$answer = curl_exec($curl);\nif (curl_getinfo($curl, " +
		"CURLINFO_RESPONSE_CODE) >= 300) {\n    exit((string) $answer);\n}\n")
	if c.output != "" {
		fmt.Fprintf(&b, "file_put_contents('%s', $answer);", c.output)
	} else {
		b.WriteString("echo $answer;")
	}
	return b.String()
}

// indented indents all lines but the first.
func indented(text, by string) string { return strings.ReplaceAll(text, "\n", "\n"+by) }
