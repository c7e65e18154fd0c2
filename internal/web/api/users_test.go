package api_test

import (
	"encoding/json"
	"strings"
	"testing"

	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
)

// Operators delete users and all of their resources, with the dashboard's rules: the number of sites and the address
// must be confirmed, operators can't delete themselves, and the last owner of a team can't be deleted.
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

// Operators read users, change roles, create password links, turn off two-factor authentication, export data and erase
// users, and each action is logged. Users, apps and restricted keys can't.
func TestOperatorsManageUsers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	key := func(u account.User, n account.NewKey) string {
		n.Name = "k"
		_, key, err := w.c.Accounts.CreateKey(ctx, u.ID, n)
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	make := func(email string, admin bool) account.User {
		u, err := w.c.Accounts.CreateUser(ctx, email, "correct horse battery", admin)
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	encoded := func(v any) string {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	root, ada := make("root@example.test", true), make("ada@example.test", false)
	rootKey, adaKey := key(root, account.NewKey{Scopes: account.Scopes{account.All}}), key(ada, account.NewKey{Scopes: account.Scopes{account.All}})
	w.must(201, "POST", "/sites", adaKey, m{"name": "Blog", "type": "static", "repository": "git.test/acme/blog"})
	at := "/admin/users/" + string(ada.ID)
	restricted := key(root, account.NewKey{Scopes: account.Scopes{"sites:read"}})
	for _, call := range []struct {
		method, path string
		body         any
	}{
		{"GET", "/admin/users", nil},
		{"GET", at, nil},
		{"PATCH", at, m{"role": "operator"}},
		{"POST", at + "/reset-link", nil},
		{"DELETE", at + "/two-factor", nil},
		{"POST", at + "/export", nil},
		{"DELETE", at + "?sites=1&confirm=ada@example.test&erase=true", nil},
	} {
		for who, key := range map[string]string{"a user": adaKey, "a restricted key": restricted} {
			if a := w.api(call.method, call.path, key, call.body); a.status != 403 {
				t.Errorf("%s %s by %s: %s", call.method, call.path, who, a)
			}
		}
		if call.path != "/admin/users" {
			if a := w.api(call.method, strings.Replace(call.path, string(ada.ID), "usr_none", 1), rootKey, call.body); a.status != 404 {
				t.Errorf("%s %s of an unknown user: %s", call.method, call.path, a)
			}
		}
	}

	if a := encoded(w.must(200, "GET", "/admin/users?email=ADA@example.test", rootKey, nil)); !strings.Contains(a, string(ada.ID)) ||
		!strings.Contains(a, `"total":1`) {
		t.Errorf("found %s", a)
	}
	if a := encoded(w.must(200, "GET", "/admin/users?page=9", rootKey, nil)); !strings.Contains(a, `"data":[]`) {
		t.Errorf("a page beyond the last: %s", a)
	}
	if a := encoded(w.must(200, "PATCH", at, rootKey, m{"role": "operator"})); !strings.Contains(a, `"role":"operator"`) {
		t.Errorf("made an operator: %s", a)
	}
	w.must(200, "PATCH", at, rootKey, m{"role": "user"})
	if a := w.api("PATCH", "/admin/users/"+string(root.ID), rootKey, m{"role": "user"}); a.status != 409 {
		t.Errorf("the last operator: %s", a)
	}
	if a := w.api("PATCH", at, rootKey, m{"role": "king"}); a.status != 400 {
		t.Errorf("an unknown role: %s", a)
	}
	if a := encoded(w.must(200, "POST", at+"/reset-link", rootKey, nil)); !strings.Contains(a, "/setup/") {
		t.Errorf("a link: %s", a)
	}
	w.must(200, "DELETE", at+"/two-factor", rootKey, nil)
	export := encoded(w.must(200, "POST", at+"/export", rootKey, nil))
	for _, want := range []string{`"email":"ada@example.test"`, `"name":"Blog"`, `"action":"password.link"`, `"scopes":["*"]`} {
		if !strings.Contains(export, want) {
			t.Errorf("the export lacks %s: %s", want, export)
		}
	}
	if strings.Contains(export, adaKey) {
		t.Error("the export has a secret")
	}
	for _, action := range []string{"user.role", "password.link", "second_factor.disabled", "user.exported"} {
		list, err := w.c.Accounts.Audit(ctx, audit.Filter{Action: action, Limit: 5})
		if err != nil || len(list) == 0 || list[0].User != root.ID || list[0].About != ada.ID {
			t.Errorf("%s: %+v, %v", action, list, err)
		}
	}

	w.must(200, "DELETE", at+"?sites=1&confirm=ada@example.test&erase=true", rootKey, nil)
	list, err := w.c.Accounts.Audit(ctx, audit.Filter{Limit: 200})
	if err != nil || len(list) < 6 {
		t.Fatalf("%d entries, %v", len(list), err)
	}
	for _, e := range list {
		if strings.Contains(e.Detail, "ada@example.test") || e.User == ada.ID && e.Addr != "" {
			t.Errorf("the log still has %+v", e)
		}
	}
	if e := list[0]; e.Action != "user.erased" || e.User != root.ID || e.Detail != "(erased), with 1 site" {
		t.Errorf("the last entry is %+v", e)
	}
}
