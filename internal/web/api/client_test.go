package api_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"slipway/internal/tenant/account"
	"slipway/internal/web/api"
)

// Unclean paths get a 404 in JSON with rate limit headers, except that a trailing slash is ignored.
func TestPathsAreAnsweredAsTheyAre(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, key := w.user("a@example.test")
	for _, p := range []string{
		"/api/v1//sites", "/api//v1/sites", "/api/v1/sites/../sites", "/api/v1/./sites", "/api/v1/sites//",
		"/api/v1/sites/%2e%2e/sites", "/api/v1/sites%2f", "/api/v1/sites%2F/", "/hooks//deploy/x", "/api/", "/api/v1/",
		"//api/v1/sites", "///api/v1/sites", "/./api/v1/sites", "/x/../api/v1/sites", "/%2e/api/v1/sites",
		"//hooks/deploy/x", "/api/../sites", "/api/v1/../../sites",
	} {
		a := w.send("GET", p, key, nil)
		common(t, p, a)
		if a.status != 404 || a.header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: %s", p, a)
		}
	}
	for p, want := range map[string]bool{
		"/api/v1/sites":   true,
		"//api/v1/sites":  true,
		"/api/../sites":   true,
		"/hooks/deploy/x": true,
		"/docs":           true,
		"/docs/x":         true,
		"/":               false,
		"":                false,
		"*":               false,
		"/apis":           false,
		"//":              false,
		"/sites/api":      false,
		"/x/api/v1":       false,
	} {
		if api.Serves(p) != want {
			t.Errorf("%q: %v", p, !want)
		}
	}
	id := w.site(key, "x")
	for _, p := range []string{"/sites/", "/sites/" + id + "/", "/sites/?type=static"} {
		if a := w.api("GET", p, key, nil); a.status != 200 {
			t.Errorf("%s: %s", p, a)
		}
	}
	if a := w.api("POST", "/sites/"+id+"/deploy/", key, nil); a.status != 200 {
		t.Error(a)
	}
}

func TestEmptyQueryValuesCountAsAbsent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, key := w.user("a@example.test")
	w.site(key, "x")
	for _, q := range []string{"type=&page=", "type=&status=&search=&limit=", "page", "limit=1&page=&type="} {
		if a := w.api("GET", "/sites?"+q, key, nil); a.status != 200 || len(a.json(t)["data"].([]any)) != 1 {
			t.Errorf("%s: %s", q, a)
		}
	}
	if a := w.api("GET", "/sites?type=%20", key, nil); a.status != 400 {
		t.Error(a)
	}
	// Two lists without pagination stay complete.
	if a := w.must(200, "GET", "/webhooks?page=&limit=", key, nil); a["pagination"] != nil {
		t.Error(a)
	}
}

// An operation that needs no body accepts every empty one, such as null, [] or {}. A byte order mark is skipped, and
// compressed bodies are refused with 415.
func TestBodiesThatStandForNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, key := w.user("a@example.test")
	id := w.site(key, "x")
	for _, body := range []string{"", "null", "[]", " [ ] ", "{}", "\xef\xbb\xbf{}", "\n"} {
		if a := w.api("POST", "/sites/"+id+"/deploy", key, body); a.status != 200 {
			t.Errorf("%q: %s", body, a)
		}
		if a := w.api(
			"POST",
			"/deployments/"+w.must(200, "POST", "/sites/"+id+"/deploy", key, nil)["deploymentId"].(string)+"/cancel",
			key,
			body,
		); a.status != 200 {
			t.Errorf("%q: %s", body, a)
		}
	}
	for _, body := range []string{"", "null", "[]"} {
		if a := w.api("POST", "/sites", key, body); a.status != 400 {
			t.Errorf("%q where a body is needed: %s", body, a)
		}
	}
	if a := w.api("POST", "/sites", key, "\xef\xbb\xbf"+`{"name":"b","type":"static","repository":"git.test/acme/site"}`); a.status != 201 {
		t.Errorf("a byte order mark: %s", a)
	}
	for _, c := range []string{"gzip", "br", "identity, gzip"} {
		if a := w.api(
			"POST",
			"/sites",
			key,
			"{}",
			"Content-Encoding: "+c,
		); a.status != 415 || a.json(t)["code"] != "unsupported_content_encoding" {
			t.Errorf("%s: %s", c, a)
		}
	}
	if a := w.api("POST", "/sites/"+id+"/deploy", key, "{}", "Content-Encoding: identity"); a.status != 200 {
		t.Error(a)
	}
}

