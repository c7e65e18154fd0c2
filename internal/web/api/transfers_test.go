package api_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/limits"
	"slipway/internal/tenant/site"
)

// offer offers a site and returns the code.
func (w *world) offer(key, id, to string) string {
	w.t.Helper()
	return w.must(201, "POST", "/sites/"+id+"/transfer", key, m{"to": to})["code"].(string)
}

// settle ends a site's backups, deployments and operations, which would wait forever without workers.
func (w *world) settle() {
	w.t.Helper()
	for _, q := range []string{
		"UPDATE backups SET status = 'failed'", "UPDATE deployments SET status = 'canceled'", "UPDATE operations SET completed_at = 1",
	} {
		if err := w.db.Admin(w.t.Context(), q); err != nil {
			w.t.Fatal(err)
		}
	}
}

// movedTables lists the tables whose rows move with a site, and leftTables those whose rows stay with the sender. A
// table with a site and an owner must be in one of them.
var (
	movedTables = strings.Fields(`app_tasks backup_schedules backups build_caches databases deploy_hooks deployments domains slugs uploads wordpress_sites`)
	leftTables  = strings.Fields(`build_time operations usage_sites usage_sources webhook_events notify_channels site_members`)
)

// A transfer handles every table with a site and an owner, and leaves no row of the site with the sender in a table
// that moves.
func TestTransferForgetsNoTable(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	u, ada := w.user("ada@example.test")
	_, ben := w.user("ben@example.test")
	x := w.belongings(u, ada)
	owner := w.owner(u)
	for _, q := range []string{
		`INSERT INTO app_tasks (site_id, kind, name, deployment_id, owner_id, schedule, command, next_at, node, lease_until) VALUES ('SITE', 'cron', 'c', 'd', 'OWNER', '', '{}', 0, '', 0)`,
		`INSERT INTO build_caches (site_id, name, owner_id, bytes, used_at) VALUES ('SITE', 'main', 'OWNER', 5, 1)`,
		`INSERT INTO uploads (id, site_id, owner_id, kind, status, target, branch, title, commit_hash, commit_message, commit_author, dirty, manifest, needed, files, bytes, needed_bytes, deployment_id, created_at, touched_at)
			VALUES ('upl_1', 'SITE', 'OWNER', 'output', 'open', 'production', '', '', '', '', '', FALSE, '', '', 0, 0, 0, '', 1, 1)`,
		`DELETE FROM backup_schedules WHERE site_id = 'SITE'`,
		`INSERT INTO backup_schedules (site_id, owner_id, every, at, daily, weekly, monthly, next_at, warned) VALUES ('SITE', 'OWNER', 'daily', '03:00', 1, 1, 1, 1, FALSE)`,
		`INSERT INTO wordpress_sites (site_id, owner_id, secret, title, admin_email, admin_user, locale, database_id, installed, xmlrpc, debug, maintenance, memory_mib, upload_mib, execution_seconds, next_cron, created_at)
			VALUES ('SITE', 'OWNER', '', '', '', '', '', '', '', FALSE, FALSE, FALSE, 1, 1, 1, 1, 1)`,
	} {
		if err := w.db.Admin(t.Context(), strings.NewReplacer("SITE", x["site"], "OWNER", string(owner)).Replace(q)); err != nil {
			t.Fatal(q, err)
		}
	}
	known := map[string]bool{}
	for _, name := range append(append([]string{}, movedTables...), leftTables...) {
		known[name] = true
	}
	for _, name := range siteTables(t, w.db) {
		if !known[name] {
			t.Errorf("the table %s has a site and an owner, and nothing says whether it moves with a transferred site", name)
		}
	}
	rows := func(name string) (n int) {
		if err := w.db.QueryRow(t.Context(), "SELECT count(*) FROM "+name+" WHERE site_id = $1 AND owner_id = $2", x["site"], owner).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	for _, name := range movedTables {
		if rows(name) == 0 {
			t.Errorf("no row of %s is tried", name)
		}
	}
	w.settle()
	code := w.offer(ada, x["site"], "ben@example.test")
	w.must(200, "POST", "/transfers/accept", ben, m{"code": code})
	for _, name := range movedTables {
		if n := rows(name); n > 0 {
			t.Errorf("%d rows of %s stay with the sender", n, name)
		}
	}
	for _, path := range []string{"/sites/{site}", "/deployments/{deployment}", "/domains/{domain}", "/databases/{database}", "/backups/{backup}"} {
		if a := w.api("GET", x.fill(path), ada, nil); a.status != 404 {
			t.Errorf("the sender, %s: %s", path, a)
		}
		if a := w.api("GET", x.fill(path), ben, nil); a.status != 200 {
			t.Errorf("the receiver, %s: %s", path, a)
		}
	}
	if n := len(w.must(200, "GET", "/sites", ben, nil)["data"].([]any)); n != 1 {
		t.Errorf("the receiver lists %d sites", n)
	}
	// The deploy hook's old URL no longer works.
	if a := w.send("POST", "/hooks/deploy/"+x["hook"], "", nil); a.status != 404 {
		t.Errorf("the sender's deploy hook: %s", a)
	}
}

// siteTables returns the tables with a site and an owner, from the database's schema.
func siteTables(t *testing.T, d *db.DB) (list []string) {
	t.Helper()
	query := `SELECT c.table_name FROM information_schema.columns c JOIN information_schema.tables t ON t.table_name = c.table_name AND t.table_schema = c.table_schema
		WHERE c.table_schema = current_schema() AND t.table_type = 'BASE TABLE' AND c.column_name IN ('site_id', 'owner_id') GROUP BY c.table_name HAVING count(*) = 2`
	if d.Single() {
		query = `SELECT m.name FROM sqlite_master m JOIN pragma_table_info(m.name) c WHERE m.type = 'table' AND c.name IN ('site_id', 'owner_id') GROUP BY m.name HAVING count(*) = 2`
	}
	rows, err := d.Query(t.Context(), query)
	list, err = db.Collect(rows, err, func(r db.Scanner) (name string, err error) { return name, r.Scan(&name) })
	if err != nil || len(list) < len(movedTables) {
		t.Fatal(list, err)
	}
	return list
}

// A dry run returns what a transfer would do and changes nothing. Between accounts of the same user a site moves at
// once.
func TestTransferAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	u, ada := w.user("ada@example.test")
	_, eve := w.user("eve@example.test")
	id, key := w.teamOf(ada, "Acme")
	s := w.site(ada, "Shop")
	hook := w.must(201, "POST", "/sites/"+s+"/hooks", ada, m{"name": "ci"})["id"].(string)
	w.must(201, "POST", "/sites/"+s+"/domains", ada, m{"name": "www.example-4711.com"})
	w.must(201, "POST", "/keys", ada, m{"name": "x", "scopes": []string{"sites:read"}, "sites": []string{s}})
	plan := w.must(201, "POST", "/sites/"+s+"/transfer", ada, m{"to": "acme", "dryRun": true})
	if plan["completed"] != false || plan["code"] != nil || len(plan["moves"].([]any)) != 2 || len(plan["breaks"].([]any)) != 3 {
		t.Errorf("a dry run says %v", plan)
	}
	w.must(200, "PATCH", "/sites/"+s+"/serving", ada, m{"protection": "previews", "password": "open sesame"})
	again := w.must(201, "POST", "/sites/"+s+"/transfer", ada, m{"to": "acme", "dryRun": true})["breaks"].([]any)
	if len(again) != 4 || !slices.Contains(again, any("the password for visitors stays: change it after the transfer if the sender should no longer see protected addresses")) {
		t.Errorf("with a password for visitors, what breaks is %q", again)
	}
	w.must(200, "PATCH", "/sites/"+s+"/serving", ada, m{"protection": "none"})
	w.must(200, "GET", "/sites/"+s, ada, nil)
	if a := w.api("POST", "/sites/"+s+"/transfer", eve, m{"to": "acme"}); a.status != 404 {
		t.Errorf("a stranger: %s", a)
	}
	// A key with fewer scopes than its user can only plan a transfer.
	narrow := w.key(u, account.NewKey{Scopes: account.Scopes{account.SitesWrite}})
	if got := w.must(201, "POST", "/sites/"+s+"/transfer", narrow, m{"to": "acme", "dryRun": true}); got["completed"] != false || got["code"] != nil {
		t.Errorf("a narrow key: %v", got)
	}
	move := func() answer {
		return w.api("POST", "/sites/"+s+"/transfer", ada, m{"to": "acme", "keepHooks": true}, "Idempotency-Key: move")
	}
	first := move()
	if first.status != 201 || !strings.Contains(first.body, `"completed":true`) {
		t.Errorf("between one's own accounts: %s", first)
	}
	if again := move(); again.status != 201 || again.body != first.body || again.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("the same request once the site has moved: %s", again)
	}
	w.must(200, "GET", "/sites/"+s, key, nil)
	if a := w.api("GET", "/sites/"+s, ada, nil); a.status != 404 {
		t.Errorf("the personal account: %s", a)
	}
	if a := w.send("POST", "/hooks/deploy/"+hook, "", nil); a.status != 200 {
		t.Errorf("a hook that was kept: %s", a)
	}
	var log []string
	for _, e := range w.must(200, "GET", "/teams/"+id+"/audit?action=site", key, nil)["data"].([]any) {
		log = append(log, e.(m)["action"].(string))
	}
	if strings.Join(log, " ") != "site.received" {
		t.Errorf("the receiver's log says %q", log)
	}
	if a := w.api("POST", "/sites/"+s+"/transfer", key, m{"to": "ada@example.test"}); a.status != 409 || !strings.Contains(a.body, "site_busy") {
		t.Errorf("while it is deployed: %s", a)
	}
	w.settle()
	if got := w.must(201, "POST", "/sites/"+s+"/transfer", key, m{"to": "ada@example.test"}); got["completed"] != true {
		t.Errorf("back: %v", got)
	}
}

