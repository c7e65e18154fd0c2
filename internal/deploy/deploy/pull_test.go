package deploy

import (
	"strings"
	"testing"

	"slipway/internal/build/framework"
	"slipway/internal/deploy/deployment"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/site"
)

// A fork's deployment doesn't get the variables of the site's own builds, is only served at its pull request's URL, and
// never goes live.
func TestForksDeploymentIsApart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.commit("site", map[string]string{"index.html": "one"})
	s := w.live(w.site("git.test/acme/site").ID)
	w.write(func(tx *db.Tx) error {
		_, err := w.sites.SetEnvTx(t.Context(), tx, anna, s.ID, []site.NewVar{
			{Key: "TOKEN", Value: "s3cret", Secret: true},
			{Key: "PLAIN", Value: "open"},
		})
		return err
	})
	w.branch("site", "menu")
	w.commit("site", map[string]string{"index.html": "ours"})
	ours := w.ended(w.trigger(s.ID, Trigger{Branch: "menu"}).ID)
	commit := w.commit("site", map[string]string{"index.html": "theirs"})

	x := w.ended(w.trigger(s.ID, Trigger{Branch: "menu", Commit: commit, Pull: 12, Fork: true}).ID)
	if x.Status != deployment.Success || x.Target != deployment.Preview || x.PreviewURL != "https://pr-12--my-site.sites.test" {
		t.Fatalf("the fork's deployment is %+v", x)
	}
	if a, b := w.served(s.ID, "menu"), w.served(s.ID, "pr-12"); a != ours.ID || b != x.ID {
		t.Errorf("the branch's address serves %s and the pull request's %s, want %s and %s", a, b, ours.ID, x.ID)
	}
	env, secrets, err := w.environment(t.Context(), s, &x, framework.Plan{})
	ok(t, err)
	if env["TOKEN"] != "" || env["PLAIN"] != "" || len(secrets) != 0 || env["SLIPWAY_PULL_REQUEST"] != "12" {
		t.Errorf("a fork's build sees %v, and its log hides %d values", env, len(secrets))
	}
	if env, _, err := w.environment(t.Context(), s, &ours, framework.Plan{}); err != nil || env["TOKEN"] != "s3cret" ||
		env["PLAIN"] != "open" {
		t.Errorf("the site's own build sees %v, %v", env, err)
	}
	if vars, err := w.Variables(t.Context(), x, "runtime"); err != nil || len(vars) != 0 {
		t.Errorf("a fork's program sees %v, %v", vars, err)
	}
	err = w.db.Write(t.Context(), func(tx *db.Tx) error { _, err := w.PromoteTx(t.Context(), tx, anna, x.ID); return err })
	if f := fault.As(err); f == nil || f.Code != "deployment_from_fork" {
		t.Errorf("promoting a fork's preview: %v", err)
	}
	again := deployment.Deployment{}
	w.write(func(tx *db.Tx) (err error) {
		again, err = w.RetryTx(t.Context(), tx, anna, x.ID, deployment.ByDashboard)
		return err
	})
	if again.CommitHash != commit || !again.Fork || again.Pull != 12 || again.Target != deployment.Preview {
		t.Errorf("a fork's deployment is retried as %+v", again)
	}
	w.ended(again.ID)
	if _, err := w.Trigger(t.Context(), anna, s.ID, Trigger{Cause: deployment.ByAPI, Pull: 12, Target: deployment.Production}); err == nil {
		t.Error("a pull request is deployed to production")
	}
}

// WatchOf returns build.watch of slipway.toml from the live deployment.
func TestWatchOfSlipwayTOML(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.commit("site", map[string]string{"index.html": "one", "slipway.toml": "[build]\nwatch = [\"src/**\", \"!**/*.md\"]\n"})
	s := w.live(w.site("git.test/acme/site").ID)
	if got, _, err := w.WatchOf(t.Context(), w.db, s); err != nil || strings.Join(got, " ") != "src/** !**/*.md" {
		t.Errorf("watch is %v, %v (%s)", got, err, s.StatusReason)
	}
	w.commit("site", map[string]string{"slipway.toml": "[build]\nwatch = [\"" + strings.Repeat("x", 300) + "\"]\n"})
	x := w.ended(w.trigger(s.ID, Trigger{}).ID)
	if x.Status != deployment.Failed || !strings.Contains(x.Error, "build.watch") {
		t.Errorf("a pattern of 300 bytes: %s, %s", x.Status, x.Error)
	}
}
