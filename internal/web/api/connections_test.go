package api_test

import (
	"fmt"
	"strings"
	"testing"
)

// A connected account reads a site's repository and reports its deployments until it is disconnected. Its token is
// never shown.
func TestConnections(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, key := w.user("a@example.test")
	_, other := w.user("b@example.test")
	wants(t, "a wrong token", w.api("POST", "/git/accounts", key, m{"provider": "github", "token": "bad-token"}), 400, "token_refused")
	wants(
		t,
		"no host",
		w.api("POST", "/git/accounts", key, m{"provider": "gitea", "token": "good-token"}),
		400,
		"Host name required",
	)
	made := w.must(201, "POST", "/git/accounts", key, m{"provider": "github", "token": "good-token"})
	if made["login"] != "octo" || made["baseUrl"] != "https://github.com" || fmt.Sprint(made["scopes"]) != "[repo admin:repo_hook]" ||
		made["error"] != nil {
		t.Errorf("connected as %v", made)
	}
	id := made["id"].(string)
	found := w.must(200, "GET", "/git/accounts/"+id+"/repositories?search=site", key, nil)["data"].([]any)
	if len(found) != 1 || found[0].(m)["repository"] != "github.com/octo/site" || found[0].(m)["private"] != true {
		t.Errorf("repositories: %v", found)
	}
	site := w.must(201, "POST", "/sites", key, m{
		"name":         "One",
		"type":         "static",
		"repository":   "github.com/octo/site",
		"connectionId": id,
	})["data"].(m)["id"].(string)
	git := w.must(200, "GET", "/sites/"+site+"/git", key, nil)
	if git["connectionId"] != id || git["report"] != true {
		t.Errorf("Git settings of a site of a connected account: %v", git)
	}
	if git := w.must(200, "PATCH", "/sites/"+site+"/git", key, m{"report": false}); git["report"] != false || git["connectionId"] != id {
		t.Errorf("after reports were disabled: %v", git)
	}
	wants(
		t,
		"another's connection",
		w.api("POST", "/sites", other, m{"name": "Two", "type": "static", "repository": "github.com/octo/site", "connectionId": id}),
		404,
		"not found",
	)
	wants(
		t,
		"another host",
		w.api("POST", "/sites", key, m{"name": "Two", "type": "static", "repository": "git.test/octo/site", "connectionId": id}),
		409,
		"wrong_host",
	)
	if list := w.must(200, "GET", "/git/accounts", key, nil)["data"].([]any); len(list) != 1 || list[0].(m)["sites"] != 1.0 {
		t.Errorf("connections: %v", list)
	}
	w.must(200, "DELETE", "/git/accounts/"+id, key, nil)
	if git := w.must(200, "GET", "/sites/"+site+"/git", key, nil); git["connectionId"] != nil || git["report"] != false {
		t.Errorf("after the account was disconnected: %v", git)
	}
	if strings.Contains(w.logs.String(), "good-token") {
		t.Error("the log holds the token")
	}
}

