package dashboard

import (
	"crypto/hmac"
	"crypto/sha1"
	"encoding/base32"
	"encoding/binary"
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/web/dashboard/shell"
)

// value returns the value that a page shows for copying.
func (p reply) value(t *testing.T) string {
	t.Helper()
	m := regexp.MustCompile(`data-test="value">([^<]+)<`).FindStringSubmatch(p.body)
	if m == nil {
		t.Fatal("nothing to copy:", p)
	}
	return m[1]
}

// hidden returns the value of a hidden field.
func (p reply) hidden(t *testing.T, name string) string {
	t.Helper()
	m := regexp.MustCompile(`name="` + name + `" value="([^"]+)"`).FindStringSubmatch(p.body)
	if m == nil {
		t.Fatal("no hidden field", name, p)
	}
	return m[1]
}

// code returns the authenticator code (RFC 6238) of the given time step, relative to now.
func code(t *testing.T, secret string, steps int64) string {
	t.Helper()
	raw, err := base32.StdEncoding.WithPadding(base32.NoPadding).DecodeString(secret)
	if err != nil {
		t.Fatal(err)
	}
	mac := hmac.New(sha1.New, raw)
	binary.Write(mac, binary.BigEndian, time.Now().Unix()/30+steps)
	sum := mac.Sum(nil)
	at := sum[19] & 15
	return fmt.Sprintf("%06d", binary.BigEndian.Uint32(sum[at:])&0x7fffffff%1_000_000)
}

// stale moves the start of all sessions an hour back.
func (w *world) stale() {
	w.t.Helper()
	if err := w.db.Write(w.t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(w.t.Context(), `UPDATE sessions SET proven_at = proven_at - 3600000`)
		return err
	}); err != nil {
		w.t.Fatal(err)
	}
}

// logged returns how often an action is in the audit log.
func (w *world) logged(action string) int {
	w.t.Helper()
	list, err := w.dash.Accounts.Audit(w.t.Context(), audit.Filter{Action: action, Limit: 200})
	if err != nil {
		w.t.Fatal(err)
	}
	return len(list)
}

func TestKeys(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ada := w.user("ada@example.test", false)
	w.user("eve@example.test", false)
	b := w.as("ada@example.test")
	s := w.site(ada, "Blog")
	if p := b.get("/account/keys"); !p.has("empty") {
		t.Fatal(p)
	}
	// An invalid form keeps the input and marks the invalid field.
	for field, form := range map[string][]string{
		"scopes":    {"name", "CI", "expires", "30d"},
		"name":      {"name", " ", "scopes", "sites:read", "expires", "30d"},
		"addresses": {"name", "CI", "scopes", "sites:read", "expires", "30d", "addresses", "10.0.0.0/8 nonsense"},
		"sites":     {"name", "CI", "scopes", "sites:read", "expires", "30d", "reach", "some"},
	} {
		p := b.post("/account/keys/new", form...)
		if p.status != 422 || !p.has("wrong-"+field) {
			t.Errorf("%s: %s", field, p)
		}
		if field != "scopes" && !strings.Contains(p.body, `value="sites:read" aria-label="sites:read" checked`) {
			t.Errorf("%s: the scopes that were ticked are lost", field)
		}
		if field == "addresses" && !strings.Contains(p.body, `value="10.0.0.0/8 nonsense"`) {
			t.Errorf("%s: the input is lost", field)
		}
	}
	p := b.post(
		"/account/keys/new", "name", "CI", "scopes", "sites:read", "scopes", "env:write", "power", "some", "reach",
		"some", "sites",
		string(s.ID),
		"addresses",
		"203.0.113.0/24, 127.0.0.1",
		"expires",
		"30d",
	)
	secret := p.value(t)
	if p.status != 200 || !account.LooksLikeKey(secret) || p.header.Get("Cache-Control") != "no-store" {
		t.Fatal(p)
	}
	c, err := w.dash.Accounts.Authenticate(t.Context(), secret, netip.MustParseAddr("127.0.0.1"))
	if err != nil || c.User != ada.ID || c.Scopes.String() != "sites:read env:write" || len(c.Sites) != 1 || len(c.Nets) != 2 ||
		c.Expires < db.Now().Add(29*24*time.Hour) {
		t.Fatalf("%+v, %v", c, err)
	}
	p = b.get("/account/keys")
	if !p.has("key-"+string(c.Key)) || strings.Contains(p.body, secret) || !strings.Contains(p.body, "Blog") {
		t.Fatal(p)
	}
	eve := w.as("eve@example.test")
	if p := eve.post(
		"/account/keys/new", "name", "x", "scopes", "sites:read", "reach", "some", "sites",
		string(s.ID),
		"expires",
		"30d",
	); p.status != 404 {
		t.Error("a key for another user's site:", p.status)
	}
	if p := eve.post("/account/keys/" + string(c.Key) + "/revoke"); p.status != 404 {
		t.Error("another user's key:", p.status)
	}
	if p := b.post("/account/keys/" + string(c.Key) + "/revoke"); p.status != 303 {
		t.Fatal(p)
	}
	if _, err := w.dash.Accounts.Authenticate(t.Context(), secret, netip.MustParseAddr("127.0.0.1")); err == nil {
		t.Error("a revoked key works")
	}
	if w.logged("key.created") != 1 || w.logged("key.revoked") != 1 {
		t.Error("the audit log lacks an action")
	}
	if p := b.get("/account/audit?what=key"); !p.has("audit-key.created") || !p.has("audit-key.revoked") || p.has("audit-session.started") {
		t.Error(p)
	}
	if p := eve.get("/account/audit"); p.has("audit-key.created") {
		t.Error("Eve reads Ada's log")
	}
}

