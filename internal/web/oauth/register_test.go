package oauth_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"slipway/internal/tenant/oauth"
)

// If the operator allows it, an app can register itself and gets its ID and secret. Otherwise the endpoint is a 404 and
// isn't in the metadata.
func TestRegister(t *testing.T) {
	t.Parallel()
	metadata := func(w *world) (v map[string]any) {
		res, err := http.Get(w.srv.URL + "/.well-known/oauth-authorization-server")
		w.must(err)
		defer res.Body.Close()
		w.must(json.NewDecoder(res.Body).Decode(&v))
		return v
	}
	closed := newWorld(t, false)
	res, err := http.Post(closed.srv.URL+"/oauth/register", "application/json", strings.NewReader(`{}`))
	closed.must(err)
	res.Body.Close()
	if res.StatusCode != 404 || metadata(closed)["registration_endpoint"] != nil {
		t.Errorf("closed: %d, %v", res.StatusCode, metadata(closed)["registration_endpoint"])
	}
	w := newWorld(t, false, true)
	if at := metadata(w)["registration_endpoint"]; at != w.srv.URL+"/oauth/register" {
		t.Errorf("the endpoint is %v", at)
	}
	register := func(body string) (int, http.Header, map[string]any) {
		return w.post("/oauth/register", body, "Content-Type", "application/json")
	}
	for name, tt := range map[string]struct{ body, code string }{
		"no JSON":        {"hello", "invalid_client_metadata"},
		"a list":         {"[]", "invalid_client_metadata"},
		"no address":     {`{"client_name": "Client"}`, "invalid_redirect_uri"},
		"plain http":     {`{"redirect_uris": ["http://app.test/"]}`, "invalid_redirect_uri"},
		"by certificate": {`{"redirect_uris": ["https://app.test/"], "token_endpoint_auth_method": "tls_client_auth"}`, "invalid_client_metadata"},
		"our name":       {`{"redirect_uris": ["https://app.test/"], "client_name": "Slipway"}`, "invalid_client_metadata"},
		"too large":      {`{"client_name": "` + strings.Repeat("x", 17<<10) + `"}`, "invalid_client_metadata"},
	} {
		if status, _, body := register(tt.body); status != 400 || body["error"] != tt.code {
			t.Errorf("%s: %d %v, want %s", name, status, body, tt.code)
		}
	}
	if status, _, body := w.post("/oauth/register", "client_name=x"); status != 400 || body["error"] != "invalid_client_metadata" {
		t.Errorf("a form: %d %v", status, body)
	}
	status, h, body := register(`{"redirect_uris": ["https://app.test/cb"], "client_name": "Client", "client_uri": "https://app.test", "scope": "*"}`)
	id, _ := body["client_id"].(string)
	secret, _ := body["client_secret"].(string)
	if status != 201 || h.Get("Cache-Control") != "no-store" || body["token_endpoint_auth_method"] != "client_secret_basic" ||
		body["client_secret_expires_at"] != 0.0 || body["client_uri"] != "https://app.test" || body["scope"] != nil {
		t.Errorf("a server: %d %v", status, body)
	}
	if a, err := w.server.Client(t.Context(), oauth.AppID(id), secret); err != nil || a.Name != "Client" {
		t.Errorf("the app is %+v, %v", a, err)
	}
	for i := range 20 {
		status, h, body = register(`{"redirect_uris": ["http://127.0.0.1/cb"], "token_endpoint_auth_method": "none"}`)
		if i == 0 && (status != 201 || body["client_secret"] != nil) {
			t.Errorf("a public app: %d %v", status, body)
		}
	}
	if status != 429 || h.Get("Retry-After") == "" {
		t.Errorf("the twenty-first: %d %v", status, body)
	}
}
