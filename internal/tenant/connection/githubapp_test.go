package connection

import (
	"crypto"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"slipway/internal/git/fetch"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
)

// gitHub is a fake GitHub for apps. Its answers have the documented fields, and requests are checked against the
// documentation.
type gitHub struct {
	t   *testing.T
	srv *httptest.Server
	key *rsa.PrivateKey

	mu        sync.Mutex // guards the rest
	challenge string
	tokens    map[string]string // permissions by installation token
	issued    int
	asked     []string
	checks    []map[string]any
	push      bool // the user has write access
	private   bool
	access    bool // the user has read access
	installed bool
	revoked   string
}

func newGitHub(t *testing.T) *gitHub {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	must(t, err)
	g := &gitHub{t: t, key: key, tokens: map[string]string{}, push: true, private: true, access: true, installed: true}
	mux := http.NewServeMux()
	on := func(pattern string, fn func(w http.ResponseWriter, r *http.Request, body map[string]any)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			g.mu.Lock()
			defer g.mu.Unlock()
			b, _ := io.ReadAll(r.Body)
			body := map[string]any{}
			if r.Header.Get("Content-Type") == "application/json" {
				must(t, json.Unmarshal(b, &body))
			} else if len(b) > 0 {
				q, _ := url.ParseQuery(string(b))
				for name := range q {
					body[name] = q.Get(name)
				}
			}
			g.asked = append(g.asked, r.Method+" "+r.URL.Path)
			fn(w, r, body)
		})
	}
	const api = "/api/v3"
	on("POST "+api+"/app-manifests/{code}/conversions", func(w http.ResponseWriter, r *http.Request, _ map[string]any) {
		if r.PathValue("code") != "made-1" || r.Header.Get("Authorization") != "" {
			http.Error(w, `{"message":"Not Found"}`, 404)
			return
		}
		w.WriteHeader(201)
		fmt.Fprintf(
			w,
			`{"id": 1, "slug": "slipway-test", "node_id": "MDxOkludGVncmF0aW9uMQ==", "owner": {"login": "acme"}, "name": "Slipway test", "external_url": "https://slipway.test", "html_url": "https://git.test/apps/slipway-test",
			"permissions": {"metadata": "read", "contents": "read"}, "events": ["push"], "client_id": "Iv1.8a61f9b3a7aba766", "client_secret": "1726be1638095a19edd134c77bde3aa2ece1e5d8", "webhook_secret": "e340154128314309424b7c8e90325147d99fdafa", "pem": %q}`,
			string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})),
		)
	})
	on("POST /login/oauth/access_token", func(w http.ResponseWriter, r *http.Request, b map[string]any) {
		// GitHub answers with a form and status 200 unless JSON is requested.
		w.Header().Set("Content-Type", "application/x-www-form-urlencoded; charset=utf-8")
		sum := sha256.Sum256([]byte(fmt.Sprint(b["code_verifier"])))
		if b["client_id"] != "Iv1.8a61f9b3a7aba766" || b["client_secret"] != "1726be1638095a19edd134c77bde3aa2ece1e5d8" ||
			b["code"] != "code-1" ||
			base64.RawURLEncoding.EncodeToString(sum[:]) != g.challenge {
			fmt.Fprint(w, "error=bad_verification_code&error_description=The+code+passed+is+incorrect+or+expired.&error_uri=https%3A%2F%2Fdocs.github.com%2F")
			return
		}
		fmt.Fprint(
			w,
			"access_token=ghu_user&expires_in=28800&refresh_token=ghr_user&refresh_token_expires_in=15811200&scope=&token_type=bearer",
		)
	})
	as := func(want string, fn func(w http.ResponseWriter, r *http.Request, b map[string]any)) func(http.ResponseWriter, *http.Request, map[string]any) {
		return func(w http.ResponseWriter, r *http.Request, b map[string]any) {
			token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
			ok := want == "user" && token == "ghu_user" || want == "app" && g.isApp(token) || g.tokens[token] == want
			if !ok {
				http.Error(w, `{"message": "Bad credentials"}`, http.StatusUnauthorized)
				return
			}
			fn(w, r, b)
		}
	}
	answer := func(text string) func(http.ResponseWriter, *http.Request, map[string]any) {
		return func(w http.ResponseWriter, _ *http.Request, _ map[string]any) { fmt.Fprint(w, text) }
	}
	on("GET "+api+"/user", as("user", answer(`{"login": "octo"}`)))
	on(
		"GET "+api+"/user/installations",
		as("user", answer(`{"total_count": 1, "installations": [{"id": 77, "account": {"login": "acme"}, "app_slug": "slipway-test"}]}`)),
	)
	on(
		"GET "+api+"/user/installations/77/repositories",
		as(
			"user",
			answer(
				`{"total_count": 2, "repositories": [{"full_name": "acme/site", "default_branch": "trunk", "private": true}, {"full_name": "acme/docs", "default_branch": "main", "private": false}]}`,
			),
		),
	)
	on("GET "+api+"/repos/acme/site", as("user", func(w http.ResponseWriter, _ *http.Request, _ map[string]any) {
		if !g.access {
			http.Error(w, `{"message": "Not Found"}`, 404)
			return
		}
		fmt.Fprintf(
			w,
			`{"full_name": "acme/site", "private": %v, "permissions": {"admin": false, "push": %v, "pull": true}}`,
			g.private,
			g.push,
		)
	}))
	on("GET "+api+"/repos/acme/site/installation", as("app", func(w http.ResponseWriter, _ *http.Request, _ map[string]any) {
		if !g.installed {
			http.Error(w, `{"message": "Not Found"}`, 404)
			return
		}
		fmt.Fprint(w, `{"id": 77, "account": {"login": "acme"}}`)
	}))
	on("POST "+api+"/app/installations/77/access_tokens", as("app", func(w http.ResponseWriter, _ *http.Request, b map[string]any) {
		rights := fmt.Sprint(b["permissions"])
		if fmt.Sprint(b["repositories"]) != "[site]" {
			t.Errorf("a token for the repositories %v", b["repositories"])
		}
		g.issued++
		token := fmt.Sprintf("ghs_%d", g.issued)
		g.tokens[token] = map[string]string{
			"map[contents:read]": "read",
			"map[checks:write deployments:write pull_requests:write]": "report",
		}[rights]
		w.WriteHeader(201)
		json.NewEncoder(w).Encode(map[string]any{
			"token":                token,
			"expires_at":           time.Now().Add(time.Hour).UTC().Format(time.RFC3339),
			"permissions":          b["permissions"],
			"repository_selection": "selected",
		})
	}))
	check := func(w http.ResponseWriter, r *http.Request, b map[string]any) {
		b["method"] = r.Method
		g.checks = append(g.checks, b)
		fmt.Fprint(w, `{"id": 4, "status": "queued"}`)
	}
	on("POST "+api+"/repos/acme/site/check-runs", as("report", check))
	on("PATCH "+api+"/repos/acme/site/check-runs/4", as("report", check))
	on("POST "+api+"/repos/acme/site/deployments", as("report", answer(`{"id": 5}`)))
	on("POST "+api+"/repos/acme/site/deployments/5/statuses", as("report", answer(`{"id": 6}`)))
	on("POST "+api+"/repos/acme/site/issues/9/comments", as("report", answer(`{"id": 8}`)))
	on("PATCH "+api+"/repos/acme/site/issues/comments/8", as("report", answer(`{"id": 8}`)))
	on("DELETE "+api+"/applications/Iv1.8a61f9b3a7aba766/token", func(w http.ResponseWriter, r *http.Request, b map[string]any) {
		if id, secret, _ := r.BasicAuth(); id != "Iv1.8a61f9b3a7aba766" || secret != "1726be1638095a19edd134c77bde3aa2ece1e5d8" {
			t.Error("revoked without the app's credentials")
		}
		g.revoked = fmt.Sprint(b["access_token"])
		w.WriteHeader(204)
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		t.Errorf("GitHub knows no %s %s", r.Method, r.URL)
		http.Error(w, `{"message": "Not Found"}`, 404)
	})
	g.srv = httptest.NewServer(mux)
	t.Cleanup(g.srv.Close)
	return g
}

