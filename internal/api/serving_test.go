package api_test

import "testing"

// Null means nothing here, and what the answer shows can't be set: both are refused, and
// change nothing.
func TestServingRefusesWhatItIgnores(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, key := w.user("a@example.test")
	path := "/sites/" + w.site(key, "Blog") + "/serving"
	w.must(200, "PATCH", path, key, m{"password": "correct horse", "protection": "all"})
	for _, body := range []m{{"password": nil}, {"protection": nil}, {"proxyHosts": nil}, {"hasPassword": false}} {
		if a := w.send("PATCH", "/api/v1"+path, key, body); a.status != 400 {
			t.Errorf("%v: %v, want 400", body, a)
		}
	}
	if got := w.must(200, "GET", path, key, nil); got["hasPassword"] != true || got["protection"] != "all" {
		t.Errorf("afterwards the settings are %v", got)
	}
	if got := w.must(200, "GET", path, key, nil); got["singlePage"] != "auto" || got["trailingSlash"] != "auto" || got["accessLog"] != "truncated" {
		t.Errorf("unless told the settings are %v", got)
	}
	got := w.must(200, "PATCH", path, key, m{"singlePage": "on", "trailingSlash": "never", "accessLog": "off"})
	if got["singlePage"] != "on" || got["trailingSlash"] != "never" || got["accessLog"] != "off" || got["protection"] != "all" {
		t.Errorf("after a change they are %v", got)
	}
	for _, body := range []m{{"singlePage": "yes"}, {"trailingSlash": ""}, {"accessLog": "full"}, {"accessLog": nil}} {
		w.must(400, "PATCH", path, key, body)
	}
	if now := w.must(200, "GET", path, key, nil); now["singlePage"] != "on" || now["trailingSlash"] != "never" || now["accessLog"] != "off" {
		t.Errorf("after refusals they are %v", now)
	}
	w.must(200, "PATCH", path, key, m{"hasPassword": true, "unknown": 1, "protection": "previews"})
}
