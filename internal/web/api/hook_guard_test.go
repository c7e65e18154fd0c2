package api_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"
	"time"

	"slipway/internal/tenant/site"
)

// call calls a deploy hook and returns the response.
func (w *world) call(hook m, body string, header ...string) answer {
	w.t.Helper()
	var lines []string
	for i := 0; i < len(header); i += 2 {
		lines = append(lines, header[i]+": "+header[i+1])
	}
	return w.send("POST", "/hooks/deploy/"+hook["id"].(string), "", body, lines...)
}

func TestDeployHookRules(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, key := w.user("a@example.test")
	id := w.site(key, "One")
	hook := func(more m) m {
		n := m{"name": "ci"}
		for k, v := range more {
			n[k] = v
		}
		return w.must(201, "POST", "/sites/"+id+"/hooks", key, n)
	}
	check := func(what string, a answer, status int, code string) {
		t.Helper()
		if a.status != status || !strings.Contains(a.body, code) {
			t.Errorf("%s: %s, want %d %s", what, a, status, code)
		}
	}
	sign := func(secret, body string) string {
		h := hmac.New(sha256.New, []byte(secret))
		h.Write([]byte(body))
		return "sha256=" + hex.EncodeToString(h.Sum(nil))
	}
	signed := hook(m{"secret": "a secret of some length"})
	if signed["signed"] != true || strings.Contains(w.api("GET", "/sites/"+id+"/hooks", key, nil).body, "a secret of") {
		t.Errorf("the hook shows its secret, or not that it has one: %v", signed)
	}
	check("no signature", w.call(signed, "{}"), 401, "invalid_signature")
	check(
		"another body's signature",
		w.call(signed, "{}", "X-Hub-Signature-256", sign("a secret of some length", "{ }")),
		401,
		"invalid_signature",
	)
	check("signed", w.call(signed, "{}", "X-Hub-Signature-256", sign("a secret of some length", "{}")), 200, "pending")
	check("signed, empty", w.call(signed, "", "X-Hub-Signature-256", sign("a secret of some length", "")), 200, "pending")
	good := sign("a secret of some length", "{}")
	check("signed, with a key", w.call(signed, "{}", "X-Hub-Signature-256", good, "Idempotency-Key", "once"), 200, "pending")
	if again := w.call(
		signed, "{}", "X-Hub-Signature-256", good, "Idempotency-Key", "once",
	); again.status != 200 || again.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("signed, replayed: %s", again)
	}
	check("a stored answer, without the signature", w.call(signed, "{}", "Idempotency-Key", "once"), 401, "invalid_signature")
	big := strings.Repeat("x", 2<<20)
	check(
		"too large to be checked",
		w.call(signed, big, "X-Hub-Signature-256", sign("a secret of some length", big)),
		413,
		"body_too_large",
	)
	w.must(200, "PATCH", "/hooks/"+signed["id"].(string), key, m{"secret": ""})
	check("the secret was removed", w.call(signed, "{}"), 200, "pending")

	check("another address", w.call(hook(m{"addresses": []string{"203.0.113.0/24"}}), ""), 403, "address_not_allowed")
	check("this address", w.call(hook(m{"addresses": []string{"127.0.0.1", "::1"}}), ""), 200, "pending")
	check(
		"not a range",
		w.api("POST", "/sites/"+id+"/hooks", key, m{"name": "x", "addresses": []string{"300.0.0.0/8"}}),
		400,
		"invalid_addresses",
	)
	check(
		"an expiry in the past",
		w.api("POST", "/sites/"+id+"/hooks", key, m{"name": "x", "expiresAt": "2020-01-01T00:00:00Z"}),
		400,
		"invalid_expires_at",
	)
	expiring := hook(m{"expiresAt": time.Now().Add(time.Hour).UTC().Format(time.RFC3339)})
	check("before its expiry", w.call(expiring, ""), 200, "pending")
	if err := w.db.Admin(t.Context(), "UPDATE deploy_hooks SET expires_at = 1 WHERE expires_at > 0"); err != nil {
		t.Fatal(err)
	}
	check("expired", w.call(expiring, ""), 410, "deploy_hook_expired")
	w.must(200, "PATCH", "/hooks/"+expiring["id"].(string), key, m{"expiresAt": nil})
	check("never expires now", w.call(expiring, ""), 200, "pending")

	few := hook(m{"perMinute": 2, "perDay": 3})
	for range 2 {
		check("within the limit", w.call(few, ""), 200, "pending")
	}
	a := w.call(few, "")
	check("over the limit of a minute", a, 429, "deploy_hook_limit")
	if a.header.Get("Retry-After") == "" {
		t.Error("429 without Retry-After")
	}
	if err := w.db.Admin(t.Context(), "UPDATE deploy_hooks SET minute_at = 1"); err != nil {
		t.Fatal(err)
	}
	check("a minute later", w.call(few, ""), 200, "pending")
	if err := w.db.Admin(t.Context(), "UPDATE deploy_hooks SET minute_at = 1"); err != nil {
		t.Fatal(err)
	}
	check("over the limit of a day", w.call(few, ""), 429, "3 calls per day")

	// The caller's body reaches the build and is encrypted until then.
	plain := hook(m{"title": "from CI", "clearCache": true})
	body := `{"build": "planted 4711"}`
	first := w.call(plain, body)
	check("with a body", first, 200, "pending")
	again := w.call(plain, body)
	if again.json(t)["deploymentId"] == first.json(t)["deploymentId"] {
		t.Error("a call with a body was folded into another")
	}
	var box, title string
	var clear bool
	err := w.db.QueryRow(
		t.Context(),
		`SELECT hook_body, title, clear_cache FROM deployments WHERE id = $1`,
		again.json(t)["deploymentId"],
	).Scan(
		&box,
		&title,
		&clear,
	)
	if err != nil || strings.Contains(box, "planted") || title != "from CI" || !clear {
		t.Errorf("stored %q, %q, %v, %v", box, title, clear, err)
	}
	if text, err := w.c.Sites.OpenHookBody(site.ID(id), box); err != nil || text != body {
		t.Errorf("opened %q, %v", text, err)
	}
	check("a body that no build can have", w.call(plain, big), 200, `"bodyIgnored":true`)
	check("read-only", w.api("PATCH", "/hooks/"+plain["id"].(string), key, m{"triggerCount": 0}), 400, "field_not_changeable")
	check("null", w.api("PATCH", "/hooks/"+plain["id"].(string), key, m{"title": nil}), 400, "can't be null")
}

// A loop of webhooks and deploy hooks ends after three hops, even if calls are merged.
func TestHookLoopIsCut(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, key := w.user("a@example.test")
	hook := w.must(201, "POST", "/sites/"+w.site(key, "One")+"/hooks", key, m{"name": "ci"})
	hops := func(a answer) (n int) {
		t.Helper()
		if err := w.db.QueryRow(t.Context(), `SELECT hops FROM deployments WHERE id = $1`, a.json(t)["deploymentId"]).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	for in, want := range map[string]int{"1": 200, "2": 200, "3": 409, "4": 409, "x": 400} {
		if a := w.call(hook, "", "X-Service-Hop", in); a.status != want {
			t.Errorf("hop %s: %s, want %d", in, a, want)
		}
	}
	if n := hops(w.call(hook, "")); n != 2 { // merged into a deployment with more hops
		t.Errorf("the waiting deployment has %d hops, want 2", n)
	}
	if n := hops(w.call(hook, "a body", "X-Service-Hop", "1")); n != 1 {
		t.Errorf("a deployment of its own has %d hops, want 1", n)
	}
}
