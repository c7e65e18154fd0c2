package api_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
)

const (
	shaA = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	shaB = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
	none = "0000000000000000000000000000000000000000"
)

// gitHook is a site's Git hook as a Git provider calls it.
type gitHook struct {
	w      *world
	path   string
	secret string
	key    string
	site   string
	n      int
}

func (w *world) gitHook(key, site string) *gitHook {
	w.t.Helper()
	made := w.must(201, "POST", "/sites/"+site+"/git/hook", key, nil)
	return &gitHook{
		w:      w,
		path:   strings.TrimPrefix(made["url"].(string), "http://slipway.test"),
		secret: made["secret"].(string),
		key:    key,
		site:   site,
	}
}

func hexMAC(secret, body string) string {
	h := hmac.New(sha256.New, []byte(secret))
	h.Write([]byte(body))
	return hex.EncodeToString(h.Sum(nil))
}

// github sends an event as GitHub does, with a new delivery ID each time.
func (h *gitHook) github(event string, payload m) answer {
	h.w.t.Helper()
	h.n++
	payload["n"] = h.n // real payloads have different timestamps
	b, err := json.Marshal(payload)
	if err != nil {
		h.w.t.Fatal(err)
	}
	return h.w.send(
		"POST",
		h.path,
		"",
		string(b),
		"Content-Type: application/json",
		"X-GitHub-Event: "+event,
		fmt.Sprint("X-GitHub-Delivery: d-", h.n),
		"X-Hub-Signature-256: sha256="+hexMAC(h.secret, string(b)),
	)
}

var acmeRepo = m{"full_name": "acme/site", "clone_url": "https://git.test/acme/site.git", "default_branch": "main"}

func pushOf(branch, sha, message string, files ...string) m {
	return m{
		"ref": "refs/heads/" + branch, "before": shaB, "after": sha, "repository": acmeRepo,
		"commits":     []m{{"id": sha, "message": message, "author": m{"name": "Ada"}, "modified": files}},
		"head_commit": m{"id": sha, "message": message, "author": m{"name": "Ada"}},
	}
}

// wants checks a response's status and texts in its body.
func wants(t *testing.T, what string, a answer, status int, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if a.status != status || !strings.Contains(a.body, text) {
			t.Errorf("%s: %s, want %d with %s", what, a, status, text)
		}
	}
}

func (h *gitHook) deployments() []any {
	return h.w.must(200, "GET", "/sites/"+h.site+"/deployments", h.key, nil)["data"].([]any)
}

