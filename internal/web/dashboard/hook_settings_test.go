package dashboard

import (
	"strings"
	"testing"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/site"
)

// A deploy hook's form has all of its settings, and an invalid form keeps the input.
func TestDeployHookSettings(t *testing.T) {
	t.Parallel()
	w, b, s := ada(t)
	owner, path := w.users["ada@example.test"].Owner, "/sites/"+string(s.ID)+"/hooks"
	tomorrow := time.Now().UTC().Add(24 * time.Hour).Format("2006-01-02")
	b.post(
		path, "name", "CMS", "branch", "main", "title", "Content", "clear_cache", "1", "secret", "sign with this",
		"addresses", "203.0.113.7\n2001:db8::/32", "per_minute", "5", "per_day", "50", "expires_on", tomorrow,
	).to(t, path)
	get := func() site.Hook {
		t.Helper()
		list, err := w.dash.Sites.Hooks(t.Context(), owner, s.ID)
		must(t, err)
		return list[0]
	}
	h := get()
	if !h.ClearCache || h.Title != "Content" || h.Rules.Secret != "sign with this" || len(h.Rules.Addresses) != 2 ||
		h.Rules.PerMinute != 5 ||
		h.Rules.PerDay != 50 ||
		h.Rules.ExpiresAt <= db.Now().Add(24*time.Hour) ||
		h.Rules.ExpiresAt > db.Now().Add(48*time.Hour) {
		t.Fatalf("%+v", h)
	}
	p := b.get(path).want(
		t, 200, "Title: Content", "Clears the build cache", "Calls must be signed", "Limited to 2 address ranges",
		"5 calls a minute, 50 calls a day", "expires", `data-test="edit-hook"`,
	)
	if strings.Contains(p.body, "sign with this") {
		t.Error("the page shows the signing secret")
	}
	id := h.ID.Reveal()
	p = b.post(path+"/edit", "hook", id).want(
		t, 200, "Edit deploy hook", `value="Content"`, "203.0.113.7/32",
		`value="`+tomorrow+`"`,
		"Remove the signing secret",
	)
	if strings.Contains(p.body, "sign with this") {
		t.Error("the form shows the signing secret")
	}
	// The secret stays unless it is replaced or removed.
	b.post(path+"/save", "hook", id, "name", "CMS 2", "expires_on", tomorrow).to(t, path)
	if h := get(); h.Name != "CMS 2" || h.Rules.Secret != "sign with this" || h.ClearCache || len(h.Rules.Addresses) != 0 ||
		h.Rules.PerDay != 0 ||
		h.Rules.ExpiresAt == 0 {
		t.Errorf("%+v", h)
	}
	b.post(path+"/save", "hook", id, "name", "CMS 2", "remove_secret", "1").to(t, path)
	if h := get(); h.Rules.Secret != "" || h.Rules.ExpiresAt != 0 {
		t.Errorf("%+v", h)
	}
	for field, bad := range map[string]string{
		"addresses":  "somewhere",
		"expires_on": "2020-01-01",
		"per_minute": "many",
		"per_day":    "10001",
		"title":      strings.Repeat("x", 201),
		"secret":     strings.Repeat("x", 257),
	} {
		b.post(path+"/save", "hook", id, "name", "typed", field, bad).want(t, 422, `value="typed"`)
		b.post(path, "name", "typed", field, bad).want(t, 422, `value="typed"`)
	}
	if h := get(); h.Name != "CMS 2" {
		t.Errorf("a refused form changed %+v", h)
	}
	w.user("eve@example.test", false)
	eve := w.as("eve@example.test")
	for _, action := range []string{"/edit", "/save"} {
		eve.post(path+action, "hook", id, "name", "x").want(t, 404)
		b.post(path+action, "hook", "dhk_none", "name", "x").want(t, 404)
	}
	other := w.site(w.users["ada@example.test"], "another")
	b.post("/sites/"+string(other.ID)+"/hooks/save", "hook", id, "name", "x").want(t, 404)
}
