package api_test

import (
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"slipway/internal/web/api"
)

// described is the OpenAPI document with its compiled schemas.
type described struct {
	mu       sync.Mutex // guards what follows: the compiler is not safe for concurrent use
	compiler *jsonschema.Compiler
	doc      map[string]any
	done     map[string]*jsonschema.Schema
}

var description = sync.OnceValue(func() *described { return &described{} })

// valid checks a response against the document: its status is listed, its headers are present, and its body matches the
// schema.
func valid(t *testing.T, w *world, r api.Route, a answer) {
	t.Helper()
	if a.header.Get("Content-Type") == "application/jsonl" {
		return // a file, whose lines TestTopAndAccessLog checks
	}
	d := description()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.doc == nil {
		doc, err := jsonschema.UnmarshalJSON(strings.NewReader(w.send("GET", "/api/v1/openapi.json", "", nil).body))
		if err != nil {
			t.Fatal(err)
		}
		d.doc, d.compiler, d.done = doc.(map[string]any), jsonschema.NewCompiler(), map[string]*jsonschema.Schema{}
		d.compiler.DefaultDraft(jsonschema.Draft2020)
		d.compiler.AssertFormat()
		if err := d.compiler.AddResource("https://slipway.test/openapi.json", doc); err != nil {
			t.Fatal(err)
		}
	}
	path := "/api/v1" + r.Path
	status := json.Number(strings.Fields(a.String())[0]).String()
	item := d.doc["paths"].(map[string]any)[path].(map[string]any)[strings.ToLower(r.Method)].(map[string]any)
	answers := item["responses"].(map[string]any)
	got, ok := answers[status].(map[string]any)
	if !ok {
		t.Errorf("%s %s answers %s, which is not described", r.Method, path, status)
		return
	}
	at := "#/paths/" + pointer(path) + "/" + strings.ToLower(r.Method) + "/responses/" + status
	if ref, ok := got["$ref"].(string); ok {
		at = ref
		got = d.doc["components"].(map[string]any)["responses"].(map[string]any)[ref[strings.LastIndex(ref, "/")+1:]].(map[string]any)
	}
	headers, _ := got["headers"].(map[string]any)
	for name := range headers {
		if a.header.Get(name) == "" && name != "Idempotent-Replayed" {
			t.Errorf("%s %s %s: no header %s", r.Method, path, status, name)
		}
	}
	content, _ := got["content"].(map[string]any)
	if content == nil {
		return
	}
	at += "/content/application~1json/schema"
	s := d.done[at]
	if s == nil {
		var err error
		if s, err = d.compiler.Compile("https://slipway.test/openapi.json" + at); err != nil {
			t.Fatalf("%s: %v", at, err)
		}
		d.done[at] = s
	}
	body, err := jsonschema.UnmarshalJSON(strings.NewReader(a.body))
	if err == nil {
		err = s.Validate(body)
	}
	if err != nil {
		t.Errorf("%s %s %s: %v\n%s", r.Method, path, status, err, a.body)
	}
}

// pointer escapes a name for a JSON pointer in a fragment (RFC 6901 §6).
func pointer(name string) string {
	return strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D").Replace(name)
}

// The document contains only valid OpenAPI and everything that client generators need.
func TestDocumentIsComplete(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	text := w.send("GET", "/api/v1/openapi.json", "", nil).body
	if strings.Contains(text, "patternDescription") {
		t.Error("patternDescription is in the document")
	}
	var doc struct {
		Paths map[string]map[string]struct {
			Parameters []struct {
				Ref, Name, In, Description string
				Schema                     map[string]any
			}
			Responses map[string]any
		}
		Components struct {
			Headers map[string]struct{ Description string }
			Schemas map[string]any
		}
	}
	if err := json.Unmarshal([]byte(strings.ReplaceAll(text, `"$ref"`, `"ref"`)), &doc); err != nil {
		t.Fatal(err)
	}
	for path, item := range doc.Paths {
		for method, op := range item {
			for _, p := range op.Parameters {
				if p.Ref == "" && p.Description == "" {
					t.Errorf("%s %s: %s is not described", method, path, p.Name)
				}
				most := 100.0
				switch {
				case strings.HasSuffix(path, "/logs"):
					most = 1000
				case strings.HasSuffix(path, "/missing"):
					most = 10_000
				}
				if p.Name == "limit" && (p.Schema["maximum"] != most || p.Schema["minimum"] != 1.0) ||
					p.Name == "page" && p.Schema["minimum"] != 1.0 {
					t.Errorf("%s %s: %s has no bounds: %v", method, path, p.Name, p.Schema)
				}
			}
			if (method == "post" || method == "patch") && !strings.HasPrefix(
				path,
				"/hooks",
			) && (op.Responses["413"] == nil || op.Responses["415"] == nil) {
				t.Errorf("%s %s: 413 and 415 are not described", method, path)
			}
		}
	}
	limit := doc.Paths["/api/v1/sites"]["get"].Parameters
	if len(limit) < 2 || limit[0].Schema["default"] != 1.0 || limit[1].Schema["default"] != 25.0 {
		t.Errorf("the list of sites has the parameters %v", limit)
	}
	for name, h := range doc.Components.Headers {
		if h.Description == "" {
			t.Errorf("header %s is not described", name)
		}
	}
	names, _ := doc.Components.Schemas["EventName"].(map[string]any)
	if list, _ := names["enum"].([]any); len(list) < 20 {
		t.Errorf("event names are %v", names)
	}
}