func TestGitHookPushes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, key := w.user("a@example.test")
	id := w.site(key, "One")
	if before := w.must(
		200,
		"GET",
		"/sites/"+id+"/git",
		key,
		nil,
	); before["hookUrl"] != nil || before["autoDeploy"] != true || before["previews"] != "off" || before["connected"] != false {
		t.Errorf("settings of a new site: %v", before)
	}
	h := w.gitHook(key, id)
	set := func(b m) { t.Helper(); w.must(200, "PATCH", "/sites/"+id+"/git", key, b) }
	newest := func() m { t.Helper(); return h.deployments()[0].(m) }
	count := func() int { t.Helper(); return len(h.deployments()) }

	addresses := map[string]bool{} // addresses of long branch names
	begun := count()
	wants(t, "ping", h.github("ping", m{"zen": "x"}), 200, `"skipped":true`, "ping")
	wants(
		t,
		"a tag",
		h.github("push", m{"ref": "refs/tags/v1", "before": none, "after": shaA, "repository": acmeRepo}),
		200,
		`"skipped":true`,
		"Tags don't trigger deployments",
	)
	wants(t, "another branch, previews off", h.github("push", pushOf("next", shaA, "x")), 200, `"skipped":true`, "Previews are off")
	wants(t, "an issue", h.github("issues", m{"repository": acmeRepo}), 200, `"skipped":true`)
	if n := count(); n != begun {
		t.Fatalf("what deploys nothing made %d deployments", n-begun)
	}

	a := h.github("push", pushOf("main", shaA, "fix"))
	wants(t, "a push", a, 200, `"deploymentId":"dep_`, `"status":"pending"`)
	first := newest()
	if first["commitHash"] != shaA || first["target"] != "production" || first["trigger"] != "push" || first["branch"] != "main" {
		t.Errorf("a push deploys %v", first)
	}
	wants(t, "a newer push", h.github("push", pushOf("main", shaB, "fix 2")), 200, `"status":"pending"`)
	if got := w.must(200, "GET", "/deployments/"+first["id"].(string), key, nil); got["status"] != "canceled" {
		t.Errorf("a newer push leaves %v", got["status"])
	}

	for _, word := range []string{"[skip ci]", "[CI Skip]", "[skip deploy]"} {
		wants(t, word, h.github("push", pushOf("main", shaA, "docs "+word)), 200, `"skipped":true`, "commit message says")
		if x := newest(); x["status"] != "canceled" || !strings.Contains(
			fmt.Sprint(x["error"]),
			"Skipped: the commit message says",
		) || x["commitHash"] != shaA || x["commitAuthor"] != "Ada" {
			t.Errorf("%s is listed as %v", word, x)
		}
	}
	set(m{"watch": []string{"src/**", "!**/*.md"}})
	wants(
		t,
		"unwatched",
		h.github("push", pushOf("main", shaA, "x", "src/a.md", "docs/b.js")),
		200,
		`"skipped":true`,
		"no watched file changed",
	)
	wants(t, "watched", h.github("push", pushOf("main", shaA, "x", "src/a/b.js")), 200, `"status":"pending"`)
	forced := pushOf("main", shaA, "x", "docs/b.js")
	forced["forced"] = true
	wants(t, "forced: more may have changed than is listed", h.github("push", forced), 200, `"status":"pending"`)
	set(m{"watch": []string{}})
	w.must(200, "PATCH", "/sites/"+id, key, m{"build": m{"root": "apps/web"}})
	wants(
		t,
		"outside of the root",
		h.github("push", pushOf("main", shaA, "x", "apps/docs/a.js")),
		200,
		`"skipped":true`,
		"nothing changed below apps/web",
	)
	wants(t, "the lock file", h.github("push", pushOf("main", shaA, "x", "package-lock.json")), 200, `"status":"pending"`)
	wants(t, "below the root", h.github("push", pushOf("main", shaA, "x", "apps/web/a.js")), 200, `"status":"pending"`)

	set(m{"previews": "branches"})
	wants(t, "a branch", h.github("push", pushOf("feature/x", shaA, "x", "apps/web/a.js")), 200, `"status":"pending"`)
	if x := newest(); x["target"] != "preview" || !strings.Contains(fmt.Sprint(x["previewUrl"]), "feature-x--") {
		t.Errorf("a branch's push deploys %v", x)
	}
	gone := m{"ref": "refs/heads/feature/x", "before": shaA, "after": none, "deleted": true, "repository": acmeRepo}
	wants(t, "a deleted branch", h.github("push", gone), 200, `"skipped":true`, "preview was removed")
	if x := newest(); x["status"] != "canceled" {
		t.Errorf("a preview of a deleted branch is %v", x["status"])
	}
	if n := w.must(200, "GET", "/sites/"+id+"/deployments?status=pending&target=preview", key, nil)["data"].([]any); len(n) != 0 {
		t.Errorf("previews of a deleted branch that wait: %v", n)
	}
	gone["ref"] = "refs/heads/main"
	wants(t, "the production branch is deleted", h.github("push", gone), 200, `"skipped":true`, "keeps its release")
	wants(t, "a branch named like an attack", h.github("push", pushOf("../../etc/passwd", shaA, "x")), 200, `"skipped":true`, "characters")
	wants(t, "a ref of 300 characters", h.github("push", pushOf(strings.Repeat("x", 300), shaA, "x")), 200, `"skipped":true`)

	wants(
		t,
		"a ref of 245 characters",
		h.github("push", pushOf(strings.Repeat("y", 245), shaA, "x", "apps/web/a.js")),
		200,
		`"skipped":true`,
		"characters",
	)
	for _, end := range []string{"a", "b"} {
		long := strings.Repeat("feature/", 24) + "xxxxxxx" + end // 200 characters
		wants(t, "a ref of 200 characters", h.github("push", pushOf(long, shaA, "x", "apps/web/a.js")), 200, `"status":"pending"`)
		host, _, _ := strings.Cut(strings.TrimPrefix(fmt.Sprint(newest()["previewUrl"]), "https://"), ".")
		if x := newest(); x["branch"] != long || len(host) > 63 || !strings.HasPrefix(host, "feature-feature-") || addresses[host] {
			t.Errorf("a ref of 200 characters deploys %v at %s", x["branch"], host)
		}
		addresses[host] = true
	}

	pull := func(action, state string, head m) m {
		return m{"action": action, "number": 7, "repository": acmeRepo, "pull_request": m{"title": "T", "state": state, "head": head}}
	}
	own := m{"ref": "pr", "sha": shaA, "repo": m{"full_name": "acme/site"}}
	wants(t, "pull requests are off", h.github("pull_request", pull("opened", "open", own)), 200, `"skipped":true`)
	set(m{"previews": "pull_requests"})
	wants(t, "a pull request", h.github("pull_request", pull("opened", "open", own)), 200, `"status":"pending"`)
	if x := newest(); x["target"] != "preview" || x["commitHash"] != shaA {
		t.Errorf("a pull request deploys %v", x)
	}
	wants(t, "a label", h.github("pull_request", pull("labeled", "open", own)), 200, `"skipped":true`)
	if x := newest(); !strings.Contains(
		fmt.Sprint(x["previewUrl"]),
		"https://pr-7--",
	) || fmt.Sprint(x["pullRequest"]) != "map[fork:false number:7 title:T url:https://git.test/acme/site/pull/7]" {
		t.Errorf("a pull request deploys %v", x)
	}
	wants(
		t,
		"a fork",
		h.github("pull_request", pull("opened", "open", m{"ref": "pr", "sha": shaA, "repo": m{"full_name": "evil/site"}})),
		200,
		`"skipped":true`,
		"forks",
	)
	wants(
		t,
		"a pull request without a number",
		h.github("pull_request", m{
			"action":       "opened",
			"number":       -1,
			"repository":   acmeRepo,
			"pull_request": m{"state": "open", "head": own},
		}),
		200,
		`"skipped":true`,
		"no number",
	)
	wants(
		t,
		"from the production branch",
		h.github("pull_request", pull("opened", "open", m{"ref": "main", "sha": shaA, "repo": m{"full_name": "acme/site"}})),
		200,
		`"skipped":true`,
	)
	wants(t, "closed", h.github("pull_request", pull("closed", "closed", own)), 200, `"skipped":true`, "closed")

	set(m{"autoDeploy": false})
	wants(
		t,
		"automatic deployments are off",
		h.github("push", pushOf("main", shaA, "x", "apps/web/a.js")),
		200,
		`"skipped":true`,
		"automatic deployments are off",
	)
	now := w.must(200, "GET", "/sites/"+id+"/git", key, nil)
	if now["provider"] != "github" || now["connected"] != true || !strings.Contains(
		fmt.Sprint(now["lastEvent"]),
		"automatic deployments are off",
	) {
		t.Errorf("settings after events: %v", now)
	}
}

func TestGitHookRefuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, key := w.user("a@example.test")
	id := w.site(key, "One")
	h := w.gitHook(key, id)
	begun := len(h.deployments())
	b, _ := json.Marshal(pushOf("main", shaA, "x"))
	body := string(b)
	send := func(body string, header ...string) answer { return w.send("POST", h.path, "", body, header...) }
	sign := func(body string) string { return "X-Hub-Signature-256: sha256=" + hexMAC(h.secret, body) }
	event := "X-GitHub-Event: push"
	wants(t, "unsigned", send(body, event), 401, "invalid_signature")
	wants(
		t,
		"signed with another secret",
		send(body, event, "X-Hub-Signature-256: sha256="+hexMAC("other", body)),
		401,
		"invalid_signature",
	)
	wants(t, "signed with nothing", send(body, event, "X-Hub-Signature-256: sha256="+hexMAC("", body)), 401, "invalid_signature")
	wants(t, "another body", send(body+" ", event, sign(body)), 401, "invalid_signature")
	wants(t, "SHA-1 alone", send(body, event, "X-Hub-Signature: sha1=00"), 401, "invalid_signature")
	wants(t, "an empty token", send(body, "X-Gitlab-Event: Push Hook", "X-Gitlab-Token:"), 401, "invalid_signature")
	wants(t, "no forge", send(body), 401, "invalid_signature")
	wants(t, "an unknown hook", w.send("POST", "/hooks/git/ghk_"+strings.Repeat("a", 52), "", body, event, sign(body)), 404, "not found")
	big := `{"x":"` + strings.Repeat("x", 25<<20) + `"}`
	wants(t, "over 25 MiB", send(big, event, sign(big)), 413, "25 MiB")
	wants(t, "over 1 MiB and unsigned", send(big[:2<<20], event), 401, "invalid_signature")
	bitbucket := "X-Event-Key: repo:push"
	long := `{"x":"` + strings.Repeat("x", 1<<20) + `"}`
	wants(t, "over 1 MiB of Bitbucket", send(long, bitbucket, "X-Hub-Signature: sha256="+hexMAC(h.secret, long)), 413, "1 MiB")
	deep := strings.Repeat(`{"a":`, 100_000) + "1" + strings.Repeat("}", 100_000)
	wants(t, "deep", send(deep, event, sign(deep)), 400, "malformed_json")
	for _, bad := range []string{"", "x", "[1]", `{"ref":1}`, `payload=%zz`} {
		wants(t, "malformed "+bad, send(bad, event, sign(bad)), 400, "malformed_json")
	}
	other := strings.ReplaceAll(body, "acme/site", "evil/site")
	wants(t, "another repository", send(other, event, sign(other)), 403, "wrong_repository")
	host := strings.ReplaceAll(body, "https://git.test/", "https://evil.test/")
	wants(t, "the same name on another host", send(host, event, sign(host)), 403, "wrong_repository")
	odd := strings.ReplaceAll(body, shaA, "not a commit")
	wants(t, "no commit", send(odd, event, sign(odd)), 400, "invalid_commit")
	if n := len(h.deployments()); n != begun {
		t.Fatalf("refused requests caused %d deployments", n-begun)
	}
	wants(t, "good", send(body, event, sign(body), "X-GitHub-Delivery: 1"), 200, `"status":"pending"`)
	wants(t, "delivered again", send(body, event, sign(body), "X-GitHub-Delivery: 1"), 200, "handled before")
	wants(t, "replayed under another id", send(body, event, sign(body), "X-GitHub-Delivery: 2"), 200, "handled before")
	if n := len(h.deployments()); n != begun+1 {
		t.Errorf("replays made %d deployments, want 1", n-begun)
	}
	old := *h
	h = w.gitHook(key, id)
	wants(t, "the old address", old.github("push", pushOf("main", shaB, "x")), 404, "not found")
	wants(t, "the new one", h.github("push", pushOf("main", shaB, "x")), 200, `"status":"pending"`)
	if strings.Contains(w.api("GET", "/sites/"+id+"/git", key, nil).body, h.secret) {
		t.Error("the secret is shown again")
	}
	if logged := w.logs.String(); strings.Contains(
		logged,
		h.secret,
	) || strings.Contains(logged, strings.TrimPrefix(h.path, "/hooks/git/")) {
		t.Error("the log holds the hook's address or secret")
	}
}

