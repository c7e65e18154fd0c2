package dashboard

import (
	"fmt"
	"html"
	"regexp"
	"strings"
	"testing"

	"slipway/internal/platform/id"

	"slipway/internal/deploy/deploy"
	"slipway/internal/deploy/deployment"
	"slipway/internal/deploy/pushes"
	"slipway/internal/platform/db"
	"slipway/internal/tenant/site"
)

const (
	commitA = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	commitB = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
	commitC = "cccccccccccccccccccccccccccccccccccccccc"
)

// ready inserts a successful deployment of a commit, and makes it live if it is for production.
func (w *world) ready(s site.Site, t deploy.Trigger) deployment.ID {
	w.t.Helper()
	t.Cause = deployment.ByAPI
	x, err := w.dash.Deployments.Trigger(w.t.Context(), s.Owner, s.ID, t)
	must(w.t, err)
	if x.Target == deployment.Production {
		w.live(s, x.ID)
		return x.ID
	}
	must(w.t, w.db.Write(w.t.Context(), func(tx *db.Tx) error {
		if err := w.endTx(tx, x.ID, deployment.Success, "", id.Release("rel_"+string(x.ID))); err != nil {
			return err
		}
		_, err := tx.Exec(
			w.t.Context(),
			`UPDATE preview_hosts SET deployment_id = $2, release = $3 WHERE site_id = $1`,
			s.ID,
			x.ID,
			"rel_"+string(x.ID),
		)
		return err
	}))
	return x.ID
}

var (
	pageForms = regexp.MustCompile(`(?s)<form[^>]* action="([^"]*)"[^>]*>(.*?)</form>`)
	hidden    = regexp.MustCompile(`<input type="hidden" name="([^"]*)" value="([^"]*)">`)
)

// press submits the form whose button has exactly this label.
func (b *browser) press(p reply, label string) reply {
	b.w.t.Helper()
	for _, m := range pageForms.FindAllStringSubmatch(p.body, -1) {
		if !regexp.MustCompile(`<button [^>]*>` + regexp.QuoteMeta(label) + `</button>`).MatchString(m[2]) {
			continue
		}
		var pairs []string
		for _, h := range hidden.FindAllStringSubmatch(m[2], -1) {
			pairs = append(pairs, h[1], html.UnescapeString(h[2]))
		}
		return b.post(html.UnescapeString(m[1]), pairs...)
	}
	b.w.t.Fatalf("no button %q in %s", label, main(p.body))
	return reply{}
}

