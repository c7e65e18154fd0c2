package deploy

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"slipway/internal/deploy/deployment"
	"slipway/internal/deploy/preview"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
)

// branch creates a branch of acme/<name> at the current commit and checks it out.
func (w *world) branch(repo, name string) {
	w.t.Helper()
	out, err := exec.Command("git", "-C", filepath.Join(w.repos, "acme", repo), "checkout", "-q", "-B", name).CombinedOutput()
	if err != nil {
		w.t.Fatalf("git checkout: %v\n%s", err, out)
	}
}

func (w *world) reload(id site.ID) site.Site {
	w.t.Helper()
	s, err := w.sites.Get(w.t.Context(), anna, id)
	ok(w.t, err)
	return s
}

// served returns the deployment that a preview label serves.
func (w *world) served(id site.ID, label string) (deployment deployment.ID) {
	w.t.Helper()
	err := w.db.QueryRow(
		w.t.Context(),
		`SELECT deployment_id FROM preview_hosts WHERE site_id = $1 AND label = $2`,
		id,
		label,
	).Scan(&deployment)
	ok(w.t, err)
	return deployment
}

// A deployment of another branch is a preview. It doesn't change production until it is promoted, and then production
// serves the same release.
func TestAnotherBranchIsAPreview(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.commit("site", map[string]string{"index.html": "one"})
	w.branch("site", "main")
	s := w.live(w.site("git.test/acme/site").ID)
	before := s.LiveDeployment
	w.branch("site", "feature/Cart")
	commit := w.commit("site", map[string]string{"index.html": "cart"})

	x := w.ended(w.trigger(s.ID, Trigger{Branch: "feature/Cart"}).ID)
	if x.Status != deployment.Success || x.Target != deployment.Preview || x.Current || x.CommitHash != commit ||
		x.PreviewURL != "https://feature-cart--my-site.sites.test" {
		t.Fatalf("the preview is %+v", x)
	}
	if s = w.reload(s.ID); s.LiveDeployment != before {
		t.Fatal("a preview went live")
	}
	if got := w.served(s.ID, "feature-cart"); got != x.ID {
		t.Errorf("the branch's address serves %s, want %s", got, x.ID)
	}
	if e := x.Event(); e.Target != "preview" || e.Branch != "feature/Cart" || e.CommitHash != commit {
		t.Errorf("webhooks are told %+v", e)
	}
	if log := strings.Join(w.log(x.ID), "\n"); !strings.Contains(log, "info Preview at "+x.PreviewURL) || strings.Contains(log, "Live at") {
		t.Errorf("the log says\n%s", log)
	}

	var live deployment.Deployment
	w.write(func(tx *db.Tx) (err error) { live, err = w.PromoteTx(t.Context(), tx, anna, x.ID); return err })
	if live.Cause != deployment.ByPromote || live.Target != deployment.Production || live.ReleaseOf != x.ID || live.Release != x.Release ||
		live.CommitHash != commit ||
		live.PreviewURL != "" {
		t.Errorf("the promotion is %+v", live)
	}
	if s = w.reload(s.ID); s.LiveDeployment != live.ID || s.LiveRelease != x.Release {
		t.Error("production does not serve what was promoted")
	}
	if !w.status(live.ID).Current || w.status(x.ID).Status != deployment.Success {
		t.Error("after the promotion the wrong deployment is current")
	}
}

// Production can only be changed by its branch, a promotion or a rollback.
func TestProductionIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.commit("site", map[string]string{"index.html": "one"})
	s := w.live(w.site("git.test/acme/site").ID)
	refused := func(code string, fn func(tx *db.Tx) error) {
		t.Helper()
		if err := w.db.Write(t.Context(), fn); fault.As(err) == nil || fault.As(err).Code != code {
			t.Errorf("got %v, want the fault %s", err, code)
		}
	}
	refused("not_production_branch", func(tx *db.Tx) error {
		_, err := w.TriggerTx(t.Context(), tx, anna, s.ID, Trigger{Cause: deployment.ByAPI, Branch: "other", Target: deployment.Production})
		return err
	})
	refused("invalid_target", func(tx *db.Tx) error {
		_, err := w.TriggerTx(t.Context(), tx, anna, s.ID, Trigger{Cause: deployment.ByAPI, Target: "staging"})
		return err
	})
	refused("invalid_commit", func(tx *db.Tx) error {
		_, err := w.TriggerTx(t.Context(), tx, anna, s.ID, Trigger{Cause: deployment.ByAPI, Commit: "--upload-pack=x"})
		return err
	})
	refused("deployment_is_production", func(tx *db.Tx) error {
		_, err := w.PromoteTx(t.Context(), tx, anna, s.LiveDeployment)
		return err
	})
	preview := w.ended(w.trigger(s.ID, Trigger{Target: deployment.Preview}).ID)
	if preview.Target != deployment.Preview || preview.PreviewURL != "https://"+preview.Branch+"--my-site.sites.test" {
		t.Errorf("a preview of the production branch is %+v", preview)
	}
	refused("deployment_is_preview", func(tx *db.Tx) error { _, err := w.RollbackTx(t.Context(), tx, anna, s.ID, preview.ID); return err })
	refused("nothing_to_roll_back", func(tx *db.Tx) error { _, err := w.RollbackTx(t.Context(), tx, anna, s.ID, ""); return err })
	failed := w.ended(w.trigger(s.ID, Trigger{Branch: "absent"}).ID)
	refused("no_release", func(tx *db.Tx) error { _, err := w.PromoteTx(t.Context(), tx, anna, failed.ID); return err })
	if got := w.reload(s.ID); got.LiveDeployment != s.LiveDeployment || got.Status != site.Active {
		t.Errorf("what was refused changed the site: %+v", got)
	}
	if err := w.db.Write(t.Context(), func(tx *db.Tx) error {
		_, err := w.PromoteTx(t.Context(), tx, account.OwnerID("own_other"), preview.ID)
		return err
	}); !fault.Is(err, fault.NotFound) {
		t.Errorf("a stranger's promotion: %v, want not found", err)
	}
}

