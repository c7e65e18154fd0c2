package oauth_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/oauth"
)

// Redirect URIs are compared byte by byte. Only the port of a loopback address may differ.
func TestRedirects(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		registered, asked string
		ok                bool
	}{
		"the same":                {"https://app.test/cb", "https://app.test/cb", true},
		"parent":                  {"https://app.test/cb", "https://app.test/cb/../x", false},
		"user info":               {"https://app.test/cb", "https://app.test@evil.test/cb", false},
		"fragment":                {"https://app.test/cb", "https://app.test/cb#", false},
		"query":                   {"https://app.test/cb", "https://app.test/cb?x", false},
		"encoded":                 {"https://app.test/cb", "https://app.test/%63b", false},
		"case":                    {"https://app.test/cb", "https://APP.test/cb", false},
		"suffix host":             {"https://app.test/cb", "https://app.test.evil.test/cb", false},
		"another port":            {"https://app.test/cb", "https://app.test:444/cb", false},
		"loopback, any port":      {"http://127.0.0.1/cb", "http://127.0.0.1:49152/cb", true},
		"loopback, port replaced": {"http://127.0.0.1:1/cb", "http://127.0.0.1:2/cb", true},
		"IPv6 loopback":           {"http://[::1]/cb", "http://[::1]:8080/cb", true},
		"IPv6 for IPv4":           {"http://127.0.0.1/cb", "http://[::1]:8080/cb", false},
		"localhost for IPv4":      {"http://127.0.0.1/cb", "http://localhost:8080/cb", false},
		"loopback, encoded":       {"http://127.0.0.1/cb", "http://127.0.0.1:1/%63b", false},
		"loopback with a suffix":  {"http://127.0.0.1/cb", "http://127.0.0.1.evil.test/cb", false},
		"loopback, user info":     {"http://127.0.0.1/cb", "http://127.0.0.1:1@evil.test/cb", false},
		"loopback, no port":       {"http://127.0.0.1/cb", "http://127.0.0.1:/cb", false},
		"loopback, long port":     {"http://127.0.0.1/cb", "http://127.0.0.1:123456/cb", false},
	} {
		w := newWorld(t, nil)
		w.app, _ = w.create(oauth.NewApp{Name: "App", RedirectURIs: []string{tt.registered, "https://other.test/"}})
		_, err := w.Authorize(t.Context(), w.ada.Caller(), w.query("redirect_uri", tt.asked))
		if f := fault.As(err); tt.ok != (err == nil) || !tt.ok && (f == nil || f.Code != "invalid_redirect_uri") {
			t.Errorf("%s: %v, want %v", name, err, tt.ok)
		}
	}
}

// Invalid redirect URIs and names of apps are refused.
func TestAppSettings(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	for name, tt := range map[string]struct {
		n    oauth.NewApp
		code string // empty: allowed
	}{
		"web":                {oauth.NewApp{Name: "App", RedirectURIs: []string{"https://a.test/cb?x=1"}}, ""},
		"private scheme":     {oauth.NewApp{Name: "App", RedirectURIs: []string{"com.example.app:/cb"}}, ""},
		"device alone":       {oauth.NewApp{Name: "App"}, ""},
		"script":             {oauth.NewApp{Name: "App", RedirectURIs: []string{"javascript:alert(1)"}}, "invalid_redirect_uri"},
		"data":               {oauth.NewApp{Name: "App", RedirectURIs: []string{"data:text/html,x"}}, "invalid_redirect_uri"},
		"bare scheme":        {oauth.NewApp{Name: "App", RedirectURIs: []string{"myapp:/cb"}}, "invalid_redirect_uri"},
		"plain http":         {oauth.NewApp{Name: "App", RedirectURIs: []string{"http://a.test/cb"}}, "invalid_redirect_uri"},
		"fragment":           {oauth.NewApp{Name: "App", RedirectURIs: []string{"https://a.test/cb#x"}}, "invalid_redirect_uri"},
		"user info":          {oauth.NewApp{Name: "App", RedirectURIs: []string{"https://u@a.test/cb"}}, "invalid_redirect_uri"},
		"dots":               {oauth.NewApp{Name: "App", RedirectURIs: []string{"https://a.test/x/../cb"}}, "invalid_redirect_uri"},
		"line break":         {oauth.NewApp{Name: "App", RedirectURIs: []string{"https://a.test/\nSet-Cookie:x"}}, "invalid_redirect_uri"},
		"relative":           {oauth.NewApp{Name: "App", RedirectURIs: []string{"/cb"}}, "invalid_redirect_uri"},
		"21 addresses":       {oauth.NewApp{Name: "App", RedirectURIs: make([]string, 21)}, "invalid_redirect_uri"},
		"our name":           {oauth.NewApp{Name: "Slipway CLI"}, "invalid_name"},
		"our name, spaced":   {oauth.NewApp{Name: "S l i p-way"}, "invalid_name"},
		"our name, Cyrillic": {oauth.NewApp{Name: "Ѕlірwау"}, "invalid_name"},
		"zero width":         {oauth.NewApp{Name: "Ac\u200bme"}, "invalid_name"},
		"right to left":      {oauth.NewApp{Name: "Acme\u202eevil"}, "invalid_name"},
		"no name":            {oauth.NewApp{Name: " "}, "invalid_name"},
		"script website":     {oauth.NewApp{Name: "App", Website: "javascript:alert(1)"}, "invalid_website"},
	} {
		err := w.db.Write(t.Context(), func(tx *db.Tx) error {
			_, _, err := w.CreateAppTx(t.Context(), tx, w.ada.Owner, tt.n)
			return err
		})
		if f := fault.As(err); tt.code == "" && err != nil || tt.code != "" && (f == nil || f.Code != tt.code) {
			t.Errorf("%s: %v, want %q", name, err, tt.code)
		}
	}
}