// A push with 1,500 commits, about 2 MiB of JSON, deploys. Concurrent pushes of this size wait for each other and deploy, too.
func TestLargePush(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, key := w.user("a@example.test")
	h := w.gitHook(key, w.site(key, "One"))
	push := func(sha string) string {
		p := pushOf("main", sha, "the last one", "src/a.js")
		list := p["commits"].([]m)
		for i := range 1500 {
			list = append([]m{{"id": fmt.Sprintf("%040x", i), "message": strings.Repeat("m", 1000), "modified": []string{"src/b.js"}}}, list...)
		}
		p["commits"] = list
		b, _ := json.Marshal(p)
		return string(b)
	}
	begun := len(h.deployments())
	var all sync.WaitGroup
	for _, sha := range []string{shaA, shaB} {
		all.Go(func() {
			body := push(sha)
			if len(body) < 1<<20 {
				t.Errorf("only %d bytes", len(body))
			}
			var a answer
			for range 10 { // on a busy machine the other push may take longer than the five seconds that this one waits
				a = w.send("POST", h.path, "", body, "X-GitHub-Event: push", "X-Hub-Signature-256: sha256="+hexMAC(h.secret, body))
				if a.status != 503 {
					break
				}
			}
			wants(t, "a large push", a, 200, `"status":"pending"`)
		})
	}
	all.Wait()
	if n := len(h.deployments()) - begun; n != 2 {
		t.Errorf("%d deployments of two pushes", n)
	}
}

