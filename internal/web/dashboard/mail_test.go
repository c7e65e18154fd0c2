package dashboard

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"slipway/internal/platform/job"
	"slipway/internal/platform/seal"
	"slipway/internal/platform/wait"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/mail"
	"slipway/internal/tenant/mail/mailtest"
	"slipway/internal/tenant/notify"
	accountpages "slipway/internal/web/dashboard/account"
)

// mailWorld is a world with a mail server and a worker for account jobs.
func mailWorld(t *testing.T, c mailtest.Config, change ...func(*Config)) (*world, *mailtest.Server) {
	t.Helper()
	srv := mailtest.New(t, c)
	w := newWorld(t, func(c *Config) {
		s, err := seal.Load(filepath.Join(t.TempDir(), "key"))
		must(t, err)
		m, err := mail.New(mail.Config{Addr: srv.Addr, From: "noreply@slipway.test"})
		must(t, err)
		c.Accounts = account.New(account.Config{DB: c.DB, HashMemory: 64, Seal: s, Mail: m, Site: c.BaseURL})
		c.Notify = notify.New(notify.Config{DB: c.DB, Seal: s, Out: http.DefaultClient, Owners: c.Accounts, Mail: m, Base: c.BaseURL})
		for _, fn := range change {
			fn(c)
		}
	})
	j := job.New(job.Config{
		DB:     w.db,
		Log:    slog.New(slog.DiscardHandler),
		Queues: map[string]int{"default": 2, account.MailQueue: 2, notify.QueueName: 2},
		Poll:   20 * time.Millisecond,
	})
	w.dash.Accounts.Work(j)
	w.dash.Notify.Work(j)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- j.Run(ctx) }()
	t.Cleanup(func() { stop(); must(t, <-done) })
	return w, srv
}

// path returns the path of the link in an email, which must point to this dashboard.
func (w *world) path(m mailtest.Mail) string {
	w.t.Helper()
	link := regexp.MustCompile(`(?m)^\S+/setup/\S+$`).FindString(m.Text)
	path, ok := strings.CutPrefix(link, w.srv.URL)
	if !ok {
		w.t.Fatalf("the link %q does not lead to %s", link, w.srv.URL)
	}
	return path
}

func TestForgot(t *testing.T) {
	t.Parallel()
	w, srv := mailWorld(t, mailtest.Config{})
	w.user("ada@example.test", false)
	old := w.as("ada@example.test")
	b := w.browser()
	b.get("/sign-in").want(t, 200, `data-test="forgot"`, `href="/forgot"`)
	b.get("/forgot").want(t, 200, `data-test="submit"`)
	b.post("/forgot", "email", "nonsense").want(t, 422, `data-test="wrong-email"`, `value="nonsense"`)

	// The response differs between known and unknown addresses only in the address itself.
	ask := func(email string) reply {
		r, err := http.NewRequestWithContext(
			t.Context(),
			"POST",
			w.srv.URL+"/forgot",
			strings.NewReader(url.Values{"email": {email}}.Encode()),
		)
		must(t, err)
		r.Host = "evil.test" // a forged Host doesn't affect the link
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("X-Forwarded-Host", "evil.test")
		resp, err := b.client.Do(r)
		must(t, err)
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		must(t, err)
		return reply{resp.StatusCode, resp.Header, string(text)}
	}
	known, unknown := ask("ada@example.test"), ask("eve@example.test")
	known.want(t, 200, `data-test="sent"`, "If <strong>ada@example.test</strong> has an account here")
	if unknown.status != known.status || strings.ReplaceAll(unknown.body, "eve@", "ada@") != known.body {
		t.Error("the page tells who has an account:", unknown)
	}
	for name := range known.header {
		if name != "Date" && name != "X-Request-Id" && known.header.Get(name) != unknown.header.Get(name) {
			t.Errorf("the header %s tells: %q and %q", name, known.header.Get(name), unknown.header.Get(name))
		}
	}
	got := srv.Wait(1)[0]
	if got.To != "ada@example.test" || strings.Contains(got.Raw, "evil") {
		t.Errorf("got %+v", got)
	}
	path := w.path(got)
	b.get(path).want(t, 200, "ada@example.test") // opening the link doesn't use it up, because mail scanners open links
	b.post(path, "password", "quite another one 7").to(t, "/")
	if old.get("/account").status != 303 {
		t.Error("a session outlives the reset")
	}
	b.get("/account/audit").want(t, 200, "Password reset email sent", "by Slipway", "the sign-in page", "Password set")
	if told := srv.Wait(2)[1]; told.Subject != "Your password was changed" || !strings.Contains(told.Text, w.srv.URL+"/forgot") {
		t.Errorf("told %+v", told)
	}
	w.browser().get(path).want(t, 404, "This link is no longer valid")
	b.post("/account/password", "old", "quite another one 7", "password", password).to(t, "/account/security")
	if told := srv.Wait(3)[2]; told.Subject != "Your password was changed" {
		t.Errorf("told %+v", told)
	}
}

// Password reset requests are limited per address and per network, for known and unknown addresses.
func TestForgotThrottle(t *testing.T) {
	t.Parallel()
	w, _ := mailWorld(t, mailtest.Config{})
	w.user("ada@example.test", false)
	b := w.browser()
	n := 0
	for _, email := range []string{"ada@example.test", "nobody@example.test"} {
		for range accountpages.PerForgotten {
			b.post("/forgot", "email", email).want(t, 200, `data-test="sent"`)
			n++
		}
		if p := b.post("/forgot", "email", " "+strings.ToUpper(email)).want(
			t,
			429,
			"Too many attempts",
		); p.header.Get("Retry-After") == "" {
			t.Error("when may one try again?")
		}
		n++
	}
	for ; n < accountpages.ForgotNetwork; n++ {
		b.post("/forgot", "email", strings.Repeat("x", n)+"@example.test").want(t, 200)
	}
	b.post("/forgot", "email", "somebody@example.test").want(t, 429)
}