// Pages of other origins can use API keys, but not credentials that a browser adds by itself.
func TestOtherOrigins(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, key := w.user("a@example.test")
	id := w.site(key, "x")
	a := w.api(
		"OPTIONS",
		"/sites/"+id,
		"", nil, "Origin: https://app.example.test", "Access-Control-Request-Method: PATCH",
		"Access-Control-Request-Headers: authorization, content-type, idempotency-key",
	)
	h := a.header
	allowed := strings.ToLower(h.Get("Access-Control-Allow-Headers"))
	if a.status != 204 || h.Get("Access-Control-Allow-Origin") != "*" || !strings.Contains(
		h.Get("Access-Control-Allow-Methods"),
		"PATCH",
	) ||
		!strings.Contains(
			allowed,
			"authorization",
		) || !strings.Contains(
		allowed,
		"idempotency-key",
	) || !strings.Contains(allowed, "content-type") || h.Get("X-RateLimit-Limit") == "" {
		t.Errorf("%s %v", a, h)
	}
	for status, a := range map[int]answer{
		200: w.api("GET", "/sites", key, nil, "Origin: https://app.example.test"),
		401: w.api("GET", "/sites", "", nil, "Origin: https://app.example.test", "Cookie: slipway=x"),
		404: w.api("GET", "/nothing", key, nil, "Origin: https://app.example.test"),
	} {
		if a.status != status || a.header.Get("Access-Control-Allow-Origin") != "*" ||
			a.header.Get("Access-Control-Allow-Credentials") != "" ||
			!strings.Contains(
				a.header.Get("Access-Control-Expose-Headers"),
				"X-RateLimit-Remaining",
			) {
			t.Errorf("%d: %s %v", status, a, a.header)
		}
	}
	if a := w.api("OPTIONS", "/sites", "", nil); a.status != 401 { // not a preflight request
		t.Error(a)
	}
}

// An event source that has read a finished log completely is told not to reconnect.
func TestResumePastTheEndOfALog(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, key := w.user("a@example.test")
	dep := w.must(200, "POST", "/sites/"+w.site(key, "x")+"/deploy", key, nil)["deploymentId"].(string)
	w.say(dep, 1, "one", "two")
	w.must(200, "POST", "/deployments/"+dep+"/cancel", key, nil)
	var last string
	_, s := w.open(dep, key)
	for {
		id, name, _ := nextEvent(t, s)
		if name == "end" {
			break
		}
		last = id
	}
	if resp, _ := w.open(dep, key, "Last-Event-ID: "+last); resp.StatusCode != http.StatusNoContent {
		t.Errorf("resumed past the end: %d", resp.StatusCode)
	}
	if resp, s := w.open(dep, key, "Last-Event-ID: 1"); resp.StatusCode != 200 {
		t.Errorf("resumed in the middle: %d", resp.StatusCode)
	} else if id, _, _ := nextEvent(t, s); id != "2" {
		t.Errorf("resumed at %s", id)
	}
	a := w.api("GET", "/deployments/"+dep+"/logs", key, nil, "Accept: text/event-stream", "Last-Event-ID: x")
	if a.status != 400 || a.json(t)["code"] != "invalid_last_event_id" {
		t.Error(a)
	}
}

// A missing scope is reported before validation errors.
func TestScopeComesBeforeValidation(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	u, key := w.user("a@example.test")
	id := w.site(key, "x")
	narrow := w.key(u, account.NewKey{Scopes: account.Scopes{account.AccountRead}})
	for _, r := range []struct{ method, path, body string }{
		{"POST", "/sites", "{"},
		{"POST", "/sites", `{"type":"x"}`},
		{"POST", "/sites", "null"},
		{"GET", "/sites?type=x&page=0", ""},
		{"GET", "/sites?%zz", ""},
		{"POST", "/sites/" + id + "/env", "[]"},
		{"PATCH", "/sites/" + id, `{"name":1}`},
		{"GET", "/deployments/x/logs?after=x", ""},
	} {
		var body any
		if r.body != "" {
			body = r.body
		}
		if a := w.api(r.method, r.path, narrow, body); a.status != 403 {
			t.Errorf("%s %s %s: %s", r.method, r.path, r.body, a)
		}
	}
}

// Text in responses isn't escaped for HTML.
func TestNothingIsEscapedForHTML(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, key := w.user("a@example.test")
	for _, a := range []answer{
		w.api("POST", "/sites", key, m{
			"name":       "a & <b>",
			"type":       "static",
			"repository": "git.test/acme/site",
			"build":      m{"command": "a && b > c"},
		}, "Idempotency-Key: k"),
		w.api("POST", "/sites", key, m{
			"name":       "a & <b>",
			"type":       "static",
			"repository": "git.test/acme/site",
			"build":      m{"command": "a && b > c"},
		}, "Idempotency-Key: k"),
		w.api("GET", "/sites", key, nil), w.api("POST", "/sites", key, m{"name": "x", "type": "<&>"}),
	} {
		if strings.Contains(a.body, `\u0026`) || strings.Contains(a.body, `\u003`) || !strings.Contains(a.body, "<") {
			t.Error(a)
		}
	}
}