// isApp verifies a JWT as GitHub does: RS256 with the app's key, valid for at most ten minutes.
func (g *gitHub) isApp(token string) bool {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return false
	}
	var head struct{ Alg, Typ string }
	var claims struct {
		Iat, Exp int64
		Iss      string
	}
	for i, to := range []any{&head, &claims} {
		b, err := base64.RawURLEncoding.DecodeString(parts[i])
		if err != nil || json.Unmarshal(b, to) != nil {
			return false
		}
	}
	sig, err := base64.RawURLEncoding.DecodeString(parts[2])
	sum := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	now := time.Now().Unix()
	return err == nil && rsa.VerifyPKCS1v15(
		&g.key.PublicKey,
		crypto.SHA256,
		sum[:],
		sig,
	) == nil && head.Alg == "RS256" && claims.Iss == "Iv1.8a61f9b3a7aba766" &&
		claims.Iat <= now && claims.Exp > now && claims.Exp <= now+600
}

func (g *gitHub) with(fn func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	fn()
}

// newAppWorld returns a world with a GitHub App at git.test, created from its manifest, and the signed-in user octo.
func newAppWorld(t *testing.T) (*world, *gitHub, App, Connection) {
	g := newGitHub(t)
	w := newOAuthWorld(t, "git.test", g.srv)
	var c Creation
	w.write(func(tx *db.Tx) (err error) {
		c, err = w.CreationTx(t.Context(), tx, "ses_op", NewGitHubApp{Host: "git.test", Organization: "acme", Public: true})
		return err
	})
	to, err := url.Parse(c.To)
	must(t, err)
	var m Manifest
	must(t, json.Unmarshal([]byte(c.Manifest), &m))
	hook, _ := m.Hook["url"].(string)
	id, found := strings.CutPrefix(hook, "https://slipway.test/hooks/github/")
	if to.Host != "git.test" || to.Path != "/organizations/acme/settings/apps/new" || !found || len(id) != 43 || m.Redirect != "https://slipway.test/operator/git/created" || fmt.Sprint(m.Callbacks) != "[https://slipway.test/account/git/callback]" ||
		m.URL != "https://slipway.test" || !m.Public || len(m.Name) > 34 || m.Permissions["contents"] != "read" ||
		m.Permissions["checks"] != "write" ||
		!slices.Equal(m.Events, []string{
			"push",
			"delete",
			"pull_request",
		}) {
		t.Errorf("sent to %s: %s", c.To, c.Manifest)
	}
	q := url.Values{"code": {"made-1"}, "state": {to.Query().Get("state")}}
	if _, err := w.Created(t.Context(), "ses_eve", q); fault.As(err) == nil || fault.As(err).Code != "invalid_state" {
		t.Errorf("another session's creation: %v", err)
	}
	made, err := w.Created(t.Context(), "ses_op", q)
	must(t, err)
	if _, err := w.Created(t.Context(), "ses_op", q); fault.As(err) == nil || fault.As(err).Code != "invalid_state" {
		t.Errorf("the same answer again: %v", err)
	}
	var a App
	w.write(func(tx *db.Tx) (err error) { a, err = w.StoreAppTx(t.Context(), tx, made); return err })
	if a.InstallURL() != "https://git.test/apps/slipway-test/installations/new" || a.Host != "git.test" {
		t.Errorf("stored %+v", a)
	}
	if got, err := w.ByHook(t.Context(), w.db, id); err != nil || got.ID != a.ID {
		t.Errorf("by its hook: %+v, %v", got, err)
	}
	var stored string
	must(t, w.db.QueryRow(t.Context(), `SELECT secrets || hook_digest FROM git_apps`).Scan(&stored))
	if strings.Contains(stored, "BEGIN RSA") || strings.Contains(stored, "e3401541") || strings.Contains(stored, id) {
		t.Error("the app's secrets can be read in the database")
	}
	sign, err := url.Parse(w.begin("ses_1", a.ID, true))
	must(t, err)
	if sign.Query().Has("scope") || sign.Path != "/login/oauth/authorize" {
		t.Errorf("signs in at %s", sign)
	}
	g.with(func() { g.challenge = sign.Query().Get("code_challenge") })
	k, _, err := w.Finish(t.Context(), "ses_1", url.Values{"code": {"code-1"}, "state": {sign.Query().Get("state")}})
	must(t, err)
	if has, err := w.HasRepositories(t.Context(), k); err != nil || !has {
		t.Errorf("has repositories: %v, %v", has, err)
	}
	return w, g, a, w.store(anna, k)
}