// A code moves a site once, to the intended receiver, as it was offered, within the receiver's limits.
func TestTransferByCode(t *testing.T) {
	t.Parallel()
	settings, err := limits.Parse("[users.\"full@example.test\"]\nsites = 0\ndomains = 0\n")
	if err != nil {
		t.Fatal(err)
	}
	w := newLimitedWorld(t, settings)
	_, ada := w.user("ada@example.test")
	_, ben := w.user("ben@example.test")
	_, eve := w.user("eve@example.test")
	_, full := w.user("full@example.test")
	_, team := w.teamOf(ben, "Acme")
	s := w.site(ada, "Shop")
	w.must(201, "POST", "/sites/"+s+"/domains", ada, m{"name": "www.example-4711.com"})
	accept := func(key, code string, want int, says string) {
		t.Helper()
		if a := w.api("POST", "/transfers/accept", key, m{"code": code}); a.status != want || !strings.Contains(a.body, says) {
			t.Errorf("%s, want %d %s", a, want, says)
		}
	}
	code := w.offer(ada, s, "Ben@Example.test")
	accept(eve, code, 403, "other_receiver")
	replaced := code
	code = w.offer(ada, s, "acme")
	accept(ben, replaced, 404, "transfer_not_found")
	accept(ben, code, 403, "other_receiver") // the code is for the team
	w.must(201, "POST", "/sites/"+s+"/domains", ada, m{"name": "shop.example-4711.com"})
	accept(team, code, 409, "transfer_changed")
	code = w.offer(ada, s, "full@example.test")
	a := w.api("POST", "/transfers/accept", full, m{"code": code})
	if a.status != 402 || !strings.Contains(a.body, "Sites") || !strings.Contains(a.body, "Domains") {
		t.Errorf("a receiver without room: %s", a)
	}
	w.must(200, "GET", "/sites/"+s, ada, nil)
	// When a transfer is canceled and accepted by many at the same time, one request wins.
	for range 3 {
		got := w.must(201, "POST", "/sites/"+s+"/transfer", ada, m{"to": "acme"})
		var mu sync.Mutex
		won := 0
		var wg sync.WaitGroup
		try := func(method, path, key string, body any) {
			wg.Go(func() {
				a := w.api(method, path, key, body)
				mu.Lock()
				defer mu.Unlock()
				if a.status == 200 {
					won++
				} else if a.status != 404 {
					t.Errorf("%s", a)
				}
			})
		}
		for range 4 {
			try("POST", "/transfers/accept", team, m{"code": got["code"]})
		}
		try("DELETE", "/transfers/"+got["id"].(string), ada, nil)
		wg.Wait()
		if won != 1 {
			t.Errorf("%d of five won", won)
		}
		if w.api("GET", "/sites/"+s, team, nil).status == 200 {
			w.must(200, "POST", "/transfers/accept", ada, m{"code": w.offer(team, s, "ada@example.test")})
		}
	}
	// A site can't be transferred while a deployment waits.
	code = w.offer(ada, s, "acme")
	w.must(200, "POST", "/sites/"+s+"/deploy", ada, nil)
	accept(team, code, 409, "site_busy")
	w.settle()
	accept(team, code, 200, s)
}

