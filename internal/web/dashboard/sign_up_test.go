package dashboard

import (
	"regexp"
	"strings"
	"testing"

	"slipway/internal/platform/wait"
	"slipway/internal/tenant/mail/mailtest"
	accountpages "slipway/internal/web/dashboard/account"
)

var signUpLink = regexp.MustCompile(`(?m)^\S+(/sign-up/\S+)$`)

// An account is created only after its address is verified. The page doesn't reveal whether an address has an account.
func TestSignUp(t *testing.T) {
	t.Parallel()
	w, srv := mailWorld(t, mailtest.Config{}, func(c *Config) { c.SignUp = true })
	w.user("ada@example.test", false)
	b := w.browser()
	b.get("/sign-in").want(t, 200, `href="/sign-up"`)
	b.get("/sign-up").want(t, 200, `data-test="submit"`)
	b.post("/sign-up", "email", "nonsense").want(t, 422, `data-test="wrong-email"`)
	known := b.post("/sign-up", "email", "ada@example.test").want(t, 200, `data-test="sent"`)
	unknown := b.post("/sign-up", "email", "eve@example.test").want(t, 200, `data-test="sent"`)
	if strings.ReplaceAll(unknown.body, "eve@", "ada@") != known.body {
		t.Error("the page tells who has an account")
	}
	users := func() int {
		all, err := w.dash.Accounts.Users(t.Context())
		must(t, err)
		return len(all)
	}
	links := map[string]string{}
	for _, m := range srv.Wait(2) {
		if found := signUpLink.FindStringSubmatch(m.Text); found != nil {
			links[m.To] = found[1]
		} else if m.To != "ada@example.test" || m.Subject != "You already have an account" {
			t.Errorf("%+v", m)
		}
	}
	first := links["eve@example.test"]
	if first == "" || len(links) != 1 || users() != 1 {
		t.Fatalf("%v, %d users", links, users())
	}
	b.get(first).want(t, 200, "eve@example.test") // opening the link doesn't use it up, because mail scanners open links
	b.post("/sign-up", "email", "eve@example.test").want(t, 200)
	second := signUpLink.FindStringSubmatch(srv.Wait(3)[2].Text)[1]
	wait.Until(t, "the older link is of no use", func() bool { return b.get(first).status == 404 })
	b.post(second, "password", "short").want(t, 422)
	b.post(second, "password", "quite another one 7").to(t, "/")
	if users() != 2 {
		t.Errorf("%d users", users())
	}
	b.get("/account/audit").want(t, 200, "Account created")
	w.browser().post(second, "password", "quite another one 7").want(t, 404)
	w.browser().get("/sign-up/nonsense").want(t, 404)

	n := 4 // requests of this network so far
	for _, email := range []string{"mia@example.test"} {
		for range accountpages.PerSignUp {
			w.browser().post("/sign-up", "email", email).want(t, 200)
			n++
		}
		w.browser().post("/sign-up", "email", " "+strings.ToUpper(email)).want(t, 429)
		n++
	}
	for ; n < accountpages.SignUpNetwork; n++ {
		w.browser().post("/sign-up", "email", strings.Repeat("x", n)+"@example.test").want(t, 200)
	}
	w.browser().post("/sign-up", "email", "somebody@example.test").want(t, 429)
}

// Without --sign-up open, /sign-up is a 404 and no page links to it.
func TestSignUpClosed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.user("ada@example.test", false)
	if p := w.browser().get("/sign-in"); strings.Contains(p.body, "sign-up") {
		t.Error(p.body)
	}
	w.browser().get("/sign-up").want(t, 404)
	w.browser().post("/sign-up", "email", "eve@example.test").want(t, 404)
}
