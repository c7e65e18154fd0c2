package api_test

import (
	"io"
	"net/http/httptest"
	"strings"
	"testing"

	"slipway/internal/web/api"
)

// meanwhile is a body that calls happens before its first byte.
type meanwhile struct {
	happens func()
	io.Reader
}

func (m *meanwhile) Read(b []byte) (int, error) {
	if m.happens != nil {
		m.happens()
		m.happens = nil
	}
	return m.Reader.Read(b)
}

// If a request's key is revoked while its body arrives, the request is refused. Otherwise it could create another key.
func TestBodyThatOutlivesItsKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, owner := w.user("a@example.test")
	h := api.New(w.c).Handler()
	for name, revoke := range map[string]bool{"revoked": true, "not revoked": false} {
		made := w.must(201, "POST", "/keys", owner, m{"name": name, "scopes": []string{"keys:write", "sites:read"}})
		r := httptest.NewRequestWithContext(t.Context(), "POST", "http://slipway.test/api/v1/keys", &meanwhile{func() {
			if revoke {
				w.must(200, "DELETE", "/keys/"+made["id"].(string), owner, nil)
			}
		}, strings.NewReader(`{"name":"another","scopes":["sites:read"]}`)})
		r.Header.Set("Authorization", "Bearer "+made["key"].(string))
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, r)
		want := 201
		if revoke {
			want = 401
		}
		if rec.Code != want {
			t.Errorf("%s: %d %s", name, rec.Code, rec.Body)
		}
	}
}

// The same applies to an import, with the archive in the body or at a URL.
func TestImportThatOutlivesItsKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, owner := w.user("a@example.test")
	x := w.site(owner, "blog")
	h := api.New(w.c).Handler()
	made := w.must(201, "POST", "/keys", owner, m{"name": "key", "scopes": []string{"sites:write", "deployments:write", "backups:write"}})
	r := httptest.NewRequestWithContext(t.Context(), "POST", "http://slipway.test/api/v1/sites/"+x+"/wordpress/import", &meanwhile{func() {
		w.must(200, "DELETE", "/keys/"+made["id"].(string), owner, nil)
	}, strings.NewReader(`{"url":"https://example.test/a.zip"}`)})
	r.Header.Set("Authorization", "Bearer "+made["key"].(string))
	r.Header.Set("Content-Type", "application/json")
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, r)
	if rec.Code != 401 {
		t.Errorf("%d %s", rec.Code, rec.Body)
	}
}