// Without email, the page says to ask the operator.
func TestForgotWithoutMail(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.user("ada@example.test", false)
	b := w.browser()
	if p := b.get("/sign-in").want(t, 200, "Ask the operator of this installation for a password reset link"); p.has("forgot") {
		t.Error("there is a link to what does not work")
	}
	if p := b.get("/forgot").want(t, 200, `data-test="ask-operator"`); p.has("submit") {
		t.Error("there is a form for what does not work")
	}
	b.post("/forgot", "email", "ada@example.test").want(t, 409, "Email is not configured")
}

// An invitation is emailed, and its link is also shown. A password reset link is only shown, for the operator to hand
// over.
func TestInviteByMail(t *testing.T) {
	t.Parallel()
	w, srv := mailWorld(t, mailtest.Config{Refuse: func(to string) error {
		if strings.HasPrefix(to, "typo") {
			return mailtest.Permanent("No such mailbox")
		}
		return nil
	}})
	w.user("root@example.test", true)
	ada := w.user("ada@example.test", false)
	root := w.as("root@example.test")
	p := root.post("/operator/users/invite", "email", "bob@example.test", "role", "user").want(
		t,
		200,
		"This link was emailed to bob@example.test",
	)
	got := srv.Wait(1)[0]
	if got.To != "bob@example.test" || w.srv.URL+w.path(got) != p.value(t) {
		t.Errorf("got %+v", got)
	}
	bob, err := w.dash.Accounts.UserByEmail(t.Context(), "bob@example.test")
	must(t, err)
	p = root.post("/operator/users/" + string(bob.ID) + "/link")
	if got := srv.Wait(2)[1]; w.srv.URL+w.path(got) != p.value(t) {
		t.Errorf("a fresh invitation: %+v", got)
	}
	p = root.post("/operator/users/"+string(ada.ID)+"/link").want(t, 200, "Password reset link")
	if strings.Contains(p.body, "A mail with this link") {
		t.Error("the page says that a password's link is mailed")
	}
	// A refused email is in the audit log, as the page says.
	root.post("/operator/users/invite", "email", "typo@example.test").want(t, 200, "the audit log shows why")
	w.eventually("the refusal is in the log", func() bool { return w.logged("mail.undelivered") == 1 })
	root.get("/operator/audit?what=mail").want(t, 200, "Email delivery failed", "To typo@example.test", "No such mailbox", "Slipway")
	if all := srv.All(); len(all) != 2 {
		t.Errorf("%d mails arrived, want the two invitations: %+v", len(all), all)
	}
}

func (w *world) eventually(what string, ok func() bool) {
	w.t.Helper()
	wait.Until(w.t, what, ok)
}

// A recipient without an account confirms and unsubscribes on public pages. Opening a link, as mail programs do by
// themselves, changes nothing. One-click unsubscription needs a single request.
func TestRecipient(t *testing.T) {
	t.Parallel()
	w, srv := mailWorld(t, mailtest.Config{})
	w.user("ada@example.test", false)
	b := w.as("ada@example.test")
	if p := b.post(
		"/account/notifications", "kind", "mail", "address", "nonsense", "event", "domain.failed",
	); p.status != 422 || !p.has("wrong-address") {
		t.Errorf("no address: %s", p)
	}
	b.post("/account/notifications", "kind", "mail", "address", "carla@example.test", "event", "domain.failed").to(
		t,
		"/account/notifications",
	)
	b.get("/account/notifications").want(t, 200, "carla@example.test", `data-test="channel-unconfirmed"`, "Send again")
	text := srv.Wait(1)[0].Text
	path := func(word string) string {
		link := regexp.MustCompile(`(?m)^\S+/notifications/` + word + `/\S+$`).FindString(text)
		path, ok := strings.CutPrefix(link, w.srv.URL)
		if !ok {
			t.Fatalf("no link to %s of %s in %q", word, w.srv.URL, text)
		}
		return path
	}
	stranger := w.browser()
	stranger.get(path("confirm")).want(t, 200, "carla@example.test", `data-test="submit"`)
	b.get("/account/notifications").want(t, 200, `data-test="channel-unconfirmed"`)
	stranger.post(path("confirm")).want(t, 200, `data-test="confirmed"`)
	stranger.get(path("confirm")).want(t, 200, `data-test="confirmed"`)
	b.get("/account/notifications").want(t, 200, "Send test")
	stranger.get(path("stop")).want(t, 200, "Unsubscribe?")
	b.get("/account/notifications").want(t, 200, "Send test")
	stranger.get(path("confirm")+"x").want(t, 404, "This link doesn&#39;t work any more")
	// RFC 8058, section 3.1.
	resp, err := http.Post(w.srv.URL+path("stop"), "application/x-www-form-urlencoded", strings.NewReader("List-Unsubscribe=One-Click"))
	must(t, err)
	resp.Body.Close()
	if resp.StatusCode != 200 {
		t.Errorf("a mail program's request: %s", resp.Status)
	}
	b.get("/account/notifications").want(t, 200, "The recipient unsubscribed")
	b.get("/account/audit").want(t, 200, "Notification channel confirmed")
}
