package api_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

func pullOf(action, state string, number int, head m) m {
	return m{
		"action":       action,
		"number":       number,
		"repository":   acmeRepo,
		"pull_request": m{"title": "Add a cart", "state": state, "user": m{"login": "eve"}, "head": head},
	}
}

func head(repo, branch, sha string) m {
	return m{"ref": branch, "sha": sha, "repo": m{"full_name": repo}}
}

// A fork's pull request is built only after a member approves its commit, and only that commit. It never affects the
// deployments of a branch with the same name.
func TestForks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, key := w.user("a@example.test")
	id := w.site(key, "One")
	h := w.gitHook(key, id)
	w.must(200, "PATCH", "/sites/"+id+"/git", key, m{"previews": "all"})
	wants(t, "the branch of the same name", h.github("push", pushOf("menu", shaB, "ours")), 200, `"status":"pending"`)
	ours := h.deployments()[0].(m)
	begun := len(h.deployments())
	wants(
		t,
		"a fork",
		h.github("pull_request", pullOf("opened", "open", 12, head("evil/site", "menu", shaA))),
		200,
		`"skipped":true`,
		"after a member approved",
	)
	wants(
		t,
		"a fork's branch called as the production branch",
		h.github("pull_request", pullOf("opened", "open", 13, head("evil/site", "main", shaA))),
		200,
		`"skipped":true`,
		"after a member approved",
	)
	wants(
		t,
		"a fork whose repository is gone",
		h.github("pull_request", pullOf("opened", "open", 14, m{"ref": "menu", "sha": shaA, "repo": nil})),
		200,
		`"skipped":true`,
		"after a member approved",
	)
	wants(
		t,
		"a fork's branch named like an attack",
		h.github("pull_request", pullOf("opened", "open", 15, head("evil/site", "--upload-pack=x", shaA))),
		200,
		`"skipped":true`,
		"characters",
	)
	if n := len(h.deployments()); n != begun {
		t.Fatalf("forks made %d deployments unasked", n-begun)
	}
	pulls := w.must(200, "GET", "/sites/"+id+"/pulls", key, nil)["data"].([]any)
	if len(pulls) != 3 || pulls[2].(m)["waiting"] != true || pulls[2].(m)["fork"] != "evil/site" || pulls[2].(m)["author"] != "eve" {
		t.Errorf("pull requests: %v", pulls)
	}
	approve := func(n int, commit string) answer {
		return w.api("POST", fmt.Sprintf("/sites/%s/pulls/%d/approve", id, n), key, m{"commit": commit})
	}
	wants(t, "another commit", approve(12, shaB), 409, "pull_request_moved")
	wants(t, "a pull request that isn't there", approve(99, shaA), 404, "not found")
	wants(t, "what was looked at", approve(12, shaA), 200, `"deploymentId":"dep_`)
	x := h.deployments()[0].(m)
	if x["commitHash"] != shaA || x["target"] != "preview" || x["branch"] != "menu" || !strings.HasPrefix(
		x["previewUrl"].(string),
		"https://pr-12--",
	) || fmt.Sprint(x["pullRequest"]) != "map[fork:true number:12 title:Add a cart url:https://git.test/acme/site/pull/12]" {
		t.Errorf("an approved fork's deployment: %v", x)
	}
	if got := w.must(
		200,
		"GET",
		"/deployments/"+ours["id"].(string),
		key,
		nil,
	); got["status"] != "pending" || !strings.HasPrefix(got["previewUrl"].(string), "https://menu--") {
		t.Errorf("the branch's own preview is now %v", got)
	}
	wants(
		t,
		"the fork is pushed to",
		h.github("pull_request", pullOf("synchronize", "open", 12, head("evil/site", "menu", shaB))),
		200,
		`"skipped":true`,
		"after a member approved",
	)
	wants(t, "the approval of before", approve(12, shaA), 409, "pull_request_moved")
	wants(
		t,
		"closed",
		h.github("pull_request", pullOf("closed", "closed", 12, head("evil/site", "menu", shaB))),
		200,
		"its preview was removed",
	)
	wants(t, "approved after it was closed", approve(12, shaB), 409, "pull_request_closed")
	if got := w.must(
		200,
		"GET",
		"/deployments/"+x["id"].(string),
		key,
		nil,
	); got["status"] != "canceled" || !strings.Contains(fmt.Sprint(got["error"]), "pull request was closed") {
		t.Errorf("a fork's deployment after the pull request was closed: %v", got)
	}
	if got := w.must(200, "GET", "/deployments/"+ours["id"].(string), key, nil); got["status"] != "pending" {
		t.Errorf("closing the fork's pull request ended the branch's preview: %v", got["status"])
	}
	w.must(200, "PATCH", "/sites/"+id+"/git", key, m{"forks": "ignore"})
	wants(
		t,
		"forks are ignored",
		h.github("pull_request", pullOf("reopened", "open", 12, head("evil/site", "menu", shaB))),
		200,
		"as the settings say",
	)
}