// A retry builds the same commit even if the branch has newer ones.
func TestRetryBuildsTheSameCommit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.commit("site", map[string]string{"index.html": "one"})
	s := w.live(w.site("git.test/acme/site").ID)
	w.commit("site", map[string]string{"index.html": "two"})
	var again deployment.Deployment
	w.write(func(tx *db.Tx) (err error) {
		again, err = w.RetryTx(t.Context(), tx, anna, s.LiveDeployment, deployment.ByDashboard)
		return err
	})
	if again.CommitHash != first || !again.Pinned || again.Target != deployment.Production {
		t.Errorf("the retry was asked for as %+v", again)
	}
	if x := w.ended(again.ID); x.Status != deployment.Success || x.CommitHash != first {
		t.Errorf("the retry built %s (%s: %s), want %s", x.CommitHash, x.Status, x.Error, first)
	}
	if x := w.ended(w.trigger(s.ID, Trigger{
		Commit: strings.Repeat("0", 40),
	}).ID); x.Status != deployment.Failed || !strings.Contains(x.Error, "Commit 000000000000 is not on the branch main of git.test/acme/site") {
		t.Errorf("an unknown commit: %s %s", x.Status, x.Error)
	}
}

// A Git provider may serve commits of any branch, and even of forks. A commit requested by a signed push or an API call
// is only deployed if its branch contains it. A commit that the branch contained when it was deployed can be
// redeployed.
func TestCommitsOfOtherBranchesAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	before := w.commit("site", map[string]string{"index.html": "zero"})
	first := w.commit("site", map[string]string{"index.html": "one"})
	s := w.live(w.site("git.test/acme/site").ID)
	w.branch("site", "evil")
	evil := w.commit("site", map[string]string{"index.html": "evil"})
	refused := func(x deployment.Deployment) deployment.Deployment {
		t.Helper()
		x = w.ended(x.ID)
		want := "Commit " + evil[:12] + " is not on the branch main of git.test/acme/site"
		if x.Status != deployment.Failed || !strings.HasPrefix(x.Error, want) || w.reload(s.ID).LiveDeployment != s.LiveDeployment {
			t.Errorf("%s %s, want %q", x.Status, x.Error, want)
		}
		return x
	}
	for _, trigger := range []Trigger{
		{Commit: evil},
		{Commit: evil, Branch: "main", Target: deployment.Preview},
		{Commit: evil, Branch: "main", Target: deployment.Preview, Pull: 3},
	} {
		refused(w.trigger(s.ID, trigger))
	}
	var pushed deployment.Deployment
	w.write(func(tx *db.Tx) (err error) {
		pushed, err = w.PushTx(t.Context(), tx, w.reload(s.ID), Trigger{Branch: "main", Commit: evil, Target: deployment.Production})
		return err
	})
	x := refused(pushed)
	w.write(func(tx *db.Tx) (err error) {
		x, err = w.RetryTx(t.Context(), tx, anna, x.ID, deployment.ByAPI)
		return err
	})
	refused(x)
	// On its own branch the commit becomes a preview, which doesn't make it a commit of the production branch.
	if x = w.ended(w.trigger(s.ID, Trigger{Commit: evil, Branch: "evil"}).ID); x.Status != deployment.Success || x.Target != deployment.Preview {
		t.Errorf("%s %s", x.Status, x.Error)
	}
	refused(w.trigger(s.ID, Trigger{Commit: evil}))
	// An upload that claims to be of the commit doesn't either.
	ok(t, w.db.Admin(t.Context(), `INSERT INTO deployments (id, site_id, owner_id, label, status, cause, branch, title, clear_cache, commit_hash,
			commit_message, commit_author, framework, plan, release, runtime, rollback_of, error, stages, attempt, cancel, created_at,
			started_at, completed_at, repository, upload_id)
		SELECT 'dep_claimed', site_id, owner_id, label, 'success', 'api', 'main', '', FALSE, '`+evil+`', '', '', '', '', '', '', '', '', '[]', 0,
			'', 1, 1, 1, repository, 'upl_x' FROM deployments WHERE id = '`+string(s.LiveDeployment)+`'`))
	refused(w.trigger(s.ID, Trigger{Commit: evil}))
	// After a forced push the old commit is refused, unless it was deployed from the branch earlier.
	if out, err := exec.Command("git", "-C", filepath.Join(w.repos, "acme/site"), "checkout", "-q", "--orphan", "fresh").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	w.commit("site", map[string]string{"index.html": "forced"})
	w.branch("site", "main")
	if x = w.ended(w.trigger(s.ID, Trigger{Commit: before}).ID); x.Status != deployment.Failed {
		t.Errorf("a commit that is gone and was never deployed: %s", x.Status)
	}
	w.write(func(tx *db.Tx) (err error) {
		x, err = w.RetryTx(t.Context(), tx, anna, s.LiveDeployment, deployment.ByDashboard)
		return err
	})
	if x = w.ended(x.ID); x.Status != deployment.Success || x.CommitHash != first {
		t.Errorf("the redeployment: %s %s", x.Status, x.Error)
	}
}