// Apps, service keys and restricted keys can plan transfers but not offer or make them, not even to an account of the
// same user. A key with all of its user's permissions can make an offer, and the site's members get an email.
func TestWhoTransfers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	u, ada := w.user("ada@example.test")
	_, eve := w.user("eve@example.test")
	id, team := w.teamOf(ada, "Acme")
	s, ofTeam := w.site(ada, "Shop"), w.site(team, "Team shop")
	_, app := w.grant(u, account.SitesWrite)
	for name, x := range map[string]struct{ key, site string }{
		"an app":                    {app, s},
		"a key of one scope":        {w.key(u, account.NewKey{Scopes: account.Scopes{account.SitesWrite}}), s},
		"a key of one site":         {w.key(u, account.NewKey{Scopes: account.Scopes{account.All}, Sites: []site.ID{site.ID(s)}}), s},
		"a team's key of one scope": {w.teamKey(ada, id, "sites:write"), ofTeam},
		"a service key": {
			w.must(201, "POST", "/keys", ada, m{"name": "ci", "scopes": []string{"sites:write"}, "teamId": id, "service": true})["key"].(string), ofTeam,
		},
	} {
		for _, to := range []string{"eve@example.test", "ada@example.test", "acme"} {
			if x.site == ofTeam && to == "acme" || x.site == s && to == "ada@example.test" {
				continue // the site's current owner
			}
			if a := w.api("POST", "/sites/"+x.site+"/transfer", x.key, m{"to": to}); a.status != 403 || !strings.Contains(a.body, "wider_key") {
				t.Errorf("%s, to %s: %s", name, to, a)
			}
		}
	}
	if n := w.count("SELECT count(*) FROM site_transfers"); n != 0 {
		t.Errorf("%d transfers were offered", n)
	}
	w.must(200, "POST", "/transfers/accept", eve, m{"code": w.offer(team, ofTeam, "eve@example.test")})
}

