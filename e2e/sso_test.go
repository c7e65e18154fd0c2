package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"slipway/e2e/world"
)

// startIssuer runs oidc-provider, with one client for a redirect address, and returns its issuer.
func startIssuer(t *testing.T, redirect string) string {
	t.Helper()
	dir := installNode(t, "issuer")
	issuer := exec.CommandContext(t.Context(), "node", "main.mjs", redirect)
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

// person is a browser that keeps cookies and follows redirects, at the issuer and here.
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

// open follows an address, or sends a form there, and returns the page that it ends at.
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

var formAction = regexp.MustCompile(`<form[^>]* action="([^"]+)"`)

// signIn goes from the sign-in page to the issuer, signs in there under a name, consents, and comes back.
func (p *person) signIn(base, name string) (status int, where *url.URL, body string) {
	p.t.Helper()
	_, _, refresh, body := p.open(base+"/sign-in/sso/acme?next=/account", url.Values{})
	_, to, ok := strings.Cut(refresh, "url=")
	if !ok {
		p.t.Fatalf("no way to the issuer: %s", body)
	}
	status, where, _, body = p.open(to, nil)
	for _, form := range []url.Values{{"prompt": {"login"}, "login": {name}, "password": {"any"}}, {"prompt": {"consent"}}} {
		if !strings.Contains(where.Path, "/interaction/") {
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
		status, where, _, body = p.open(next.String(), form)
	}
	return status, where, body
}

// People sign in at a real issuer, oidc-provider: a new one gets an account, the same one comes back to it, and whoever
// has an account with that address is not let in to it.
func TestSignInWithIssuer(t *testing.T) {
	t.Parallel()
	w, err := world.New(binary, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	base := "http://" + w.Listen
	issuer := startIssuer(t, base+"/sign-in/sso/acme/callback")
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
	for range 2 { // the second time in another browser
		status, where, body := newPerson(t).signIn(base, "grace")
		if status != http.StatusOK || where.String() != base+"/account" || !strings.Contains(body, "grace@example.test") {
			t.Fatalf("grace ends at %s: %d %s", where, status, body)
		}
	}
	if status, where, body := newPerson(t).signIn(base, "ada"); status != http.StatusForbidden || !strings.Contains(body, "already exists") {
		t.Errorf("ada ends at %s: %d %s", where, status, body)
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
