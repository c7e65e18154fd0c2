package rights

import (
	"crypto"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base32"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"math/big"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"slipway/e2e/world"
	"slipway/internal/platform/db"
)

// causes triggers each event.
var causes = map[Event]func(s *stage){
	RoleLowered: func(s *stage) {
		s.call(s.ownerTeamKey, "PATCH", "/teams/"+s.team+"/members/"+s.memberID, map[string]string{"role": "viewer"}, nil)
	},
	MemberRemoved: func(s *stage) {
		s.call(s.ownerTeamKey, "DELETE", "/teams/"+s.team+"/members/"+s.memberID, nil, nil)
	},
	FactorRequired: func(s *stage) {
		owner := must(s, s.Person)(s.owner)
		secondFactor(s, owner)
		s.call(s.ownerTeamKey, "PATCH", "/teams/"+s.team, map[string]bool{"requireTwoFactor": true}, nil)
	},
	SSORequired: requireSSO,
	AppsExcluded: func(s *stage) {
		s.call(s.ownerTeamKey, "PATCH", "/teams/"+s.team, map[string]string{"apps": "none"}, nil)
	},
	PasswordChanged: func(s *stage) {
		elsewhere := must(s, s.Person)(s.member)
		const changed = "a new correct horse battery staple 10"
		if ok, said := s.open(elsewhere, "/account/password", url.Values{"old": {world.Password}, "password": {changed}}); !ok {
			s.t.Fatalf("changing the password: %s", said)
		}
	},
	Revoked: func(s *stage) {
		for _, end := range s.revoke {
			end()
		}
	},
	SiteMoved: func(s *stage) {
		s.settled(s.ownerTeamKey)
		var made struct{ Code string }
		s.call(s.ownerTeamKey, "POST", "/sites/"+s.site+"/transfer", map[string]any{"to": s.receiverEmail}, &made)
		s.call(s.receiver, "POST", "/transfers/accept", map[string]any{"code": made.Code}, nil)
	},
	SiteDeleted: func(s *stage) {
		s.call(s.ownerTeamKey, "DELETE", "/sites/"+s.site, nil, nil)
	},
	UserSuspended: func(s *stage) {
		s.check(second(s.CLI("", "user", "suspend", "--email", s.member)))
	},
	UserDeleted: func(s *stage) {
		s.call(s.admin, "DELETE", "/admin/users/"+s.memberID+"?sites=0&confirm="+url.QueryEscape(s.member), nil, nil)
	},
	Unpaid: func(s *stage) {
		s.call(s.ownerTeamKey, "POST", "/subscription", map[string]string{"plan": "pro"}, nil)
		d, err := db.Open(s.ctx, db.Config{URL: "sqlite:" + filepath.Join(s.Data, "slipway.db")})
		s.check(err)
		defer d.Close()
		s.check(world.Until(s.ctx, 200*time.Millisecond, func() (bool, error) {
			// Run the billing job now instead of at its time.
			if err := d.Admin(s.ctx, `UPDATE jobs SET run_at = 0 WHERE kind = 'billing.run' AND state = 'ready'`); err != nil {
				return false, err
			}
			var got struct{ Status string }
			err := s.Call(s.ctx, s.ownerTeamKey, "GET", "/subscription", nil, &got)
			return got.Status == "paused", errors.Join(err, fmt.Errorf("%+v", got))
		}))
		s.paid = func() {
			var list struct {
				Data []struct {
					ID, Status string
					Remaining  struct{ Amount int64 }
				}
			}
			s.call(s.ownerTeamKey, "GET", "/invoices", nil, &list)
			if len(list.Data) != 1 || list.Data[0].Status != "open" {
				s.t.Fatalf("the invoices are %+v", list)
			}
			s.call(s.admin, "POST", "/admin/invoices/"+list.Data[0].ID+"/payments", map[string]any{"amount": list.Data[0].Remaining.Amount, "reference": "a transfer"}, nil)
		}
	},
	TeamDeleted: func(s *stage) {
		s.settled(s.ownerTeamKey)
		s.call(s.ownerTeamKey, "DELETE", "/teams/"+s.team+"?sites=delete", map[string]string{"confirm": s.name}, nil)
	},
}

func second[A any](_ A, err error) error { return err }

var (
	offered   = regexp.MustCompile(`name="offer" value="([^"]+)"`)
	offerSeed = regexp.MustCompile(`[A-Z2-7]{32}`)
)

// secondFactor gives a person an authenticator app.
func secondFactor(s *stage, p *world.Person) {
	s.t.Helper()
	at := "http://" + s.Listen + "/account/second-factor"
	page, err := p.Open(at, nil)
	s.check(err)
	token, seed := offered.FindStringSubmatch(page.Body), offerSeed.FindString(page.Body)
	if token == nil || seed == "" {
		s.t.Fatalf("no offer at %s: %d %s", page.URL, page.Status, page.Body)
	}
	page, err = p.Open(at, url.Values{"offer": {html.UnescapeString(token[1])}, "code": {code(seed, time.Now())}})
	s.check(err)
	if !strings.Contains(page.Body, "Recovery codes") {
		s.t.Fatalf("two-factor authentication isn't on: %d %s", page.Status, page.Body)
	}
}

