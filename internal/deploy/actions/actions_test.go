package actions_test

import (
	"crypto"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"slipway/internal/deploy/actions"
	"slipway/internal/deploy/deploy"
	"slipway/internal/deploy/pushes"
	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
	"slipway/internal/platform/seal"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/oauth"
	"slipway/internal/tenant/site"
	"slipway/internal/tenant/webhook"
)

const here = "https://slipway.test"

// world is a site of Ada's whose settings allow acme/site, and an issuer that signs tokens for its workflows.
type world struct {
	t        *testing.T
	db       *db.DB
	accounts *account.Accounts
	git      *pushes.Pushes
	actions  *actions.Actions
	ada      account.User
	site     site.ID
	issuer   *httptest.Server
	key      *rsa.PrivateKey
	down     atomic.Bool  // the issuer fails
	asked    atomic.Int32 // requests for its metadata
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, db: dbtest.New(t)}
	var err error
	if w.key, err = rsa.GenerateKey(rand.Reader, 2048); err != nil {
		t.Fatal(err)
	}
	w.issuer = httptest.NewTLSServer(http.HandlerFunc(w.serve))
	t.Cleanup(w.issuer.Close)
	s, err := seal.Load(filepath.Join(t.TempDir(), "key"))
	w.must(err)
	w.accounts = account.New(account.Config{DB: w.db, HashMemory: 64, Seal: s})
	hooks := webhook.New(webhook.Config{DB: w.db, Seal: s})
	sites := site.New(site.Config{DB: w.db, Hooks: hooks, Seal: s, Domain: "sites.test"})
	w.git = pushes.New(pushes.Config{DB: w.db, Sites: sites, Deployments: deploy.New(deploy.Config{DB: w.db, Sites: sites, Hooks: hooks}), Seal: s})
	w.actions = actions.New(actions.Config{
		DB: w.db, Accounts: w.accounts, Sites: sites, Git: w.git, Out: w.issuer.Client(), Issuer: w.issuer.URL, Audience: here,
	})
	w.ada, err = w.accounts.CreateUser(t.Context(), "ada@example.test", "", false)
	w.must(err)
	made, err := sites.Create(t.Context(), w.ada.Owner, site.NewSite{Name: "Harbor", Type: "static", Source: "upload"})
	w.must(err)
	w.site = made.ID
	w.allow(pushes.Workflows{Repository: "acme/site", Branch: "main", By: w.ada.ID})
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) write(fn func(tx *db.Tx) error) {
	w.t.Helper()
	w.must(w.db.Write(w.t.Context(), fn))
}

func (w *world) allow(to pushes.Workflows) {
	w.t.Helper()
	w.write(func(tx *db.Tx) error { return w.git.AllowTx(w.t.Context(), tx, w.ada.Owner, w.site, to) })
}

func (w *world) serve(rw http.ResponseWriter, r *http.Request) {
	doc := map[string]any{
		"issuer": w.issuer.URL, "jwks_uri": w.issuer.URL + "/keys", "id_token_signing_alg_values_supported": []string{"RS256"},
	}
	if r.URL.Path != "/keys" {
		w.asked.Add(1)
	}
	if w.down.Load() {
		rw.WriteHeader(http.StatusBadGateway)
		return
	}
	if r.URL.Path == "/keys" {
		doc = map[string]any{"keys": []any{map[string]any{
			"kty": "RSA", "kid": "1", "use": "sig", "alg": "RS256", "n": b64(w.key.N.Bytes()), "e": b64(big.NewInt(int64(w.key.E)).Bytes()),
		}}}
	}
	json.NewEncoder(rw).Encode(doc)
}

func b64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

type m map[string]any

// token returns a token like GitHub's for a workflow run, with some claims changed.
func (w *world) token(change m) string {
	now := time.Now()
	claims := m{
		"iss": w.issuer.URL, "aud": here, "sub": "repo:acme/site:ref:refs/heads/main", "jti": rand.Text(), "iat": now.Unix(),
		"nbf": now.Unix(), "exp": now.Add(5 * time.Minute).Unix(), "repository": "acme/site", "repository_id": "74",
		"ref": "refs/heads/main", "event_name": "push", "run_id": "1658821493",
	}
	for name, v := range change {
		claims[name] = v
	}
	return w.sign(m{"alg": "RS256", "kid": "1"}, claims)
}

func (w *world) sign(header, claims m) string {
	h, _ := json.Marshal(header)
	c, _ := json.Marshal(claims)
	text := b64(h) + "." + b64(c)
	sum := sha256.Sum256([]byte(text))
	switch header["alg"] {
	case "none":
		return text + "."
	case "HS256":
		mac := hmac.New(sha256.New, w.key.N.Bytes())
		mac.Write([]byte(text))
		return text + "." + b64(mac.Sum(nil))
	}
	signature, err := rsa.SignPKCS1v15(rand.Reader, w.key, crypto.SHA256, sum[:])
	w.must(err)
	return text + "." + b64(signature)
}