// Requests without a valid hook can't use up the slots for large pushes.
func TestLargePushBesideStrangers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, key := w.user("a@example.test")
	h := w.gitHook(key, w.site(key, "One"))
	for _, letter := range []string{"a", "b"} {
		r, body := io.Pipe()
		t.Cleanup(func() { body.Close() })
		req, err := http.NewRequestWithContext(t.Context(), "POST", w.srv.URL+"/hooks/git/ghk_"+strings.Repeat(letter, 52), r)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			resp, err := http.DefaultClient.Do(req)
			if err == nil {
				resp.Body.Close()
			}
		}()
		if _, err := body.Write(bytes.Repeat([]byte("x"), 1<<20+4096)); err != nil { // and then stall
			t.Fatal(err)
		}
	}
	p := pushOf("main", shaA, "the last one", "src/a.js")
	p["padding"] = strings.Repeat("x", 2<<20)
	b, _ := json.Marshal(p)
	a := w.send("POST", h.path, "", string(b), "X-GitHub-Event: push", "X-Hub-Signature-256: sha256="+hexMAC(h.secret, string(b)))
	wants(t, "a large push", a, 200, `"status":"pending"`)
}

func TestGitHookForges(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, key := w.user("a@example.test")
	id := w.site(key, "One")
	h := w.gitHook(key, id)
	text := func(v m) string { b, _ := json.Marshal(v); return string(b) }
	gitea := text(pushOf("main", shaA, "gitea"))
	gitlab := func(n int) string {
		return text(m{
			"object_kind":         "push",
			"ref":                 "refs/heads/main",
			"before":              shaB,
			"after":               shaA,
			"n":                   n,
			"total_commits_count": 1,
			"project":             m{"git_http_url": "https://git.test/acme/site.git"},
			"commits":             []m{{"id": shaA, "message": "x", "modified": []string{"a"}}},
		})
	}
	bitbucket := text(m{
		"repository": m{"full_name": "acme/site", "links": m{"html": m{"href": "https://git.test/acme/site"}}},
		"push": m{
			"changes": []m{{
				"new": m{"type": "branch", "name": "main", "target": m{"hash": shaA, "message": "x", "author": m{"raw": "Ada <a@x>"}}},
			}},
		},
	})
	form := "payload=" + strings.ReplaceAll(strings.ReplaceAll(text(pushOf("main", shaA, "form")), "%", "%25"), "+", "%2B")
	key32, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(h.secret, "whsec_"))
	standard := func(body string, at time.Time) []string {
		mac := hmac.New(sha256.New, key32)
		ts := strconv.FormatInt(at.Unix(), 10)
		mac.Write([]byte("msg-" + ts + "." + ts + "." + body))
		return []string{
			"X-Gitlab-Event: Push Hook",
			"webhook-id: msg-" + ts,
			"webhook-timestamp: " + ts,
			"webhook-signature: v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)),
		}
	}
	for _, x := range []struct {
		name   string
		body   string
		header []string
		status int
		want   string
	}{
		{
			"gitea",
			gitea,
			[]string{"X-Gitea-Event: push", "X-GitHub-Event: push", "X-Gitea-Signature: " + hexMAC(h.secret, gitea)},
			200,
			"pending",
		},
		{"gitea, badly", gitea, []string{"X-Gitea-Event: push", "X-Gitea-Signature: " + hexMAC("x", gitea)}, 401, "invalid_signature"},
		{
			"gitea, with GitHub's signature",
			gitea,
			[]string{"X-Gitea-Event: push", "X-Hub-Signature-256: sha256=" + hexMAC(h.secret, gitea)},
			401,
			"invalid_signature",
		},
		{
			"gitlab's token",
			gitlab(1),
			[]string{"X-Gitlab-Event: Push Hook", "X-Gitlab-Token: " + h.secret, "X-Gitlab-Event-UUID: u1"},
			200,
			"pending",
		},
		{
			"gitlab's token again",
			gitlab(2),
			[]string{"X-Gitlab-Event: Push Hook", "X-Gitlab-Token: " + h.secret, "X-Gitlab-Event-UUID: u1"},
			200,
			"handled before",
		},
		{"gitlab, signed", gitlab(3), standard(gitlab(3), time.Now()), 200, "pending"},
		{"gitlab, signed long ago", gitlab(4), standard(gitlab(4), time.Now().Add(-time.Hour)), 401, "invalid_signature"},
		{
			"gitlab, badly signed, with a token",
			gitlab(5),
			append(standard("x", time.Now()), "X-Gitlab-Token: "+h.secret),
			401,
			"invalid_signature",
		},
		{
			"bitbucket",
			bitbucket,
			[]string{"X-Event-Key: repo:push", "X-Hub-Signature: sha256=" + hexMAC(h.secret, bitbucket)},
			200,
			"pending",
		},
		{
			"github's form",
			form,
			[]string{
				"X-GitHub-Event: push",
				"Content-Type: application/x-www-form-urlencoded",
				"X-Hub-Signature-256: sha256=" + hexMAC(h.secret, form),
			},
			200,
			"pending",
		},
	} {
		wants(t, x.name, w.send("POST", h.path, "", x.body, x.header...), x.status, x.want)
	}
	if d := h.deployments()[0].(m); d["commitHash"] != shaA || d["trigger"] != "push" {
		t.Errorf("the newest deployment: %v", d)
	}
}

