package api_test

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"slipway/internal/tenant/oauth"
	"slipway/internal/web/api"
	"slipway/internal/web/docs"
)

// Every operation has an example that e2e/docs_test.go or e2e/wordpress runs, except WebSockets and operations that
// only Git providers can call.
func TestExamples(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var doc struct {
		Paths map[string]map[string]struct{ OperationID string }
	}
	if err := json.Unmarshal([]byte(w.api("GET", "/openapi.json", "", nil).body), &doc); err != nil {
		t.Fatal(err)
	}
	without := map[string]string{
		"approvePull":          "it takes a pull request from a fork that waits",
		"callGitHubApp":        "GitHub signs it with the secret of the operator's app",
		"openTerminal":         "it is a WebSocket",
		"deleteUser":           "it is for operators, whom the examples need",
		"listUsers":            "likewise",
		"getUser":              "likewise",
		"updateUser":           "likewise",
		"createUserResetLink":  "likewise",
		"disableUserTwoFactor": "likewise",
		"exportUser":           "likewise",
	}
	count := 0
	for path, item := range doc.Paths {
		for method, o := range item {
			count++
			if _, ok := docs.Example(o.OperationID); ok == (without[o.OperationID] != "") {
				t.Errorf("%s %s (%s): has an example: %t", method, path, o.OperationID, ok)
			}
		}
	}
	if count < 100 {
		t.Errorf("the document has %d operations", count)
	}
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
	// Every $ref resolves.
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			if ref, ok := v["$ref"].(string); ok {
				at := any(doc)
				for _, step := range strings.Split(strings.TrimPrefix(ref, "#/"), "/") {
					m, _ := at.(map[string]any)
					if at = m[step]; at == nil {
						t.Errorf("%s doesn't resolve", ref)
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
		if odd := regexp.MustCompile(`The 's id|The [A-Za-z]*Id's id|The number's id`).FindString(mustJSON(t, op["parameters"])); odd != "" {
			t.Errorf("%s %s describes a parameter as %q", r.Method, path, odd)
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

// The generated clients have a method for each operation that accepts a key, except WebSockets, and include billing
// only on installations with billing. The Go client compiles; e2e runs both.
func TestClients(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	sources := map[string]string{}
	for _, file := range []string{"slipway.ts", "slipway.go"} {
		answer := w.send("GET", "/api/v1/clients/"+file, "", nil)
		if answer.status != 200 || !strings.Contains(answer.body, w.c.BaseURL) {
			t.Fatalf("%s: %d", file, answer.status)
		}
		sources[file] = answer.body
	}
	for _, r := range api.New(w.c).Routes() {
		method := strings.ToUpper(r.ID[:1]) + r.ID[1:]
		for file, text := range map[string]string{"slipway.ts": "\n  " + r.ID + "(", "slipway.go": ") " + method + "("} {
			has := strings.Contains(sources[file], text) || strings.Contains(sources[file], "\n  async "+r.ID+"(")
			if has == (r.Hook || r.Status == http.StatusSwitchingProtocols) {
				t.Errorf("%s has %s: %v", file, r.ID, has)
			}
		}
	}
	sold := newBillingWorld(t).send("GET", "/api/v1/clients/slipway.go", "", nil).body
	if strings.Contains(sources["slipway.go"], ") ListPlans(") || !strings.Contains(sold, ") ListPlans(") {
		t.Error("methods for plans are not there exactly where plans are")
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module slipway\n\ngo 1.24.0\n", "free/slipway.go": sources["slipway.go"], "sold/slipway.go": sold} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	vet := exec.CommandContext(t.Context(), "go", "vet", "./...")
	vet.Dir = dir
	if out, err := vet.CombinedOutput(); err != nil {
		t.Errorf("go vet: %v\n%s", err, out)
	}
}
