package api_test

import (
	"strings"
	"testing"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
)

// suspend suspends a user as an operator does.
func (w *world) suspend(u account.UserID, why string) {
	w.t.Helper()
	operator, err := w.c.Accounts.CreateUser(w.t.Context(), "root@example.test", "quite a long password", true)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := w.db.Write(w.t.Context(), func(tx *db.Tx) error {
		_, err := w.c.Accounts.SuspendTx(w.t.Context(), tx, audit.Actor{User: operator.ID}, u, why)
		return err
	}); err != nil {
		w.t.Fatal(err)
	}
}

// No credential of a suspended user works. The API key's error says why; the deploy hook's doesn't, because its caller
// may be anyone. After the suspension both work again.
func TestSuspendedUser(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	u, key := w.user("a@example.test")
	x := w.belongings(u, key)
	w.suspend(u, "unpaid since May")
	before := len(w.log())
	a := w.api("GET", "/sites", key, nil)
	if a.status != 401 || a.header.Get("WWW-Authenticate") == "" || a.json(t)["code"] != "account_suspended" || !strings.Contains(
		a.body,
		"unpaid since May",
	) {
		t.Errorf("the key: %s", a)
	}
	if a := w.api("DELETE", "/sites/"+x["site"], key, nil); a.status != 401 {
		t.Errorf("a change: %s", a)
	}
	if a := w.send(
		"POST",
		"/hooks/deploy/"+x["hook"],
		"",
		nil,
	); a.status != 403 || strings.Contains(a.body, "unpaid") || strings.Contains(a.body, "a@example.test") {
		t.Errorf("the hook: %s", a)
	}
	if n := len(w.log()); n != before {
		t.Errorf("refused requests left %d entries in the audit log", n-before)
	}
	if err := w.db.Write(t.Context(), func(tx *db.Tx) error {
		_, err := w.c.Accounts.ResumeTx(
			t.Context(),
			tx,
			u,
		)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	w.must(200, "GET", "/sites/"+x["site"], key, nil)
	if a := w.send("POST", "/hooks/deploy/"+x["hook"], "", nil); a.status != 200 {
		t.Errorf("the hook, afterwards: %s", a)
	}
}

// A deploy hook's deployment is in the owner's audit log with the hook's name and never its ID, which is a secret. A
// call merged into another deployment isn't logged.
func TestHookCallsAreInTheLog(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	u, key := w.user("a@example.test")
	site := w.site(key, "Blog")
	hook := w.must(201, "POST", "/sites/"+site+"/hooks", key, m{"name": "Nightly"})["id"].(string)
	before := len(w.log())
	var first string
	for range 3 {
		a := w.send("POST", "/hooks/deploy/"+hook, "", nil)
		if a.status != 200 {
			t.Fatal(a)
		}
		first = a.json(t)["deploymentId"].(string)
	}
	log := w.log()
	if len(log) != before+1 {
		t.Fatalf("three calls, of which two are folded, left %d lines", len(log)-before)
	}
	if e := log[0]; e.User != "" || e.Owner != w.owner(u) || e.Key != "" || e.Session != "" || e.Via != "deploy hook Nightly" ||
		e.Action != "deployment.triggered" ||
		e.Subject != first ||
		e.Addr != "127.0.0.1" {
		t.Errorf("the log says %+v", e)
	}
	for _, e := range log {
		if strings.Contains(e.Via+e.Subject+e.Detail, hook) {
			t.Errorf("the log holds the hook's id: %+v", e)
		}
	}
}

// A replayed response for an Idempotency-Key isn't logged.
func TestReplaysAreNotInTheLog(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, key := w.user("a@example.test")
	for range 3 {
		if a := w.api("POST", "/sites", key, m{
			"name":       "once",
			"type":       "static",
			"repository": "git.test/acme/site",
		}, "Idempotency-Key: one"); a.status != 201 {
			t.Fatal(a)
		}
	}
	if log := w.log(); len(log) != 1 || log[0].Action != "site.created" || log[0].Detail != "once" {
		t.Errorf("the log: %+v", log)
	}
}
