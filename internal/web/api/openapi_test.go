package api_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"slipway/internal/tenant/oauth"

	"slipway/internal/web/api"
)

func styleHash(t *testing.T, page string) string {
	t.Helper()
	_, rest, ok := strings.Cut(page, "<style>")
	css, _, ok2 := strings.Cut(rest, "</style>")
	if !ok || !ok2 {
		t.Fatal("the page has no style")
	}
	sum := sha256.Sum256([]byte(css))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

func TestOpenAPI(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var doc map[string]any
	if err := json.Unmarshal([]byte(w.api("GET", "/openapi.json", "", nil).body), &doc); err != nil {
		t.Fatal(err)
	}
	if v := doc["openapi"].(string); !strings.HasPrefix(v, "3.1") {
		t.Errorf("openapi is %s", v)
	}
	// Every reference leads somewhere.
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			if ref, ok := v["$ref"].(string); ok {
				at := any(doc)
				for _, step := range strings.Split(strings.TrimPrefix(ref, "#/"), "/") {
					m, _ := at.(map[string]any)
					if at = m[step]; at == nil {
						t.Errorf("%s leads nowhere", ref)
						break
					}
				}
			}
			for _, x := range v {
				walk(x)
			}
		case []any:
			for _, x := range v {
				walk(x)
			}
		}
	}
	walk(doc)
	paths := doc["paths"].(map[string]any)
	for _, r := range api.New(w.c).Routes() {
		path := "/api/v1" + r.Path
		if r.Hook {
			path = r.Path
		}
		op, _ := paths[path].(map[string]any)[strings.ToLower(r.Method)].(map[string]any)
		if op == nil {
			t.Errorf("%s %s is not described", r.Method, path)
			continue
		}
		answers := op["responses"].(map[string]any)
		need := []string{"400", "429", "500", "503"}
		if !r.Open && !r.Hook {
			need = append(need, "401", "403")
		}
		for _, s := range need {
			if answers[s] == nil {
				t.Errorf("%s %s does not describe %s", r.Method, path, s)
			}
		}
		if security, has := op["security"].([]any); has && (len(security) == 0) != (r.Open || r.Hook) || !has && (r.Open || r.Hook) {
			t.Errorf("%s %s: security is wrong", r.Method, path)
		}
		if asks := strings.Contains(mustJSON(t, op["security"]), `"oauth2":["`+string(r.Scope)+`"]`); r.Scope != "" &&
			asks == slices.Contains(oauth.NotGrantable, r.Scope) {
			t.Errorf("%s %s: its scope of OAuth is wrong", r.Method, path)
		}
		if r.Method == "POST" && !strings.Contains(mustJSON(t, op["parameters"]), "Idempotency-Key") {
			t.Errorf("%s %s does not describe Idempotency-Key", r.Method, path)
		}
	}
}

func mustJSON(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
