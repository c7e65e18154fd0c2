//go:build browser

package dashboard

import (
	"context"
	"fmt"
	"testing"

	"slipway/internal/build/framework"
	"slipway/internal/deploy/deploy"
	"slipway/internal/deploy/deployment"
	"slipway/internal/deploy/pushes"
	"slipway/internal/git/fetch"
	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/connection"
)

// A new site from a connected account takes three clicks. Pages about pull requests, previews and Git apps render
// correctly.
func TestBrowserGit(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *Config) {
		c.Repositories = repositories{func(context.Context, account.OwnerID, string, *fetch.Credential) ([]string, string, error) {
			return []string{"main", "cart", "feature/menu"}, "main", nil
		}, func(context.Context, account.OwnerID, string, string, *fetch.Credential, framework.Overrides) (framework.Plan, error) {
			return framework.Plan{Framework: "astro", Name: "Astro", Why: "package.json has astro", Runtime: "static", Output: "dist"}, nil
		}}
	})
	const ada = "ada@example.test"
	u := w.user(ada, true)
	b := w.window("git", w.srv.URL)
	signIn(b, ada)
	b.Go("/new")
	b.Look("new-without-account")
	b.Go("/operator/git")
	b.Look("operator-git")
	ctx := t.Context()
	must(t, w.db.Write(ctx, func(tx *db.Tx) error {
		if _, err := w.dash.Connections.CreateAppTx(ctx, tx, connection.NewApp{
			Provider: "gitlab",
			ClientID: "x",
			Secret:   "y",
		}); err != nil {
			return err
		}
		k, err := w.dash.Connections.Check(ctx, connection.NewConnection{Provider: "github", Token: "good-token"})
		if err == nil {
			_, err = w.dash.Connections.CreateTx(ctx, tx, u.Owner, k)
		}
		return err
	}))
	b.Go("/account/git")
	b.Look("git-accounts-connected")

	b.Go("/")
	b.Press("@new-site")
	b.Sees("@found")
	b.Look("new-pick")
	b.Press("@found li:first-child button")
	b.Sees("@plan")
	b.Look("new-review")
	b.Press("@create")
	b.Sees("main")

	s := w.site(u, "Nordlicht Shop")
	all := pushes.All
	must(t, w.db.Write(ctx, func(tx *db.Tx) error {
		_, err := w.dash.Git.UpdateTx(ctx, tx, u.Owner, s.ID, pushes.Patch{Previews: &all})
		return err
	}))
	pull := func(number int, title, branch, from, by string) {
		must(
			t,
			w.db.Admin(
				ctx,
				fmt.Sprintf(
					"INSERT INTO git_pulls (site_id, number, title, branch, source, author, commit_hash, open, fork, approved, updated_at) VALUES ('%s', %d, '%s', '%s', '%s', '%s', '%s', TRUE, %v, '', %d)",
					s.ID, number, title, branch, from, by, commitA,
					from != "",
					db.Now(),
				),
			),
		)
	}
	w.ready(s, deploy.Trigger{Branch: "cart", Commit: commitB, Pull: 4})
	pull(4, "A cart that remembers", "cart", "", "ada")
	pull(12, "Translate the menu into Danish and shorten the words that do not fit on a small screen", "menu", "eve/site", "eve")
	base := "/sites/" + string(s.ID)
	b.Go(base + "/git")
	b.Sees("@pulls")
	b.Look("git-pulls-and-previews")
	b.Go(base + "/pulls/4")
	b.Sees("@open-preview")
	b.Look("pull-request")
	b.Go(base + "/pulls/12")
	b.Sees("@waits")
	b.Look("pull-request-fork")
	b.Click("@open-approve-12")
	b.Look("pull-request-approve")
	b.Go(base + "/rules#access")
	b.Look("rules-access")
}

// While a pushed commit waits, an open page offers to deploy exactly that commit, on a phone too. Once it is deployed
// the offer disappears.
func TestBrowserCommitWaits(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	u := w.user("ada@example.test", false)
	s := w.site(u, "Harbor")
	w.ready(s, deploy.Trigger{Commit: commitA})
	b := w.window("waiting", w.srv.URL)
	signIn(b, u.Email)
	b.Go("/sites/" + string(s.ID))
	b.Misses("@deploy-waiting")
	w.skipped(s, commitC, "A calmer header", deployment.WhyOff)
	b.Sees("@deploy-waiting", "Deploy ccccccc")
	b.Sees("@waiting", "A calmer header")
	b.Look("commit-waiting")
	b.Press("@deploy-waiting")
	b.Sees("@deployment", "ccccccc")
	b.Misses("@deploy-waiting")
	b.Go("/sites/" + string(s.ID))
	b.Sees("@view-progress")
	b.Misses("@waiting")
}
