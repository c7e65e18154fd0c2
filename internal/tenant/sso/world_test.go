package sso_test

import (
	"crypto"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/seal"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/sso"
)

const (
	base     = "https://slipway.test"
	password = "correct horse battery staple 9"
)

var device = account.Device{Agent: "test", Addr: netip.MustParseAddr("203.0.113.7")}

// issuer is a fake OpenID Connect issuer that can send false answers.
type issuer struct {
	t   *testing.T
	srv *httptest.Server
	key *rsa.PrivateKey

	mu       sync.Mutex // guards what follows
	document func(map[string]any)
	jwks     func() []byte
	sign     func(header, claims map[string]any) string
	claims   func(map[string]any)
	userinfo map[string]any
	nonces   map[string]string // by code
	verifier map[string]string // PKCE challenge by code
	asked    map[string]int    // number of requests by path
	before   func(path string)
	codes    int
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	must(t, err)
	i := &issuer{t: t, key: key, nonces: map[string]string{}, verifier: map[string]string{}, asked: map[string]int{}}
	i.srv = httptest.NewTLSServer(http.HandlerFunc(i.serve))
	t.Cleanup(i.srv.Close)
	return i
}

func (i *issuer) serve(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	before := i.before
	i.asked[r.URL.Path]++
	i.mu.Unlock()
	if before != nil {
		before(r.URL.Path)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	switch r.URL.Path {
	case "/.well-known/openid-configuration":
		doc := map[string]any{
			"issuer": i.srv.URL, "authorization_endpoint": i.srv.URL + "/authorize", "token_endpoint": i.srv.URL + "/token",
			"jwks_uri": i.srv.URL + "/keys", "userinfo_endpoint": i.srv.URL + "/userinfo",
			"id_token_signing_alg_values_supported": []string{"RS256", "HS256", "none"},
		}
		if i.document != nil {
			i.document(doc)
		}
		json.NewEncoder(w).Encode(doc)
	case "/keys":
		if i.jwks != nil {
			w.Write(i.jwks())
			return
		}
		w.Write(i.keys(i.public()))
	case "/token":
		r.ParseForm()
		code := r.PostForm.Get("code")
		sum := sha256.Sum256([]byte(r.PostForm.Get("code_verifier")))
		if i.verifier[code] != b64(sum[:]) {
			w.WriteHeader(400)
			fmt.Fprint(w, `{"error":"invalid_grant"}`)
			return
		}
		delete(i.verifier, code)
		c := map[string]any{
			"iss": i.srv.URL, "sub": "248289761001", "aud": "client", "nonce": i.nonces[code], "iat": time.Now().Unix(),
			"exp": time.Now().Add(time.Hour).Unix(), "email": "ada@example.test", "email_verified": true,
		}
		if i.claims != nil {
			i.claims(c)
		}
		sign := i.sign
		if sign == nil {
			sign = i.rs256
		}
		json.NewEncoder(w).Encode(map[string]any{
			"access_token": "at", "token_type": "Bearer", "id_token": sign(map[string]any{"alg": "RS256", "kid": "1"}, c),
		})
	case "/userinfo":
		json.NewEncoder(w).Encode(i.userinfo)
	default:
		http.NotFound(w, r)
	}
}

// public returns the issuer's key as a JWK.
func (i *issuer) public() map[string]any {
	return map[string]any{
		"kty": "RSA", "kid": "1", "use": "sig", "alg": "RS256", "n": b64(i.key.N.Bytes()), "e": b64(big.NewInt(int64(i.key.E)).Bytes()),
	}
}

// keys encodes a JWK set.
func (i *issuer) keys(list ...map[string]any) []byte {
	text, err := json.Marshal(map[string]any{"keys": list})
	if err != nil {
		panic(err)
	}
	return text
}

func b64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

func unsigned(header, claims map[string]any) string {
	h, _ := json.Marshal(header)
	c, _ := json.Marshal(claims)
	return b64(h) + "." + b64(c)
}

func (i *issuer) rs256(header, claims map[string]any) string { return rs256(i.key, header, claims) }

func rs256(key *rsa.PrivateKey, header, claims map[string]any) string {
	text := unsigned(header, claims)
	sum := sha256.Sum256([]byte(text))
	sig, err := rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, sum[:])
	if err != nil {
		panic(err)
	}
	return text + "." + b64(sig)
}

func hs256(key []byte, claims map[string]any) string {
	text := unsigned(map[string]any{"alg": "HS256", "kid": "1"}, claims)
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(text))
	return text + "." + b64(mac.Sum(nil))
}