// With previews for all branches, a commit of a branch with a pull request is built once and gets both addresses,
// whichever event arrives first.
func TestPullRequestsAndBranches(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, key := w.user("a@example.test")
	id := w.site(key, "One")
	h := w.gitHook(key, id)
	w.must(200, "PATCH", "/sites/"+id+"/git", key, m{"previews": "all"})
	count := func() int { return len(h.deployments()) }
	begun := count()
	h.github("push", pushOf("cart", shaA, "one"))
	wants(
		t,
		"opened after the push",
		h.github("pull_request", pullOf("opened", "open", 3, head("acme/site", "cart", shaA))),
		200,
		`"skipped":true`,
		"The preview of its branch",
	)
	wants(
		t,
		"told of before the push",
		h.github("pull_request", pullOf("synchronize", "open", 3, head("acme/site", "cart", shaB))),
		200,
		`"skipped":true`,
		"The push to its branch",
	)
	wants(t, "the push", h.github("push", pushOf("cart", shaB, "two")), 200, `"deploymentId"`)
	if n := count(); n != begun+2 {
		t.Errorf("two commits made %d deployments", n-begun)
	}
	for _, x := range h.deployments()[:2] {
		if pr, _ := x.(m)["pullRequest"].(m); pr["number"] != 3.0 || !strings.HasPrefix(fmt.Sprint(x.(m)["previewUrl"]), "https://cart--") {
			t.Errorf("not both: %v", x)
		}
	}
	if list := w.must(200, "GET", "/sites/"+id+"/deployments?pullRequest=3", key, nil)["data"].([]any); len(list) != 2 {
		t.Errorf("the pull request's deployments: %v", list)
	}
	if list := w.must(200, "GET", "/sites/"+id+"/deployments?author=Nobody", key, nil)["data"].([]any); len(list) != 0 {
		t.Errorf("an unknown author's deployments: %v", list)
	}
	h.github("push", pushOf("main", shaA, "[skip ci]"))
	if list := w.must(200, "GET", "/sites/"+id+"/deployments?author=Ada", key, nil)["data"].([]any); len(list) != 1 {
		t.Errorf("Ada's deployments: %v", list)
	}
	wants(
		t,
		"closed",
		h.github("pull_request", pullOf("closed", "closed", 3, head("acme/site", "cart", shaB))),
		200,
		"its preview was removed",
	)
	if x := h.deployments()[1].(m); x["status"] != "pending" {
		t.Errorf("closing the pull request ended its branch's preview: %v", x)
	}
}

// Pull requests, branches with similar names and deployments never share an address.
func TestPullAddressesDontCollide(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, key := w.user("a@example.test")
	id := w.site(key, "One")
	h := w.gitHook(key, id)
	w.must(200, "PATCH", "/sites/"+id+"/git", key, m{"previews": "all"})
	seen := map[string]string{}
	for _, branch := range []string{"pr-7", "PR/7", "pr--7", "pr.7", "pr-7-x", "7", "pr"} {
		wants(t, branch, h.github("push", pushOf(branch, shaA, "x")), 200, `"deploymentId"`)
		x := h.deployments()[0].(m)
		at := x["previewUrl"].(string)
		if strings.HasPrefix(at, "https://pr-7--") || seen[at] != "" {
			t.Errorf("branch %q has %s, which is %q's", branch, at, seen[at])
		}
		seen[at] = branch
	}
	wants(
		t,
		"the pull request",
		h.github("pull_request", pullOf("opened", "open", 7, head("acme/site", "other", shaB))),
		200,
		`"deploymentId"`,
	)
	if at := h.deployments()[0].(m)["previewUrl"].(string); !strings.HasPrefix(at, "https://pr-7--") {
		t.Errorf("the pull request has %s", at)
	}
}

