package wordpress

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"slipway/internal/tenant/mail/mailtest"
)

func plugin(name, body string) string {
	return "<?php\n/* Plugin Name: " + name + "\n Version: 1.0 */\n" + body
}

// manages activates, deactivates and deletes plugins and themes, and changes users. Changes that break the site are
// undone, and impossible ones report why.
func (h *installation) manages(s siteBody) {
	t := h.t
	do := func(what, status string, body map[string]any) workBody {
		t.Helper()
		var op workBody
		h.call("POST", "/sites/"+s.ID+"/wordpress/"+what, body, &op)
		return h.ended(op.ID, status)
	}
	plugins := func(status, action string, slugs ...string) workBody {
		t.Helper()
		return do("plugins", status, map[string]any{"action": action, "plugins": slugs})
	}
	state := func(slug string) (installed, active, auto bool) {
		t.Helper()
		var info struct {
			Plugins []struct {
				Slug               string
				Active, AutoUpdate bool
			}
		}
		h.call("GET", "/sites/"+s.ID+"/wordpress", nil, &info)
		for _, p := range info.Plugins {
			if p.Slug == slug {
				return true, p.Active, p.AutoUpdate
			}
		}
		return false, false, false
	}
	h.plant(s, "plugins/steady/steady.php", plugin("Steady", "add_action('wp_footer', function () { echo 'Steady'; });"))
	h.plant(s, "plugins/bomb/bomb.php", plugin("Bomb", "if (get_option('bomb')) { bomb_is_missing(); } else { update_option('bomb', 1); }"))
	v := h.visitor(s.URL)
	shows := func(want bool) {
		t.Helper()
		if status, _, text := v.get("/?m=" + fmt.Sprint(want)); status != 200 || strings.Contains(text, "Steady") != want {
			t.Errorf("the site: %d, want it to show the plugin: %v", status, want)
		}
	}
	op := plugins("success", "activate", "steady")
	if got := fmt.Sprint(op.Result["changed"]); got != "[steady]" || op.Message != "Activated steady" {
		t.Errorf("%s: %s", op.Message, got)
	}
	shows(true)
	if op = plugins("success", "activate", "steady"); op.Message != "Nothing has changed" {
		t.Errorf("twice: %s", op.Message)
	}
	op = plugins("failed", "activate", "bomb") // it breaks every request from the second one on
	if !strings.Contains(op.Error, "bomb broke the site and is inactive again. The page / answers with status 500") {
		t.Errorf("a plugin that breaks the site: %s", op.Error)
	}
	shows(true)
	if installed, active, _ := state("bomb"); !installed || active {
		t.Errorf("the plugin that broke the site: installed %v, active %v", installed, active)
	}
	if op = plugins("failed", "delete", "bomb", "steady"); op.Error != "steady was not changed: it is active; deactivate it first" {
		t.Errorf("an active plugin: %s", op.Error)
	}
	if op = plugins("failed", "activate", "nowhere"); op.Error != "nowhere was not changed: it is not installed" {
		t.Errorf("a plugin that is not installed: %s", op.Error)
	}
	plugins("success", "deactivate", "steady")
	shows(false)
	if op = plugins("success", "delete", "bomb", "steady"); op.Result["backupId"] == nil {
		t.Errorf("the deletion names no backup: %v", op.Result)
	}
	if _, err := os.Stat(h.content(s, "plugins/steady")); !os.IsNotExist(err) {
		t.Errorf("the plugin's files are there: %v", err)
	}

	op = do("themes", "failed", map[string]any{"action": "delete", "themes": []string{"twentytwentythree"}})
	if !strings.Contains(op.Error, "it is the active theme") {
		t.Errorf("the active theme: %s", op.Error)
	}
	h.plant(s, "themes/plain/style.css", "/*\nTheme Name: Plain\nVersion: 1.0\n*/")
	h.plant(s, "themes/plain/index.php", "<html><head><title>Plain</title></head><body>Plain theme</body></html>")
	h.plant(s, "themes/bad/style.css", "/*\nTheme Name: Bad\nVersion: 1.0\n*/")
	h.plant(s, "themes/bad/index.php", "<?php theme_is_missing();")
	do("themes", "success", map[string]any{"action": "activate", "themes": []string{"plain"}})
	plain := func() {
		t.Helper()
		if status, _, text := v.get("/"); status != 200 || !strings.Contains(text, "Plain theme") {
			t.Errorf("the theme: %d %.200s", status, text)
		}
	}
	plain()
	op = do("themes", "failed", map[string]any{"action": "activate", "themes": []string{"bad"}})
	if !strings.Contains(op.Error, "bad broke the site and is replaced by the theme before") {
		t.Errorf("a theme that breaks the site: %s", op.Error)
	}
	plain()
	do("themes", "success", map[string]any{"action": "activate", "themes": []string{"twentytwentythree"}})

	// Automatic updates of a single plugin install any version, even if the site's automatic updates are off.
	h.plant(s, "plugins/gadget/gadget.php", gadget("1.0", ""))
	h.plant(s, "mu-plugins/offers.php", offers)
	plugins("success", "activate", "gadget")
	h.offerPlugin(s, "2.0", "")
	plugins("success", "enable_auto_update", "gadget")
	if _, _, auto := state("gadget"); !auto {
		t.Error("automatic updates are not on")
	}
	h.calmly("the automatic update", func() bool {
		_, list := h.versions(s)
		return list["gadget"] == "2.0"
	})
	ok(t, os.Remove(h.content(s, "offer.zip")))
	h.calmly("the end of it", func() bool {
		return h.Call(t.Context(), h.key, "POST", "/sites/"+s.ID+"/wordpress/plugins", map[string]any{
			"action": "disable_auto_update", "plugins": []string{"gadget"},
		}, &op) == nil
	})
	h.ended(op.ID, "success")
	h.changesUsers(s)
}

