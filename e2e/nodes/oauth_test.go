package nodes

import (
	"bufio"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"slipway/e2e/world"
)

const verifier = "a-verifier-that-has-at-least-forty-three-characters"

// app is Ada's OAuth app.
type app struct {
	i                    *installation
	id, secret, redirect string
}

func (i *installation) app() *app {
	i.t.Helper()
	var made struct{ ID, ClientSecret string }
	err := i.nodes[0].Call(i.t.Context(), i.key, "POST", "/oauth/apps", map[string]any{
		"name": "Acme Deploys", "redirectUris": []string{"https://app.test/callback"}, "confidential": true,
	}, &made)
	if err != nil {
		i.t.Fatal(err)
	}
	return &app{i, made.ID, made.ClientSecret, "https://app.test/callback"}
}

// code returns the authorization code that the app gets after a user has granted it the scopes, for a team or for the
// user.
func (a *app) code(p *world.Person, team, scopes string) string {
	a.i.t.Helper()
	sum := sha256.Sum256([]byte(verifier))
	to, err := p.Consent("http://"+a.i.nodes[0].Listen+"/oauth/authorize?"+url.Values{
		"client_id": {a.id}, "redirect_uri": {a.redirect}, "response_type": {"code"}, "scope": {scopes}, "state": {"xyz"}, "team": {team},
		"code_challenge": {base64.RawURLEncoding.EncodeToString(sum[:])}, "code_challenge_method": {"S256"},
	}.Encode(), "allow")
	if err != nil {
		a.i.t.Fatal(err)
	}
	u, err := url.Parse(to)
	if err != nil || u.Query().Get("code") == "" {
		a.i.t.Fatalf("consent leads to %s", to)
	}
	return u.Query().Get("code")
}

type pair struct {
	Access  string `json:"access_token"`
	Refresh string `json:"refresh_token"`
}

// token sends a request to a node's token endpoint.
func (a *app) token(w *world.World, form url.Values) (int, pair) {
	form.Set("client_id", a.id)
	form.Set("client_secret", a.secret)
	answer, err := w.Do(a.i.t.Context(), world.Request{
		Method: "POST", URL: "http://" + w.Listen + "/oauth/token", Body: form.Encode(),
		Header: http.Header{"Content-Type": {"application/x-www-form-urlencoded"}},
	})
	var p pair
	if err == nil {
		err = json.Unmarshal(answer.Body, &p)
	}
	if err != nil {
		a.i.t.Error(err)
	}
	return answer.Status, p
}

func (a *app) redeem(w *world.World, code string) (int, pair) {
	return a.token(w, url.Values{
		"grant_type": {"authorization_code"}, "code": {code}, "redirect_uri": {a.redirect}, "code_verifier": {verifier},
	})
}

func (a *app) refresh(w *world.World, token string) (int, pair) {
	return a.token(w, url.Values{"grant_type": {"refresh_token"}, "refresh_token": {token}})
}

// ends waits until a stream ends, and returns the time since from.
func (i *installation) ends(what string, stream io.Reader, from time.Time) time.Duration {
	i.t.Helper()
	over := make(chan bool)
	go func() {
		io.Copy(io.Discard, stream)
		close(over)
	}()
	select {
	case <-over:
	case <-time.After(time.Minute):
		i.t.Errorf("%s goes on", what)
	}
	return time.Since(from)
}

