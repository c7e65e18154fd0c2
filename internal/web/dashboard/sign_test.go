package dashboard

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"slipway/internal/web/dashboard/shell"
)

func TestFirstStart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.browser()
	if p := b.get("/"); p.status != 303 || p.header.Get("Location") != "/sign-in" {
		t.Fatal(p)
	}
	if p := b.get("/sign-in"); p.status != 200 || !p.has("not-set-up") {
		t.Fatal(p)
	}
	token, err := w.dash.Accounts.NewSetupLink(t.Context(), "", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if p := b.post(
		"/setup/"+token,
		"email",
		"nonsense",
		"password",
		password,
	); p.status != 422 || !p.has("wrong-email") || !strings.Contains(p.body, `value="nonsense"`) {
		t.Fatal(p)
	}
	if p := b.post("/setup/"+token, "email", "root@example.test", "password", "short"); p.status != 422 || !p.has("wrong-password") ||
		!strings.Contains(p.body, `value="root@example.test"`) || strings.Contains(p.body, `"short"`) {
		t.Fatal(p)
	}
	if p := b.post(
		"/setup/"+token,
		"email",
		"root@example.test",
		"password",
		password,
	); p.status != 303 || p.header.Get("Location") != "/" {
		t.Fatal(p)
	}
	p := b.get("/")
	if p.status != 200 || !p.has("empty") || !p.has("flash") || !strings.Contains(p.body, "root@example.test") {
		t.Fatal(p)
	}
	if b.get("/").has("flash") {
		t.Error("the flash is shown twice")
	}
	if p := w.browser().get("/setup/" + token); p.status != 404 || !p.has("error") {
		t.Fatal(p)
	}
}

func TestSignIn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.user("ada@example.test", false)
	b := w.browser()
	if p := b.get("/account?x=1"); p.status != 303 || p.header.Get("Location") != "/sign-in?next=%2Faccount%3Fx%3D1" {
		t.Fatal(p)
	}
	p := b.post("/sign-in?next=/account", "email", "ada@example.test", "password", "wrong")
	if p.status != 401 || !p.has("wrong-password") || !strings.Contains(
		p.body,
		`value="ada@example.test"`,
	) || !strings.Contains(p.body, `action="/sign-in?next=%2faccount"`) {
		t.Fatal(p)
	}
	p = b.post("/sign-in?next=/account", "email", "Ada@example.test", "password", password)
	if p.status != 303 || p.header.Get("Location") != "/account" {
		t.Fatal(p)
	}
	c := p.header.Get("Set-Cookie")
	if !strings.HasPrefix(
		c,
		"slipway=",
	) || !strings.Contains(
		c,
		"HttpOnly",
	) || !strings.Contains(c, "SameSite=Lax") || strings.Contains(c, "Secure") || !strings.Contains(c, "Path=/;") {
		t.Errorf("cookie %q", c)
	}
	if p := b.get("/sign-in"); p.status != 303 || p.header.Get("Location") != "/" {
		t.Fatal("who is signed in need not sign in:", p)
	}
	if p := b.post("/sign-out"); p.status != 303 || p.header.Get("Location") != "/sign-in" {
		t.Fatal(p)
	}
	if p := b.get("/account"); p.status != 303 {
		t.Fatal("signed out, and still let in:", p)
	}
	for _, next := range []string{"//evil.test", "https://evil.test/", "/\\evil.test", "javascript:alert(1)", "/\t/evil.test"} {
		p := w.browser().do("POST", "/sign-in?next="+strings.ReplaceAll(
			strings.ReplaceAll(next, "\t", "%09"),
			"\\",
			"%5c",
		), map[string][]string{"email": {"ada@example.test"}, "password": {password}})
		if p.header.Get("Location") != "/" {
			t.Errorf("next=%q leads to %q", next, p.header.Get("Location"))
		}
	}
}

func TestSecureCookies(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *Config) { c.BaseURL = "https://slipway.test" })
	w.user("ada@example.test", false)
	p := w.browser().post("/sign-in", "email", "ada@example.test", "password", password)
	c := p.header.Get("Set-Cookie")
	if !strings.HasPrefix(
		c,
		"__Host-slipway=",
	) || !strings.Contains(c, "Secure") || !strings.Contains(c, "Path=/;") || strings.Contains(c, "Domain") {
		t.Errorf("cookie %q", c)
	}
}

// Too many guesses at one account are refused, whatever X-Forwarded-For says.
func TestThrottle(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.user("ada@example.test", false)
	b := w.browser()
	refused := 0
	for i := range shell.PerAccountHere + 3 {
		p := b.do("POST", "/sign-in", map[string][]string{
			"email":    {"ada@example.test"},
			"password": {""},
		}, fmt.Sprintf("X-Forwarded-For: 203.0.113.%d", i))
		if p.status == http.StatusTooManyRequests && p.header.Get("Retry-After") != "" {
			refused++
		}
	}
	if refused != 3 {
		t.Errorf("%d of 3 too many guesses were refused", refused)
	}
	if p := b.post(
		"/sign-in", "email", "ada@example.test", "password", password,
	); p.status != http.StatusTooManyRequests || !p.has("problem") {
		t.Error("the right password passes beyond the limit:", p.status)
	}
}

func TestForeignForms(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.user("ada@example.test", false)
	b := w.as("ada@example.test")
	for _, h := range [][]string{{"Sec-Fetch-Site: cross-site"}, {"Sec-Fetch-Site: same-site"}, {"Origin: https://evil.test"}} {
		if p := b.do("POST", "/sign-out", map[string][]string{}, h...); p.status != 403 {
			t.Errorf("%v: %d, want 403", h, p.status)
		}
	}
	if p := b.get("/account"); p.status != 200 {
		t.Error("a foreign form signed us out")
	}
}

// Guesses from one /56 don't use up the limit shared by all networks. Guesses from elsewhere don't lock out a user on a
// network where the user is signed in.
func TestStrangersDoNotLockAnOwnerOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *Config) { c.TrustedProxies.Networks = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")} })
	w.user("ada@example.test", false)
	w.user("ben@example.test", false)
	try := func(email, pass, addr string) int {
		return w.browser().do("POST", "/sign-in", map[string][]string{
			"email":    {email},
			"password": {pass},
		}, "X-Forwarded-For: "+addr).status
	}
	for i := range shell.PerAccount + 10 {
		try("ada@example.test", "", fmt.Sprintf("2001:db8:0:%x::1", i%256))
	}
	if s := try("ada@example.test", password, "198.51.100.7"); s != http.StatusSeeOther {
		t.Errorf("after %d guesses from one /56 the owner is answered %d", shell.PerAccount+10, s)
	}
	if s := try("ada@example.test", "", "2001:db8:0:fe00::1"); s != http.StatusTooManyRequests {
		t.Errorf("another /56 of the same /48 is answered %d", s)
	}
	if s := try("ben@example.test", password, "203.0.113.1"); s != http.StatusSeeOther {
		t.Fatal(s)
	}
	for i := range shell.PerAccount + 10 { // many addresses
		try("ben@example.test", "", fmt.Sprintf("192.0.2.%d", i))
	}
	if s := try("ben@example.test", password, "198.51.100.9"); s != http.StatusTooManyRequests {
		t.Errorf("a swarm's next guess is answered %d", s)
	}
	if s := try("ben@example.test", password, "203.0.113.1"); s != http.StatusSeeOther {
		t.Errorf("a swarm locks the owner out where they are signed in: %d", s)
	}
}
