package pushes

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"slipway/internal/deploy/deploy"
	"slipway/internal/deploy/deployment"
	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/seal"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
	"slipway/internal/tenant/webhook"
)

const anna = account.OwnerID("usr_anna")

// world is the package under test with its own database. No worker runs, so deployments stay pending.
type world struct {
	*Pushes
	t  *testing.T
	db *db.DB
}

// repositories implements Repositories with a function.
type repositories func(context.Context, site.Site) (map[string]string, string, error)

func (f repositories) Heads(ctx context.Context, s site.Site) (map[string]string, string, error) {
	return f(ctx, s)
}

// newWorld works inside a synctest bubble. It always uses SQLite, because waiting on a network connection would stop
// the fake time.
func newWorld(t *testing.T, heads func(context.Context, site.Site) (map[string]string, string, error)) *world {
	t.Helper()
	d := dbtest.Bubble(t)
	s, err := seal.Load(filepath.Join(t.TempDir(), "key"))
	must(t, err)
	hooks := webhook.New(webhook.Config{DB: d, Seal: s})
	sites := site.New(site.Config{DB: d, Hooks: hooks, Seal: s, Domain: "sites.test"})
	c := Config{DB: d, Sites: sites, Deployments: deploy.New(deploy.Config{DB: d, Sites: sites, Hooks: hooks}), Seal: s}
	if heads != nil {
		c.Repositories = repositories(heads)
	}
	return &world{New(c), t, d}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (w *world) site(minutes int) site.Site {
	w.t.Helper()
	s, err := w.c.Sites.Create(w.t.Context(), anna, site.NewSite{
		Name:       "Site",
		Type:       "static",
		Repository: "git.test/acme/site",
		Branch:     "main",
	})
	must(w.t, err)
	previews := All
	must(w.t, w.db.Write(w.t.Context(), func(tx *db.Tx) error {
		_, err := w.UpdateTx(w.t.Context(), tx, anna, s.ID, Patch{PollMinutes: &minutes, Previews: &previews})
		return err
	}))
	return s
}

func sha(n int) string { return fmt.Sprintf("%040x", n) }

// The polls of two thousand sites of an owner take place on time, only a few at once, and fast enough for five thousand
// sites per hour. Choosing the next one takes quadratic time in total.
func TestPollingManySites(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const sites = 2000
		var mu sync.Mutex
		running, most := 0, 0
		polls := make(map[site.ID]int, sites)
		perSecond := map[int64]int{}
		w := newWorld(t, func(_ context.Context, s site.Site) (map[string]string, string, error) {
			mu.Lock()
			running++
			most = max(most, running)
			polls[s.ID]++
			perSecond[time.Now().Unix()]++
			mu.Unlock()
			time.Sleep(700 * time.Millisecond)
			mu.Lock()
			running--
			mu.Unlock()
			return map[string]string{"refs/heads/main": sha(1)}, "main", nil
		})
		s := w.site(30)
		for _, q := range []string{ // copies of the first site
			`INSERT INTO sites SELECT REPLACE(id, 'site_', 'site_' || n || '_'), owner_id, name, slug || n, type, runtime, status, status_reason, repository, branch, framework, build, credential, needs_redeploy, live_deployment, live_release, live_version, created_at, updated_at, deleted_at` + rest(
				t,
				w,
				"sites",
				20,
			) + ` FROM sites, numbers`,
			`INSERT INTO git_settings SELECT REPLACE(site_id, 'site_', 'site_' || n || '_'), '', '', '', auto_deploy, previews, watch, provider, last_event, last_event_at, preview_days, tags, deleted_branches, forks, 30 + n % 31, poll_at, poll_refs, poll_error, polled_at, preview_database` + rest(t, w, "git_settings", 20) + ` FROM git_settings, numbers`,
		} {
			must(
				t,
				w.db.Admin(t.Context(), `WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 1999) `+q),
			)
		}
		_ = s
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- w.Run(ctx) }()
		time.Sleep(sites * time.Hour / 5000)
		mu.Lock()
		if len(polls) != sites {
			t.Errorf("%d of %d sites were polled in %s", len(polls), sites, sites*time.Hour/5000)
		}
		mu.Unlock()
		time.Sleep(time.Hour - sites*time.Hour/5000)
		stop()
		must(t, <-done)
		total := 0
		for _, n := range polls {
			total += n
			if n > 3 {
				t.Fatalf("a site that is polled every 30 minutes or less often was polled %d times in an hour", n)
			}
		}
		if len(polls) != sites || total < sites {
			t.Errorf("%d of %d sites were polled, %d times in all", len(polls), sites, total)
		}
		if most > maxPolls || most < 2 {
			t.Errorf("%d repositories were asked at once, want at most %d", most, maxPolls)
		}
		busiest := 0
		for _, n := range perSecond {
			busiest = max(busiest, n)
		}
		t.Logf("%d polls of %d sites in an hour, at most %d at once and %d within a second", total, sites, most, busiest)
	})
}

