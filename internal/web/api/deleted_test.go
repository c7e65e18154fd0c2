package api_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/oauth"
)

// keptRows lists, by reason, the tables whose rows stay for some time or forever after the user or team they name is
// deleted.
var keptRows = map[string]string{
	"They are a site's: the job that deletes the site deletes them, and no user or team is deleted before its sites.": `
		app_tasks backup_schedules backups build_caches certificates databases deploy_hooks deployments domains git_settings site_starts sites
		slugs uploads wordpress_sites`,
	"Invoices have to be kept. The jobs of billing end the subscription and then delete the profile and the cards.": `
		billing_budgets billing_cards billing_disputes billing_grants billing_invoices billing_ledger billing_payments billing_profiles
		billing_redemptions billing_refunds billing_seller_owners billing_setups billing_subscriptions billing_trial_cards retention`,
	"Usage is billed on the last invoice.": `
		bandwidth build_time usage_caps usage_days usage_divided usage_hours usage_loans usage_parts usage_sites usage_sources`,
	"It is a log or a count, without a secret.": `
		acme_ledger address_mails audit domain_releases idempotency_usage notify_asked operations site_counts webhook_events`,
	"The name of a deleted team can't be taken at once.":                                                                `teams`,
	"The row has no secret any more; it goes with the log of deliveries.":                                               `webhooks`,
	"An answer is found with the credential alone that it was given to, and goes after a day.":                          `idempotent_answers`,
	"A call is found with the credential alone that it was made with, and goes after minutes.":                          `confirmations`,
	"The value is public: a TXT record.":                                                                                `domain_tokens`,
	"It is the team's: an admin decides on it, or sends it again. Until then it is refused, as its sender has no role.": `team_invitations site_transfers oauth_approvals`,
	"It goes with its grant, its provider or its session, which this test doesn't make.":                                `oauth_made sso_domains break_glass_uses`,
}

// column is a column of a table, read from the database's schema.
type column struct {
	table, name, kind string
	fill              bool // NOT NULL without a default
}

func schemaOf(t testing.TB, d *db.DB) (list []column) {
	t.Helper()
	query := `SELECT c.table_name, c.column_name, upper(c.data_type), c.is_nullable = 'NO' AND c.column_default IS NULL
		FROM information_schema.columns c JOIN information_schema.tables t ON t.table_name = c.table_name AND t.table_schema = c.table_schema
		WHERE c.table_schema = current_schema() AND t.table_type = 'BASE TABLE' ORDER BY c.table_name, c.ordinal_position`
	if d.Single() {
		query = `SELECT m.name, c.name, c.type, (c."notnull" OR c.pk > 0) AND c.dflt_value IS NULL
			FROM sqlite_master m JOIN pragma_table_info(m.name) c WHERE m.type = 'table' ORDER BY m.name, c.cid`
	}
	rows, err := d.Query(t.Context(), query)
	list, err = db.Collect(rows, err, func(r db.Scanner) (c column, err error) { return c, r.Scan(&c.table, &c.name, &c.kind, &c.fill) })
	if err != nil || len(list) < 500 {
		t.Fatal(len(list), err)
	}
	return list
}

var (
	namesOwner = regexp.MustCompile(`(^|_)owner(_id)?$`)
	namesUser  = regexp.MustCompile(`(^|_)(user_id|by)$`)
)

