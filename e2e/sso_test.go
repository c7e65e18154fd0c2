package e2e

import (
	"bufio"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"slipway/e2e/world"
)

// issuers builds each OpenID Connect provider of the test and returns the command that starts it.
var issuers = map[string]func(t *testing.T) (dir string, argv []string){
	"oidc-provider": func(t *testing.T) (string, []string) { return installNode(t, "issuer"), []string{"node", "main.mjs"} },
	"zitadel": func(t *testing.T) (string, []string) {
		dir, program := filepath.Join(world.Root(), "e2e", "libraries", "zitadel"), filepath.Join(t.TempDir(), "zitadel")
		build := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".")
		build.Dir = dir
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("go build: %v\n%s", err, out)
		}
		return dir, []string{program}
	},
}

// startIssuer starts a provider with one client, which has this redirect URI, and returns the issuer's URL.
func startIssuer(t *testing.T, name, redirect string) string {
	t.Helper()
	dir, argv := issuers[name](t)
	issuer := exec.CommandContext(t.Context(), argv[0], append(argv[1:], redirect)...)
	issuer.Dir = dir
	out, err := issuer.StdoutPipe()
	if err == nil {
		err = issuer.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { issuer.Process.Kill(); issuer.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(line)
}

// person is a browser that keeps cookies and follows redirects.
type person struct {
	t      *testing.T
	client *http.Client
}

func newPerson(t *testing.T) *person {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &person{t, &http.Client{Jar: jar, Timeout: time.Minute}}
}

// open requests a URL, or submits a form to it, and returns the final page.
func (p *person) open(at string, form url.Values) (status int, where *url.URL, refresh, body string) {
	p.t.Helper()
	var answer *http.Response
	var err error
	if form == nil {
		answer, err = p.client.Get(at)
	} else {
		answer, err = p.client.PostForm(at, form)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 1<<20))
	if err != nil {
		p.t.Fatal(err)
	}
	return answer.StatusCode, answer.Request.URL, answer.Header.Get("Refresh"), string(text)
}

var (
	formAction = regexp.MustCompile(`(?i)<form[^>]* action="([^"]+)"`)
	formInput  = regexp.MustCompile(`<input[^>]* name="([^"]+)"(?:[^>]* value="([^"]*)")?`)
)

// signIn signs in from the sign-in page through the provider, with this user name, and returns to Slipway.
func (p *person) signIn(base, name string) (status int, where *url.URL, body string) {
	p.t.Helper()
	_, _, refresh, body := p.open(base+"/sign-in/sso/acme?next=/account", url.Values{})
	_, to, ok := strings.Cut(refresh, "url=")
	if !ok {
		p.t.Fatalf("no way to the issuer: %s", body)
	}
	status, where, _, body = p.open(to, nil)
	for range 3 { // a name and a password, and consent if the provider asks for it
		if where.Scheme+"://"+where.Host == base {
			break
		}
		found := formAction.FindStringSubmatch(body)
		if found == nil {
			p.t.Fatalf("the issuer has no form at %s: %d %s", where, status, body)
		}
		next, err := where.Parse(found[1])
		if err != nil {
			p.t.Fatal(err)
		}
		form := url.Values{}
		for _, input := range formInput.FindAllStringSubmatch(body, -1) {
			form.Set(input[1], html.UnescapeString(input[2]))
			switch input[1] {
			case "login", "username":
				form.Set(input[1], name)
			case "password":
				form.Set(input[1], "any")
			}
		}
		status, where, _, body = p.open(next.String(), form)
	}
	return status, where, body
}

// Users sign in with real providers, oidc-provider and zitadel. A new user gets an account, and signs in to the same
// account later. A user whose email address already has an account, or isn't verified by the provider, is rejected.
func TestSignInWithIssuer(t *testing.T) {
	t.Parallel()
	for name := range issuers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			signInWith(t, name)
		})
	}
}

func signInWith(t *testing.T, name string) {
	w, err := world.New(binary, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	base := "http://" + w.Listen
	issuer := startIssuer(t, name, base+"/sign-in/sso/acme/callback")
	if _, err := w.User("ada@example.test"); err != nil {
		t.Fatal(err)
	}
	cli := func(stdin string, args ...string) string {
		t.Helper()
		out, err := w.CLI(stdin, append([]string{"sso"}, args...)...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	cli("a-client-secret\n", "add", "--kind", "oidc", "--id", "acme", "--name", "Acme", "--issuer", issuer,
		"--client-id", "slipway", "--sign-up-domains", "example.test", "--base-url", base)
	if out := cli("", "test", "--id", "acme", "--outbound-allow", "127.0.0.0/8", "--outbound-allow", "::1/128"); !strings.Contains(out, "reachable") {
		t.Errorf("sso test says %s", out)
	}
	ctx, cancel := deadline()
	defer cancel()
	if err := w.Start(ctx); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time with another browser
		status, where, body := newPerson(t).signIn(base, "grace")
		if status != http.StatusOK || where.String() != base+"/account" || !strings.Contains(body, "grace@example.test") {
			t.Fatalf("grace ends at %s: %d %s", where, status, body)
		}
	}
	if status, where, body := newPerson(t).signIn(base, "ada"); status != http.StatusForbidden || !strings.Contains(body, "already exists") {
		t.Errorf("ada ends at %s: %d %s", where, status, body)
	}
	if status, where, body := newPerson(t).signIn(base, "mallory"); status != http.StatusForbidden || !strings.Contains(body, "No user is linked") {
		t.Errorf("mallory, whose address isn't verified, ends at %s: %d %s", where, status, body)
	}
	if out := cli("", "list"); !regexp.MustCompile(`acme +oidc +Acme +` + regexp.QuoteMeta(issuer) + ` +1 +example\.test`).MatchString(out) {
		t.Errorf("sso list says %s", out)
	}
	one := newPerson(t)
	one.signIn(base, "grace")
	if out := cli("", "remove", "--id", "acme"); !strings.Contains(out, fmt.Sprintf("%d sessions ended", 3)) {
		t.Errorf("sso remove says %s", out)
	}
	if _, where, _, _ := one.open(base+"/account", nil); where.Path != "/sign-in" {
		t.Errorf("after the removal a session leads to %s", where)
	}
}