func TestGitEventsAndTags(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, key := w.user("a@example.test")
	id := w.site(key, "One")
	h := w.gitHook(key, id)
	for name, bad := range map[string]m{
		"tags":     {"tags": "production"},
		"days":     {"previewDays": 400},
		"minutes":  {"pollMinutes": 61},
		"branches": {"deletedBranches": "x"},
		"forks":    {"forks": "always"},
	} {
		if a := w.api("PATCH", "/sites/"+id+"/git", key, bad); a.status != 400 && a.status != 422 {
			t.Errorf("%s: %s", name, a)
		}
	}
	set := w.must(200, "PATCH", "/sites/"+id+"/git", key, m{
		"tags":            "preview",
		"deletedBranches": "keep",
		"previews":        "branches",
		"previewDays":     7,
		"pollMinutes":     5,
	})
	if set["tags"] != "preview" || set["deletedBranches"] != "keep" || set["previewDays"] != 7.0 || set["pollMinutes"] != 5.0 {
		t.Errorf("settings: %v", set)
	}
	annotated := m{
		"ref":         "refs/tags/v1.2",
		"before":      none,
		"after":       shaB,
		"repository":  acmeRepo,
		"head_commit": m{"id": shaA, "message": "release"},
	}
	wants(t, "a tag", h.github("push", annotated), 200, `"deploymentId"`)
	if x := h.deployments()[0].(m); x["commitHash"] != shaA || x["target"] != "preview" || !strings.HasPrefix(
		x["previewUrl"].(string),
		"https://v1-2--",
	) {
		t.Errorf("a tag deploys %v", x)
	}
	wants(
		t,
		"a tag called like the production branch",
		h.github("push", m{"ref": "refs/tags/main", "before": none, "after": shaA, "repository": acmeRepo}),
		200,
		"production branch",
	)
	h.github("push", pushOf("topic", shaA, "x"))
	wants(
		t,
		"a deleted branch",
		h.github("push", m{"ref": "refs/heads/topic", "before": shaA, "after": none, "deleted": true, "repository": acmeRepo}),
		200,
		"stays, as the settings say",
	)
	if x := h.deployments()[0].(m); x["status"] != "pending" {
		t.Errorf("the preview of a deleted branch that stays is %v", x["status"])
	}
	for i := range 60 {
		h.github("issues", m{"repository": acmeRepo, "i": i})
	}
	events := w.must(200, "GET", "/sites/"+id+"/git/events", key, nil)["data"].([]any)
	if e := events[0].(m); len(events) != 50 || e["provider"] != "github" || e["name"] != "issues" || e["outcome"] == "" {
		t.Errorf("%d events, the newest %v", len(events), e)
	}
}

// Bitbucket Server's events work with and without URLs of the repository.
func TestBitbucketServer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, key := w.user("a@example.test")
	id := w.site(key, "One")
	w.must(200, "PATCH", "/sites/"+id, key, m{"repository": "git.test/scm/acme/site"})
	h := w.gitHook(key, id)
	w.must(200, "PATCH", "/sites/"+id+"/git", key, m{"previews": "pull_requests"})
	send := func(event string, payload m) answer {
		b, _ := json.Marshal(payload)
		return w.send(
			"POST",
			h.path,
			"",
			string(b),
			"X-Event-Key: "+event,
			"X-Request-Id: "+fmt.Sprint(len(b), event, payload),
			"X-Hub-Signature: sha256="+hexMAC(h.secret, string(b)),
		)
	}
	repo := func(project, slug string) m { return m{"slug": slug, "project": m{"key": project}} }
	push := func(r m) m {
		return m{
			"eventKey":   "repo:refs_changed",
			"repository": r,
			"actor":      m{"displayName": "Ada"},
			"changes":    []m{{"refId": "refs/heads/main", "fromHash": shaB, "toHash": shaA, "type": "UPDATE"}},
			"toCommit":   m{"id": shaA, "message": "hello", "author": m{"name": "ada"}},
		}
	}
	wants(t, "a test", send("diagnostics:ping", m{"test": true}), 200, "ping")
	wants(t, "another project's push", send("repo:refs_changed", push(repo("EVIL", "site"))), 403, "wrong_repository")
	linked := repo("ACME", "site")
	linked["links"] = m{"clone": []m{{"href": "https://evil.test/scm/acme/site.git"}}}
	wants(t, "another host's push", send("repo:refs_changed", push(linked)), 403, "wrong_repository")
	wants(t, "a push", send("repo:refs_changed", push(repo("ACME", "site"))), 200, `"deploymentId"`)
	if x := h.deployments()[0].(m); x["commitHash"] != shaA || x["target"] != "production" ||
		x["commitUrl"] != "https://git.test/projects/acme/repos/site/commits/"+shaA {
		t.Errorf("a push deploys %v", x)
	}
	pull := func(from m) m {
		return m{"eventKey": "pr:opened", "actor": m{"displayName": "Ada"}, "pullRequest": m{
			"id":      4,
			"title":   "T",
			"state":   "OPEN",
			"fromRef": m{"id": "refs/heads/cart", "latestCommit": shaB, "repository": from},
			"toRef":   m{"id": "refs/heads/main", "repository": repo("ACME", "site")},
		}}
	}
	wants(t, "a pull request", send("pr:opened", pull(repo("ACME", "site"))), 200, `"deploymentId"`)
	if x := h.deployments()[0].(m); x["commitHash"] != shaB || !strings.HasPrefix(x["previewUrl"].(string), "https://pr-4--") {
		t.Errorf("a pull request deploys %v", x)
	}
	wants(t, "a fork's", send("pr:opened", pull(repo("~eve", "site"))), 200, "after a member approved")
}