func TestPasswordChange(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.user("ada@example.test", false)
	b, other := w.as("ada@example.test"), w.as("ada@example.test")
	if p := b.post("/account/password", "old", "wrong", "password", "a new password 12"); p.status != 403 || !p.has("wrong-old") {
		t.Fatal(p)
	}
	if p := b.post("/account/password", "old", password, "password", "short"); p.status != 422 || !p.has("wrong-password") {
		t.Fatal(p)
	}
	if p := b.post("/account/password", "old", password, "password", "a new password 12"); p.status != 303 {
		t.Fatal(p)
	}
	b.get("/account").want(t, 200, `data-test="limit-keys"`, "API keys", `<td class="num">200</td>`)
	if p := b.get("/account"); p.status != 200 {
		t.Error("the session that changed the password is signed out:", p.status)
	}
	if p := other.get("/account"); p.status != 303 {
		t.Error("another device is still signed in:", p.status)
	}
}

func TestSessionsPage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	u := w.user("ada@example.test", false)
	b, other := w.as("ada@example.test"), w.as("ada@example.test")
	list, err := w.dash.Accounts.Sessions(t.Context(), u.ID)
	if err != nil || len(list) != 2 {
		t.Fatal(list, err)
	}
	for _, s := range list {
		if !b.get("/account/sessions").has("session-" + string(s.ID)) {
			t.Error("a session is not listed")
		}
	}
	if p := b.post("/account/sessions/end"); p.status != 303 {
		t.Fatal(p)
	}
	if b.get("/account").status != 200 || other.get("/account").status != 303 {
		t.Error("the wrong session ended")
	}
	list, err = w.dash.Accounts.Sessions(t.Context(), u.ID)
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	if p := b.post("/account/sessions/" + string(list[0].ID) + "/end"); p.header.Get("Location") != "/sign-in" {
		t.Fatal(p)
	}
	if b.get("/account").status != 303 {
		t.Error("still signed in")
	}
}

