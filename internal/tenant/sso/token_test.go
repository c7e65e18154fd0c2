package sso_test

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"slices"
	"sync"
	"testing"
	"time"

	"slipway/internal/tenant/sso"
)

// Every invalid ID token is refused. Each case would sign in but for the one check that it tests.
func TestForgedTokens(t *testing.T) {
	t.Parallel()
	claim := func(name string, v any) func(*world) {
		return func(w *world) {
			w.issuer.claims = func(c map[string]any) {
				c[name] = v
				if v == nil {
					delete(c, name)
				}
			}
		}
	}
	for name, lie := range map[string]func(*world){
		"nonce of another sign-in": claim("nonce", "another"),
		"no nonce":                 claim("nonce", nil),
		"another audience":         claim("aud", "somebody-else"),
		"no audience":              claim("aud", nil),
		"audiences without azp":    claim("aud", []string{"client", "somebody-else"}),
		"another azp":              claim("azp", "somebody-else"),
		"another issuer":           claim("iss", "https://evil.test"),
		"expired":                  claim("exp", time.Now().Add(-time.Minute).Unix()),
		"old":                      claim("iat", time.Now().Add(-time.Hour).Unix()),
		"from the future":          claim("iat", time.Now().Add(time.Hour).Unix()),
		"no iat":                   claim("iat", nil),
		"no subject":               claim("sub", ""),
		"long subject":             claim("sub", string(bytes.Repeat([]byte("a"), 256))),
		"another access token":     claim("at_hash", "AAAAAAAAAAAAAAAAAAAAAA"),
		"alg none": func(w *world) {
			w.issuer.sign = func(_, c map[string]any) string { return unsigned(map[string]any{"alg": "none"}, c) + "." }
		},
		"HS256 with the public key": func(w *world) {
			der, _ := x509.MarshalPKIXPublicKey(&w.issuer.key.PublicKey)
			public := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
			w.issuer.sign = func(_, c map[string]any) string { return hs256(public, c) }
		},
		"HS256 with the client secret": func(w *world) {
			w.issuer.sign = func(_, c map[string]any) string { return hs256([]byte("secret"), c) }
		},
		"another key": func(w *world) {
			key, err := rsa.GenerateKey(rand.Reader, 2048)
			must(w.t, err)
			w.issuer.sign = func(h, c map[string]any) string { return rs256(key, h, c) }
		},
		"a key in the header": func(w *world) {
			key, err := rsa.GenerateKey(rand.Reader, 2048)
			must(w.t, err)
			w.issuer.sign = func(h, c map[string]any) string {
				h["jwk"] = map[string]any{"kty": "RSA", "n": b64(key.N.Bytes()), "e": "AQAB"}
				return rs256(key, h, c)
			}
		},
		"no token": func(w *world) { w.issuer.sign = func(_, _ map[string]any) string { return "" } },
		"huge keys": func(w *world) { // the right key is beyond the part that is read
			w.issuer.jwks = func() []byte { return append(bytes.Repeat([]byte(" "), 1<<20), w.issuer.keys(w.issuer.public())...) }
		},
		"a key of a megabit": func(w *world) { // next to the right key
			w.issuer.jwks = func() []byte { return w.issuer.keys(huge(1<<19), w.issuer.public()) }
		},
		"a key of a megabit, hidden": func(w *world) {
			w.issuer.jwks = func() []byte {
				k := huge(1 << 19)
				k["N"] = "AQAB" // read by parsers that ignore the case of names
				return w.issuer.keys(map[string]any{"kty": "RSA", "n": 5}, k, w.issuer.public())
			}
		},
		"many keys": func(w *world) {
			w.issuer.jwks = func() []byte { return w.issuer.keys(slices.Repeat([]map[string]any{w.issuer.public()}, 65)...) }
		},
		"userinfo of somebody else": func(w *world) {
			claim("email", nil)(w)
			w.issuer.userinfo = map[string]any{"sub": "another", "email": "ada@example.test", "email_verified": true}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			must(t, w.link(w.user("ada@example.test", password)))
			w = again(w) // a process with empty caches
			lie(w)
			_, err := w.signIn()
			wantCode(t, err, "sso_invalid")
		})
	}
}

// huge returns an RSA key of this many bits.
func huge(bits int) map[string]any {
	n := bytes.Repeat([]byte{0xff}, bits/8)
	return map[string]any{"kty": "RSA", "kid": "1", "alg": "RS256", "n": b64(n), "e": "AQAB"}
}

// again returns the same installation after a restart.
func again(w *world) *world {
	next := *w
	next.SSO = w.restart()
	return &next
}