// code computes a one-time password (RFC 6238, SHA-1, 30 s, six digits).
func code(seed string, at time.Time) string {
	key, err := base32.StdEncoding.WithPadding(base32.NoPadding).DecodeString(seed)
	if err != nil {
		return ""
	}
	var step [8]byte
	binary.BigEndian.PutUint64(step[:], uint64(at.Unix()/30))
	mac := hmac.New(sha1.New, key)
	mac.Write(step[:])
	sum := mac.Sum(nil)
	offset := sum[len(sum)-1] & 15
	return fmt.Sprintf("%06d", binary.BigEndian.Uint32(sum[offset:])&0x7fffffff%1000000)
}

// requireSSO makes the owner add an identity provider, link an account there, sign in with it, and require it for the
// team. The member has no account there.
func requireSSO(s *stage) {
	issuer := newIssuer(s)
	var provider struct{ ID string }
	s.call(s.ownerTeamKey, "POST", "/teams/"+s.team+"/sso", map[string]string{
		"kind": "oidc", "name": "Acme ID", "issuer": issuer.URL, "clientId": "client", "clientSecret": "a-secret",
	}, &provider)
	base := "http://" + s.Listen
	owner := must(s, s.Person)(s.owner)
	issuer.approve(owner, base+"/account/identities/link", url.Values{"provider": {provider.ID}})
	jar, err := cookiejar.New(nil)
	s.check(err)
	browser := *owner.Client
	browser.Jar = jar
	owner.Client = &browser
	issuer.approve(owner, base+"/sign-in/sso/"+provider.ID, url.Values{})
	if ok, said := s.open(owner, "/teams/"+s.name+"/sso/require", url.Values{"to": {"on"}}); !ok {
		s.t.Fatalf("requiring single sign-on: %s", said)
	}
	var team struct{ RequireSSO bool }
	s.call(s.ownerTeamKey, "GET", "/teams/"+s.team, nil, &team)
	if !team.RequireSSO {
		s.t.Fatal("the team doesn't require single sign-on")
	}
}

// signer signs ID tokens.
type signer struct{ key *rsa.PrivateKey }

func newSigner() (signer, error) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	return signer{key}, err
}

var b64 = base64.RawURLEncoding.EncodeToString

// keys returns the JWKS document.
func (k signer) keys() map[string]any {
	return map[string]any{"keys": []any{map[string]string{
		"kty": "RSA", "kid": "1", "use": "sig", "alg": "RS256", "n": b64(k.key.N.Bytes()), "e": b64(big.NewInt(int64(k.key.E)).Bytes()),
	}}}
}

// sign returns a token with these claims.
func (k signer) sign(claims map[string]any) string {
	header, _ := json.Marshal(map[string]string{"alg": "RS256", "kid": "1"})
	body, _ := json.Marshal(claims)
	text := b64(header) + "." + b64(body)
	sum := sha256.Sum256([]byte(text))
	signature, err := rsa.SignPKCS1v15(rand.Reader, k.key, crypto.SHA256, sum[:])
	if err != nil {
		panic(err) // the key is valid
	}
	return text + "." + b64(signature)
}

// issuer is an OpenID Connect provider at which the owner has an account.
type issuer struct {
	*httptest.Server
	signer
	s     *stage
	nonce string // of the last approved sign-in
}

func newIssuer(s *stage) *issuer {
	s.t.Helper()
	i := &issuer{s: s, signer: must(s, func(*stage) (signer, error) { return newSigner() })(s)}
	i.Server = httptest.NewUnstartedServer(http.HandlerFunc(i.serve))
	i.TLS = &tls.Config{Certificates: []tls.Certificate{s.Hooks.Certificate()}}
	i.StartTLS()
	s.t.Cleanup(i.Close)
	return i
}

func (i *issuer) serve(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	var answer any
	switch r.URL.Path {
	case "/.well-known/openid-configuration":
		answer = map[string]any{
			"issuer": i.URL, "authorization_endpoint": i.URL + "/authorize", "token_endpoint": i.URL + "/token", "jwks_uri": i.URL + "/keys",
			"id_token_signing_alg_values_supported": []string{"RS256"},
		}
	case "/keys":
		answer = i.keys()
	case "/token":
		answer = map[string]string{"access_token": "a token", "token_type": "Bearer", "id_token": i.sign(map[string]any{
			"iss": i.URL, "sub": i.s.owner, "aud": "client", "nonce": i.nonce, "iat": time.Now().Unix(),
			"exp": time.Now().Add(time.Hour).Unix(), "email": i.s.owner, "email_verified": true,
		})}
	default:
		http.NotFound(w, r)
		return
	}
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		i.s.t.Error(err)
	}
}

// approve submits a dashboard form that redirects to the issuer, and follows the redirect back with an approved code.
func (i *issuer) approve(p *world.Person, at string, form url.Values) {
	i.s.t.Helper()
	page, err := p.Open(at, form)
	i.s.check(err)
	u, err := url.Parse(page.Onward)
	i.s.check(err)
	q := u.Query()
	if q.Get("state") == "" {
		i.s.t.Fatalf("%s doesn't lead to the issuer: %d %s", at, page.Status, page.Body)
	}
	i.nonce = q.Get("nonce")
	back, err := p.Open(q.Get("redirect_uri")+"?"+url.Values{"code": {"a code"}, "state": {q.Get("state")}}.Encode(), nil)
	i.s.check(err)
	if back.Status != http.StatusOK || strings.HasPrefix(back.URL.Path, "/sign-in") {
		i.s.t.Fatalf("coming back from the issuer ends at %s: %d %s", back.URL, back.Status, back.Body)
	}
}
