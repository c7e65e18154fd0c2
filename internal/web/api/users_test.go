package api_test

import (
	"testing"

	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
)

// Operators delete users with all that is theirs, by the rules of the dashboard: sites are counted and the address typed,
// nobody deletes themselves, and the last owner of a team stays.
func TestDeleteUser(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	make := func(email string, admin bool) (account.User, string) {
		u, err := w.c.Accounts.CreateUser(ctx, email, "", admin)
		if err != nil {
			t.Fatal(err)
		}
		_, key, err := w.c.Accounts.CreateKey(ctx, u.ID, account.NewKey{Name: "k", Scopes: account.Scopes{account.All}})
		if err != nil {
			t.Fatal(err)
		}
		return u, key
	}
	root, rootKey := make("root@example.test", true)
	ada, adaKey := make("ada@example.test", false)
	eve, eveKey := make("eve@example.test", false)
	w.must(201, "POST", "/sites", adaKey, m{"name": "Blog", "type": "static", "repository": "git.test/acme/blog"})
	at := "/admin/users/" + string(ada.ID)

	if a := w.api("DELETE", at, eveKey, nil); a.status != 403 {
		t.Errorf("by a user: %s", a)
	}
	if a := w.api("DELETE", "/admin/users/"+string(root.ID), rootKey, nil); a.status != 409 {
		t.Errorf("oneself: %s", a)
	}
	if a := w.api("DELETE", "/admin/users/usr_none", rootKey, nil); a.status != 404 {
		t.Errorf("a user who isn't there: %s", a)
	}
	for path, status := range map[string]int{
		at: 409, at + "?sites=2&confirm=ada@example.test": 409, at + "?sites=1": 400, at + "?sites=1&confirm=eve@example.test": 400,
		at + "?sites=one": 400,
	} {
		if a := w.api("DELETE", path, rootKey, nil); a.status != status {
			t.Errorf("%s: %s, want %d", path, a, status)
		}
	}
	w.must(200, "DELETE", at+"?sites=1&confirm=ada@example.test", rootKey, nil)
	if _, err := w.c.Accounts.User(ctx, ada.ID); !fault.Is(err, fault.NotFound) {
		t.Errorf("she is still there: %v", err)
	}
	if a := w.api("GET", "/sites", adaKey, nil); a.status != 401 {
		t.Errorf("her key works: %s", a)
	}
	list, err := w.c.Accounts.Audit(ctx, audit.Filter{Action: "user.deleted", Limit: 5})
	if err != nil || len(list) != 1 || list[0].User != root.ID || list[0].Detail != "ada@example.test, with 1 site" {
		t.Errorf("the log has %+v, %v", list, err)
	}

	w.must(201, "POST", "/teams", eveKey, m{"name": "Acme"})
	if a := w.api("DELETE", "/admin/users/"+string(eve.ID), rootKey, nil); a.status != 409 {
		t.Errorf("the last owner of a team: %s", a)
	}
}
