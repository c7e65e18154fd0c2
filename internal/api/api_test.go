package api_test

import "testing"

func TestBoot(t *testing.T) {
	w := newWorld(t)
	_, key := w.user("a@example.test")
	id := w.site(key, "My First Site!")
	for _, r := range [][2]string{{"GET", "/sites"}, {"GET", "/sites/" + id}, {"POST", "/sites/" + id + "/deploy"}, {"GET", "/sites/" + id + "/deployments"}, {"GET", "/domains"}, {"GET", "/account"}, {"GET", "/keys"},
		{"GET", "/nope"}, {"PUT", "/sites"}, {"OPTIONS", "/sites"}, {"GET", "/sites/" + id + "/env"}, {"GET", "/sites/" + id + "/hooks"}} {
		a := w.api(r[0], r[1], key, nil)
		t.Log(r, a, a.header)
	}
	for _, b := range []string{"", "{", "null", "[]", "5", `{"name":5,"type":"static"}`, `{"name":"x","type":7}`, `{"name":"x","type":"drupal","repository":"git.test/a/b"}`, `{"type":"static"}`, `{"name":"  ","type":"static","repository":"git.test/a/b"}`} {
		t.Log(b, w.api("POST", "/sites", key, b))
	}
	t.Log(w.api("POST", "/sites/"+id+"/env", key, map[string]any{"key": "A", "value": "b"}))
	t.Log(w.api("POST", "/sites/"+id+"/env", key, []any{map[string]any{"key": "A", "value": "b", "secret": true, "target": []string{"build"}}}))
	t.Log(w.api("POST", "/sites/"+id+"/env", key, map[string]any{"key": "1 A", "value": "b"}))
	t.Log(w.api("POST", "/sites/"+id+"/env", key, map[string]any{"key": "A", "value": 7}))
	t.Log(w.api("POST", "/sites/"+id+"/hooks", key, map[string]any{"name": "ci"}))
	t.Log(w.api("POST", "/domains/check", key, map[string]any{"domain": "some-free-name.com"}))
	t.Log(w.api("POST", "/domains/check", key, map[string]any{"domain": 5}))
	t.Log(w.api("POST", "/keys", key, map[string]any{"name": "k", "scopes": []string{"sites:read"}}))
	t.Log(w.logs.String())
}
