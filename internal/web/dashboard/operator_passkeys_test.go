package dashboard

import (
	"strings"
	"testing"

	"slipway/internal/platform/wait"
	"slipway/internal/tenant/mail/mailtest"
)

// An operator can remove the passkeys or the authenticator app of a user who lost them. The user gets an email, and
// both the operator's and the user's logs show it.
func TestOperatorRemovesPasskeys(t *testing.T) {
	t.Parallel()
	w, srv := mailWorld(t, mailtest.Config{})
	w.user("root@example.test", true)
	bob := w.user("bob@example.test", false)
	root, theirs := w.as("root@example.test"), w.as("bob@example.test")
	base := "/operator/users/" + string(bob.ID)
	if p := root.get(base); p.has("passkeys-off") {
		t.Error("the page offers to remove passkeys that aren't there")
	}
	for _, id := range []string{"1", "2"} {
		must(t, w.db.Admin(t.Context(), `INSERT INTO passkeys (id, user_id, credential, record, name, created_at, used_at)
			VALUES ('psk_`+id+`', '`+string(bob.ID)+`', 'c`+id+`', '{}', 'Key', 1, 0)`))
	}
	if p := theirs.post(base + "/passkeys-off"); p.status != 404 {
		t.Errorf("a user removes passkeys as an operator: %s", p)
	}
	root.get(base).want(t, 200, base+"/passkeys-off")
	if p := root.post(base + "/passkeys-off"); p.status != 303 {
		t.Errorf("removing them: %s", p)
	}
	if p := root.post(base + "/second-factor-off"); p.status != 303 {
		t.Errorf("disabling two-factor authentication: %s", p)
	}
	if list, err := w.dash.Accounts.ListPasskeys(t.Context(), bob.ID); err != nil || len(list) != 0 {
		t.Errorf("%d passkeys are left, %v", len(list), err)
	}
	theirs.get("/account/audit").want(t, 200, "Passkey removed", "2 passkeys of bob@example.test", "by the operator")
	got := map[string]bool{}
	wait.Until(t, "both mails are there", func() bool {
		for _, m := range srv.All() {
			got[m.To+" "+m.Subject] = true
		}
		return got["bob@example.test Passkeys removed"] && got["bob@example.test Two-factor authentication disabled"]
	})
	for to := range got {
		if strings.HasPrefix(to, "root@") {
			t.Errorf("the operator gets %q", to)
		}
	}
}
