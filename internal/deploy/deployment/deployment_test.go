package deployment_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"slipway/internal/deploy/deployment"
	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/seal"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
	"slipway/internal/tenant/webhook"
)

const (
	anna = account.OwnerID("usr_anna")
	ben  = account.OwnerID("usr_ben")
)

// world is Deployments with rows that the test writes in place of package deploy.
type world struct {
	*deployment.Deployments
	t     *testing.T
	db    *db.DB
	sites *site.Sites
}

func newWorld(t *testing.T) *world {
	t.Helper()
	d := dbtest.New(t)
	s, err := seal.Load(filepath.Join(t.TempDir(), "key"))
	if err != nil {
		t.Fatal(err)
	}
	sites := site.New(site.Config{DB: d, Hooks: webhook.New(webhook.Config{DB: d, Seal: s}), Seal: s, Domain: "sites.test"})
	return &world{deployment.New(deployment.Config{DB: d, Sites: sites}), t, d, sites}
}

func (w *world) write(fn func(tx *db.Tx) error) {
	w.t.Helper()
	if err := w.db.Write(w.t.Context(), fn); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) site(owner account.OwnerID, name string) (id site.ID) {
	w.t.Helper()
	w.write(func(tx *db.Tx) error {
		s, err := w.sites.CreateTx(w.t.Context(), tx, owner, site.NewSite{
			Name:       name,
			Type:       "static",
			Repository: "git.test/acme/site",
			Branch:     "main",
		})
		id = s.ID
		return err
	})
	return id
}

// add inserts a deployment. Later calls insert newer ones.
func (w *world) add(owner account.OwnerID, of site.ID, status deployment.Status, branch string, place int) (id deployment.ID) {
	w.t.Helper()
	w.write(func(tx *db.Tx) error {
		var n int
		if err := tx.QueryRow(w.t.Context(), `SELECT count(*) FROM deployments`).Scan(&n); err != nil {
			return err
		}
		id = deployment.ID(fmt.Sprintf("dep_%026d", n))
		_, err := tx.Exec(w.t.Context(), `
			INSERT INTO deployments (id, site_id, owner_id, label, status, cause, branch, title, clear_cache, commit_hash, commit_message, commit_author,
				framework, plan, release, runtime, rollback_of, error, stages, attempt, cancel, created_at, started_at, completed_at, target, pinned, preview_label, hops, hook_body, bundle,
				pull_request, fork, repository, place)
			VALUES ($1, $2, $3, $4, $5, 'api', $6, '', FALSE, 'abc', '', 'Anna', '', '', '', 'static', '', '', '[]', 0, '', $7, 0, 0, 'production', FALSE, '', 0, '', '', 0, FALSE, 'git.test/acme/site', $8)`,
			id, of, owner, id.Label(), status, branch, int64(n+1), place)
		return err
	})
	return id
}