// An offer names what moves. If the site's domains change before the acceptance, the acceptance is refused.
func TestTransferNamesDomains(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, ada := w.user("ada@example.test")
	_, ben := w.user("ben@example.test")
	s := w.site(ada, "Shop")
	first := w.must(201, "POST", "/sites/"+s+"/domains", ada, m{"name": "good.example-4711.com"})["id"].(string)
	offered := w.must(201, "POST", "/sites/"+s+"/transfer", ada, m{"to": "ben@example.test"})
	if !strings.Contains(fmt.Sprint(offered["moves"]), "good.example-4711.com") {
		t.Errorf("the plan doesn't name the domain: %v", offered["moves"])
	}
	w.must(200, "DELETE", "/domains/"+first, ada, nil)
	w.must(201, "POST", "/sites/"+s+"/domains", ada, m{"name": "evil.example-4711.com"})
	if a := w.api("POST", "/transfers/accept", ben, m{"code": offered["code"]}); a.status != 409 || !strings.Contains(a.body, "transfer_changed") {
		t.Errorf("with another domain: %s", a)
	}
	w.must(200, "POST", "/transfers/accept", ben, m{"code": w.offer(ada, s, "ben@example.test")})
}

// While its account has an overdue invoice, or the site is paused, a site can't be offered, accepted or transferred
// directly.
func TestUnpaidSitesStay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	u, ada := w.user("ada@example.test")
	_, ben := w.user("ben@example.test")
	w.teamOf(ada, "Acme")
	s, owner := w.site(ada, "Shop"), w.owner(u)
	set := func(query string, args ...any) {
		t.Helper()
		w.write(func(tx *db.Tx) error { _, err := tx.Exec(t.Context(), query, args...); return err })
	}
	refused := func(code, says string) {
		t.Helper()
		for _, a := range []answer{
			w.api("POST", "/sites/"+s+"/transfer", ada, m{"to": "ben@example.test"}),
			w.api("POST", "/sites/"+s+"/transfer", ada, m{"to": "acme"}),
			w.api("POST", "/transfers/accept", ben, m{"code": code}),
		} {
			if a.status != 402 || !strings.Contains(a.body, says) {
				t.Errorf("%s, want 402 %s", a, says)
			}
		}
	}
	code := w.offer(ada, s, "ben@example.test")
	set(`INSERT INTO billing_invoices (id, seller_id, owner_id, subscription_id, cause, corrects, status, number, currency, net, tax, total, paid, credited,
		basis, document, digest, held, step, next_at, created_at, finalized_at, due_at)
		VALUES ('inv_1', '', $1, 'sub_1', 'period:1', '', 'open', 'A-1', 'EUR', 1000, 0, 1000, 0, 0, '{}', '', '', FALSE, 0, 0, 1, 1, $2)`, owner, db.Now()-1)
	refused(code, "unpaid_invoices")
	set(`UPDATE billing_invoices SET due_at = $1`, db.Now().Add(time.Hour))
	set(`INSERT INTO billing_subscriptions (id, owner_id, version_id, next_version, status, anchor, period, period_start, period_end, trial_end, cancels, reason,
		unpaid_since, changes, next_at, created_at, ended_at) VALUES ('sub_1', $1, 'plv_1', '', 'paused', 1, 0, 1, 2, 0, 0, '', 1, 0, 0, 1, 0)`, owner)
	refused(code, "site_paused")
	set(`UPDATE billing_subscriptions SET status = 'active'`)
	w.must(200, "POST", "/transfers/accept", ben, m{"code": code})
}