// Each button deploys exactly the commit that it shows.
func TestButtonsDoWhatTheySay(t *testing.T) {
	t.Parallel()
	w, b, s := ada(t)
	base := "/sites/" + string(s.ID)
	newest := func() deployment.Deployment {
		t.Helper()
		list, _, err := w.dash.Deployments.List(t.Context(), s.Owner, s.ID, deployment.Filter{Page: 1, Limit: 1})
		must(t, err)
		return list[0]
	}
	old := w.ready(s, deploy.Trigger{Commit: commitA})
	preview := w.ready(s, deploy.Trigger{Branch: "cart", Commit: commitB})
	live := w.ready(s, deploy.Trigger{Commit: commitC})

	b.press(b.get(base), "Deploy").to(t, base+"/deployments/")
	if x := newest(); x.Pinned || x.CommitHash != "" || x.Branch != "main" || x.Target != deployment.Production {
		t.Errorf("Deploy asked for %+v", x)
	}
	for id, commit := range map[deployment.ID]string{old: commitA, preview: commitB, live: commitC} {
		b.press(b.get(base+"/deployments/"+string(id)), "Redeploy "+commit[:7]).to(t, base+"/deployments/")
		if x := newest(); !x.Pinned || x.CommitHash != commit || (x.Target == deployment.Preview) != (id == preview) {
			t.Errorf("Redeploy %s asked for %+v", commit[:7], x)
		}
	}
	failed := newest().ID
	w.end(failed, deployment.Failed, "the build failed")
	commit := newest().CommitHash
	b.press(b.get(base+"/deployments/"+string(failed)), "Retry "+commit[:7]).to(t, base+"/deployments/")
	if x := newest(); x.CommitHash != commit || !x.Pinned {
		t.Errorf("Retry %s asked for %+v", commit[:7], x)
	}

	b.press(b.get(base+"/deployments/"+string(preview)).want(t, 200, "this preview of cart (bbbbbbb)"), "Promote").to(
		t,
		base+"/deployments/",
	)
	if x := newest(); x.CommitHash != commitB || x.ReleaseOf != preview || !x.Current || x.Target != deployment.Production {
		t.Errorf("Promote made live %+v", x)
	}
	b.press(b.get(base+"/deployments/"+string(old)).want(t, 200, "(aaaaaaa)"), "Roll back").to(t, base)
	if x := newest(); x.CommitHash != commitA || x.ReleaseOf != old || !x.Current {
		t.Errorf("Roll back made live %+v", x)
	}

	must(t, w.db.Write(t.Context(), func(tx *db.Tx) error {
		_, err := w.dash.Sites.SetEnvTx(t.Context(), tx, s.Owner, s.ID, []site.NewVar{{Key: "A", Value: "b"}})
		return err
	}))
	b.press(b.get(base), "Redeploy aaaaaaa").to(t, base+"/deployments/")
	if x := newest(); x.CommitHash != commitA || !x.Pinned || x.Target != deployment.Production {
		t.Errorf("the banner's Redeploy asked for %+v", x)
	}
	b.press(b.get(base+"/deployments/"+string(preview)), "Promote").to(t, base+"/deployments/") // of another branch
	p := b.get(base)
	if strings.Contains(p.body, "Redeploy bbbbbbb") {
		t.Error("the banner offers to build production from a commit of another branch")
	}
	b.post(base+"/deploy", "branch", "cart", "commit", commitA, "title", "").to(t, base+"/deployments/")
	if x := newest(); x.CommitHash != commitA || x.Branch != "cart" || x.Target != deployment.Preview {
		t.Errorf("the form for a commit asked for %+v", x)
	}
	if p := b.post(base+"/deploy", "branch", "cart", "commit", "HEAD"); p.status != 422 || !p.has("wrong-commit") {
		t.Errorf("an invalid commit: %s", p)
	}
}