// A list contains only the owner's deployments, newest first, and filters and counts them.
func TestList(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	blog, other := w.site(anna, "blog"), w.site(anna, "other")
	var ids []deployment.ID
	for i := range 5 {
		status, branch := deployment.Success, "main"
		if i == 3 {
			status = deployment.Failed
		}
		if i == 1 {
			branch = "feature"
		}
		ids = append(ids, w.add(anna, blog, status, branch, 0))
	}
	w.add(anna, other, deployment.Success, "main", 0)
	for name, tt := range map[string]struct {
		f     deployment.Filter
		first int // index in ids; -1 if there is none
		rows  int
		total int
	}{
		"all":         {deployment.Filter{Page: 1, Limit: 10}, 4, 5, 5},
		"a page":      {deployment.Filter{Page: 2, Limit: 2}, 2, 2, 5},
		"the last":    {deployment.Filter{Page: 3, Limit: 2}, 0, 1, 5},
		"just full":   {deployment.Filter{Page: 1, Limit: 5}, 4, 5, 5},
		"beyond":      {deployment.Filter{Page: 9, Limit: 2}, -1, 0, 5},
		"of a branch": {deployment.Filter{Page: 1, Limit: 10, Branch: "feature"}, 1, 1, 1},
		"failed":      {deployment.Filter{Page: 1, Limit: 10, Status: deployment.Failed}, 3, 1, 1},
		"both":        {deployment.Filter{Page: 1, Limit: 10, Status: deployment.Failed, Branch: "feature"}, -1, 0, 0},
		"an author":   {deployment.Filter{Page: 1, Limit: 2, Author: "Anna", Target: deployment.Production}, 4, 2, 5},
		"a preview":   {deployment.Filter{Page: 1, Limit: 10, Target: deployment.Preview}, -1, 0, 0},
		"a pull":      {deployment.Filter{Page: 1, Limit: 10, Pull: 7}, -1, 0, 0},
	} {
		list, total, err := w.List(t.Context(), anna, blog, tt.f)
		if err != nil || len(list) != tt.rows || total != tt.total || tt.first >= 0 && list[0].ID != ids[tt.first] {
			t.Errorf("%s: %d of %d, %v; want %d of %d", name, len(list), total, err, tt.rows, tt.total)
		}
	}
	for _, f := range []deployment.Filter{{Target: "staging"}, {Status: "running"}} {
		if _, _, err := w.List(t.Context(), anna, blog, f); !fault.Is(err, fault.Invalid) {
			t.Errorf("%+v: %v", f, err)
		}
	}
	if _, _, err := w.List(t.Context(), ben, blog, deployment.Filter{Page: 1, Limit: 10}); !fault.Is(err, fault.NotFound) {
		t.Errorf("another's list: %v", err)
	}
	if _, err := w.Get(t.Context(), ben, ids[0]); !fault.Is(err, fault.NotFound) {
		t.Errorf("another's deployment: %v", err)
	}
	several, err := w.Several(t.Context(), ben, ids)
	if err != nil || len(several) != 0 {
		t.Errorf("several of another's: %v, %v", several, err)
	}
	latest, err := w.Latest(t.Context(), w.db, []site.ID{blog, other, "site_gone"})
	if err != nil || len(latest) != 2 || latest[blog].ID != ids[4] {
		t.Errorf("latest: %v, %v", latest, err)
	}
}

// Deployments that wait for a build slot come first, in the order of their turns. The others follow in the order of
// creation, after earlier ones of the same site.
func TestPlacesInTheQueue(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b, c := w.site(anna, "a"), w.site(anna, "b"), w.site(ben, "c")
	runs := w.add(anna, a, deployment.Building, "main", 0)
	behind := w.add(anna, a, deployment.Pending, "main", 0)
	second := w.add(anna, b, deployment.Pending, "main", 2)
	first := w.add(ben, c, deployment.Pending, "main", 1)
	last := w.add(ben, c, deployment.Pending, "main", 0)
	ended := w.add(anna, b, deployment.Canceled, "main", 0)
	for _, tt := range []struct {
		owner  account.OwnerID
		id     deployment.ID
		at     int // 0 if it doesn't wait
		reason string
	}{
		{anna, runs, 0, ""},
		{ben, first, 1, "workers_busy"},
		{anna, second, 2, "workers_busy"},
		{anna, behind, 3, "site_busy"},
		{ben, last, 4, "site_busy"},
		{anna, ended, 0, ""},
	} {
		x, err := w.Get(t.Context(), tt.owner, tt.id)
		if err != nil || (x.Queue == nil) != (tt.at == 0) || x.Queue != nil && (x.Queue.Position != tt.at || x.Queue.Reason != tt.reason) {
			t.Errorf("%s: %+v, %v; want %d, %s", tt.id, x.Queue, err, tt.at, tt.reason)
		}
	}
	for want, total := range map[int]func() (int, error){
		4: func() (int, error) { return deployment.PendingTotal(t.Context(), w.db) },
		1: func() (int, error) { return deployment.RunningTotal(t.Context(), w.db) },
	} {
		if got, err := total(); err != nil || got != want {
			t.Errorf("%d, %v; want %d", got, err, want)
		}
	}
}