// A deploy hook used as a Git provider's webhook deploys only pushes to its branch.
func TestForgesCallDeployHooks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, key := w.user("a@example.test")
	id := w.site(key, "One")
	path := strings.TrimPrefix(
		w.must(201, "POST", "/sites/"+id+"/hooks", key, m{"name": "ci", "branch": "next"})["url"].(string),
		"http://slipway.test",
	)
	list := func() []any {
		return w.must(200, "GET", "/sites/"+id+"/deployments", key, nil)["data"].([]any)
	}
	begun := len(list())
	call := func(body m, header ...string) answer {
		b, _ := json.Marshal(body)
		return w.send("POST", path, "", string(b), header...)
	}
	event := func(name string) string { return "X-GitHub-Event: " + name }
	wants(t, "ping", call(m{"zen": "x", "hook_id": 1}, event("ping")), 200, `"skipped":true`, "ping")
	wants(
		t,
		"another branch",
		call(pushOf("main", shaA, "x"), event("push")),
		200,
		`"skipped":true`,
		"The push is to main, and this hook deploys next",
	)
	wants(t, "a tag", call(m{"ref": "refs/tags/v1", "after": shaA}, event("push")), 200, `"skipped":true`, "Tags")
	wants(
		t,
		"a deleted branch",
		call(m{"ref": "refs/heads/next", "after": none, "deleted": true}, event("push")),
		200,
		`"skipped":true`,
		"deleted",
	)
	wants(t, "an issue", call(m{}, event("issues")), 200, `"skipped":true`)
	wants(
		t,
		"gitlab's push to another branch",
		call(m{"object_kind": "push", "ref": "refs/heads/main", "after": shaA}, "X-Gitlab-Event: Push Hook"),
		200,
		`"skipped":true`,
	)
	wants(
		t,
		"a hostile ref",
		call(m{"ref": "refs/heads/" + strings.Repeat("<b>", 5000), "after": shaA}, event("push")),
		200,
		`"skipped":true`,
	)
	big := m{"ref": "refs/heads/next", "x": strings.Repeat("x", 10<<20)}
	wants(t, "10 MB", call(big, event("push")), 413, "body_too_large")
	if n := len(list()); n != begun {
		t.Fatalf("%d deployments of skipped events", n-begun)
	}
	wants(t, "its branch", call(pushOf("next", shaA, "x"), event("push")), 200, `"deploymentId"`)
	wants(t, "no forge", call(m{"ref": "refs/heads/main"}), 200, `"deploymentId"`)
}