// fill inserts a row that names the owner and the user into every table with such columns, and returns those columns.
func (w *world) fill(owner account.OwnerID, user account.UserID, fixed map[string]any) (named []column) {
	w.t.Helper()
	n := 0
	for table, columns := range tablesOf(schemaOf(w.t, w.db)) {
		var names []string
		var args db.Args
		var values []string
		about := 0
		for _, c := range columns {
			n++
			var v any
			switch {
			case namesOwner.MatchString(c.name):
				v, about = string(owner), about+1
				named = append(named, c)
			case namesUser.MatchString(c.name):
				v, about = string(user), about+1
				named = append(named, c)
			case fixed[c.table+"."+c.name] != nil:
				v = fixed[c.table+"."+c.name]
			case !c.fill:
				continue
			case c.kind == "TEXT":
				v = fmt.Sprintf("row-%d", n)
			case c.kind == "BOOLEAN":
				v = false
			default:
				v = n
			}
			names, values = append(names, `"`+c.name+`"`), append(values, args.Add(v))
		}
		if about == 0 || slices.Contains([]string{"users", "teams", "team_members"}, table) { // these have rows already
			continue
		}
		if err := w.db.Write(w.t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(w.t.Context(), `INSERT INTO "`+table+`" (`+strings.Join(names, ", ")+`) VALUES (`+strings.Join(values, ", ")+`)`, args...)
			return err
		}); err != nil && !db.Duplicate(err) {
			w.t.Fatalf("a row of %s: %v", table, err)
		}
	}
	return named
}

func tablesOf(list []column) map[string][]column {
	tables := map[string][]column{}
	for _, c := range list {
		tables[c.table] = append(tables[c.table], c)
	}
	return tables
}

// After a user and a team are deleted, no table has a row that names them, except those in keptRows.
func TestDeletedOwnersLeaveNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	root, err := w.c.Accounts.CreateUser(t.Context(), "root@example.test", "", true)
	if err != nil {
		t.Fatal(err)
	}
	rootKey := w.key(root.ID, account.NewKey{})
	eve, eveKey := w.user("eve@example.test")
	ada, adaKey := w.user("ada@example.test")
	team, teamKey := w.teamOf(eveKey, "Acme")
	other, otherKey := w.teamOf(eveKey, "Other")
	w.join(otherKey, other, "ada@example.test", adaKey, m{"role": "admin"})
	fixed := map[string]any{
		"sites.deleted_at": 1, "site_favorites.site_id": w.site(eveKey, "Shop"), "billing_seller_owners.seller_id": "seller",
		"break_glass_uses.session_id": "session", "oauth_made.kind": string(oauth.Webhook), // its grant may be one of these rows
	}
	for _, q := range []string{
		`INSERT INTO billing_sellers (id, name, series, sender, reply_to, logo, logo_digest, created_at, updated_at) VALUES ('seller', '', '', '', '', '', '', 1, 1)`,
		`INSERT INTO sessions (hash, id, user_id, method, pending, agent, addr, created_at, proven_at, seen_at, expires_at)
			VALUES ('', 'session', '` + string(eve) + `', '', FALSE, '', '', 1, 1, 1, 1)`,
	} {
		if err := w.db.Admin(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	var acme account.OwnerID
	if err := w.db.QueryRow(t.Context(), `SELECT owner_id FROM teams WHERE id = $1`, team).Scan(&acme); err != nil {
		t.Fatal(err)
	}
	own := w.owner(ada)
	columns := w.fill(own, ada, fixed)
	w.fill(w.owner(eve), ada, fixed)
	w.fill(acme, eve, fixed)

	w.must(200, "DELETE", "/admin/users/"+string(ada)+"?sites=0", rootKey, nil)
	w.must(200, "DELETE", "/teams/"+team, teamKey, m{"confirm": "acme"})
	kept, stays := map[string]bool{}, map[string]bool{}
	for _, tables := range keptRows {
		for _, table := range strings.Fields(tables) {
			kept[table] = true
		}
	}
	gone := map[string]string{"user": string(ada), "personal account": string(own), "team": string(acme)}
	for _, c := range columns {
		for who, id := range gone {
			var left int
			if err := w.db.QueryRow(t.Context(), `SELECT count(*) FROM "`+c.table+`" WHERE "`+c.name+`" = $1`, id).Scan(&left); err != nil {
				t.Fatal(err)
			}
			if left > 0 && !kept[c.table] {
				t.Errorf("%s.%s still names a deleted %s: delete its rows in Ties.closeTx, or say in keptRows why they stay", c.table, c.name, who)
			}
			stays[c.table] = stays[c.table] || left > 0
		}
	}
	for table := range kept {
		if !stays[table] && table != "confirmations" { // a cleanup may already have deleted these
			t.Errorf("keptRows names %s, whose rows don't stay", table)
		}
	}
}
