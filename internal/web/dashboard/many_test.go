package dashboard

import (
	"fmt"
	"math/bits"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"slipway/internal/deploy/deploy"
	"slipway/internal/deploy/deployment"
	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
	"slipway/internal/tenant/webhook"
	"slipway/internal/web/dashboard/home"
	"slipway/internal/web/dashboard/shell"
	"slipway/internal/web/dashboard/sites"
)

// statements records the database's statements.
type statements struct {
	mu  sync.Mutex // guards all
	all []string
}

func (s *statements) see(q string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, q)
}

// count returns how many statements since the last take contain text.
func (s *statements) count(text string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range s.all {
		if strings.Contains(q, text) {
			n++
		}
	}
	return n
}

// take returns the statements since the last call.
func (s *statements) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.all
	s.all = nil
	return out
}

// multiply gives a user n more of everything that pages list.
func (w *world) multiply(u account.User, id site.ID, hook webhook.ID, from, n int) {
	w.t.Helper()
	ctx := w.t.Context()
	for i := from; i < from+n; i++ {
		name := fmt.Sprintf("n%d", i)
		err := w.db.Write(ctx, func(tx *db.Tx) error {
			s, err := w.dash.Sites.CreateTx(ctx, tx, u.Owner, site.NewSite{Name: name, Type: "static", Repository: "git.test/acme/site"})
			if err != nil {
				return err
			}
			for _, id := range []site.ID{id, s.ID} {
				if _, err := w.dash.Deployments.TriggerTx(ctx, tx, u.Owner, id, deploy.Trigger{
					Cause: deployment.ByAPI,
					Title: name,
				}); err != nil {
					return err
				}
			}
			if _, err := w.dash.Webhooks.CreateTx(ctx, tx, u.Owner, webhook.NewWebhook{
				URL:    "https://example.test/" + name,
				Events: []string{"site.deleted"},
			}); err != nil {
				return err
			}
			if _, err := w.dash.Webhooks.PingTx(ctx, tx, u.Owner, hook); err != nil {
				return err
			}
			if _, err := w.dash.Sites.CreateHookTx(ctx, tx, u.Owner, id, site.NewHook{Name: name}); err != nil {
				return err
			}
			_, err = w.dash.Sites.SetEnvTx(ctx, tx, u.Owner, id, []site.NewVar{{Key: name, Value: name}})
			return err
		})
		if err != nil {
			w.t.Fatal(err)
		}
		if _, _, err := w.dash.Accounts.CreateKey(ctx, u.ID, account.NewKey{Name: name, Scopes: account.Scopes{account.All}}); err != nil {
			w.t.Fatal(err)
		}
		w.user(name+"@example.test", false)
	}
}

// A page runs the same number of statements for many items as for few, and none of them scans a growing table.
func TestPagesAskOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	u := w.user("ada@example.test", true)
	b := w.as("ada@example.test")
	th := w.things()
	id, hook := site.ID(th["{id}"]), webhook.ID(th["{webhook}"])
	count := func() map[string][]string {
		asked := map[string][]string{}
		for _, rt := range w.dash.routes {
			if rt.Method != http.MethodGet || rt.Access != shell.User && rt.Access != shell.Operator || strings.HasPrefix(
				rt.Path,
				"/live/",
			) || strings.HasSuffix(rt.Path, "/follow") ||
				strings.HasSuffix(rt.Path, "/first") || strings.Contains(rt.Path, "{passkey}") {
				continue
			}
			w.statements.take()
			b.get(th.fill(rt.Path))
			asked[rt.Path] = slices.DeleteFunc(w.statements.take(), func(q string) bool {
				return strings.HasPrefix(q, "UPDATE sessions SET seen_at") // once a minute, on any page
			})
		}
		return asked
	}
	w.multiply(u, id, hook, 0, 2)
	count() // skips statements that run once after a start
	few := count()
	w.multiply(u, id, hook, 2, 60)
	many := count()
	for path, asked := range many {
		// The total of a list isn't queried when the page is its last.
		if len(asked) > len(few[path])+1 {
			t.Errorf(
				"%s asks %d times for many things and %d times for few:\n%s",
				path,
				len(asked),
				len(few[path]),
				strings.Join(asked, "\n"),
			)
		}
		if len(asked) > 25 {
			t.Errorf("%s asks %d times", path, len(asked))
		}
	}
	if !w.db.Single() {
		return // PostgreSQL plans by the tables' contents
	}
	seen := map[string]bool{}
	for path, asked := range many {
		for _, q := range asked {
			if seen[q] {
				continue
			}
			seen[q] = true
			for _, step := range w.plan(q) {
				if m := scans.FindStringSubmatch(step); m != nil && slices.Contains(growing, m[1]) {
					t.Errorf("%s: %s in\n%s", path, step, q)
				}
			}
		}
	}
}