// A transfer ends what deploys the site for the sender: polling stops and the Git credential is deleted. The plan says
// so before.
func TestTransferEndsDeploying(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, ada := w.user("ada@example.test")
	_, ben := w.user("ben@example.test")
	s := w.must(201, "POST", "/sites", ada, m{
		"name": "Shop", "type": "static", "repository": "github.com/acme/site", "credential": m{"token": "adas-token"},
	})["data"].(m)["id"].(string)
	w.settle()
	w.must(200, "PATCH", "/sites/"+s+"/git", ada, m{"pollMinutes": 5})
	offered := w.must(201, "POST", "/sites/"+s+"/transfer", ada, m{"to": "ben@example.test"})
	for _, want := range []string{"Git credential is deleted", "no longer polled"} {
		if !strings.Contains(fmt.Sprint(offered["breaks"]), want) {
			t.Errorf("the plan doesn't say %q: %v", want, offered["breaks"])
		}
	}
	if got := w.must(200, "GET", "/sites/"+s+"/git", ada, nil); got["pollMinutes"] != 5.0 {
		t.Errorf("the plan changed something: %v", got)
	}
	w.must(200, "POST", "/transfers/accept", ben, m{"code": offered["code"], "keepHooks": true})
	if got := w.must(200, "GET", "/sites/"+s+"/git", ben, nil); got["pollMinutes"] != 0.0 {
		t.Errorf("the sender's commits are still deployed: %v", got)
	}
	if n := w.count("SELECT count(*) FROM sites WHERE credential <> ''"); n != 0 {
		t.Error("the receiver deploys with the sender's credential")
	}
}