func TestGitPage(t *testing.T) {
	t.Parallel()
	w, b, s := ada(t)
	base := "/sites/" + string(s.ID)
	p := b.get(base+"/git").want(t, 200, "Create Git hook", "Recent events")
	b.press(p, "Create Git hook").to(t, base+"/git")
	set, err := w.dash.Git.Get(t.Context(), w.db, s.Owner, s.ID)
	must(t, err)
	p = b.get(base+"/git").want(
		t,
		200,
		"/hooks/git/"+set.Hook.Reveal(),
		strings.ReplaceAll(set.Secret(), "+", "&#43;"),
		"Payload URL",
		"Secret token",
		"Not called yet",
	)
	b.press(p, "Replace").to(t, base+"/git")
	again, err := w.dash.Git.Get(t.Context(), w.db, s.Owner, s.ID)
	must(t, err)
	if again.Hook == set.Hook || again.Secret() == set.Secret() {
		t.Error("the address or the secret is the same")
	}
	form := []string{
		"auto_deploy", "1", "previews", "all", "tags", "preview", "deleted_branches", "keep", "forks", "approval",
		"preview_days", "7", "poll_minutes", "5", "watch", "src/**\n\n !**/*.md\n",
	}
	b.post(base+"/git", form...).to(t, base+"/git")
	set, err = w.dash.Git.Get(t.Context(), w.db, s.Owner, s.ID)
	must(t, err)
	if set.Previews != pushes.All || set.Tags != "preview" || set.DeletedBranches != "keep" || set.PreviewDays != 7 ||
		set.PollMinutes != 5 ||
		fmt.Sprint(set.Watch) != "[src/** !**/*.md]" ||
		!set.AutoDeploy {
		t.Errorf("saved as %+v", set)
	}
	for field, bad := range map[string]string{"preview_days": "x", "poll_minutes": "99", "watch": "../x"} {
		broken := append([]string{}, form...)
		for i := 0; i < len(broken); i += 2 {
			if broken[i] == field {
				broken[i+1] = bad
			}
		}
		if p := b.post(base+"/git", broken...); p.status != 422 || !p.has("wrong-"+field) {
			t.Errorf("%s %q: %s", field, bad, p)
		}
	}

	insert := func(number int, title, branch, from string) {
		must(
			t,
			w.db.Admin(
				t.Context(),
				fmt.Sprintf(
					"INSERT INTO git_pulls (site_id, number, title, branch, source, author, commit_hash, open, fork, approved, updated_at) VALUES ('%s', %d, '%s', '%s', '%s', 'eve', '%s', TRUE, %v, '', 1)",
					s.ID,
					number,
					strings.ReplaceAll(title, "'", "''"),
					branch,
					from,
					commitA,
					from != "",
				),
			),
		)
	}
	insert(4, "Ours", "cart", "")
	insert(12, hostile, "menu", "eve/site")
	id := w.ready(s, deploy.Trigger{Branch: "cart", Commit: commitB, Pull: 4})
	p = b.get(base+"/git").want(t, 200, "#12", "Build commit aaaaaaa of pull request 12?", "pr-4--", "Pull request 4", string(id))
	if strings.Contains(p.body, "<script>alert") || !p.has("pull-12") || !p.has("previews") {
		t.Error(main(p.body))
	}
	ours := b.get(base+"/pulls/4").want(t, 200, "Ours", "pr-4--", "Open preview", string(id), "Promote to production")
	if strings.Contains(ours.body, "Build aaaaaaa") || ours.has("waits") {
		t.Error("a pull request of the repository itself asks for approval")
	}
	p = b.get(base+"/pulls/12").want(t, 200, "eve/site:menu", "a member has to approve commit aaaaaaa", "None yet", "No deployments yet")
	if strings.Contains(p.body, "<script>alert") || strings.Contains(p.body, "Promote") || p.has("open-preview") {
		t.Error(main(p.body))
	}
	for _, none := range []string{"13", "x", "-1", "99999999999999999999"} {
		b.get(base+"/pulls/"+none).want(t, 404)
	}
	to := b.press(p, "Build aaaaaaa").to(t, base+"/deployments/")
	x, err := w.dash.Deployments.Get(t.Context(), s.Owner, deployment.ParseID(strings.TrimPrefix(to, base+"/deployments/")))
	if err != nil || x.CommitHash != commitA || !x.Fork || x.Pull != 12 || x.Branch != "menu" {
		t.Errorf("Build aaaaaaa asked for %+v, %v", x, err)
	}
	p = b.get(base+"/pulls/12").want(t, 200, string(x.ID), "Commit aaaaaaa was approved")
	if p.has("waits") {
		t.Error("an approved commit waits for approval")
	}
	b.press(b.get(base+"/pulls/4"), "Promote").to(t, base+"/deployments/")
	if list, _, err := w.dash.Deployments.List(t.Context(), s.Owner, s.ID, deployment.Filter{
		Page:  1,
		Limit: 1,
	}); err != nil || list[0].ReleaseOf != id || list[0].CommitHash != commitB || !list[0].Current {
		t.Errorf("Promote on the page of the pull request made live %+v, %v", list[0], err)
	}
	if p := b.post(base+"/git/approve", "pull", "12 "+commitB); p.status != 409 {
		t.Errorf("approving a commit that isn't the pull request's: %s", p)
	}
	for _, bad := range []string{"", "x", "99999999999999999999 a", "-1 a"} {
		if p := b.post(base+"/git/approve", "pull", bad); p.status != 404 {
			t.Errorf("approve %q: %d", bad, p.status)
		}
	}
	b.get(base+"/deployments?pull=12").want(t, 200, "Pull request 12", "/deployments/"+string(x.ID))
	// The site's icon names the live release, so only links to deployments count.
	if p := b.get(base + "/deployments?pull=12"); strings.Contains(p.body, "/deployments/"+string(id)) {
		t.Error("the filter lets another pull request's deployment through")
	}
	b.get(base+"/deployments?author=Nobody").want(t, 200, "No matching deployments")
}