// If the ID token has no email address, it is read from userinfo, as with oidc-provider.
func TestUserinfo(t *testing.T) {
	t.Parallel()
	w := newWorld(t, vouches("example.test"))
	w.issuer.claims = func(c map[string]any) { delete(c, "email"); delete(c, "email_verified") }
	w.issuer.userinfo = map[string]any{"sub": "248289761001", "email": "ada@example.test", "email_verified": true}
	s, err := w.signIn()
	must(t, err)
	if u, err := w.accounts.User(t.Context(), s.User); err != nil || u.Email != "ada@example.test" {
		t.Errorf("user %v, %v", u.Email, err)
	}
}

// A response that names another issuer is refused, and so is one without an issuer if the provider always sends it (RFC
// 9207).
func TestMixUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.issuer.document = func(d map[string]any) { d["authorization_response_iss_parameter_supported"] = true }
	for iss, ok := range map[string]bool{w.issuer.srv.URL: true, "https://evil.test": false, "": false} {
		browser := sso.NewBrowser()
		to, err := w.Begin(t.Context(), "acme", sso.Start{Browser: browser})
		must(t, err)
		q := w.issuer.approve(to)
		if iss != "" {
			q.Set("iss", iss)
		}
		_, err = w.Finish(t.Context(), "acme", browser, q)
		if ok {
			must(t, err)
		} else {
			wantCode(t, err, "sso_invalid")
		}
	}
}

// An issuer's discovery document is limited in size and trusted only about that issuer.
func TestDiscovery(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(map[string]any){
		"another issuer":  func(d map[string]any) { d["issuer"] = "https://evil.test" },
		"huge":            func(d map[string]any) { d["padding"] = string(bytes.Repeat([]byte("a"), 1<<20)) },
		"plain token":     func(d map[string]any) { d["token_endpoint"] = "http://evil.test/token" },
		"plain keys":      func(d map[string]any) { d["jwks_uri"] = "http://evil.test/keys" },
		"script":          func(d map[string]any) { d["authorization_endpoint"] = "javascript:alert(1)" },
		"no authorize":    func(d map[string]any) { delete(d, "authorization_endpoint") },
		"plain userinfo":  func(d map[string]any) { d["userinfo_endpoint"] = "http://evil.test/me" },
		"no keys":         func(d map[string]any) { delete(d, "jwks_uri") },
		"not even a text": func(d map[string]any) { d["issuer"] = 7 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.issuer.document = change
			_, err := w.Begin(t.Context(), "acme", sso.Start{Browser: sso.NewBrowser()})
			wantCode(t, err, "provider_unavailable")
			if err := w.Test(t.Context(), w.provider); err == nil {
				t.Error("the test of the provider finds nothing")
			}
		})
	}
}

// Concurrent sign-ins share one discovery request, and a slow issuer delays them at most by the timeout.
func TestDiscoveryIsShared(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if _, err := w.Begin(t.Context(), "acme", sso.Start{Browser: sso.NewBrowser()}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := w.issuer.asked["/.well-known/openid-configuration"]; n != 1 {
		t.Errorf("the issuer was asked %d times, want once", n)
	}

	slow := newWorld(t)
	end := make(chan struct{})
	defer close(end)
	slow.issuer.before = func(string) { <-end }
	begun := time.Now()
	_, err := slow.Begin(t.Context(), "acme", sso.Start{Browser: sso.NewBrowser()})
	wantCode(t, err, "provider_unavailable")
	_, err = slow.Begin(t.Context(), "acme", sso.Start{Browser: sso.NewBrowser()})
	wantCode(t, err, "provider_unavailable")
	if took := time.Since(begun); took > 8*time.Second {
		t.Errorf("it took %s: the second one must be told at once", took)
	}
}

// The rule for a verified email address depends on the provider.
func TestVerifiedByKind(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		kind   sso.Kind
		claims string
		want   bool
	}{
		"Workspace":                       {sso.Google, `{"email":"a@acme.com","email_verified":true,"hd":"acme.com"}`, true},
		"Gmail":                           {sso.Google, `{"email":"a@gmail.com","email_verified":true}`, true},
		"foreign address at Google":       {sso.Google, `{"email":"a@acme.com","email_verified":true}`, false},
		"another Workspace":               {sso.Google, `{"email":"a@acme.com","email_verified":true,"hd":"evil.com"}`, false},
		"Microsoft says nothing (nOAuth)": {sso.Microsoft, `{"email":"a@acme.com","email_verified":true}`, false},
		"Microsoft's own domain":          {sso.Microsoft, `{"email":"a@acme.com","xms_edov":true}`, true},
		"Microsoft's own, as number":      {sso.Microsoft, `{"email":"a@acme.com","xms_edov":"1"}`, true},
		"others":                          {sso.OIDC, `{"email":"a@acme.com","email_verified":true}`, true},
		"others, unverified":              {sso.OIDC, `{"email":"a@acme.com"}`, false},
	} {
		var c sso.Claims
		must(t, json.Unmarshal([]byte(tt.claims), &c))
		if got := sso.Verified(c, tt.kind); got != tt.want {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}
