package api_test

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"slipway/internal/web/api"
)

// An unknown ID, or another account's, in a body or query gets a status that the OpenAPI document lists.
// world.described compares them.
func TestUnknownIdsAreDescribed(t *testing.T) {
	t.Parallel()
	w := newMatrixWorld(t)
	var doc struct {
		Paths map[string]map[string]struct {
			Parameters  []struct{ Name, In string }
			RequestBody struct {
				Content map[string]struct{ Schema map[string]any }
			}
		}
		Components struct{ Schemas map[string]map[string]any }
	}
	text := strings.ReplaceAll(w.send("GET", "/api/v1/openapi.json", "", nil).body, `"$ref"`, `"ref"`)
	if err := json.Unmarshal([]byte(text), &doc); err != nil {
		t.Fatal(err)
	}
	id := regexp.MustCompile(`(^|[a-z])[iI]ds?$|^(sites|site|before|after|to)$`)
	found := map[string]bool{}
	for _, r := range api.New(w.c).Routes() {
		if r.Open || r.Hook || r.Raw || matrix[r.ID].prep != nil {
			continue
		}
		op := doc.Paths["/api/v1"+r.Path][strings.ToLower(r.Method)]
		path := w.x.fill(matrix[r.ID].path)
		mark := "?"
		if strings.Contains(path, "?") {
			mark = "&"
		}
		for _, p := range op.Parameters {
			if p.In == "query" && id.MatchString(p.Name) {
				found[p.Name] = true
				for _, value := range []string{"nothing_4711", w.theirs["site"], w.theirs["deployment"]} {
					w.api(r.Method, path+mark+p.Name+"="+value, w.mine, matrix[r.ID].body)
				}
			}
		}
		schema := op.RequestBody.Content["application/json"].Schema
		if ref, ok := schema["ref"].(string); ok {
			schema = doc.Components.Schemas[ref[strings.LastIndex(ref, "/")+1:]]
		}
		fields, _ := schema["properties"].(map[string]any)
		for name, field := range fields {
			if !id.MatchString(name) {
				continue
			}
			found[name] = true
			for _, value := range []string{"nothing_4711", w.theirs["site"], w.theirs["team"], w.theirs["connection"]} {
				body := m{}
				if b, ok := matrix[r.ID].body.(m); ok {
					for k, v := range b {
						body[k] = v
					}
				}
				body[name] = value
				if kind, _ := json.Marshal(field); strings.Contains(string(kind), `"array"`) {
					body[name] = []string{value}
				}
				w.api(r.Method, path, w.mine, body)
			}
		}
	}
	for _, name := range []string{"siteIds", "siteId", "connectionId", "teamId", "deploymentId", "sites", "before"} {
		if !found[name] {
			t.Errorf("no operation has %s: this test doesn't find them any more", name)
		}
	}
}