// A PATCH that can't be done returns an error. A PATCH without a change does nothing.
func TestPatchesDoWhatTheySay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, key := w.user("a@example.test")
	id := w.site(key, "x")
	w.must(201, "POST", "/sites/"+id+"/env", key, []m{{"key": "A", "value": "a"}, {"key": "S", "value": "secret-value", "secret": true}})
	w.must(201, "POST", "/webhooks", key, m{"url": "https://example.test/x", "events": []string{"site.updated"}})
	events := func() (n int) {
		t.Helper()
		if err := w.db.QueryRow(t.Context(), "SELECT count(*) FROM webhook_deliveries").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	for _, r := range []struct{ path, body, code string }{
		{"/sites/" + id, `{"type":"wordpress"}`, "field_not_changeable"},
		{"/sites/" + id, `{"slug":"other"}`, "field_not_changeable"},
		{"/sites/" + id, `{"status":"stopped"}`, "field_not_changeable"},
		{"/sites/" + id, `{"name":null}`, "invalid_name"},
		{"/sites/" + id, `{"build":null}`, "invalid_build"},
		{"/sites/" + id + "/env/A", `{"key":"B"}`, "field_not_changeable"},
		{"/sites/" + id + "/env/A", `{"value":null}`, "invalid_value"},
		{"/sites/" + id + "/env/A", `{"target":null}`, "invalid_target"},
	} {
		if a := w.api("PATCH", r.path, key, r.body); a.status != 400 || a.json(t)["code"] != r.code {
			t.Errorf("%s %s: %s", r.path, r.body, a)
		}
	}
	now := w.must(200, "GET", "/sites/"+id, key, nil)
	for _, r := range []struct {
		path string
		body any
	}{
		{"/sites/" + id, m{}},
		{"/sites/" + id, m{"nobody-knows": 1}},
		{"/sites/" + id, m{"name": now["name"], "type": now["type"], "framework": now["framework"], "createdAt": now["createdAt"]}},
		{"/sites/" + id, m{"build": m{}}},
		{"/sites/" + id + "/env/A", m{}},
		{"/sites/" + id + "/env/A", m{"value": "a", "secret": false}},
		{"/sites/" + id + "/env/S", m{"value": nil, "secret": true}},
	} {
		w.must(200, "PATCH", r.path, key, r.body)
	}
	w.must(201, "POST", "/sites/"+id+"/env", key, m{"key": "A", "value": "a"})
	after := w.must(200, "GET", "/sites/"+id, key, nil)
	if n := events(); n != 0 || after["updatedAt"] != now["updatedAt"] {
		t.Errorf("what changed nothing caused %d events; updated %v, then %v", n, now["updatedAt"], after["updatedAt"])
	}
	w.must(200, "PATCH", "/sites/"+id+"/env/A", key, m{"value": "b"})
	if n := events(); n != 1 {
		t.Errorf("a change caused %d events", n)
	}
}

// A site's name must be visible, and its subdomain transliterates the name.
func TestNames(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, key := w.user("a@example.test")
	make := func(name string) answer {
		return w.api("POST", "/sites", key, m{"name": name, "type": "static", "repository": "git.test/acme/site"})
	}
	for name, want := range map[string]string{
		"北京 Café":    "bei-jing-cafe",
		"東京タワー":      "dong-jing-tawa",
		"がんばれ":       "ganbare",
		"مرحبا":      "mrhb",
		"שלום":       "shlvm",
		"서울":         "seoul",
		"Привет мир": "privet-mir",
		"Größe":      "groesse",
		"नमस्ते":     "nmste",
		"สวัสดี":     "swasdii",
	} {
		a := make(name)
		var v struct{ Data struct{ Slug string } }
		if err := json.Unmarshal([]byte(a.body), &v); err != nil || a.status != 201 {
			t.Errorf("%s: %s", name, a)
		}
		if v.Data.Slug != want {
			t.Errorf("%s becomes %s, want %s", name, v.Data.Slug, want)
		}
	}
	id := w.site(key, "x")
	for _, name := range []string{"\u200b", "\u200b\u200d", "\u3164", "\u2800", "\u00a0", "\u0301", "\u2060\ufeff", "\ufe0f", "a\u2028b"} {
		if a := make(name); a.status != 400 {
			t.Errorf("site %+q: %s", name, a)
		}
		if name == "a\u2028b" {
			continue
		}
		if a := w.api("POST", "/keys", key, m{"name": name, "scopes": []string{"sites:read"}}); a.status != 400 {
			t.Errorf("key %+q: %s", name, a)
		}
		if a := w.api("POST", "/sites/"+id+"/hooks", key, m{"name": name}); a.status != 400 {
			t.Errorf("hook %+q: %s", name, a)
		}
	}
	if a := make("👩‍👩‍👧 family"); a.status != 201 {
		t.Error(a)
	}
}