// Repositories of one owner that never respond leave slots for others.
func TestPollsAreShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex // guards the following variables
		running, most, others := 0, 0, 0
		w := newWorld(t, func(ctx context.Context, s site.Site) (map[string]string, string, error) {
			mu.Lock()
			if s.Owner == anna {
				running++
				most = max(most, running)
			} else {
				others++
			}
			mu.Unlock()
			<-ctx.Done()
			mu.Lock()
			defer mu.Unlock()
			if s.Owner == anna {
				running--
			}
			return nil, "", context.Cause(ctx)
		})
		w.site(30)
		for _, q := range []string{
			`INSERT INTO sites SELECT REPLACE(id, 'site_', 'site_' || n || '_'), CASE WHEN n = 40 THEN 'usr_other' ELSE owner_id END, name, slug || n, type, runtime, status, status_reason, repository, branch, framework, build, credential, needs_redeploy, live_deployment, live_release, live_version, created_at, updated_at, deleted_at` + rest(
				t,
				w,
				"sites",
				20,
			) + ` FROM sites, numbers`,
			`INSERT INTO git_settings SELECT REPLACE(site_id, 'site_', 'site_' || n || '_'), '', '', '', auto_deploy, previews, watch, provider, last_event, last_event_at, preview_days, tags, deleted_branches, forks, 30, poll_at + n, poll_refs, poll_error, polled_at, preview_database` + rest(t, w, "git_settings", 20) + ` FROM git_settings, numbers`,
		} {
			must(t, w.db.Admin(t.Context(), `WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 40) `+q))
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- w.Run(ctx) }()
		time.Sleep(time.Hour)
		stop()
		must(t, <-done)
		if most != ownerPolls {
			t.Errorf("%d repositories of one owner are asked at once, want %d", most, ownerPolls)
		}
		if others < 2 {
			t.Errorf("another owner's repository was asked %d times in an hour, want every 30 minutes", others)
		}
	})
}

// rest returns the columns of a table after the first n.
func rest(t *testing.T, w *world, table string, n int) (names string) {
	t.Helper()
	rows, err := w.db.Query(t.Context(), `SELECT name FROM pragma_table_info('`+table+`') WHERE cid >= $1 ORDER BY cid`, n)
	list, err := db.Collect(rows, err, func(r db.Scanner) (s string, err error) { return s, r.Scan(&s) })
	must(t, err)
	for _, name := range list {
		names += ", " + name
	}
	return names
}