func (h *installation) changesUsers(s siteBody) {
	t := h.t
	type user struct {
		ID    int64
		Login string
		Roles []string
	}
	users := func() map[string]user {
		t.Helper()
		var list struct{ Data []user }
		h.call("GET", "/sites/"+s.ID+"/wordpress/users", nil, &list)
		out := map[string]user{}
		for _, u := range list.Data {
			out[u.Login] = u
		}
		return out
	}
	change := func(status, method, path string, body any) workBody {
		t.Helper()
		var op workBody
		h.call(method, "/sites/"+s.ID+"/wordpress/users"+path, body, &op)
		return h.ended(op.ID, status)
	}
	grace := map[string]any{"login": "grace", "email": "grace@example.test", "role": "editor"}
	if op := change("success", "POST", "", grace); !strings.HasPrefix(op.Message, "Created grace. No email could be sent") {
		t.Errorf("a new user without a mail server: %s", op.Message)
	}
	u := users()["grace"]
	if !slices.Equal(u.Roles, []string{"editor"}) {
		t.Fatalf("the new user: %+v", u)
	}
	grace["email"] = "other@example.test"
	if op := change("failed", "POST", "", grace); !strings.Contains(op.Error, "The username is taken") {
		t.Errorf("a username that is taken: %s", op.Error)
	}
	at := fmt.Sprintf("/%d", u.ID)
	if op := change("failed", "PATCH", at, map[string]any{"role": "captain"}); !strings.Contains(op.Error, "The role captain does not exist") {
		t.Errorf("an unknown role: %s", op.Error)
	}
	change("success", "PATCH", at, map[string]any{"role": "author"})
	if u = users()["grace"]; !slices.Equal(u.Roles, []string{"author"}) {
		t.Errorf("after a change: %v", u.Roles)
	}
	for _, admin := range users() {
		if slices.Contains(admin.Roles, "administrator") {
			op := change("failed", "PATCH", fmt.Sprintf("/%d", admin.ID), map[string]any{"role": "author"})
			if !strings.Contains(op.Error, "is the only administrator") {
				t.Errorf("the last administrator: %s", op.Error)
			}
		}
	}
	if op := change("failed", "POST", at+"/reset-password", nil); !strings.Contains(op.Error, "This server sends no mail for sites") {
		t.Errorf("a reset without a mail server: %s", op.Error)
	}
	if op := change("failed", "PATCH", "/999", map[string]any{"role": "author"}); !strings.Contains(op.Error, "does not exist any more") {
		t.Errorf("an unknown user: %s", op.Error)
	}
}

// mailsUsers creates a user and resets a password. Each sends an email with a link.
func (h *installation) mailsUsers(s siteBody, mails *mailtest.Server) {
	t := h.t
	have := len(mails.Wait(1))
	var op workBody
	h.call("POST", "/sites/"+s.ID+"/wordpress/users", map[string]any{"login": "grace", "email": "grace@example.test", "role": "editor"}, &op)
	h.ended(op.ID, "success")
	m := mails.Wait(have + 1)[have]
	if m.To != "grace@example.test" || !strings.Contains(m.Text, s.URL+"/wp-login.php?") {
		t.Errorf("the mail to a new user is to %s: %s", m.To, m.Text)
	}
	h.call("POST", "/sites/"+s.ID+"/wordpress/users/1/reset-password", nil, &op)
	if op = h.ended(op.ID, "success"); !strings.HasPrefix(op.Message, "Password reset sent to ") {
		t.Errorf("%s", op.Message)
	}
	if m = mails.Wait(have + 2)[have+1]; m.To != "ada@example.test" || !strings.Contains(m.Text, "action=rp&key=") {
		t.Errorf("the mail of a reset is to %s: %s", m.To, m.Text)
	}
}