func (w *world) exchange(token string) (actions.Key, error) {
	return w.actions.Exchange(w.t.Context(), token, w.site, netip.MustParseAddr("192.0.2.7"))
}

// refused checks that an exchange is refused with a code.
func (w *world) refused(token, code string) {
	w.t.Helper()
	_, err := w.exchange(token)
	var no *oauth.Error
	if !errors.As(err, &no) || no.Code != code {
		w.t.Errorf("the exchange is answered with %v, want %s", err, code)
	}
}

// A run on the configured branch, in the configured environment, gets a key for production. Every other run of the
// repository gets one for previews. A key is limited to the site, expires after an hour, and is in the audit log.
func TestRunsGetKeys(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	production := account.Scopes{account.SitesRead, account.DeploymentsRead, account.DeploymentsWrite}
	previews := account.Scopes{account.SitesRead, account.DeploymentsRead, account.PreviewsWrite}
	for name, tt := range map[string]struct {
		claims m
		want   account.Scopes
	}{
		"production branch":    {nil, production},
		"the name in capitals": {m{"repository": "Acme/Site"}, production},
		"another branch":       {m{"ref": "refs/heads/main-2"}, previews},
		"a tag like it":        {m{"ref": "refs/tags/main"}, previews},
		"a pull request":       {m{"ref": "refs/pull/7/merge", "event_name": "pull_request"}, previews},
	} {
		k, err := w.exchange(w.token(tt.claims))
		if err != nil || !slices.Equal(k.Scopes, tt.want) {
			t.Errorf("%s: %v, %v", name, k.Scopes, err)
			continue
		}
		c, err := w.accounts.Authenticate(t.Context(), k.Secret, netip.MustParseAddr("192.0.2.7"))
		if err != nil || c.User != w.ada.ID || !slices.Equal(c.Sites, []site.ID{w.site}) || c.Expires.Sub(db.Now()) > time.Hour {
			t.Errorf("%s: the key is %+v, %v", name, c, err)
		}
	}
	list, err := w.accounts.Audit(t.Context(), audit.Filter{Owner: w.ada.Owner, Action: "key.created"})
	w.must(err)
	if len(list) != 5 || list[0].Via != "GitHub Actions" {
		t.Errorf("the audit log has %+v", list)
	}
	w.allow(pushes.Workflows{Repository: "acme/site", Branch: "main", Environment: "live", By: w.ada.ID})
	for environment, want := range map[string]account.Scopes{"live": production, "Live": previews, "": previews} {
		if k, err := w.exchange(w.token(m{"environment": environment})); err != nil || !slices.Equal(k.Scopes, want) {
			t.Errorf("environment %q: %v, %v", environment, k.Scopes, err)
		}
	}
}

// An exchange is refused for tokens that aren't GitHub's current ones for this installation, for used tokens, and for
// other repositories, including one that has taken the allowed repository's name.
func TestRunsAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	now := time.Now()
	for name, tt := range map[string]struct {
		claims m
		code   string
	}{
		"for somebody else":       {m{"aud": "https://other.test"}, "invalid_request"},
		"of another issuer":       {m{"iss": "https://other.test"}, "invalid_request"},
		"expired":                 {m{"exp": now.Add(-time.Minute).Unix()}, "invalid_request"},
		"made an hour ago":        {m{"iat": now.Add(-time.Hour).Unix()}, "invalid_request"},
		"from the future":         {m{"iat": now.Add(time.Hour).Unix(), "nbf": now.Unix()}, "invalid_request"},
		"of no run":               {m{"jti": ""}, "invalid_request"},
		"of no repository":        {m{"repository_id": ""}, "invalid_request"},
		"a claim of another kind": {m{"repository": []string{"acme/site"}}, "invalid_request"},
		"a stranger's code":       {m{"event_name": "pull_request_target"}, "invalid_request"},
		"after a stranger's run":  {m{"event_name": "workflow_run"}, "invalid_request"},
		"a stranger's comment":    {m{"event_name": "issue_comment"}, "invalid_request"},
		"a stranger's issue":      {m{"event_name": "issues"}, "invalid_request"},
		"a stranger's discussion": {m{"event_name": "discussion_comment"}, "invalid_request"},
		"an event in capitals":    {m{"event_name": "PUSH"}, "invalid_request"},
		"no event":                {m{"event_name": ""}, "invalid_request"},
		"another repository":      {m{"repository": "acme/site2", "repository_id": "75"}, "invalid_target"},
		"another owner":           {m{"repository": "eve/site", "repository_id": "76"}, "invalid_target"},
	} {
		t.Log(name)
		w.refused(w.token(tt.claims), tt.code)
	}
	for _, alg := range []string{"none", "HS256"} {
		w.refused(w.sign(m{"alg": alg, "kid": "1"}, m{
			"iss": w.issuer.URL, "aud": here, "jti": "x", "iat": now.Unix(), "exp": now.Add(time.Minute).Unix(),
			"repository": "acme/site", "repository_id": "74", "ref": "refs/heads/main", "event_name": "push",
		}), "invalid_request")
	}
	token := w.token(nil)
	w.refused(token[:len(token)-8]+"AAAAAAAA", "invalid_request")
	w.refused("", "invalid_request")
	if _, err := w.exchange(token); err != nil {
		t.Fatal(err)
	}
	w.refused(token, "invalid_request") // already used
	w.refused(w.token(m{"repository_id": "99"}), "invalid_target")
	if _, err := w.exchange(w.token(nil)); err != nil { // the first repository is still allowed
		t.Error(err)
	}
}