func TestNotificationChannels(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, key := w.user("a@example.test")
	_, other := w.user("b@example.test")
	theirs := w.site(other, "Theirs")
	wants(t, "no target", w.api("POST", "/notifications", key, m{"kind": "slack"}), 400, "URL is missing")
	wants(t, "plain http", w.api("POST", "/notifications", key, m{"kind": "slack", "target": "http://x.test/"}), 400, "https")
	wants(
		t,
		"another's site",
		w.api("POST", "/notifications", key, m{"kind": "slack", "target": "https://x.test/", "siteId": theirs}),
		404,
		"not found",
	)
	mine, second := w.site(key, "Mine"), w.site(key, "Second")
	target := func(n string, more m) m {
		more["kind"], more["target"] = "slack", "https://x.test/"+n
		return more
	}
	wants(
		t,
		"another's site among one's own",
		w.api("POST", "/notifications", key, target("1", m{"siteIds": []string{mine, theirs}})),
		404,
		"not found",
	)
	wants(t, "no sites", w.api("POST", "/notifications", key, target("1", m{"siteIds": []string{}})), 400, "Choose at least one site")
	wants(t, "no events", w.api("POST", "/notifications", key, target("1", m{"events": []string{}})), 400, "Choose at least one event")
	wants(t, "both", w.api("POST", "/notifications", key, target("1", m{"siteIds": []string{mine}, "siteId": mine})), 400, "either")
	if got := w.must(
		201,
		"POST",
		"/notifications",
		key,
		target("1", m{"siteIds": []string{mine, second, mine}}),
	); len(got["siteIds"].([]any)) != 2 || got["siteId"] != nil {
		t.Errorf("two sites: %v", got)
	}
	if got := w.must(
		201,
		"POST",
		"/notifications",
		key,
		target("2", m{"siteId": mine}),
	); len(got["siteIds"].([]any)) != 1 || got["siteId"] != mine {
		t.Errorf("one site: %v", got)
	}
	if got := w.must(201, "POST", "/notifications", key, target("3", m{})); got["siteIds"] != nil {
		t.Errorf("all sites: %v", got)
	}
	wants(t, "mail without mail", w.api("POST", "/notifications", key, m{"kind": "email"}), 409, "no_mail")
	made := w.must(201, "POST", "/notifications", key, m{
		"kind":   "discord",
		"target": "https://discord.test/api/webhooks/1/planted",
		"events": []string{"domain.failed"},
	})
	if a := w.api("GET", "/notifications", key, nil); strings.Contains(a.body, "planted") || !strings.Contains(a.body, "discord.test") {
		t.Errorf("the list: %s", a)
	}
	id := made["id"].(string)
	if got := w.must(200, "PATCH", "/notifications/"+id, key, m{
		"events": []string{"deployment.failed"},
		"active": false,
	}); got["active"] != false || len(got["events"].([]any)) != 1 {
		t.Errorf("changed to %v", got)
	}
	path := "/notifications/" + id
	if got := w.must(200, "PATCH", path, key, m{
		"target":  "https://y.test/hidden",
		"siteIds": []string{second, mine},
	}); got["host"] != "y.test" || len(got["siteIds"].([]any)) != 2 || strings.Contains(
		w.api("GET", "/notifications", key, nil).body,
		"hidden",
	) {
		t.Errorf("changed to %v", got)
	}
	if got := w.must(200, "PATCH", path, key, m{"name": "other"}); len(got["siteIds"].([]any)) != 2 || got["host"] != "y.test" {
		t.Errorf("an omitted field changed: %v", got)
	}
	wants(
		t,
		"a target of another channel",
		w.api("PATCH", path, key, m{"target": "https://x.test/1", "siteIds": []string{mine, second}}),
		409,
		"target_taken",
	)
	wants(t, "no sites", w.api("PATCH", path, key, m{"siteIds": []string{}}), 400, "Choose at least one site")
	wants(t, "another's site", w.api("PATCH", path, key, m{"siteIds": []string{theirs}}), 404, "not found")
	wants(t, "no URL", w.api("PATCH", path, key, m{"target": "http://x.test/"}), 400, "https")
	wants(t, "the kind", w.api("PATCH", path, key, m{"kind": "slack"}), 400, "field_not_changeable")
	if got := w.must(200, "PATCH", path, key, m{"siteIds": nil}); got["siteIds"] != nil {
		t.Errorf("all sites: %v", got)
	}
}

// Reports can't be turned on without a connected account to send them.
func TestReportsNeedAConnectedAccount(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, key := w.user("a@example.test")
	path := "/sites/" + w.site(key, "x") + "/git"
	for _, body := range []m{{"report": true}, {"report": true, "connectionId": ""}, {"report": true, "autoDeploy": false}} {
		if a := w.api("PATCH", path, key, body); a.status != 400 || a.json(t)["code"] != "invalid_report" {
			t.Errorf("%v: %s", body, a)
		}
	}
	if git := w.must(200, "PATCH", path, key, m{"report": false}); git["report"] != false || git["autoDeploy"] != true {
		t.Errorf("%v", git)
	}
}