// growing lists the tables and views that no page may scan.
var growing = []string{
	"sites", "s", "open_sites", "deployments", "d", "deployment_logs", "domains", "site_domains", "env",
	"deploy_hooks", "webhooks", "webhook_deliveries", "webhook_attempts", "webhook_events", "api_keys", "sessions",
	"audit", "traffic", "traffic_top", "access_log",
}

// A table in the order of its key ("USING INDEX") is read only as far as the page.
var scans = regexp.MustCompile(`^SCAN ([a-z_]+)(?: USING COVERING INDEX .*)?$`)

var parameter = regexp.MustCompile(`\$(\d+)`)

// plan returns SQLite's query plan of a statement.
func (w *world) plan(q string) (steps []string) {
	w.t.Helper()
	n := 0
	for _, m := range parameter.FindAllStringSubmatch(q, -1) {
		var i int
		fmt.Sscan(m[1], &i)
		n = max(n, i)
	}
	rows, err := w.db.Query(w.t.Context(), "EXPLAIN QUERY PLAN "+q, make([]any, n)...)
	steps, err = db.Collect(rows, err, func(row db.Scanner) (step string, err error) {
		var a, b, c int
		return step, row.Scan(&a, &b, &c, &step)
	})
	if err != nil {
		w.t.Fatalf("%s: %v", q, err)
	}
	return steps
}

// With ten thousand deployments of one site among a thousand sites, every page is small, the last page is reachable,
// and later ones are empty.
func TestLongLists(t *testing.T) {
	t.Parallel()
	w, b := thousand(t)
	ctx := t.Context()
	list, total, err := w.dash.Sites.List(ctx, w.users["ada@example.test"].Owner, site.Filter{Search: "site 77", Page: 1, Limit: 100})
	if err != nil || total != 11 { // 77 and 770 to 779
		t.Fatalf("%d sites, %v", total, err)
	}
	s := list[0]
	const columns = `site_id, owner_id, label, status, cause, branch, title, clear_cache, commit_hash, commit_message, commit_author,
		framework, plan, release, runtime, rollback_of, error, stages, attempt, cancel, created_at, started_at, completed_at`
	n := 1
	for n < 10_000 { // doubles each time
		err := w.db.Write(ctx, func(tx *db.Tx) error {
			_, err := tx.Exec(
				ctx,
				`INSERT INTO deployments (id, `+columns+`) SELECT id || $2, `+columns+` FROM deployments WHERE site_id = $1`,
				s.ID,
				string(rune('a'+bits.Len(uint(n)))),
			)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		n *= 2
	}
	last := (n + sites.DeploymentsPerPage - 1) / sites.DeploymentsPerPage
	base := "/sites/" + string(s.ID)
	for path, want := range map[string]int{
		base + "/deployments":                               sites.DeploymentsPerPage,
		fmt.Sprintf("%s/deployments?page=%d", base, last):   n - (last-1)*sites.DeploymentsPerPage,
		fmt.Sprintf("%s/deployments?page=%d", base, last+1): 0,
		base: 5,
	} {
		p := b.get(path)
		if got := strings.Count(p.body, `data-test="dep-dep_`); p.status != 200 || got != want || len(p.body) > 100_000 {
			t.Errorf("%s: %d, %d deployments in %d bytes, want %d", path, p.status, got, len(p.body), want)
		}
	}
	if p := b.get(fmt.Sprintf(
		"%s/deployments?page=%d",
		base,
		last+1,
	)); !strings.Contains(p.body, fmt.Sprintf("deployments?page=%d", last)) {
		t.Error("no way back from behind the end")
	}
	for path, want := range map[string]int{"/": home.CardsPerPage, "/?page=42": 1000 - 41*home.CardsPerPage, "/?page=43": 0, "/?q=site+77": 11} {
		p := b.get(path)
		if got := strings.Count(p.body, `data-test="card-site_`); p.status != 200 || got != want || len(p.body) > 100_000 {
			t.Errorf("%s: %d, %d sites in %d bytes, want %d", path, p.status, got, len(p.body), want)
		}
	}
}