// A GitHub App created from its manifest lists the repositories that both the user and the app can read, reads each
// with a token limited to it, and reports deployments as check runs, deployment records and a comment.
func TestGitHubApp(t *testing.T) {
	t.Parallel()
	w, g, _, c := newAppWorld(t)
	list, err := w.Repositories(t.Context(), anna, c.ID, "site")
	must(t, err)
	if fmt.Sprint(list) != "[{git.test/acme/site trunk true}]" {
		t.Errorf("repositories: %v", list)
	}
	w.write(func(tx *db.Tx) error {
		return w.UseTx(t.Context(), tx, anna, "site_1", "git.test/acme/site", Use{Connection: c.ID, Report: true})
	})
	for range 3 {
		cred, err := w.CredentialOf(t.Context(), "site_1", "git.test/acme/site")
		must(t, err)
		if cred.Token != "ghs_1" || cred.User != "x-access-token" {
			t.Errorf("read with %s %s", cred.User, cred.Token)
		}
	}
	f := Facts{
		Deployment: "dep_1",
		Site:       "site_1",
		SiteName:   "Shop",
		Slug:       "shop",
		Repository: "git.test/acme/site",
		Branch:     "cart",
		Commit:     sha,
		Pull:       9,
		URL:        "https://pr-9--shop.sites.test",
		LogURL:     "https://slipway.test/log",
	}
	for _, status := range []string{"pending", "building"} {
		w.set(f, status)
		w.drain()
	}
	f.Error = "TypeScript error in src/Cart.tsx:41"
	w.set(f, "failed")
	w.drain()
	if len(g.checks) != 3 {
		t.Fatalf("check runs: %v", g.checks)
	}
	first, last := g.checks[0], g.checks[2]
	if first["method"] != "POST" || first["head_sha"] != sha || first["status"] != "queued" || first["name"] != "Slipway: shop" ||
		first["external_id"] != "dep_1" ||
		first["details_url"] != f.LogURL {
		t.Errorf("the first: %v", first)
	}
	title := last["output"].(map[string]any)["title"]
	if last["method"] != "PATCH" || last["status"] != "completed" || last["conclusion"] != "failure" || title != "Failed: "+f.Error {
		t.Errorf("the last: %v", last)
	}
	for _, want := range []string{
		"POST /api/v3/repos/acme/site/deployments",
		"POST /api/v3/repos/acme/site/deployments/5/statuses",
		"POST /api/v3/repos/acme/site/issues/9/comments",
		"PATCH /api/v3/repos/acme/site/issues/comments/8",
	} {
		if !slices.Contains(g.asked, want) {
			t.Errorf("not asked: %s, only %q", want, g.asked)
		}
	}
	if g.issued != 2 {
		t.Errorf("%d installation tokens, want one to read and one to report", g.issued)
	}
	w.write(func(tx *db.Tx) error { return w.DeleteTx(t.Context(), tx, anna, c.ID) })
	w.drain()
	if g.revoked != "ghu_user" {
		t.Errorf("revoked %q", g.revoked)
	}
}

