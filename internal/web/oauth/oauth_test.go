package oauth_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	client "golang.org/x/oauth2"

	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
	"slipway/internal/platform/seal"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/oauth"
	weboauth "slipway/internal/web/oauth"
	"slipway/internal/web/ratelimit"
)

const callback = "http://127.0.0.1/callback"

// world serves the OAuth endpoints on a real listener, with a user and an app.
type world struct {
	t      *testing.T
	srv    *httptest.Server
	server *oauth.Server
	db     *db.DB
	ada    account.User
	app    oauth.App
	secret string
}

func newWorld(t *testing.T, confidential bool, registration ...bool) *world {
	t.Helper()
	w := &world{t: t, db: dbtest.New(t)}
	s, err := seal.Load(filepath.Join(t.TempDir(), "key"))
	w.must(err)
	var handler http.Handler
	w.srv = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if !weboauth.Serves(r.URL.Path) {
			http.NotFound(rw, r)
			return
		}
		handler.ServeHTTP(rw, r)
	}))
	t.Cleanup(w.srv.Close)
	accounts := account.New(account.Config{DB: w.db, HashMemory: 64, Seal: s})
	w.server = oauth.New(oauth.Config{DB: w.db, Accounts: accounts, Seal: s, Issuer: w.srv.URL, Registration: len(registration) > 0})
	handler = weboauth.New(weboauth.Config{Server: w.server, Limiter: ratelimit.New(ratelimit.Config{DB: w.db})})
	w.ada, err = accounts.CreateUser(t.Context(), "ada@example.test", "", false)
	w.must(err)
	w.must(w.db.Write(t.Context(), func(tx *db.Tx) (err error) {
		w.app, w.secret, err = w.server.CreateAppTx(t.Context(), tx, w.ada.Owner, oauth.NewApp{
			Name: "Acme", RedirectURIs: []string{callback}, Confidential: confidential,
		})
		return err
	}))
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// config returns the app's golang.org/x/oauth2 configuration.
func (w *world) config() client.Config {
	return client.Config{
		ClientID: string(w.app.ID), ClientSecret: w.secret, RedirectURL: "http://127.0.0.1:49152/callback", Scopes: []string{"sites:read"},
		Endpoint: client.Endpoint{
			AuthURL: w.srv.URL + "/oauth/authorize", TokenURL: w.srv.URL + "/oauth/token", DeviceAuthURL: w.srv.URL + "/oauth/device",
		},
	}
}

// allow consents as the user at authURL and returns the code.
func (w *world) allow(authURL string) string {
	w.t.Helper()
	u, err := url.Parse(authURL)
	w.must(err)
	r, err := w.server.Authorize(w.t.Context(), w.ada.Caller(), u.Query())
	w.must(err)
	var to string
	w.must(w.db.Write(w.t.Context(), func(tx *db.Tx) (err error) {
		to, err = w.server.ApproveTx(w.t.Context(), tx, w.ada.Caller(), r, oauth.Consent{Scopes: r.Scopes})
		return err
	}))
	u, err = url.Parse(to)
	w.must(err)
	return u.Query().Get("code")
}

