package e2e

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"slipway/docs"
	"slipway/e2e/world"
)

// installNode copies a folder of e2e/libraries and installs the packages in its package-lock.json.
func installNode(t *testing.T, name string) (dir string) {
	t.Helper()
	dir, from := t.TempDir(), filepath.Join(world.Root(), "e2e", "libraries", name)
	if err := os.CopyFS(dir, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	install := exec.CommandContext(t.Context(), "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	install.Dir = dir
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("npm ci: %v\n%s", err, out)
	}
	return dir
}

// Common OAuth client libraries work with the real program: metadata, challenges, PKCE, iss, refresh, device flow and
// revocation. MCP clients need only the API's URL to sign in at /mcp and use its tools. A client without PKCE is
// rejected.
func TestOAuthClients(t *testing.T) {
	t.Parallel()
	world.Long(t)
	w, err := world.New(binary, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	base := "http://" + w.Listen
	w.Flags = append(w.Flags, "--oauth-registration", "open")
	const redirect, callback = "http://127.0.0.1:49152/callback", "http://127.0.0.1/callback"
	key, err := w.User("ada@example.test")
	if err != nil {
		t.Fatal(err)
	}
	dir := installNode(t, "clients")
	ctx, cancel := deadline()
	defer cancel()
	if err := w.Start(ctx); err != nil {
		t.Fatal(err)
	}
	ada, err := w.Person("ada@example.test")
	if err != nil {
		t.Fatal(err)
	}
	app := func(confidential bool) (id, secret string) {
		t.Helper()
		var made struct{ ID, ClientSecret string }
		body := map[string]any{"name": "Acme", "redirectUris": []string{callback}, "confidential": confidential}
		if err := w.Call(ctx, key, "POST", "/oauth/apps", body, &made); err != nil {
			t.Fatal(err)
		}
		if made.ID == "" || confidential != (made.ClientSecret != "") {
			t.Fatalf("an app is made as %+v", made)
		}
		return made.ID, made.ClientSecret
	}
	public, _ := app(false)
	confidential, secret := app(true)
	document := w.Hooks.URL + "/client.json"
	text, err := json.Marshal(map[string]any{
		"client_id": document, "client_name": "Protocol client", "redirect_uris": []string{callback}, "token_endpoint_auth_method": "none",
	})
	if err != nil {
		t.Fatal(err)
	}
	w.Hooks.Serve("/client.json", text)

	for _, c := range []struct{ library, id, secret string }{
		{"oauth4webapi", public, ""},
		{"oauth4webapi", confidential, secret},
		{"openid-client", public, ""},
		{"openid-client", confidential, secret},
		{"@modelcontextprotocol/client", document, ""},
		{"@modelcontextprotocol/sdk", document, ""},
		{"@modelcontextprotocol/client", "", ""},
		{"@modelcontextprotocol/sdk", "", ""},
		{"simple-oauth2", confidential, secret},
	} {
		name := c.library
		switch {
		case c.secret != "":
			name += ", confidential"
		case c.id == "":
			name += ", registers itself"
		}
		t.Run(name, func(t *testing.T) {
			program := exec.CommandContext(ctx, "node", "main.mjs", c.library, base, c.id, c.secret, redirect)
			var errs bytes.Buffer
			program.Dir, program.Stderr = dir, &errs
			in, err := program.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			out, err := program.StdoutPipe()
			if err == nil {
				err = program.Start()
			}
			if err != nil {
				t.Fatal(err)
			}
			done := false
			for lines := bufio.NewScanner(out); lines.Scan(); {
				var ask struct {
					Visit, Device, At, Decision string
					Done                        bool
				}
				if err := json.Unmarshal(lines.Bytes(), &ask); err != nil {
					t.Fatalf("%s says %s", c.library, lines.Text())
				}
				decision := "allow"
				if ask.Decision != "" {
					decision = ask.Decision
				}
				answer := any(true)
				switch {
				case ask.Done:
					done = true
					continue
				case ask.Visit != "":
					answer, err = ada.Consent(ask.Visit, decision)
				case ask.Device != "":
					err = ada.Device(ask.At, ask.Device, decision)
				}
				if err != nil {
					t.Fatal(err)
				}
				if err := json.NewEncoder(in).Encode(answer); err != nil {
					t.Fatal(err)
				}
			}
			if err := program.Wait(); err != nil || !done {
				t.Errorf("%s: %v, done %v\n%s", c.library, err, done, &errs)
			}
		})
	}
}

// The steps of the documentation's curl example work when pasted into a shell.
func TestOAuthWithCurl(t *testing.T) {
	t.Parallel()
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
	body := map[string]any{"name": "Acme", "redirectUris": []string{"https://acme.example/callback"}}
	if err := w.Call(ctx, key, "POST", "/oauth/apps", body, &app); err != nil {
		t.Fatal(err)
	}
	page, err := docs.Files.ReadFile("oauth.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## curl\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var steps []string
	for _, m := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(section, -1) {
		steps = append(steps, strings.NewReplacer("https://slipway.example", "http://"+w.Listen, "app_…", app.ID).Replace(m[1]))
	}
	if len(steps) != 3 {
		t.Fatalf("%d steps", len(steps))
	}
	bash := func(script string) string {
		t.Helper()
		out, err := exec.CommandContext(ctx, "bash", "-euc", strings.ReplaceAll(script, "curl ", "curl -sS --fail-with-body ")).CombinedOutput()
		if err != nil {
			t.Fatalf("%s\n%v\n%s", script, err, out)
		}
		return string(out)
	}
	verifier, address, _ := strings.Cut(strings.TrimSpace(bash(strings.Replace(steps[0], "echo ", "echo $VERIFIER; echo ", 1))), "\n")
	to, err := ada.Consent(address, "allow")
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(to)
	if err != nil || u.Query().Get("state") != "a-state" || u.Query().Get("iss") == "" {
		t.Fatal(to, err)
	}
	set := fmt.Sprintf("APP=%s REDIRECT=https://acme.example/callback VERIFIER=%s CODE=%s\n", app.ID, verifier, u.Query().Get("code"))
	var pair struct {
		Access  string `json:"access_token"`
		Refresh string `json:"refresh_token"`
	}
	if err := json.Unmarshal([]byte(bash(set+steps[1])), &pair); err != nil || pair.Access == "" || pair.Refresh == "" {
		t.Fatal(err)
	}
	out := bash(set + "ACCESS_TOKEN=" + pair.Access + " REFRESH_TOKEN=" + pair.Refresh + "\n" + steps[2])
	if !strings.Contains(out, `"pagination"`) || !strings.Contains(out, `"access_token":"slo_`) {
		t.Error(out)
	}
}

// Tokens in a query string don't authenticate. No OAuth secret is stored in a log, the audit log, a stored response or
// any other file.
func TestOAuthSecretsAreNotKept(t *testing.T) {
	t.Parallel()
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
	base := "http://" + w.Listen
	ada, err := w.Person("ada@example.test")
	if err != nil {
		t.Fatal(err)
	}
	planted := map[string]string{}
	send := func(method, at, token string, body any, header http.Header) world.Answer {
		t.Helper()
		a, err := w.Do(ctx, world.Request{Method: method, URL: at, Key: token, Body: body, Header: header})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	form := func(path string, form url.Values) (v map[string]string) {
		t.Helper()
		a := send("POST", base+path, "", form.Encode(), http.Header{"Content-Type": {"application/x-www-form-urlencoded"}})
		var any map[string]any
		if err := a.JSON(&any); err != nil {
			t.Fatal(err)
		}
		v = map[string]string{}
		for name, x := range any {
			v[name], _ = x.(string)
		}
		return v
	}
	var app struct{ ID, ClientSecret string }
	a := send("POST", base+"/api/v1/oauth/apps", key, map[string]any{
		"name": "Acme", "redirectUris": []string{"https://app.test/callback"}, "confidential": true,
	}, http.Header{"Idempotency-Key": {"one"}})
	if err := a.JSON(&app); err != nil || app.ClientSecret == "" {
		t.Fatal(a.Status, err)
	}
	planted["client secret"] = app.ClientSecret
	client := func(more ...string) url.Values {
		v := url.Values{"client_id": {app.ID}, "client_secret": {app.ClientSecret}}
		for i := 0; i < len(more); i += 2 {
			v.Set(more[i], more[i+1])
		}
		return v
	}
	const verifier = "a-verifier-that-has-at-least-forty-three-characters"
	sum := sha256.Sum256([]byte(verifier))
	to, err := ada.Consent(base+"/oauth/authorize?"+client("redirect_uri", "https://app.test/callback", "response_type", "code",
		"scope", "sites:read deployments:write account:read", "code_challenge", base64.RawURLEncoding.EncodeToString(sum[:]),
		"code_challenge_method", "S256", "client_secret", "none").Encode(), "allow")
	if err != nil {
		t.Fatal(err)
	}
	back, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	planted["code"] = back.Query().Get("code")
	redeem := client("grant_type", "authorization_code", "code", planted["code"], "redirect_uri", "https://app.test/callback", "code_verifier", verifier)
	got := form("/oauth/token", redeem)
	planted["access token"], planted["refresh token"] = got["access_token"], got["refresh_token"]
	next := form("/oauth/token", client("grant_type", "refresh_token", "refresh_token", got["refresh_token"]))
	planted["next access token"], planted["next refresh token"] = next["access_token"], next["refresh_token"]
	planted["device code"] = form("/oauth/device", client("scope", "sites:read"))["device_code"]
	for _, cookie := range ada.Client.Jar.Cookies(&url.URL{Scheme: "http", Host: w.Listen, Path: "/"}) {
		if len(cookie.Value) > 20 {
			planted["session"] = cookie.Value
		}
	}
	token := planted["next access token"]
	for _, at := range []string{
		"/api/v1/sites?access_token=" + token, "/api/v1/sites?token=" + token, "/api/v1/account?bearer=" + token,
		"/oauth/token?client_secret=" + app.ClientSecret, "/oauth/introspect?token=" + token, "/api/v1/nothing?key=" + token, "/device?code=" + token,
	} {
		for _, method := range []string{"GET", "POST"} {
			if a := send(method, base+at, "", nil, nil); strings.HasPrefix(at, "/api/v1/sites") && a.Status != http.StatusUnauthorized {
				t.Errorf("%s with a token in the query: %d", method, a.Status)
			}
		}
	}
	site := send("POST", base+"/api/v1/sites", key, `{"name": "Shop", "type": "static", "repository": "git.test/acme/shop"}`, nil)
	var made struct{ Data struct{ ID string } }
	if err := site.JSON(&made); err != nil {
		t.Fatal(err)
	}
	hook := send("POST", base+"/api/v1/sites/"+made.Data.ID+"/hooks", token, `{"name": "App"}`, http.Header{"Idempotency-Key": {"two"}})
	var its struct{ ID string }
	if err := hook.JSON(&its); err != nil || its.ID == "" {
		t.Fatal(hook.Status, err)
	}
	planted["deploy hook"] = its.ID
	send("POST", base+"/api/v1/sites", token, `{"name": "`+token+`"`, http.Header{"Idempotency-Key": {"three"}}) // invalid JSON
	send("DELETE", base+"/api/v1/oauth/grants/"+token, key, nil, nil)
	form("/oauth/token", redeem) // repeating it revokes the grant, which is logged
	if a := send("GET", base+"/api/v1/account", token, nil, nil); a.Status != http.StatusUnauthorized {
		t.Errorf("after a second use of the code: %d", a.Status)
	}
	if err := w.Stop(ctx); err != nil { // after the stop, everything is written
		t.Fatal(err)
	}
	files, found := 0, 0
	for _, dir := range []string{w.Data, filepath.Join(w.Dir, "serve.log")} {
		err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err != nil || !e.Type().IsRegular() {
				return err
			}
			text, err := os.ReadFile(path)
			files++
			if bytes.Contains(text, []byte(app.ID)) {
				found++
			}
			for what, secret := range planted {
				if len(secret) < 20 {
					t.Errorf("no %s was planted: %q", what, secret)
				} else if bytes.Contains(text, []byte(secret)) {
					t.Errorf("%s holds the %s", path, what)
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if files < 3 || found == 0 {
		t.Errorf("of %d files none holds even the app's id", files)
	}
	if len(planted) != 9 {
		t.Errorf("planted: %v", slices.Sorted(maps.Keys(planted)))
	}
}