// The sender's open streams end within 5 seconds of the transfer and show nothing written after it.
func TestTransferEndsStreams(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, ada := w.user("ada@example.test")
	w.user("ben@example.test")
	s := w.site(ada, "Shop")
	dep := w.must(200, "POST", "/sites/"+s+"/deploy", ada, nil)["deploymentId"].(string)
	w.say(dep, 1, "first")
	w.print(s, 1, "first")
	var ends []func()
	for _, path := range []string{"/sites/" + s + "/logs", "/deployments/" + dep + "/logs"} {
		_, lines := w.openPath(path, ada)
		nextEvent(t, lines)
		ends = append(ends, func() {
			began := time.Now()
			for lines.Scan() {
				if strings.Contains(lines.Text(), "secret") {
					t.Errorf("%s: the sender reads %q", path, lines.Text())
				}
			}
			if took := time.Since(began); took > 30*time.Second {
				t.Errorf("%s: the stream ended after %s", path, took)
			}
		})
	}
	// A transferred site has no running deployment, so add one that would keep this stream open.
	if err := w.db.Admin(t.Context(), `UPDATE deployments SET owner_id = (SELECT owner_id FROM users WHERE email = 'ben@example.test')`); err != nil {
		t.Fatal(err)
	}
	if err := w.db.Admin(t.Context(), `UPDATE sites SET owner_id = (SELECT owner_id FROM users WHERE email = 'ben@example.test')`); err != nil {
		t.Fatal(err)
	}
	w.say(dep, 2, "secret")
	w.print(s, 2, "secret")
	for _, end := range ends {
		end()
	}
}

// Transferring a WordPress ends the sender's sessions, login links and application passwords, because the site restarts
// with a new key. The plan names the administrators, whose passwords still work.
func TestTransferOfWordPress(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, ada := w.user("ada@example.test")
	_, ben := w.user("ben@example.test")
	s := w.must(201, "POST", "/sites", ada, m{"name": "Blog", "type": "wordpress"})["data"].(m)["id"].(string)
	w.settle()
	w.write(func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), `UPDATE wordpress_sites SET facts = '{"Admins": ["ada", "grace"]}', facts_at = $1`, db.Now())
		return err
	})
	read := func() (secret string, revision, moved int64) {
		err := w.db.QueryRow(t.Context(), `SELECT secret, revision, moved_at FROM wordpress_sites`).Scan(&secret, &revision, &moved)
		if err != nil {
			t.Fatal(err)
		}
		return secret, revision, moved
	}
	secret, revision, _ := read()
	offered := w.must(201, "POST", "/sites/"+s+"/transfer", ada, m{"to": "ben@example.test"})
	for _, want := range []string{"application passwords end", "ada, grace"} {
		if !strings.Contains(fmt.Sprint(offered["breaks"]), want) {
			t.Errorf("the plan doesn't say %q: %v", want, offered["breaks"])
		}
	}
	began := db.Now()
	w.must(200, "POST", "/transfers/accept", ben, m{"code": offered["code"]})
	if now, n, moved := read(); now == secret || n != revision+1 || moved < int64(began) {
		t.Errorf("the key is the same: %t, revision %d after %d, transferred at %d", now == secret, n, revision, moved)
	}
}
