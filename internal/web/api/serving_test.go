package api_test

import (
	"strings"
	"testing"
)

// null values and read-only fields are refused and change nothing.
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
	if got := w.must(
		200, "GET", path, key, nil,
	); got["singlePage"] != "auto" || got["trailingSlash"] != "auto" || got["accessLog"] != "truncated" {
		t.Errorf("unless told the settings are %v", got)
	}
	got := w.must(200, "PATCH", path, key, m{"singlePage": "on", "trailingSlash": "never", "accessLog": "off"})
	if got["singlePage"] != "on" || got["trailingSlash"] != "never" || got["accessLog"] != "off" || got["protection"] != "all" {
		t.Errorf("after a change they are %v", got)
	}
	for _, body := range []m{{"singlePage": "yes"}, {"trailingSlash": ""}, {"accessLog": "full"}, {"accessLog": nil}} {
		w.must(400, "PATCH", path, key, body)
	}
	if now := w.must(
		200, "GET", path, key, nil,
	); now["singlePage"] != "on" || now["trailingSlash"] != "never" || now["accessLog"] != "off" {
		t.Errorf("after refusals they are %v", now)
	}
	w.must(200, "PATCH", path, key, m{"hasPassword": true, "unknown": 1, "protection": "previews"})
}

// Previews can also be protected through the Git settings, with the site's password or a member's sign-in.
func TestPreviewProtection(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, key := w.user("a@example.test")
	id := w.site(key, "One")
	git := func(body m) answer { return w.api("PATCH", "/sites/"+id+"/git", key, body) }
	serving := func() m { return w.must(200, "GET", "/sites/"+id+"/serving", key, nil) }
	if got := w.must(200, "GET", "/sites/"+id+"/git", key, nil); got["previewProtection"] != "none" {
		t.Errorf("at first: %v", got)
	}
	wants(t, "a password that is none", git(m{"previewProtection": "password"}), 400, "Password required")
	wants(t, "a short one", git(m{"previewProtection": "password", "previewPassword": "short"}), 400, "previewPassword")
	wants(t, "a password", git(m{"previewProtection": "password", "previewPassword": "right horse"}), 200, `"previewProtection":"password"`)
	if v := serving(); v["protection"] != "previews" || v["signIn"] != "none" || v["hasPassword"] != true {
		t.Errorf("with a password: %v", v)
	}
	a := git(m{"previewProtection": "members"})
	wants(t, "members", a, 200, `"previewProtection":"members"`)
	if v := serving(); v["protection"] != "none" || v["signIn"] != "previews" || strings.Contains(a.body, "horse") {
		t.Errorf("for members: %v %s", v, a)
	}
	wants(t, "nothing", git(m{"previewProtection": "none"}), 200, `"previewProtection":"none"`)
	w.must(200, "PATCH", "/sites/"+id+"/serving", key, m{"signIn": "all"})
	wants(t, "all are protected", git(m{"previewProtection": "none"}), 409, "all_protected")
	wants(t, "no value", w.api("PATCH", "/sites/"+id+"/serving", key, m{"signIn": "x"}), 400, "signIn")
}