// Workflows can't deploy a site that allows none, that has another owner, or whose settings' author has lost the right
// to deploy. The number of a site's keys per hour is limited, and expired keys are deleted.
func TestRunsEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	keys := func() int {
		t.Helper()
		list, err := w.accounts.ListKeys(t.Context(), w.ada.Caller())
		w.must(err)
		return len(list)
	}
	for range 2 {
		if _, err := w.exchange(w.token(nil)); err != nil {
			t.Fatal(err)
		}
	}
	w.write(func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), `UPDATE action_runs SET expires_at = 1`)
		return err
	})
	if _, err := w.exchange(w.token(nil)); err != nil || keys() != 1 {
		t.Errorf("%d keys are left, %v", keys(), err)
	}
	w.write(func(tx *db.Tx) error {
		for range 49 {
			if _, err := tx.Exec(t.Context(), `INSERT INTO action_runs (token, site_id, key_id, expires_at) VALUES ($1, $2, '', $3)`,
				rand.Text(), w.site, db.Now().Add(time.Hour)); err != nil {
				return err
			}
		}
		return nil
	})
	w.refused(w.token(nil), "slow_down")
	w.write(func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), `DELETE FROM action_runs`)
		return err
	})

	if _, err := w.actions.Exchange(t.Context(), w.token(nil), "site_unknown", netip.Addr{}); !isTarget(err) {
		t.Errorf("an unknown site is answered with %v", err)
	}
	w.write(func(tx *db.Tx) error {
		_, err := w.accounts.SuspendTx(t.Context(), tx, audit.Actor{}, w.ada.ID, "")
		return err
	})
	w.refused(w.token(nil), "invalid_target")
	w.write(func(tx *db.Tx) error {
		_, err := w.accounts.ResumeTx(t.Context(), tx, w.ada.ID)
		return err
	})
	if _, err := w.exchange(w.token(nil)); err != nil {
		t.Fatal(err)
	}
	w.write(func(tx *db.Tx) error { // like a transfer
		hook, workflows, err := w.git.RotateHookTx(t.Context(), tx, w.ada.Owner, w.site)
		if hook || !workflows {
			t.Errorf("a transfer ends a hook %v, workflows %v", hook, workflows)
		}
		return err
	})
	w.refused(w.token(nil), "invalid_target")
	w.issuer.Close()
	w.refused(w.token(nil), "invalid_target") // the signing keys are cached already
}

// Keys of runs end when the site allows other workflows or none, but not when the same settings are saved again.
func TestKeysOfRunsEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	same := pushes.Workflows{Repository: "acme/site", Branch: "main", By: w.ada.ID}
	for name, tt := range map[string]struct {
		next  pushes.Workflows
		stays bool
	}{
		"the same":            {same, true},
		"another branch":      {pushes.Workflows{Repository: "acme/site", Branch: "live", By: w.ada.ID}, false},
		"another environment": {pushes.Workflows{Repository: "acme/site", Branch: "main", Environment: "live", By: w.ada.ID}, false},
		"another repository":  {pushes.Workflows{Repository: "acme/other", Branch: "main", By: w.ada.ID}, false},
		"none":                {pushes.Workflows{}, false},
	} {
		w.allow(same)
		k, err := w.exchange(w.token(nil))
		w.must(err)
		w.allow(tt.next)
		if _, err := w.accounts.Authenticate(t.Context(), k.Secret, netip.MustParseAddr("192.0.2.7")); (err == nil) != tt.stays {
			t.Errorf("%s: the key is answered with %v", name, err)
		}
	}
}

// A failing issuer is requested once, however many tokens arrive.
func TestIssuerIsDown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.down.Store(true)
	for range 20 {
		w.refused(w.token(nil), "temporarily_unavailable")
	}
	if n := w.asked.Load(); n != 1 {
		t.Errorf("GitHub's issuer was asked %d times", n)
	}
}

func isTarget(err error) bool {
	var no *oauth.Error
	return errors.As(err, &no) && no.Code == "invalid_target"
}
