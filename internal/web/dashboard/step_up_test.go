package dashboard

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"slipway/internal/platform/db"
)

// A member with a passkey who signed in with only the password is redirected to confirm the passkey, and sees nothing
// of a team that requires two-factor authentication before. Scripts and streams get a 403.
func TestStepUp(t *testing.T) {
	t.Parallel()
	w := newAgency(t)
	u, b := w.users["developer"], w.in["developer"]
	must(t, w.db.Admin(t.Context(), `INSERT INTO passkeys (id, user_id, credential, record, name, created_at, used_at)
		VALUES ('psk_1', '`+string(u.ID)+`', 'c', '{}', 'Key', 1, 0)`))
	must(t, w.db.Admin(t.Context(), `UPDATE teams SET require_2fa = TRUE`))
	to := b.get("/sites/"+string(w.shop.ID)).to(t, "/step-up?next=")
	if p := b.get(to); p.status != 200 || !p.has("passkey") && !strings.Contains(p.body, "Your passkey works at") {
		t.Errorf("the page to confirm: %s", p)
	}
	b.post("/sites/"+string(w.shop.ID)+"/stop").to(t, "/step-up")
	for _, kind := range []string{"application/json", "text/event-stream"} {
		if p := b.get("/sites/"+string(w.shop.ID)+"/follow", "Accept: "+kind); p.status != http.StatusForbidden {
			t.Errorf("%s: %s", kind, p)
		}
	}
	if p := b.do(http.MethodPost, "/account/passkeys/psk_1/remove", url.Values{}); p.status == http.StatusSeeOther &&
		!strings.HasPrefix(p.header.Get("Location"), "/step-up") {
		t.Errorf("the password alone removes the passkey: %s", p)
	}
	if p := b.get("/account"); p.status != 200 {
		t.Errorf("the personal account: %s", p)
	}
	if p := b.post(to, "code", "123456"); p.status == http.StatusSeeOther {
		t.Errorf("a code of no app: %s", p)
	}
	must(t, w.db.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), `UPDATE sessions SET method = 'passkey' WHERE user_id = $1`, u.ID)
		return err
	}))
	if p := b.get("/sites/" + string(w.shop.ID)); p.status != 200 {
		t.Errorf("after the passkey: %s", p)
	}
}