// If a branch stops being the production branch while its deployment waits, the deployment becomes a preview.
func TestBranchChangedWhileWaiting(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.commit("site", map[string]string{"index.html": "one"})
	s := w.live(w.site("git.test/acme/site").ID)
	w.branch("site", "next")
	w.commit("site", map[string]string{"index.html": "two"})
	w.stop()
	x := w.trigger(s.ID, Trigger{})
	next := "next"
	w.write(func(tx *db.Tx) error {
		_, err := w.sites.UpdateTx(t.Context(), tx, anna, s.ID, site.Patch{Branch: &next})
		return err
	})
	w.start()
	if x = w.ended(x.ID); x.Status != deployment.Success || x.Target != deployment.Preview || x.PreviewURL == "" {
		t.Errorf("the deployment of the old branch is %+v", x)
	}
	if w.reload(s.ID).LiveDeployment != s.LiveDeployment {
		t.Error("the old branch went live")
	}
}

// Each branch keeps its label, the labels of a site's branches are unique, and none looks like a deployment's own
// label.
func TestPreviewLabels(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.commit("site", map[string]string{"index.html": "one"})
	s := w.live(w.site("git.test/acme/site").ID)
	w.stop()
	label := regexp.MustCompile(`^https://([a-z0-9](?:[a-z0-9-]*[a-z0-9])?)--my-site\.sites\.test$`)
	ownLabel := regexp.MustCompile(`^[a-z0-9]{12}$`) // of a single deployment
	seen := map[string]string{}
	for _, branch := range []string{
		"feat/x", "feat-x", "FEAT-X", "abcdefghijkl", "x/abcdef123456",
		strings.Repeat("long-", 39) + "a",
		strings.Repeat("long-", 39) + "b",
		"0",
		"a--b",
		"xn",
		"feat/x",
	} {
		x := w.trigger(s.ID, Trigger{Branch: branch})
		m := label.FindStringSubmatch(x.PreviewURL)
		if m == nil || len(m[1])+len("--my-site") > 63 || ownLabel.MatchString(m[1]) || len(m[1]) == 2 || strings.Contains(m[1], "--") {
			t.Errorf("branch %q has the address %q", branch, x.PreviewURL)
			continue
		}
		if of, taken := seen[m[1]]; taken && of != branch {
			t.Errorf("%q and %q share %s", branch, of, m[1])
		}
		seen[m[1]] = branch
	}
	if len(seen) != 10 {
		t.Errorf("ten branches have %d labels: %v", len(seen), seen)
	}
}

// The number of a site's preview URLs is limited: those deployed longest ago are removed.
func TestPreviewsAreBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.commit("site", map[string]string{"index.html": "one"})
	s := w.live(w.site("git.test/acme/site").ID)
	w.stop()
	w.write(func(tx *db.Tx) error {
		for i := range preview.MaxOfSite {
			if _, err := tx.Exec(
				t.Context(),
				`INSERT INTO preview_hosts (site_id, branch, label, deployment_id, release, used_at) VALUES ($1, $2, $2, '', '', $3)`,
				s.ID,
				"b"+string(rune('0'+i/10))+string(rune('0'+i%10)),
				1000+i,
			); err != nil {
				return err
			}
		}
		return nil
	})
	w.trigger(s.ID, Trigger{Branch: "one-more"})
	var n, oldest int
	ok(t, w.db.QueryRow(t.Context(), `SELECT count(*), min(used_at) FROM preview_hosts WHERE site_id = $1`, s.ID).Scan(&n, &oldest))
	if n != preview.MaxOfSite || oldest != 1001 {
		t.Errorf("%d addresses, the oldest of %d; want %d, without the oldest", n, oldest, preview.MaxOfSite)
	}
}