// A code is exchanged through only one of two nodes, and a refresh token is rotated once for both. A member who is
// removed at one node immediately loses access at the other, whose streams and site access end within five seconds.
func TestOAuthOnTwoNodes(t *testing.T) {
	i := install(t)
	a, b := i.nodes[0], i.nodes[1]
	for _, w := range i.nodes {
		w.Flags = append(w.Flags, "--base-url", "http://"+a.Listen)
	}
	i.start(a, b)
	ctx, acme := t.Context(), i.app()
	person := func(email string) *world.Person {
		t.Helper()
		p, err := a.Person(email)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	ada := person("ada@example.test")

	code := acme.code(ada, "", "sites:read")
	var mu sync.Mutex
	var first []pair
	var wait sync.WaitGroup
	for n := range 20 {
		wait.Go(func() {
			if status, p := acme.redeem(i.nodes[n%2], code); status == 200 {
				mu.Lock()
				first = append(first, p)
				mu.Unlock()
			}
		})
	}
	if wait.Wait(); len(first) != 1 {
		t.Fatalf("%d of 20 exchanges got tokens", len(first))
	}
	// Repeated use of the code has revoked its tokens, so use those of another grant.
	_, got := acme.redeem(b, acme.code(ada, "", "sites:read"))
	next := make([]pair, 8)
	for n := range next {
		wait.Go(func() { _, next[n] = acme.refresh(i.nodes[n%2], got.Refresh) })
	}
	wait.Wait()
	for n, p := range next {
		if p.Access == "" || p != next[0] {
			t.Fatalf("the refreshes got %v; %d differs", next, n)
		}
		if err := i.nodes[n%2].Call(ctx, p.Access, "GET", "/sites", nil, nil); err != nil {
			t.Error(err)
		}
	}

	// A team with a site that only its members can see.
	benKey, err := a.User("ben@example.test")
	if err != nil {
		t.Fatal(err)
	}
	call := func(w *world.World, key, method, path string, body, out any) {
		t.Helper()
		if err := w.Call(ctx, key, method, path, body, out); err != nil {
			t.Fatal(err)
		}
	}
	var team struct{ ID string }
	var key struct{ Key string }
	var invitation struct{ URL string }
	var members struct {
		Data []struct{ UserID, Email string }
	}
	call(a, i.key, "POST", "/teams", map[string]string{"name": "Acme", "slug": "acme"}, &team)
	call(a, i.key, "POST", "/keys", map[string]any{"name": "team", "scopes": []string{"*"}, "teamId": team.ID}, &key)
	call(a, key.Key, "POST", "/teams/"+team.ID+"/invitations", map[string]string{"email": "ben@example.test", "role": "developer"}, &invitation)
	_, token, _ := strings.Cut(invitation.URL, "/invitations/")
	call(a, benKey, "POST", "/invitations/accept", map[string]string{"token": token}, nil)
	call(b, key.Key, "GET", "/teams/"+team.ID+"/members", nil, &members)
	i.commit("shop", map[string]string{"index.html": "the team's own"})
	i.key = key.Key
	site := i.site(a, "shop")
	i.serves(b, "shop", "/", "the team's own")
	call(a, i.key, "PATCH", "/sites/"+site+"/serving", map[string]string{"signIn": "all"}, nil)
	i.until("the site is protected", func() bool {
		status, _ := i.visit(b, "shop", "/")
		return status == http.StatusUnauthorized
	})

	// Ben uses node b: the site with a cookie, the log with an app's token, and a dashboard page with live updates.
	visitor := person("ben@example.test")
	_, port, _ := strings.Cut(b.HTTPS, ":")
	address := "https://shop.localhost:" + port + "/"
	page, err := visitor.Open(address, nil)
	for err == nil && page.Onward != "" { // redirects to the dashboard, and back to the site with a grant
		page, err = visitor.Open(page.Onward, nil)
	}
	if err != nil || page.Status != 200 || !strings.Contains(page.Body, "the team's own") {
		t.Fatalf("a member comes to %s: %d %.300s, %v", page.URL, page.Status, page.Body, err)
	}
	_, tokens := acme.redeem(b, acme.code(visitor, "acme", "sites:read deployments:read"))
	stream := func(client *http.Client, address, token string) io.Reader {
		t.Helper()
		request, err := http.NewRequestWithContext(ctx, "GET", address, nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Accept", "text/event-stream")
		if token != "" {
			request.Header.Set("Authorization", "Bearer "+token)
		}
		endless := *client
		endless.Timeout = 0
		answer, err := endless.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { answer.Body.Close() })
		body := bufio.NewReader(answer.Body)
		if kind := answer.Header.Get("Content-Type"); kind != "text/event-stream" {
			text, _ := io.ReadAll(body)
			t.Fatalf("%s: %d %s %.300s", address, answer.StatusCode, kind, text)
		}
		return body
	}
	open := map[string]io.Reader{
		"the log":            stream(http.DefaultClient, "http://"+b.Listen+"/api/v1/sites/"+site+"/logs", tokens.Access),
		"the dashboard page": stream(visitor.Client, "http://"+b.Listen+"/sites/"+site+"/domains/follow", ""),
	}

	for _, m := range members.Data {
		if m.Email == "ben@example.test" {
			call(a, i.key, "DELETE", "/teams/"+team.ID+"/members/"+m.UserID, nil, nil)
		}
	}
	removed := time.Now()
	answer, err := b.Do(ctx, world.Request{Method: "GET", Path: "/sites/" + site, Key: tokens.Access})
	if err != nil || answer.Status != http.StatusUnauthorized {
		t.Errorf("the token of a removed member gets %d %s, %v", answer.Status, answer.Body, err)
	}
	if status, _ := acme.refresh(b, tokens.Refresh); status != http.StatusBadRequest {
		t.Errorf("their refresh token gets %d", status)
	}
	i.until("the cookie doesn't open the site", func() bool {
		page, err := visitor.Open(address, nil)
		return err == nil && page.Status == http.StatusUnauthorized
	})
	took := map[string]time.Duration{"the cookie": time.Since(removed)}
	for what, body := range open {
		took[what] = i.ends(what, body, removed)
	}
	for what, d := range took {
		if d > world.Patience(5*time.Second) {
			t.Errorf("%s of a removed member ends after %s", what, d)
		}
		t.Logf("%s ends after %s", what, d)
	}
}
