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
	w.must(200, "PATCH", path, key, m{"hasPassword": true, "unknown": 1, "protection": "previews"})
}
