package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"html"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"slipway/e2e/world"
)

// installNode copies a folder of e2e/libraries and installs what its package-lock.json names.
func installNode(t *testing.T, name string) (dir string) {
	t.Helper()
	dir, from := t.TempDir(), filepath.Join(world.Root(), "e2e", "libraries", name)
	for _, name := range []string{"package.json", "package-lock.json", "main.mjs"} {
		text, err := os.ReadFile(filepath.Join(from, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	install := exec.CommandContext(t.Context(), "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	install.Dir = dir
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("npm ci: %v\n%s", err, out)
	}
	return dir
}

// withPassword is a browser in which a user of the world has signed in.
func withPassword(t *testing.T, base, email string) *person {
	t.Helper()
	p := newPerson(t)
	status, where, _, body := p.open(base+"/sign-in", url.Values{"email": {email}, "password": {world.Password}})
	if status != http.StatusOK || where.Path == "/sign-in" {
		t.Fatalf("signing in ends at %s: %d %s", where, status, body)
	}
	return p
}

var (
	sealedRequest = regexp.MustCompile(`name="request" value="([^"]+)"`)
	offeredScope  = regexp.MustCompile(`name="scopes" value="([^"]+)"`)
)

// consent is the person at an address to which an app has sent them. It returns the one to which they are sent back.
func (p *person) consent(base, at, decision string) string {
	p.t.Helper()
	status, where, refresh, body := p.open(at, nil)
	if refresh == "" { // otherwise the app is refused without a question
		found := sealedRequest.FindStringSubmatch(body)
		if status != http.StatusOK || found == nil {
			p.t.Fatalf("no consent page at %s: %d %s", where, status, body)
		}
		form := url.Values{"request": {html.UnescapeString(found[1])}, "decision": {decision}, "reach": {"all"}, "expires": {"1d"}}
		for _, m := range offeredScope.FindAllStringSubmatch(body, -1) {
			form.Add("scopes", m[1])
		}
		status, where, refresh, body = p.open(base+"/oauth/authorize", form)
	}
	_, to, ok := strings.Cut(refresh, "url=")
	if !ok {
		p.t.Fatalf("consent ends at %s: %d %s", where, status, body)
	}
	return to
}

// device is the person who types the code of a device.
func (p *person) device(at, code, decision string) {
	p.t.Helper()
	_, _, _, body := p.open(at, url.Values{"code": {code}})
	form := url.Values{"code": {code}, "decision": {decision}, "reach": {"all"}, "expires": {"1d"}}
	for _, m := range offeredScope.FindAllStringSubmatch(body, -1) {
		form.Add("scopes", m[1])
	}
	if status, _, _, body := p.open(at, form); status != http.StatusOK || !strings.Contains(body, `data-test="done"`) {
		p.t.Fatalf("the device is not decided about: %d %s", status, body)
	}
}

// The client libraries that authors of apps use sign in at the real program: metadata, challenges, PKCE, iss, refresh,
// device, revocation; MCP's clients come with nothing but the address of the API. One that knows no PKCE is refused.
func TestOAuthClients(t *testing.T) {
	t.Parallel()
	w, err := world.New(binary, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	base := "http://" + w.Listen
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
	ada := withPassword(t, base, "ada@example.test")
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
		{"simple-oauth2", confidential, secret},
	} {
		name := c.library
		if c.secret != "" {
			name += ", confidential"
		}
		t.Run(name, func(t *testing.T) {
			p := &person{t, ada.client}
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
					answer = p.consent(base, ask.Visit, decision)
				case ask.Device != "":
					p.device(ask.At, ask.Device, decision)
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