// The page shows which repository's workflows may deploy the site, however that was allowed, and can remove it.
func TestWorkflowsOfASite(t *testing.T) {
	t.Parallel()
	w, b, s := ada(t)
	base := "/sites/" + string(s.ID)
	allowed := func() pushes.Workflows {
		t.Helper()
		now, err := w.dash.Git.Get(t.Context(), w.db, s.Owner, s.ID)
		must(t, err)
		return now.Workflows
	}
	b.post(base+"/git/workflows", "workflows", " acme/site ", "workflows_environment", "production").to(t, base+"/git#workflows")
	want := pushes.Workflows{Repository: "acme/site", Branch: "main", Environment: "production", By: allowed().By}
	if got := allowed(); got != want || got.By == "" {
		t.Errorf("got %+v", got)
	}
	p := b.get(base+"/git").want(t, 200, "acme/site", "workflows_branch")
	for field, pairs := range map[string][]string{
		"workflows":        {"workflows", "https://github.com/acme/site"},
		"workflows_branch": {"workflows", "acme/site", "workflows_branch", strings.Repeat("x", 256)},
	} {
		if p := b.post(base+"/git/workflows", pairs...); p.status != 422 || !p.has("wrong-"+field) || allowed() != want {
			t.Errorf("%s: %s, %+v", field, p, allowed())
		}
	}
	b.press(p, "Remove").to(t, base+"/git#workflows")
	if got := allowed(); got.Repository != "" {
		t.Errorf("after Remove: %+v", got)
	}
}

// If the Git provider is known, rows link to its pages of the commit, branch and pull request.
func TestLinksToTheForge(t *testing.T) {
	t.Parallel()
	w, b, s := ada(t)
	repo := "github.com/acme/site"
	must(t, w.db.Write(t.Context(), func(tx *db.Tx) error {
		_, err := w.dash.Sites.UpdateTx(t.Context(), tx, s.Owner, s.ID, site.Patch{Repository: &repo})
		return err
	}))
	s, err := w.dash.Sites.Get(t.Context(), s.Owner, s.ID)
	must(t, err)
	id := w.ready(s, deploy.Trigger{Branch: "feat/a#1", Commit: commitA, Pull: 9})
	for _, path := range []string{"/deployments", "/deployments/" + string(id)} {
		b.get("/sites/"+string(s.ID)+path).want(
			t,
			200,
			`href="https://github.com/acme/site/commit/`+commitA+`"`,
			`href="https://github.com/acme/site/pull/9"`,
			`href="https://github.com/acme/site/tree/feat/a%231"`,
		)
	}
}

// A variable can apply to production, to previews, or to previews of some branches.
func TestVariablesForBranches(t *testing.T) {
	t.Parallel()
	w, b, s := ada(t)
	base := "/sites/" + string(s.ID) + "/env"
	add := func(value string, pairs ...string) reply {
		return b.post(base, append([]string{"key", "K", "value", value, "target", "build", "target", "runtime"}, pairs...)...)
	}
	add("live", "scope", "production").to(t, base)
	add("test", "scope", "preview").to(t, base)
	add("cart", "scope", "branch", "env_branch", "cart/*").to(t, base)
	if p := add("x", "scope", "preview"); p.status != 409 || !p.has("wrong-key") {
		t.Errorf("the same again: %s", p)
	}
	if p := add("x", "scope", "branch", "env_branch", "cart/*"); p.status != 409 {
		t.Errorf("the same pattern again: %s", p)
	}
	if p := add("x", "scope", "branch", "env_branch", "a b"); p.status != 422 || !p.has("wrong-env_branch") {
		t.Errorf("a pattern with a space: %s", p)
	}
	if p := add("x", "scope", "branch"); p.status != 422 || !p.has("wrong-env_branch") {
		t.Errorf("no pattern: %s", p)
	}
	b.get(base).want(t, 200, "Previews of cart/*", "Production</span>", "3 variables")
	see := func(scope, branch string) string {
		vars, err := w.dash.Sites.Variables(t.Context(), s.ID, "build", scope, branch)
		if err != nil || len(vars) != 1 {
			return fmt.Sprint(vars, err)
		}
		return vars[0].Value
	}
	if a, b, c := see("production", "main"), see("preview", "x"), see("preview", "cart/1"); a != "live" || b != "test" || c != "cart" {
		t.Errorf("production sees %s, previews %s, previews of cart %s", a, b, c)
	}
	all, err := w.dash.Sites.Env(t.Context(), s.Owner, s.ID)
	must(t, err)
	for _, v := range all {
		if v.Branch == "" {
			continue
		}
		b.get(base+"/var/"+v.ID).want(t, 200, `value="cart/*"`)
		b.post(base+"/var/"+v.ID, "value", "menu", "scope", "branch", "env_branch", "menu", "target", "build").to(t, base)
	}
	if a, b := see("preview", "cart/1"), see("preview", "menu"); a != "test" || b != "menu" {
		t.Errorf("after the pattern changed: %s, %s", a, b)
	}
}

