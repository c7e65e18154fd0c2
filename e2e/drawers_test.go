package e2e

import (
	"context"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"slipway/e2e/world"
	"slipway/internal/tenant/mail/mailtest"
)

// Every request in a dashboard page's API drawer works when pasted into a shell.
func TestDrawers(t *testing.T) {
	t.Parallel()
	w, err := world.New(binary, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	server := mailtest.New(t, mailtest.Config{})
	w.Flags = append(w.Flags, "--git-host", "github.com="+w.Git.URL, "--smtp", server.Addr, "--smtp-from", "Slipway <slipway@example.test>", "--base-url", "http://"+w.Listen)
	var commit string // newest commit of the branch cart
	for repo, files := range map[string]map[string]string{
		"site": {"index.html": "hello", "_redirects": "/old-page /new-page"},
		"app": {
			"package.json": `{"name": "app", "private": true, "scripts": {"start": "node server.js"}}`,
			"server.js":    "require('http').createServer((q, r) => r.end('up')).listen(process.env.PORT)",
			"slipway.toml": "[[cron]]\nname = \"cleanup\"\nschedule = \"0 3 * * *\"\ncommand = \"node --version\"\n",
		},
	} {
		dir := filepath.Join(t.TempDir(), "files")
		if err := world.WriteFiles(dir, files); err != nil {
			t.Fatal(err)
		}
		for _, branch := range []string{"main", "cart"} {
			hash, err := w.Git.Commit("acme/"+repo, branch, dir, "A commit")
			if err != nil {
				t.Fatal(err)
			}
			if repo == "site" {
				commit = hash
			}
		}
	}
	w.Hooks.Serve("/api/v1/user", []byte(`{"login": "ada"}`))
	w.Hooks.Serve("/api/v1/user/repos", []byte(`[]`))
	ctx, cancel := deadline()
	defer cancel()
	if err := w.Start(ctx); err != nil {
		t.Fatal(err)
	}
	const email = "ada@example.test"
	key, err := w.User(email)
	if err != nil {
		t.Fatal(err)
	}
	f := furnished{t: t, w: w, key: key}
	site, app := f.site("Storefront", "site"), f.site("Shop", "app")
	for range 2 { // two deployments, so that a rollback is possible
		f.deployed(site, map[string]any{})
	}
	f.deployed(site, map[string]any{"branch": "cart", "target": "preview"})
	f.call("POST", "/sites/"+site+"/env", map[string]any{"key": "GREETING", "value": "Ahoy"})
	f.call("POST", "/sites/"+site+"/domains", map[string]any{"name": "shop.example.org"})
	f.call("POST", "/sites/"+site+"/hooks", map[string]any{"name": "Nightly"})
	f.call("POST", "/sites/"+site+"/git/hook", nil)
	f.until("/backups/"+f.call("POST", "/sites/"+site+"/backups", nil), `"status":"completed"`)
	f.until("/databases/"+f.call("POST", "/sites/"+app+"/databases", map[string]any{"engine": "mariadb"}), `"status":"active"`)
	hook := f.call("POST", "/webhooks", map[string]any{"url": w.Hooks.URL + "/hook", "events": []string{"deployment.completed"}})
	f.call("POST", "/webhooks/"+hook+"/ping", nil)
	f.call("POST", "/notifications", map[string]any{"kind": "slack", "target": w.Hooks.URL + "/first"})
	f.call("POST", "/oauth/apps", map[string]any{"name": "Deploys", "redirectUris": []string{"https://app.example/callback"}, "confidential": true})
	f.forkPulls(site, commit)
	team := f.team(server)
	p, err := w.Person(email)
	if err != nil {
		t.Fatal(err)
	}
	drawers, err := p.Drawers("/", "/new", "/teams/new", "/account", "/webhooks", "/operator", "/transfers", "/account/git", "/teams/crew/members", "/teams/crew/settings", "/teams/crew/sso")
	if err != nil {
		t.Fatal(err)
	}
	crew := slices.DeleteFunc(slices.Clone(drawers), func(d world.Drawer) bool { return !strings.HasPrefix(d.Page, "/teams/crew/") })
	drawers = slices.DeleteFunc(drawers, func(d world.Drawer) bool { return strings.HasPrefix(d.Page, "/teams/crew/") })
	x := outside{w, server, map[string]int{}}
	env := map[string]string{
		"SLIPWAY_KEY": key, "GITEA_URL": w.Hooks.URL, "GITEA_TOKEN": "a-token", "SLACK_WEBHOOK_URL": w.Hooks.URL + "/slack",
		"API_TOKEN": "a secret", "VALUE": "it's", "CLIENT_ID": "0oa1b2c3", "CLIENT_SECRET": "a-secret",
	}
	total := 0
	for _, part := range []struct {
		drawers []world.Drawer
		key     string
	}{{drawers, key}, {crew, team}} {
		env["SLIPWAY_KEY"] = part.key
		n, failed, err := w.RunDrawers(t.Context(), t.TempDir(), part.drawers, env, func(command string) error {
			switch {
			case strings.Contains(command, "/transfer'") || strings.Contains(command, "/transfer "):
				f.idle(site, app)
			case strings.Contains(command, "TRANSFER_CODE"): // another user offers a site
				g := furnished{t: t, w: w, key: f.member}
				theirs := g.site("Given away", "site")
				g.call("POST", "/sites/"+theirs+"/transfer", map[string]any{"to": email})
				env["TRANSFER_CODE"], err = x.mailedTo(email, "TRANSFER_CODE")
				return err
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range failed {
			t.Error(f)
		}
		total += n
	}
	if t.Logf("%d requests of %d pages", total, len(drawers)+len(crew)); total < 100 {
		t.Errorf("%d requests are fewer than the dashboard has", total)
	}
}

// furnished is an installation whose data was created with the API.
type furnished struct {
	t           *testing.T
	w           *world.World
	key, member string // of the user who creates the data, and of another member of that user's team
}

var firstID = regexp.MustCompile(`"(?:deploymentId|id)":"([^"]+)"`)

// call returns the first ID in the response.
func (f furnished) call(method, path string, body any) string {
	f.t.Helper()
	a, err := f.w.Do(f.t.Context(), world.Request{Method: method, Path: path, Key: f.key, Body: body})
	if err == nil {
		err = a.Err()
	}
	if err != nil {
		f.t.Fatalf("%s %s: %v", method, path, err)
	}
	if m := firstID.FindSubmatch(a.Body); m != nil {
		return string(m[1])
	}
	return ""
}

// until waits until the response of a path contains this text.
func (f furnished) until(path, text string) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), world.Patience(3*time.Minute))
	defer cancel()
	var last string
	err := world.Until(ctx, 50*time.Millisecond, func() (bool, error) {
		a, err := f.w.Do(ctx, world.Request{Method: "GET", Path: path, Key: f.key})
		last = string(a.Body)
		return strings.Contains(last, text), err
	})
	if err != nil {
		f.t.Fatalf("%s has not %s: %v: %.500s", path, text, err, last)
	}
}

func (f furnished) site(name, repo string) string {
	f.t.Helper()
	id := f.call("POST", "/sites", map[string]any{"name": name, "type": "static", "repository": "github.com/acme/" + repo})
	f.until("/sites/"+id+"/deployments?status=success", `"data":[{`) // a new site has no deployment for a moment
	return id
}

func (f furnished) deployed(site string, body map[string]any) {
	f.t.Helper()
	id := f.call("POST", "/sites/"+site+"/deploy", body)
	f.until("/sites/"+site+"/deployments?status=success", `"id":"`+id+`"`) // filter by the deployment's status, because stages have one too
}

// idle waits until these sites have no unfinished deployment.
func (f furnished) idle(sites ...string) {
	f.t.Helper()
	for _, site := range sites {
		for _, status := range []string{"pending", "building", "deploying"} {
			f.until("/sites/"+site+"/deployments?status="+status, `"data":[]`)
		}
	}
}

// forkPulls opens a merge request from a fork, which waits for approval.
func (f furnished) forkPulls(site, commit string) {
	f.t.Helper()
	f.call("PATCH", "/sites/"+site+"/git", map[string]any{"previews": "pull_requests", "forks": "approval"})
	var hook struct{ URL, Secret string }
	if err := f.w.Call(f.t.Context(), f.key, "POST", "/sites/"+site+"/git/hook", nil, &hook); err != nil {
		f.t.Fatal(err)
	}
	a, err := f.w.Do(f.t.Context(), world.Request{
		Method: "POST", URL: hook.URL, Header: http.Header{"X-Gitlab-Event": {"Merge Request Hook"}, "X-Gitlab-Token": {hook.Secret}},
		Body: map[string]any{
			"object_kind": "merge_request", "user": map[string]any{"username": "grace"},
			"project": map[string]any{"git_http_url": "https://github.com/acme/site.git", "default_branch": "main"},
			"object_attributes": map[string]any{
				"iid": 7, "title": "Cart", "source_branch": "cart", "state": "opened", "action": "open", "source_project_id": 2, "target_project_id": 1,
				"last_commit": map[string]any{"id": commit}, "source": map[string]any{"path_with_namespace": "grace/site"},
			},
		},
	})
	if err == nil {
		err = a.Err()
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

// team creates the team Crew with a second member, an open invitation and a sign-in provider, and returns an API key of
// it.
func (f *furnished) team(mails *mailtest.Server) string {
	f.t.Helper()
	member, err := f.w.User(invited)
	if err != nil {
		f.t.Fatal(err)
	}
	f.member = member
	id := f.call("POST", "/teams", map[string]any{"name": "Crew"})
	var made struct{ Key string }
	if err := f.w.Call(f.t.Context(), f.key, "POST", "/keys", map[string]any{"name": "Crew", "scopes": []string{"*"}, "teamId": id}, &made); err != nil {
		f.t.Fatal(err)
	}
	crew := furnished{t: f.t, w: f.w, key: made.Key}
	crew.call("POST", "/teams/"+id+"/invitations", map[string]any{"email": invited, "role": "developer"})
	token, err := (outside{f.w, mails, map[string]int{}}).fromMail("INVITATION_TOKEN")
	if err != nil {
		f.t.Fatal(err)
	}
	(furnished{t: f.t, w: f.w, key: member}).call("POST", "/invitations/accept", map[string]any{"token": token})
	crew.call("POST", "/teams/"+id+"/invitations", map[string]any{"email": "linus@example.com", "role": "viewer"})
	crew.call("POST", "/teams/"+id+"/sso", map[string]any{
		"kind": "oidc", "name": "Okta", "issuer": "https://crew.okta.com", "clientId": "0oa1b2c3", "clientSecret": "a-secret",
	})
	return made.Key
}
