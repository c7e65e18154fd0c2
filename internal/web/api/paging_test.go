package api_test

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"slipway/internal/deploy/deploy"
	"slipway/internal/deploy/deployment"
	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/operation"
	"slipway/internal/tenant/site"
	"slipway/internal/tenant/webhook"
)

// Every list supports page and limit alike: pages start at 1, a page has at most 100 items, and pages past the end are
// empty.
func TestEveryListPages(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	u, key := w.user("a@example.test")
	x := w.belongings(u, key)
	id := x["site"]
	err := w.db.Write(t.Context(), func(tx *db.Tx) error {
		for i := range 30 {
			n := fmt.Sprint("n", i)
			for _, err := range []error{
				second(w.c.Sites.CreateTx(t.Context(), tx, w.owner(u), site.NewSite{
					Name:       n,
					Type:       "static",
					Repository: "git.test/acme/site",
				})),
				second(w.c.Deployments.TriggerTx(t.Context(), tx, w.owner(u), site.ID(id), deploy.Trigger{Cause: deployment.ByAPI})),
				second(w.c.Webhooks.CreateTx(t.Context(), tx, w.owner(u), webhook.NewWebhook{
					URL:    "https://example.test/" + n,
					Events: []string{"site.updated"},
				})),
				second(w.c.Webhooks.PingTx(t.Context(), tx, w.owner(u), webhook.ID(x["webhook"]))),
				second(w.c.Operations.OpenTx(t.Context(), tx, w.owner(u), operation.NewOperation{Kind: "test", Site: site.ID(id)})),
				second(w.c.Sites.CreateHookTx(t.Context(), tx, w.owner(u), site.ID(id), site.NewHook{Name: n})),
				second(w.c.Sites.SetEnvTx(t.Context(), tx, w.owner(u), site.ID(id), []site.NewVar{{Key: n, Value: n}})),
			} {
				if err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 30 {
		for _, q := range []string{
			`INSERT INTO connections (id, owner_id, provider, host, login, token, error, error_at, created_at, updated_at) VALUES ('con_%[2]d', '%[3]s', 'gitea', 'h%[2]d', 'l', '', '', 0, 1, 1)`,
			`INSERT INTO notify_channels (id, owner_id, site_ids, kind, name, url, events, active, error, sent_at, created_at, updated_at) VALUES ('nch_%[2]d', '%[3]s', '', 'mail', 'n', '', 'domain.failed', TRUE, '', 0, 1, 1)`,
			`INSERT INTO git_events (id, site_id, provider, name, ref, commit_hash, outcome, deployment_id, at) VALUES ('gev_%[2]d', '%[1]s', 'github', 'push', '', '', 'x', '', 1)`,
			`INSERT INTO git_pulls (site_id, number, title, branch, source, author, commit_hash, open, fork, approved, updated_at) VALUES ('%[1]s', 1 + %[2]d, 'T', 'b', '', '', '', TRUE, FALSE, '', 1)`,
		} {
			q = strings.NewReplacer("%[1]s", id, "%[2]d", fmt.Sprint(i), "%[3]s", string(w.owner(u))).Replace(q)
			if err := w.db.Admin(t.Context(), q); err != nil {
				t.Fatal(err)
			}
		}
		w.key(u, account.NewKey{})
		w.grant(u, account.SitesRead)
		w.must(201, "POST", "/sites/"+id+"/backups", key, nil)
		if err := w.db.Admin(t.Context(), "UPDATE backups SET status = 'failed'"); err != nil { // so that another can be requested
			t.Fatal(err)
		}
		w.must(201, "POST", "/sites/"+id+"/domains", key, m{"name": fmt.Sprintf("n%d.example-4711.com", i)})
	}
	for i := range 15 {
		w.must(201, "POST", "/sites/"+id+"/databases", key, m{"engine": "mariadb", "name": fmt.Sprintf("n%d", i)})
	}
	of, teamKey := w.team(u, key)
	acting := w.acting(u, of["team"])
	for i := range 30 {
		member, _ := w.user(fmt.Sprintf("m%d@example.test", i))
		for _, q := range []string{
			`INSERT INTO team_members (owner_id, user_id, role, break_glass, joined_at, invited_by) VALUES ('%[1]s', '%[2]s', '', FALSE, 1, '')`,
			`INSERT INTO site_members (site_id, user_id, owner_id, role) VALUES ('%[3]s', '%[2]s', '%[1]s', 'viewer')`,
		} {
			q = strings.NewReplacer("%[1]s", string(acting.Owner), "%[2]s", string(member), "%[3]s", of["site"]).Replace(q)
			if err := w.db.Admin(t.Context(), q); err != nil {
				t.Fatal(err)
			}
		}
		w.must(201, "POST", "/teams/"+of["team"]+"/invitations", teamKey, m{"email": fmt.Sprintf("i%d@example.test", i), "role": "viewer"})
	}
	for i := range 15 {
		w.must(201, "POST", "/teams", key, m{"name": fmt.Sprint("Team ", i)})
	}
	for _, kind := range []string{"google", "gitlab"} {
		w.must(201, "POST", "/teams/"+of["team"]+"/sso", teamKey, m{"kind": kind, "clientId": "c", "clientSecret": "s"})
	}
	for range 19 { // the maximum, including the existing one
		w.identity(u, "")
	}
	for _, kind := range []string{"gitlab", "github"} {
		if err := w.db.Admin(t.Context(), `INSERT INTO sso_providers (id, kind, name, issuer, client_id, secret, domains, created_at, owner_id, join_role)
			VALUES ('`+kind+`', '`+kind+`', '`+kind+`', 'https://`+kind+`.com', 'c', '', '', 1, '', '')`); err != nil {
			t.Fatal(err)
		}
	}
	// A site has at most 20 databases, a team 3 providers, and only a site with a program has crons.
	atLeast := map[string]int{"listEvents": 0, "listDatabases": 16, "listTeams": 16, "listCrons": 0, "listTeamProviders": 3, "listIdentities": 19, "listSignInProviders": 6}
	paged := []string{"listSites", "listDeployments", "listDeliveries", "listOperations", "listAllBackups"} // always paginated
	lists := 0
	for _, r := range routesOf(w) {
		if r.Method != "GET" || !strings.HasPrefix(r.ID, "list") || r.Operator { // TestOperatorsManageUsers covers the operators' lists
			continue
		}
		lists++
		ask := func(query string) (int, []any, m) {
			x, key := x, key
			if matrix[r.ID].team {
				x, key = of, teamKey
			}
			a := w.api("GET", x.fill(matrix[r.ID].path)+query, key, nil)
			common(t, r.ID+query, a)
			body := a.json(t)
			items, _ := body["data"].([]any)
			of, _ := body["pagination"].(m)
			return a.status, items, of
		}
		for _, bad := range []string{"page=0", "page=-1", "page=abc", "page=1.5", "limit=0", "limit=-1", "limit=abc", "limit=%2B5"} {
			if status, _, _ := ask("?" + bad); status != 400 {
				t.Errorf("%s?%s: %d, want 400", r.ID, bad, status)
			}
		}
		if strings.HasPrefix(r.ID, "listWordPress") {
			continue // these ask WordPress itself; the end-to-end tests cover them
		}
		_, all, of := ask("")
		if always := slices.Contains(paged, r.ID); always != (of != nil) || always && len(all) > 25 {
			t.Errorf("%s without a page: %d items, %v", r.ID, len(all), of)
		}
		status, hundred, of := ask("?limit=101")
		total := int(of["total"].(float64))
		if status != 200 || of["limit"] != 100.0 || of["page"] != 1.0 || len(hundred) != min(total, 100) {
			t.Errorf("%s?limit=101: %d, %d items, %v", r.ID, status, len(hundred), of)
		}
		want, bounded := atLeast[r.ID]
		if !bounded {
			want = 30
		}
		if total < want {
			t.Errorf("%s has %d items: too few to tell", r.ID, total)
		}
		// A page reads the data of all its items at once.
		count := func(query string) int64 {
			before := w.statements.Load()
			ask(query)
			return w.statements.Load() - before
		}
		few, many := count("?limit=2"), count("?limit=25")
		for try := 0; many > few+5 && try < 100; try++ { // other work may use the database at the same time
			many = min(many, count("?limit=25"))
		}
		if total >= 16 && many > few+5 {
			t.Errorf("%s: %d statements for 2 items, %d for %d", r.ID, few, many, min(total, 25))
		}
		var joined []any
		for p := 1; ; p++ {
			_, items, of := ask(fmt.Sprintf("?limit=7&page=%d", p))
			if of["total"] != float64(total) || of["totalPages"] != float64((total+6)/7) || of["page"] != float64(p) {
				t.Fatalf("%s, page %d: %v", r.ID, p, of)
			}
			if joined = append(joined, items...); len(items) < 7 {
				break
			}
		}
		if got, want := names(joined), names(hundred); !slices.Equal(got, want) {
			t.Errorf("%s: the pages of 7 hold %v, the whole %v", r.ID, got, want)
		}
		for _, beyond := range []string{"?page=1000", "?page=99999999999999999999", "?limit=100&page=2147483647"} {
			if status, items, of := ask(beyond); status != 200 || items == nil || len(items) != 0 || of["total"] != float64(total) {
				t.Errorf("%s%s: %d, %v, %v", r.ID, beyond, status, items, of)
			}
		}
	}
	if lists < 9 {
		t.Errorf("only %d lists were found", lists)
	}
}

// names returns what identifies the items of a list.
func names(items []any) (out []string) {
	for _, v := range items {
		out = append(out, fmt.Sprint(v.(m)["id"], v.(m)["name"], v.(m)["number"]))
	}
	return out
}

func second[T any](_ T, err error) error { return err }

// A search narrows the sites that a key may see and never adds any.
func TestSearchSites(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	u, key := w.user("a@example.test")
	_, stranger := w.user("b@example.test")
	ids := map[string]string{}
	for _, name := range []string{"Café Blog", "Shop", "Blog 2"} {
		ids[name] = w.site(key, name)
	}
	few := w.key(u, account.NewKey{Sites: []site.ID{site.ID(ids["Shop"]), site.ID(ids["Blog 2"]), "site_gone"}})
	for _, tt := range []struct {
		key, search, rest string
		want              int
	}{
		{key, "blog", "", 2},
		{key, "CAFE", "", 1},
		{key, "blog", "&limit=1", 2},
		{key, "blog", "&page=2&limit=1", 2},
		{key, "blog", "&status=active", 0},
		{key, "blog", "&type=static", 2},
		{key, "%", "", 0},
		{few, "blog", "", 1},
		{few, "acme", "", 2},
		{few, "cafe", "", 0},
		{stranger, "blog", "", 0},
	} {
		a := w.must(200, "GET", "/sites?search="+url.QueryEscape(tt.search)+tt.rest, tt.key, nil)
		if got := a["pagination"].(m)["total"]; got != float64(tt.want) {
			t.Errorf("%q%s: %v, want %d", tt.search, tt.rest, got, tt.want)
		}
	}
	for _, bad := range []string{strings.Repeat("x", 101), "a\x00"} {
		if a := w.api("GET", "/sites?search="+url.QueryEscape(bad), key, nil); a.status != 400 {
			t.Errorf("%q: %s", bad, a)
		}
	}
}