// An app's installation may read more than the user, but users get no more access through it than they have themselves.
func TestGitHubAppGivesNoMoreThanItsUserHas(t *testing.T) {
	t.Parallel()
	w, g, _, c := newAppWorld(t)
	read := func() (*fetch.Credential, error) {
		w.installations = tokens{}
		return w.CredentialFor(t.Context(), anna, c.ID, "git.test/acme/site")
	}
	report := func() error {
		w.installations = tokens{}
		_, err := w.reporter(t.Context(), c, "git.test/acme/site")
		return err
	}
	code := func(err error) string {
		if f := fault.As(err); f != nil {
			return f.Code
		}
		return fmt.Sprint(err)
	}
	g.with(func() { g.access = false })
	if _, err := read(); code(err) != "no_access" {
		t.Errorf("a repository that the user can't read: %v", err)
	}
	g.with(func() { g.access, g.push = true, false })
	if err := report(); code(err) != "no_access" {
		t.Errorf("reporting for who can't write: %v", err)
	}
	if _, err := read(); err != nil {
		t.Errorf("reading for who can't write: %v", err)
	}
	g.with(func() { g.private = false })
	if cred, err := read(); err != nil || cred != nil {
		t.Errorf("a public repository: %v, %v", cred, err)
	}
	g.with(func() { g.private, g.push, g.installed = true, true, false })
	if _, err := read(); code(err) != "not_installed" {
		t.Errorf("where the app is not installed: %v", err)
	}
	if g.issued != 1 {
		t.Errorf("%d tokens were issued", g.issued)
	}
}

// An app's webhook is identified by its ID and verified by its signature.
func TestAppEventIsVerified(t *testing.T) {
	t.Parallel()
	w, _, a, _ := newAppWorld(t)
	body := []byte(`{"zen": "x"}`)
	h := func(secret string) http.Header {
		return http.Header{"X-Github-Event": {"ping"}, "X-Hub-Signature-256": {"sha256=" + hexMAC(secret, body)}}
	}
	var hook string
	w.write(func(tx *db.Tx) error { // the ID isn't stored, so use a known one
		hook = strings.Repeat("h", 43)
		_, err := tx.Exec(t.Context(), `UPDATE git_apps SET hook_digest = $1`, digest(hook))
		return err
	})
	got, err := w.AppEvent(t.Context(), hook, h("e340154128314309424b7c8e90325147d99fdafa"), body)
	if err != nil || got.ID != a.ID {
		t.Errorf("a signed call: %v, %v", got.ID, err)
	}
	if _, err := w.AppEvent(t.Context(), hook, h("wrong"), body); !fault.Is(err, fault.Unauthorized) {
		t.Errorf("a wrong signature: %v", err)
	}
	if _, err := w.AppEvent(t.Context(), "", h("wrong"), body); !fault.Is(err, fault.NotFound) {
		t.Errorf("no hook: %v", err)
	}
	gitlab := h("e340154128314309424b7c8e90325147d99fdafa")
	gitlab.Set("X-Gitlab-Event", "Push Hook")
	if _, err := w.AppEvent(t.Context(), hook, gitlab, body); !fault.Is(err, fault.Invalid) {
		t.Errorf("another forge's: %v", err)
	}
}

func hexMAC(secret string, body []byte) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(body)
	return hex.EncodeToString(mac.Sum(nil))
}
