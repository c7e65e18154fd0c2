package api_test

import (
	"testing"

	"slipway/internal/account"
)

// Serving settings: what is set is shown but for the password, what is wrong is named,
// and another key's site is not there.
func TestServingSettings(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, key := w.user("anna@example.test", account.All)
	id := w.site(key, "Blog")
	at := "/sites/" + id + "/serving"
	w.must(200, "GET", at, key, nil)
	for _, bad := range []m{{"proxyHosts": nil}, {"proxyHosts": []string{"localhost"}}, {"protection": "some"}, {"protection": "all"}, {"password": "short"}, {"hasPassword": true}} {
		w.must(400, "PATCH", at, key, bad)
	}
	w.must(200, "PATCH", at, key, m{"protection": "previews", "password": "correct horse", "proxyHosts": []string{"api.example.com"}})
	for _, bad := range []m{{}, {"path": "x"}, {"path": "/", "rules": m{"index.html": ""}}} {
		w.must(400, "POST", "/sites/"+id+"/rules/test", key, bad)
	}
	w.must(409, "POST", "/sites/"+id+"/rules/test", key, m{"path": "/"})
}