// Bitbucket abbreviates a pull request's commit, so the preview is of the branch, and a build of the push is reused.
func TestBitbucketPullRequests(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, key := w.user("a@example.test")
	id := w.must(201, "POST", "/sites", key, m{
		"name":       "One",
		"type":       "static",
		"repository": "bitbucket.org/acme/site",
		"branch":     "main",
	})["data"].(m)["id"].(string)
	h := w.gitHook(key, id)
	w.must(200, "PATCH", "/sites/"+id+"/git", key, m{"previews": "pull_requests"})
	n := 0
	send := func(event string, body m) answer {
		n++
		body["n"] = n
		body["repository"] = m{"full_name": "acme/site", "links": m{"html": m{"href": "https://bitbucket.org/acme/site"}}}
		b, _ := json.Marshal(body)
		return w.send("POST", h.path, "", string(b), "X-Event-Key: "+event, "X-Hub-Signature: sha256="+hexMAC(h.secret, string(b)))
	}
	pull := func(number int, branch, from, commit string) m {
		return m{
			"pullrequest": m{
				"id":     number,
				"title":  "x",
				"state":  "OPEN",
				"source": m{"branch": m{"name": branch}, "commit": m{"hash": commit}, "repository": m{"full_name": from}},
			},
		}
	}
	wants(t, "created", send("pullrequest:created", pull(1, "cart", "acme/site", shaA[:12])), 200, `"status":"pending"`)
	if x := h.deployments()[0].(m); x["branch"] != "cart" || x["target"] != "preview" || !strings.HasPrefix(
		x["previewUrl"].(string),
		"https://pr-1--",
	) {
		t.Errorf("its deployment: %v", x)
	}
	wants(t, "a fork", send("pullrequest:created", pull(2, "cart", "eve/site", shaB[:12])), 200, "can't be fetched")
	if p := w.must(200, "GET", "/sites/"+id+"/pulls", key, nil)["data"].([]any)[0].(m); p["number"] != 2.0 || p["waiting"] != false {
		t.Errorf("the fork's pull request: %v", p)
	}
	wants(t, "approving it", w.api("POST", "/sites/"+id+"/pulls/2/approve", key, m{"commit": shaB[:12]}), 409, "commit_not_available")
	for _, bad := range []string{"", "x", shaA[:7], strings.Repeat("%", 12), strings.Repeat("A", 12)} {
		wants(t, "commit "+bad, send("pullrequest:updated", pull(1, "cart", "acme/site", bad)), 200, "has no commit")
	}
	w.must(200, "PATCH", "/sites/"+id+"/git", key, m{"previews": "all"})
	wants(
		t,
		"a push",
		send("repo:push", m{
			"push": m{
				"changes": []m{{
					"new": m{"type": "branch", "name": "menu", "target": m{"hash": shaB, "message": "x", "author": m{"raw": "Ada"}}},
				}},
			},
		}),
		200,
		`"status":"pending"`,
	)
	wants(t, "its pull request", send("pullrequest:created", pull(3, "menu", "acme/site", shaB[:12])), 200, "is of this commit")
}

// Other sites can't get the address of a present or future preview or deployment of this site, and a branch's address
// can't be another site's.
func TestPreviewAddressesAreTheSitesAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, key := w.user("a@example.test")
	_, other := w.user("b@example.test")
	id := w.site(key, "One")
	h := w.gitHook(key, id)
	w.must(200, "PATCH", "/sites/"+id+"/git", key, m{"previews": "all"})
	wants(t, "a branch", h.github("push", pushOf("cart", shaA, "x")), 200, `"deploymentId"`)
	mine := h.deployments()[0].(m)
	taken := map[string]string{}
	host := func(address any) string {
		name, _, _ := strings.Cut(strings.TrimPrefix(fmt.Sprint(address), "https://"), ".")
		return name
	}
	for what, address := range map[string]any{
		"the preview":    mine["previewUrl"],
		"the deployment": mine["url"],
		"a pull request": "https://pr-7--one.x",
	} {
		if !strings.HasSuffix(host(address), "--one") {
			t.Errorf("%s is at %v", what, address)
		}
		taken[host(address)] = what
	}
	for name := range taken {
		for _, called := range []string{
			name,
			strings.ToUpper(name),
			strings.ReplaceAll(name, "-", "_"),
			name + "-",
			"-" + name,
			strings.ReplaceAll(name, "--", "- -"),
			strings.ReplaceAll(name, "--", "\u2010\u2010"),
		} {
			made := w.must(201, "POST", "/sites", other, m{
				"name":       called,
				"type":       "static",
				"repository": "git.test/acme/site",
			})["data"].(m)
			if at := host(made["url"]); strings.Contains(at, "--") || taken[at] != "" {
				t.Errorf("a site called %q is at %s", called, made["url"])
			}
		}
	}
	w.must(201, "POST", "/sites", other, m{"name": "Two", "type": "static", "repository": "git.test/acme/site"})
	for _, branch := range []string{"x--two", "two", "pr-1--two", "one--two", "x/--two", "x--two.sites.test"} {
		wants(t, branch, h.github("push", pushOf(branch, shaA, branch)), 200, `"deploymentId"`)
		if at := host(h.deployments()[0].(m)["previewUrl"]); !strings.HasSuffix(at, "--one") || strings.Count(at, "--") != 1 {
			t.Errorf("branch %q has the address %s", branch, at)
		}
	}
}