func TestFactor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.user("ada@example.test", false)
	b := w.as("ada@example.test")
	p := b.get("/account/second-factor")
	secret := p.value(t)
	if !strings.Contains(p.body, `src="data:image/png;base64,`) {
		t.Error("no QR code")
	}
	offer := p.hidden(t, "offer")
	if p := b.post(
		"/account/second-factor", "offer", offer, "code", "000000",
	); p.status != 422 || !p.has("wrong-code") || !strings.Contains(p.body, secret) {
		t.Fatal(p)
	}
	w.stale()
	if p := b.post(
		"/account/second-factor",
		"offer",
		offer,
		"code",
		code(t, secret, 0),
	); p.status != 403 || !p.has("wrong-current") || strings.Contains(p.body, secret) {
		t.Fatal("a stale session turns it on without the password:", p)
	}
	p = b.post("/account/second-factor", "offer", offer, "code", code(t, secret, 0), "current", password)
	codes := regexp.MustCompile(`<li>([a-z2-7-]{19})</li>`).FindAllStringSubmatch(p.body, -1)
	if p.status != 200 || len(codes) != 10 {
		t.Fatal(p)
	}
	if p := b.get("/account/second-factor"); p.status != 303 {
		t.Error("the secret is shown again")
	}

	again := w.browser()
	if p := again.post("/sign-in", "email", "ada@example.test", "password", password); p.header.Get("Location") != "/sign-in/code" {
		t.Fatal(p)
	}
	if p := again.post("/sign-in/code?next=/account", "code", "123"); p.status != 401 || !p.has("wrong-code") {
		t.Fatal(p)
	}
	if p := again.post(
		"/sign-in/code?next=/account",
		"code",
		code(t, secret, 1),
	); p.status != 303 || p.header.Get("Location") != "/account" {
		t.Fatal(p)
	}
	if p := again.get("/account"); p.status != 200 {
		t.Fatal(p)
	}
	lost := w.browser()
	lost.post("/sign-in", "email", "ada@example.test", "password", password)
	if p := lost.post("/sign-in/code", "code", codes[0][1]); p.header.Get("Location") != "/" {
		t.Fatal(p)
	}
	guess := w.browser()
	guess.post("/sign-in", "email", "ada@example.test", "password", password)
	limited := false
	for range shell.PerFactor {
		limited = limited || guess.post("/sign-in/code", "code", "111111").status == 429
	}
	if !limited {
		t.Error("second factors can be guessed without end")
	}
	if p := lost.post("/account/second-factor/off"); p.status != 303 {
		t.Fatal(p)
	}
	if p := w.browser().post("/sign-in", "email", "ada@example.test", "password", password); p.header.Get("Location") != "/" {
		t.Error("asked for a factor that is off:", p)
	}
	for _, action := range []string{"second_factor.enabled", "second_factor.disabled"} {
		if w.logged(action) != 1 {
			t.Errorf("%s is not in the log", action)
		}
	}
}

// Every offered factor has a new secret that only its own session can confirm. A session that isn't fresh sees none
// before it confirms the password.
func TestOfferedFactorIsOfOneSession(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.user("ada@example.test", false)
	b, other := w.as("ada@example.test"), w.as("ada@example.test")
	p, theirs := b.get("/account/second-factor"), other.get("/account/second-factor")
	secret, offer := p.value(t), p.hidden(t, "offer")
	if secret == theirs.value(t) || secret == b.get("/account/second-factor").value(t) {
		t.Error("two offers have one secret")
	}
	if p := other.post(
		"/account/second-factor",
		"offer",
		offer,
		"code",
		code(t, secret, 0),
	); p.status != 409 || strings.Contains(p.body, secret) {
		t.Error("another session confirms it:", p.status)
	}
	w.stale()
	p = b.get("/account/second-factor")
	if p.status != 200 || strings.Contains(p.body, "data:image/png") || !strings.Contains(p.body, `name="current"`) {
		t.Fatal("a stale session is offered a secret:", p)
	}
	if p := b.post("/account/second-factor/begin", "current", "wrong"); p.status != 403 || strings.Contains(p.body, "data:image/png") {
		t.Fatal(p)
	}
	if p := b.post("/account/second-factor/begin", "current", password); p.header.Get("Location") != "/account/second-factor" {
		t.Fatal(p)
	}
	p = b.get("/account/second-factor")
	if p := b.post("/account/second-factor", "offer", p.hidden(t, "offer"), "code", code(t, p.value(t), 0)); p.status != 200 {
		t.Fatal(p)
	}
	if p := other.post("/account/second-factor", "offer", theirs.hidden(t, "offer"), "code", code(t, theirs.value(t), 0)); p.status == 200 {
		t.Error("an offer outlives the factor that is on")
	}
}

// Credentials can be created and removed only by a session that confirmed the password recently.
func TestCredentialsNeedAFreshPassword(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.user("ada@example.test", false)
	b := w.as("ada@example.test")
	w.stale()
	form := []string{"name", "CI", "scopes", "sites:read", "expires", "30d"}
	if p := b.get("/account/keys/new"); !strings.Contains(p.body, `name="current"`) {
		t.Error("the form does not ask for the password")
	}
	for _, current := range []string{"", "wrong"} {
		if p := b.post("/account/keys/new", append(
			form,
			"current",
			current,
		)...); p.status != 403 || !p.has("wrong-current") || strings.Contains(p.body, "slw_") {
			t.Errorf("password %q: %s", current, p)
		}
	}
	if p := b.post("/account/passkeys/pky_none/remove"); p.status != 403 {
		t.Error("a passkey is removed without the password:", p.status)
	}
	if p := b.post("/account/keys/new", append(form, "current", password)...); p.status != 200 || !account.LooksLikeKey(p.value(t)) {
		t.Error(p)
	}
}