// skipped records a pushed commit that was not deployed.
func (w *world) skipped(s site.Site, commit, message, why string) {
	w.t.Helper()
	must(w.t, w.db.Write(w.t.Context(), func(tx *db.Tx) error {
		_, err := w.dash.Deployments.SkipTx(w.t.Context(), tx, s.Owner, s.ID, deploy.Skipped{
			Branch: "main", Commit: commit, Message: message, Author: "Ada", Target: deployment.Production,
			Reason: deployment.SkippedFor(why),
		})
		return err
	}))
}

// While a pushed commit waits, the site's main button deploys exactly that commit.
func TestCommitWaits(t *testing.T) {
	t.Parallel()
	w, b, s := ada(t)
	base := "/sites/" + string(s.ID)
	w.ready(s, deploy.Trigger{Commit: commitA})
	b.get(base).want(t, 200).lacks(t, `data-test="deploy-waiting"`, `data-test="waiting"`)
	w.skipped(s, commitB, "Left out [skip ci]", "the commit message says [skip ci]")
	b.get(base).want(t, 200).lacks(t, `data-test="deploy-waiting"`)
	w.skipped(s, commitC, "A calmer header\n\nLonger words", deployment.WhyOff)
	b.get(base+"/domains").want(t, 200, `data-test="deploy-waiting"`, `title="A calmer header"`).lacks(t, `data-test="waiting"`, `data-test="deploy"`)
	p := b.get(base).want(t, 200, `data-test="waiting"`, "A calmer header", "isn't deployed: automatic deployments are off.", "Push skipped", `data-test="status-skipped"`)
	b.press(p, "Deploy ccccccc").to(t, base+"/deployments/")
	list, _, err := w.dash.Deployments.List(t.Context(), s.Owner, s.ID, deployment.Filter{Page: 1, Limit: 1})
	must(t, err)
	if x := list[0]; x.CommitHash != commitC || !x.Pinned || x.Branch != "main" || x.Target != deployment.Production {
		t.Errorf("it asked for %+v", x)
	}
	w.live(s, list[0].ID)
	b.get(base).want(t, 200, `data-test="deploy"`).lacks(t, `data-test="deploy-waiting"`, `data-test="waiting"`)
}

// A site without a repository can get one on its Git page.
func TestConnectRepository(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	u := w.user("ada@example.test", false)
	b := w.as(u.Email)
	s := w.site(u, "Plain")
	must(t, w.db.Admin(t.Context(), "UPDATE sites SET repository = '', branch = '' WHERE id = '"+string(s.ID)+"'"))
	base := "/sites/" + string(s.ID)
	b.get(base).want(t, 200, `href="`+base+`/git"`)
	b.get(base+"/git").want(t, 200, `data-test="connect-repository"`).lacks(t, `data-test="save-git"`, `data-test="create-git-hook"`)
	b.post(base+"/settings", "part", "source", "then", "git", "repository", "no", "branch", "").want(t, 422, `data-test="wrong-repository"`)
	b.post(base+"/settings", "part", "source", "then", "git", "repository", "git.test/acme/plain", "branch", "").to(t, base+"/git")
	b.get(base+"/git").want(t, 200, `data-test="create-git-hook"`, "git.test/acme/plain").lacks(t, `data-test="connect-repository"`)
}