// Allowing workflows needs a key as lasting and as broad as the access it gives. The settings show what is allowed, and
// an empty repository removes it.
func TestWorkflowsAreAllowed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	u, key := w.user("ada@example.test")
	path := "/sites/" + w.folderSite(key, "Harbor") + "/git"
	if got := w.must(200, "GET", path, key, nil)["workflows"]; got != nil {
		t.Errorf("a new site allows %v", got)
	}
	allow := func(repository string) m { return m{"workflows": m{"repository": repository, "environment": "live"}} }
	got := w.must(200, "PATCH", path, key, allow("acme/site"))["workflows"]
	if want := (m{"repository": "acme/site", "branch": "main", "environment": "live"}); mustJSON(t, got) != mustJSON(t, want) {
		t.Errorf("the settings show %v, want %v", got, want)
	}
	w.must(200, "PATCH", path, key, m{"tags": "ignore"}) // changes nothing else
	if got := w.must(200, "GET", path, key, nil)["workflows"]; got == nil {
		t.Error("changing another setting removed the allowed workflows")
	}
	for _, repository := range []string{"acme", "acme/site/x", "https://github.com/acme/site", "acme/si te", "/site", "acme/" + strings.Repeat("x", 300)} {
		if code := w.must(400, "PATCH", path, key, allow(repository))["code"]; code != "invalid_workflows" {
			t.Errorf("%q is refused as %v", repository, code)
		}
	}
	if got := w.must(200, "PATCH", path, key, m{"workflows": m{"repository": ""}})["workflows"]; got != nil {
		t.Errorf("after the end %v is allowed", got)
	}
	for name, n := range map[string]account.NewKey{
		"fewer scopes": {Scopes: account.Scopes{account.DeploymentsWrite}},
		"an end":       {Scopes: account.Scopes{account.All}, Expires: db.Now().Add(time.Hour)},
		"addresses":    {Scopes: account.Scopes{account.All}, Nets: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}},
	} {
		n.Name = name
		if code := w.must(403, "PATCH", path, w.key(u, n), allow("acme/site"))["code"]; code != "wider_key" {
			t.Errorf("a key with %s is refused as %v", name, code)
		}
	}
}