// approve simulates a user who signs in at the authorization URL, and returns the query of the redirect back.
func (i *issuer) approve(to string) url.Values {
	i.t.Helper()
	u, err := url.Parse(to)
	must(i.t, err)
	q := u.Query()
	if q.Get("code_challenge_method") != "S256" || q.Get("response_type") != "code" || q.Get("nonce") == "" {
		i.t.Fatalf("a request without PKCE, nonce or code: %s", to)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.codes++
	code := fmt.Sprintf("code-%d", i.codes)
	i.nonces[code], i.verifier[code] = q.Get("nonce"), q.Get("code_challenge")
	return url.Values{"code": {code}, "state": {q.Get("state")}}
}

// world is an installation with a provider.
type world struct {
	*sso.SSO
	t        *testing.T
	db       *db.DB
	accounts *account.Accounts
	issuer   *issuer
	provider sso.Provider
	config   sso.Config
	locks    *atomic.Int64 // number of times a user was locked
}

func newWorld(t *testing.T, with ...func(*sso.NewProvider)) *world {
	t.Helper()
	w := &world{t: t, issuer: newIssuer(t), locks: new(atomic.Int64)}
	d := dbtest.New(t, func(c *db.Config) {
		c.Seen = func(q string) {
			if strings.HasPrefix(q, "UPDATE users SET admin = admin WHERE id = $1") {
				w.locks.Add(1)
			}
		}
	})
	s, err := seal.Load(filepath.Join(t.TempDir(), "key"))
	must(t, err)
	w.db, w.accounts = d, account.New(account.Config{DB: d, HashMemory: 64, Seal: s})
	out := w.issuer.srv.Client()
	out.Timeout = 2 * time.Second
	w.config = sso.Config{DB: d, Accounts: w.accounts, Seal: s, Out: out, Base: base, Log: slog.New(slog.NewTextHandler(t.Output(), nil))}
	w.SSO = sso.New(w.config)
	w.provider = w.add(sso.NewProvider{Kind: sso.OIDC, ID: "acme", Issuer: w.issuer.srv.URL, ClientID: "client", Secret: "secret"}, with...)
	return w
}

func (w *world) add(n sso.NewProvider, with ...func(*sso.NewProvider)) (p sso.Provider) {
	w.t.Helper()
	for _, f := range with {
		f(&n)
	}
	must(w.t, w.db.Write(w.t.Context(), func(tx *db.Tx) (err error) {
		p, err = w.CreateTx(w.t.Context(), tx, n)
		return err
	}))
	return p
}

func vouches(domains ...string) func(*sso.NewProvider) {
	return func(n *sso.NewProvider) { n.Domains = domains }
}

func (w *world) user(email, password string) account.User {
	w.t.Helper()
	u, err := w.accounts.CreateUser(w.t.Context(), email, password, false)
	must(w.t, err)
	return u
}

// prove signs in at the provider and returns the proof.
func (w *world) prove(from sso.Start) (sso.Proof, error) {
	w.t.Helper()
	if from.Browser == "" {
		from.Browser = sso.NewBrowser()
	}
	to, err := w.Begin(w.t.Context(), w.provider.ID, from)
	must(w.t, err)
	return w.Finish(w.t.Context(), w.provider.ID, from.Browser, w.issuer.approve(to))
}

func (w *world) signIn() (account.Session, error) {
	w.t.Helper()
	p, err := w.prove(sso.Start{})
	if err != nil {
		return account.Session{}, err
	}
	s, _, err := w.SSO.SignIn(w.t.Context(), p, device)
	return s, err
}

// link links the provider's identity to a user.
func (w *world) link(u account.User) error {
	w.t.Helper()
	s := db.ID[account.SessionID]("ses")
	must(w.t, w.db.Admin(w.t.Context(), fmt.Sprintf(`
		INSERT INTO sessions (hash, id, user_id, method, pending, agent, addr, created_at, proven_at, seen_at, expires_at)
		VALUES ('%[1]s', '%[1]s', '%[2]s', 'password', FALSE, '', '', 0, 0, 0, 0)`, s, u.ID)))
	p, err := w.prove(sso.Start{Session: s})
	if err != nil {
		return err
	}
	return w.Link(w.t.Context(), p, audit.Actor{User: u.ID, Session: s, Addr: device.Addr})
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wantCode fails the test unless err is a fault with this code.
func wantCode(t *testing.T, err error, code string) {
	t.Helper()
	f := fault.As(err)
	if f == nil || f.Code != code {
		t.Errorf("error %v, want the code %s", errors.Join(err), code)
	}
}

// restart returns the installation in a new process with empty caches.
func (w *world) restart() *sso.SSO { return sso.New(w.config) }