// A confidential app has two valid secrets for a day after a rotation. A public app has none.
func TestClientSecrets(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	a, first := w.create(oauth.NewApp{Name: "Server", RedirectURIs: []string{callback}, Confidential: true})
	client := func(secret string) error { _, err := w.Client(t.Context(), a.ID, secret); return err }
	must(t, client(first))
	wantCode(t, "no secret", client(""), "invalid_client")
	wantCode(t, "wrong secret", client(account.NewSecret("sls_")), "invalid_client")
	var second string
	must(t, w.db.Write(t.Context(), func(tx *db.Tx) (err error) {
		_, second, err = w.RotateSecretTx(t.Context(), tx, w.ada.Owner, a.ID)
		return err
	}))
	must(t, client(first))
	must(t, client(second))
	w.exec(`UPDATE oauth_apps SET old_secret_until = 1`)
	wantCode(t, "the old secret after a day", client(first), "invalid_client")
	_, err := w.Client(t.Context(), w.app.ID, "anything")
	wantCode(t, "a public app with a secret", err, "invalid_client")
	var stored int
	must(t, w.db.QueryRow(t.Context(), `SELECT count(*) FROM oauth_apps WHERE secret = $1 OR old_secret = $1`, second).Scan(&stored))
	if stored != 0 {
		t.Error("a secret is stored as it is")
	}
	got := w.tokens()
	must(t, w.db.Write(t.Context(), func(tx *db.Tx) error { return w.DeleteAppTx(t.Context(), tx, w.ada.Owner, w.app.ID) }))
	if w.works(got) {
		t.Error("a deleted app's token works")
	}
}

// An app may be described by a document at its https client ID, which is limited in size and must name itself.
func TestMetadataDocuments(t *testing.T) {
	t.Parallel()
	var status int
	var kind, body string
	srv := httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Type", kind)
		rw.WriteHeader(status)
		rw.Write([]byte(body))
	}))
	defer srv.Close()
	out := srv.Client()
	out.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse } // like egress clients
	w := newWorld(t, out)
	id := srv.URL + "/client.json"
	document := func(changes map[string]any) string {
		d := map[string]any{"client_id": id, "client_name": "Self Made", "redirect_uris": []string{callback}}
		for k, v := range changes {
			d[k] = v
		}
		b, err := json.Marshal(d)
		must(t, err)
		return string(b)
	}
	ask := func(id string) (oauth.Request, error) {
		w.exec(`UPDATE oauth_apps SET fresh_until = 1 WHERE fresh_until > 0`)
		return w.Authorize(t.Context(), w.ada.Caller(), w.query("client_id", id))
	}
	for name, tt := range map[string]struct {
		status     int
		kind, body string
	}{
		"not found":         {404, "application/json", "{}"},
		"redirect":          {302, "application/json", "{}"},
		"HTML":              {200, "text/html", document(nil)},
		"no JSON":           {200, "application/json", "hello"},
		"another client_id": {200, "application/json", document(map[string]any{"client_id": "https://other.test/client.json"})},
		"no addresses":      {200, "application/json", document(map[string]any{"redirect_uris": []string{}})},
		"bad address":       {200, "application/json", document(map[string]any{"redirect_uris": []string{"javascript:alert(1)"}})},
		"wants a secret":    {200, "application/json", document(map[string]any{"token_endpoint_auth_method": "client_secret_basic"})},
		"too large":         {200, "application/json", document(map[string]any{"logo": strings.Repeat("x", 6000)})},
		"our name":          {200, "application/json", document(map[string]any{"client_name": "Slipway"})},
	} {
		status, kind, body = tt.status, tt.kind, tt.body
		if _, err := ask(id); fault.As(err) == nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	status, kind, body = 200, "application/json", document(nil)
	r, err := ask(id)
	if err != nil || r.App.Name != "Self Made" || !r.App.Document() || r.App.FirstParty() {
		t.Fatalf("the request is %+v, %v", r, err)
	}
	status = 500 // while the document is fresh, it isn't fetched again
	if _, err := w.Authorize(t.Context(), w.ada.Caller(), w.query("client_id", id)); err != nil {
		t.Errorf("a document that was just read: %v", err)
	}
	for _, id := range []string{
		"http://app.test/client.json", srv.URL, srv.URL + "/", srv.URL + "/a/../b", srv.URL + "/x#y",
		strings.Replace(srv.URL, "https://", "https://u:p@", 1) + "/x",
	} {
		if _, err := ask(id); fault.As(err) == nil {
			t.Errorf("%s is taken for a document: %v", id, err)
		}
	}
	if _, err := w.Authorize(t.Context(), w.ada.Caller(), url.Values{"client_id": {id, id}}); fault.As(err) == nil {
		t.Errorf("client_id twice: %v", err)
	}
	w.later(time.Minute)
}