// golang.org/x/oauth2 gets tokens, refreshes them in eight concurrent goroutines, and signs in a device.
func TestGoClient(t *testing.T) {
	t.Parallel()
	for name, confidential := range map[string]bool{"public": false, "confidential": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, confidential)
			c, verifier := w.config(), client.GenerateVerifier()
			code := w.allow(c.AuthCodeURL("xyz", client.S256ChallengeOption(verifier)))
			if _, err := c.Exchange(t.Context(), code, client.VerifierOption(client.GenerateVerifier())); err == nil {
				t.Error("another verifier gets tokens")
			}
			code = w.allow(c.AuthCodeURL("xyz", client.S256ChallengeOption(verifier)))
			got, err := c.Exchange(t.Context(), code, client.VerifierOption(verifier))
			if err != nil || got.TokenType != "Bearer" || time.Until(got.Expiry) < 50*time.Minute || got.Extra("scope") != "sites:read" {
				t.Fatalf("got %+v, %v", got, err)
			}
			if _, err := w.server.Authenticate(t.Context(), got.AccessToken, netip.MustParseAddr("203.0.113.7")); err != nil {
				t.Error(err)
			}
			got.Expiry = time.Now().Add(-time.Minute)
			fresh := make([]string, 8)
			var wait sync.WaitGroup
			for i := range fresh {
				wait.Go(func() { // like separate processes, each with its own source
					next, err := c.TokenSource(t.Context(), got).Token()
					if err != nil {
						t.Error(err)
						return
					}
					fresh[i] = next.AccessToken
				})
			}
			wait.Wait()
			for _, token := range fresh {
				if token == "" || token != fresh[0] {
					t.Errorf("the refreshes got %v", fresh)
					break
				}
			}
			device, err := c.DeviceAuth(t.Context())
			if err != nil || device.VerificationURI != w.srv.URL+"/device" || len(device.UserCode) != 9 {
				t.Fatalf("device: %+v, %v", device, err)
			}
			d, err := w.server.Device(t.Context(), device.UserCode)
			w.must(err)
			w.must(w.db.Write(t.Context(), func(tx *db.Tx) error {
				return w.server.DecideDeviceTx(t.Context(), tx, w.ada.Caller(), d, &oauth.Consent{Scopes: d.Scopes})
			}))
			device.Interval = 1
			if got, err := c.DeviceAccessToken(t.Context(), device); err != nil || !oauth.LooksLikeToken(got.AccessToken) {
				t.Errorf("the device got %+v, %v", got, err)
			}
		})
	}
}

// post sends a form and returns the status, headers and JSON body.
func (w *world) post(path, form string, headers ...string) (int, http.Header, map[string]any) {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), "POST", w.srv.URL+path, strings.NewReader(form))
	w.must(err)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := http.DefaultClient.Do(req)
	w.must(err)
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	w.must(err)
	var v map[string]any
	if len(b) > 0 {
		w.must(json.Unmarshal(b, &v))
	}
	return res.StatusCode, res.Header, v
}

// Errors have the standard's codes and aren't cacheable.
func TestErrors(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	id, auth := "client_id="+string(w.app.ID), "&client_secret="+w.secret
	for name, tt := range map[string]struct {
		path, form string
		headers    []string
		status     int
		code       string
	}{
		"no client":          {"/oauth/token", "grant_type=refresh_token", nil, 400, "invalid_request"},
		"wrong secret":       {"/oauth/token", id + "&client_secret=x&grant_type=refresh_token", nil, 401, "invalid_client"},
		"unknown client":     {"/oauth/token", "client_id=app_x&grant_type=refresh_token", nil, 401, "invalid_client"},
		"no grant type":      {"/oauth/token", id + auth, nil, 400, "invalid_request"},
		"password grant":     {"/oauth/token", id + auth + "&grant_type=password", nil, 400, "unsupported_grant_type"},
		"unknown code":       {"/oauth/token", id + auth + "&grant_type=authorization_code&code=x", nil, 400, "invalid_grant"},
		"unknown refresh":    {"/oauth/token", id + auth + "&grant_type=refresh_token&refresh_token=x", nil, 400, "invalid_grant"},
		"another resource":   {"/oauth/token", id + auth + "&grant_type=refresh_token&resource=https://x.test", nil, 400, "invalid_target"},
		"twice":              {"/oauth/token", id + auth + "&grant_type=a&grant_type=b", nil, 400, "invalid_request"},
		"JSON":               {"/oauth/token", "{}", []string{"Content-Type", "application/json"}, 400, "invalid_request"},
		"too large":          {"/oauth/token", id + "&x=" + strings.Repeat("x", 17<<10), nil, 400, "invalid_request"},
		"two ways":           {"/oauth/token", id + auth, []string{"Authorization", "Basic eDp5"}, 400, "invalid_request"},
		"bearer":             {"/oauth/token", id, []string{"Authorization", "Bearer x"}, 400, "invalid_request"},
		"device, bad scope":  {"/oauth/device", id + auth + "&scope=*", nil, 400, "invalid_scope"},
		"revoke nothing":     {"/oauth/revoke", id + auth, nil, 400, "invalid_request"},
		"revoke the unknown": {"/oauth/revoke", id + auth + "&token=x", nil, 200, ""},
	} {
		status, h, body := w.post(tt.path, tt.form, tt.headers...)
		code, _ := body["error"].(string)
		if status != tt.status || code != tt.code || h.Get("Cache-Control") != "no-store" || h.Get("Access-Control-Allow-Origin") != "*" {
			t.Errorf("%s: %d %v, want %d %s", name, status, body, tt.status, tt.code)
		}
		if status == 401 && h.Get("WWW-Authenticate") == "" {
			t.Errorf("%s: no challenge", name)
		}
	}
	status, _, body := w.post("/oauth/introspect", id+auth+"&token=x")
	if status != 200 || body["active"] != false {
		t.Errorf("introspection of the unknown: %d %v", status, body)
	}
	limited := false
	for range 400 {
		if status, h, _ := w.post("/oauth/token", id+"&client_secret=x"); status == 429 {
			limited = h.Get("Retry-After") != ""
			break
		}
	}
	if !limited {
		t.Error("secrets can be guessed without end")
	}
}

