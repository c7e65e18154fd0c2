package deploy

import (
	"maps"
	"testing"

	"slipway/internal/build/framework"
	"slipway/internal/deploy/deployment"
	"slipway/internal/platform/db"
	"slipway/internal/tenant/site"
)

// Commands from another platform's configuration get that platform's variables. The site's own variables take
// precedence.
func TestVariablesOfOtherHosts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.site("git.test/acme/site")
	w.write(func(tx *db.Tx) error {
		_, err := w.sites.SetEnvTx(t.Context(), tx, anna, s.ID, []site.NewVar{{Key: "BRANCH", Value: "mine"}})
		return err
	})
	x := deployment.Deployment{
		ID: "dep_1", Owner: anna, Site: s.ID, Target: deployment.Production, Branch: "main", CommitHash: "c0ffee",
		URL: "https://1--my-site.sites.test",
	}
	preview, pull := x, x
	preview.Target, preview.Branch, preview.PreviewURL = deployment.Preview, "menu", "https://menu--my-site.sites.test"
	pull.Target, pull.Pull, pull.PreviewURL = deployment.Preview, 12, "https://pr-12--my-site.sites.test"
	netlify := framework.Plan{Sources: map[string]string{"build": "netlify.toml"}}
	vercel := framework.Plan{Sources: map[string]string{"install": "vercel.json"}, Output: "dist"}
	nitro := framework.Plan{Sources: vercel.Sources, Output: ".output/public"}
	for name, c := range map[string]struct {
		x    deployment.Deployment
		plan framework.Plan
		want map[string]string
	}{
		"netlify": {x, netlify, map[string]string{
			"URL": "https://my-site.sites.test", "DEPLOY_URL": x.URL, "DEPLOY_PRIME_URL": x.URL, "CONTEXT": "production",
			"BRANCH": "mine", "COMMIT_REF": "c0ffee", "PULL_REQUEST": "false", "VERCEL_URL": "",
		}},
		"netlify, a branch":       {preview, netlify, map[string]string{"CONTEXT": "branch-deploy", "DEPLOY_PRIME_URL": preview.PreviewURL, "HEAD": "menu"}},
		"netlify, a pull request": {pull, netlify, map[string]string{"CONTEXT": "deploy-preview", "REVIEW_ID": "12", "PULL_REQUEST": "true"}},
		"vercel": {x, vercel, map[string]string{
			"VERCEL_URL": "1--my-site.sites.test", "VERCEL_ENV": "production", "VERCEL_GIT_COMMIT_REF": "main", "VERCEL": "", "URL": "",
			"VERCEL_PROJECT_PRODUCTION_URL": "my-site.sites.test",
		}},
		"vercel, a branch": {preview, vercel, map[string]string{"VERCEL_ENV": "preview", "VERCEL_BRANCH_URL": "menu--my-site.sites.test"}},
		"vercel and Nitro": {x, nitro, map[string]string{"VERCEL_ENV": "", "VERCEL_TARGET_ENV": "production"}},
		"neither":          {x, framework.Plan{}, map[string]string{"URL": "", "CONTEXT": "", "VERCEL_URL": "", "BRANCH": "mine"}},
	} {
		env, _, err := w.environment(t.Context(), s, &c.x, c.plan)
		ok(t, err)
		got := map[string]string{}
		for k := range c.want {
			got[k] = env[k]
		}
		if !maps.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
