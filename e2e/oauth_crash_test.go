package e2e

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"net/url"
	"testing"
	"time"

	"slipway/e2e/world"
)

// A kill during a code exchange or token rotation leaves a consistent state. Either the code has been exchanged once,
// or it still can be. A client that repeats its refresh gets the one new token pair.
func TestOAuthSurvivesKill(t *testing.T) {
	t.Parallel()
	world.Long(t)
	w, err := world.New(binary, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	key, err := w.User("ada@example.test")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := deadline()
	defer cancel()
	if err := w.Start(ctx); err != nil {
		t.Fatal(err)
	}
	ada, err := w.Person("ada@example.test")
	if err != nil {
		t.Fatal(err)
	}
	var app struct{ ID string }
	if err := w.Call(ctx, key, "POST", "/oauth/apps", map[string]any{"name": "Acme", "redirectUris": []string{"https://app.test/callback"}}, &app); err != nil {
		t.Fatal(err)
	}
	const verifier = "a-verifier-that-has-at-least-forty-three-characters"
	sum := sha256.Sum256([]byte(verifier))
	consent := func() string {
		t.Helper()
		to, err := ada.Consent("http://"+w.Listen+"/oauth/authorize?"+url.Values{
			"client_id": {app.ID}, "redirect_uri": {"https://app.test/callback"}, "response_type": {"code"}, "scope": {"sites:read"},
			"code_challenge": {base64.RawURLEncoding.EncodeToString(sum[:])}, "code_challenge_method": {"S256"},
		}.Encode(), "allow")
		if err != nil {
			t.Fatal(err)
		}
		u, err := url.Parse(to)
		if err != nil {
			t.Fatal(err)
		}
		return u.Query().Get("code")
	}
	type pair struct {
		Access  string `json:"access_token"`
		Refresh string `json:"refresh_token"`
	}
	type outcome struct {
		status int // 0 means no response
		pair
	}
	ask := func(form url.Values) (o outcome) {
		form.Set("client_id", app.ID)
		a, err := w.Do(ctx, world.Request{
			Method: "POST", URL: "http://" + w.Listen + "/oauth/token", Body: form.Encode(),
			Header: http.Header{"Content-Type": {"application/x-www-form-urlencoded"}},
		})
		if err != nil || json.Unmarshal(a.Body, &o.pair) != nil { // a truncated response counts as none
			return outcome{}
		}
		o.status = a.Status
		return o
	}
	redeem := func(code string) outcome {
		return ask(url.Values{"grant_type": {"authorization_code"}, "code": {code}, "redirect_uri": {"https://app.test/callback"}, "code_verifier": {verifier}})
	}
	refresh := func(token string) outcome {
		return ask(url.Values{"grant_type": {"refresh_token"}, "refresh_token": {token}})
	}
	works := func(token string) bool {
		t.Helper()
		a, err := w.Do(ctx, world.Request{Method: "GET", Path: "/sites", Key: token})
		if err != nil {
			t.Fatal(err)
		}
		return a.Status == 200
	}
	grants := func() int {
		t.Helper()
		var list struct{ Data []struct{ ID string } }
		if err := w.Call(ctx, key, "GET", "/oauth/grants", nil, &list); err != nil {
			t.Fatal(err)
		}
		return len(list.Data)
	}
	killed := func(do func() outcome) outcome {
		t.Helper()
		answered := make(chan outcome, 1)
		go func() { answered <- do() }()
		time.Sleep(rand.N(12 * time.Millisecond)) // kill at a random moment
		w.Kill()
		if err := w.Start(ctx); err != nil {
			t.Fatal(err)
		}
		return <-answered
	}
	told, lost := 0, 0
	count := func(o outcome) {
		if o.status == 200 {
			told++
		} else {
			lost++
		}
	}
	for range 6 {
		code := consent()
		before := grants()
		first := killed(func() outcome { return redeem(code) })
		count(first)
		switch began := grants() - before; {
		case first.status == 200 && (began != 1 || !works(first.Access)):
			t.Errorf("the client has tokens, and %d grants began", began)
		case began == 1: // tokens were issued, whether or not the client received them
			if again := redeem(code); again.status != 400 {
				t.Errorf("a spent code gets %d", again.status)
			}
			if grants() != before || first.Access != "" && works(first.Access) {
				t.Error("the tokens of a code that was sent again work")
			}
		case began == 0:
			if again := redeem(code); again.status != 200 || !works(again.Access) {
				t.Errorf("a code that gave nothing gets %d", again.status)
			}
		}
		now := redeem(consent())
		if now.status != 200 {
			t.Fatal(now.status)
		}
		first = killed(func() outcome { return refresh(now.Refresh) })
		count(first)
		again := refresh(now.Refresh)
		switch {
		case again.status != 200 || !works(again.Access):
			t.Errorf("a refresh that is repeated gets %d", again.status)
		case first.status == 200 && first.pair != again.pair:
			t.Error("a refresh that is repeated gets other tokens than the first time")
		}
		if next := refresh(again.Refresh); next.status != 200 {
			t.Errorf("the next refresh gets %d", next.status)
		}
	}
	t.Logf("%d of 12 answers came, %d were lost", told, lost)
}