// Clients find all endpoints in the two metadata documents, which list no endpoint that doesn't exist.
func TestMetadata(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false)
	read := func(path string) (v map[string]any) {
		res, err := http.Get(w.srv.URL + path)
		w.must(err)
		defer res.Body.Close()
		if res.StatusCode != 200 || res.Header.Get("Content-Type") != "application/json" {
			t.Fatalf("%s: %d", path, res.StatusCode)
		}
		w.must(json.NewDecoder(res.Body).Decode(&v))
		return v
	}
	server := read("/.well-known/oauth-authorization-server")
	if server["issuer"] != w.srv.URL || server["client_id_metadata_document_supported"] != false {
		t.Errorf("the server is %v", server)
	}
	for name, v := range server {
		at, ok := v.(string)
		if !ok || !strings.HasSuffix(name, "_endpoint") || name == "authorization_endpoint" { // which the dashboard serves
			continue
		}
		if status, _, body := w.post(strings.TrimPrefix(at, w.srv.URL), ""); status != 400 || body["error"] != "invalid_request" {
			t.Errorf("%s: %d %v", name, status, body)
		}
	}
	for _, path := range []string{"/.well-known/oauth-protected-resource", "/.well-known/oauth-protected-resource/api/v1"} {
		if r := read(path); r["resource"] != w.srv.URL+"/api/v1" || r["authorization_servers"].([]any)[0] != w.srv.URL {
			t.Errorf("the resource is %v", r)
		}
	}
}

// Devices of one IPv6 /48 share a limit over all of its 65,536 networks and can't use up the limit of others.
func TestDevicesOfOneCustomer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false)
	ask := func(addr string) int {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/oauth/device",
			strings.NewReader(url.Values{"client_id": {string(w.app.ID)}, "scope": {"sites:read"}}.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.RemoteAddr = addr
		answer := httptest.NewRecorder()
		w.srv.Config.Handler.ServeHTTP(answer, r)
		return answer.Code
	}
	for i := range 100 {
		if got := ask(fmt.Sprintf("[2001:db8:0:%x::1]:4000", i)); got != http.StatusOK {
			t.Fatalf("device %d: %d", i, got)
		}
	}
	if got := ask("[2001:db8:0:ffff::1]:4000"); got != http.StatusTooManyRequests {
		t.Errorf("one more device of the same /48: %d", got)
	}
	if got := ask("[2001:db8:1::1]:4000"); got != http.StatusOK {
		t.Errorf("a device of another /48: %d", got)
	}
}