// A poll that finds a new commit deploys it like a push. The commits found by the first poll aren't new.
func TestPollFindsCommits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		refs := map[string]string{"refs/heads/main": sha(1), "refs/heads/old": sha(1), "refs/tags/v1": sha(1)}
		var fails error
		var mu sync.Mutex // guards both variables against concurrent polls
		w := newWorld(t, func(context.Context, site.Site) (map[string]string, string, error) {
			mu.Lock()
			defer mu.Unlock()
			return maps.Clone(refs), "main", fails
		})
		mu.Lock()
		s := w.site(1)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- w.Run(ctx) }()
		said := func() []string {
			t.Helper()
			mu.Unlock()
			time.Sleep(2 * time.Minute)
			mu.Lock()
			list, err := w.Events(t.Context(), w.db, anna, s.ID)
			must(t, err)
			out := []string{}
			for _, l := range list {
				out = append(out, l.Ref+": "+l.Outcome)
			}
			must(t, w.db.Admin(t.Context(), `DELETE FROM git_events`))
			return out
		}
		want := func(what string, wants ...string) {
			t.Helper()
			if got := said(); len(got) != len(wants) {
				t.Errorf("%s: %q", what, got)
			} else {
				for i := range wants {
					if !strings.HasPrefix(got[len(got)-1-i], wants[i]) {
						t.Errorf("%s: %q, want %q", what, got, wants)
					}
				}
			}
		}
		want("at first")
		refs["refs/heads/main"], refs["refs/heads/cart"] = sha(2), sha(3)
		want("two pushes", "main: Deployment triggered", "cart: Deployment triggered")
		list, _, err := w.c.Deployments.List(t.Context(), anna, s.ID, deployment.Filter{Page: 1, Limit: 10})
		must(t, err)
		if list[0].CommitHash != sha(3) || list[0].Target != deployment.Preview || list[1].CommitHash != sha(2) ||
			list[1].Target != deployment.Production {
			t.Errorf("polled commits are deployed as %+v", list)
		}
		want("nothing new")
		delete(refs, "refs/heads/cart")
		refs["refs/tags/v2"] = sha(4)
		want("a tag, a deleted branch", "v2: Tags don't trigger deployments", "cart: The branch was deleted; its preview was removed")
		fails = &fault.Error{Kind: fault.NotFound, Message: "The repository was not found"}
		want("the repository is gone")
		if set, err := w.Get(
			t.Context(),
			w.db,
			anna,
			s.ID,
		); err != nil || set.PollError != "The repository was not found" || set.PolledAt == 0 {
			t.Errorf("%+v, %v", set, err)
		}
		fails = nil
		refs["refs/heads/main"] = sha(5)
		want("after the failure", "main: Deployment triggered")
		for i := range 200 { // as when a mirror is set up
			refs[fmt.Sprintf("refs/heads/b%03d", i)] = sha(6)
		}
		refs["refs/heads/main"] = sha(7)
		got := said()
		if len(got) != maxPollChanges || !strings.HasPrefix(got[len(got)-1], "main: Deployment triggered") {
			t.Errorf("200 branches at once: %d events, the first of them %q", len(got), got[len(got)-1])
		}
		must(t, w.db.Write(t.Context(), func(tx *db.Tx) error { // the branches of a new repository aren't new commits
			other := "git.test/acme/other"
			_, err := w.c.Sites.UpdateTx(t.Context(), tx, anna, s.ID, site.Patch{Repository: &other})
			return err
		}))
		refs = map[string]string{"refs/heads/main": sha(9)}
		want("another repository")
		mu.Unlock()
		stop()
		must(t, <-done)
	})
}

// A preview URL that wasn't used for the configured number of days is removed.
func TestUnusedPreviewsEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		s := w.site(0)
		days := 7
		must(t, w.db.Write(t.Context(), func(tx *db.Tx) error {
			if _, err := w.UpdateTx(t.Context(), tx, anna, s.ID, Patch{PreviewDays: &days}); err != nil {
				return err
			}
			_, err := w.c.Deployments.TriggerTx(t.Context(), tx, anna, s.ID, deploy.Trigger{Cause: deployment.ByAPI, Branch: "cart"})
			return err
		}))
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- w.Run(ctx) }()
		count := func() int {
			list, err := w.c.Deployments.Previews.List(t.Context(), anna, s.ID)
			must(t, err)
			return len(list)
		}
		time.Sleep(6 * 24 * time.Hour)
		if n := count(); n != 1 {
			t.Errorf("after six days %d addresses", n)
		}
		time.Sleep(26 * time.Hour)
		if n := count(); n != 0 {
			t.Errorf("after seven days %d addresses", n)
		}
		stop()
		must(t, <-done)
	})
}
