package webhook

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
	"slipway/internal/tenant/webhook/event"
)

// growing lists the tables that no statement may scan.
var growing = []string{"webhooks", "webhook_deliveries", "webhook_attempts", "webhook_events", "webhook_hours", "d", "e", "h", "o"}

var (
	scanned   = regexp.MustCompile(`^SCAN ([a-z_]+)(?: USING (?:COVERING )?INDEX [a-z_]+)?$`)
	parameter = regexp.MustCompile(`\$(\d+)`)
)

// wholeByDesign lists statements that may scan a table, because they read little or run every ten minutes.
var wholeByDesign = []string{
	`FROM webhooks WHERE host = ''`,                            // once at the start
	`min((SELECT min(next_at) FROM webhook_deliveries`,         // the gauge reads every active endpoint
	`UPDATE webhooks SET turn_at = CASE WHEN floor_at > $1`,    // every ten minutes
	`DELETE FROM webhook_hours`,                                // every ten minutes
	`SELECT owner_id, id FROM webhooks WHERE deleted_at = 0`,   // every ten minutes
	`SELECT id, site_ids FROM webhooks WHERE site_ids <> ''`,   // when a site is deleted
	`SELECT DISTINCT hook_id FROM webhook_deliveries WHERE st`, // by the index of deliveries in progress
}

// No statement of deliveries, of the log or of the cleanup scans a growing table. Each uses an index.
func TestPlans(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	seen := map[string]bool{}
	d := dbtest.New(t, func(c *db.Config) {
		c.Seen = func(q string) { mu.Lock(); defer mu.Unlock(); seen[q] = true }
	})
	if !d.Single() {
		t.Skip("PostgreSQL plans by what is in the tables")
	}
	r := receive(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/ill" {
			w.WriteHeader(500)
		}
	})
	w := redelivering(t, d, r)
	start(t, w)
	well, ill := create(t, w, r.URL+"/well", "site.created"), create(t, w, r.URL+"/ill", "site.created")
	l, err := listen(t, w, anna, NewListener{Secret: "s"})
	if err != nil {
		t.Fatal(err)
	}
	emit(t, w, event.SiteCreated(someSite))
	settle(t, w, well.ID, tried(1))
	failed := settle(t, w, ill.ID, tried(1))
	now := db.Now()
	for _, f := range []Filter{
		{},
		{State: "failed"},
		{State: "succeeded"},
		{State: "pending"},
		{Since: now - 1000, Events: []string{"site.created"}},
		{Since: now - 1000, Until: now},
	} {
		for _, page := range []int{1, 2} {
			if _, _, err := w.Search(t.Context(), anna, ill.ID, f, page, 1); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := d.Write(t.Context(), func(tx *db.Tx) error {
		if _, err := w.RedeliverTx(t.Context(), tx, anna, ill.ID, failed.ID); err != nil {
			return err
		}
		_, err := w.RedeliverAllTx(t.Context(), tx, anna, ill.ID, Filter{Since: now - 1000})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{
		"fetch":      second(w.Fetch(t.Context(), anna, l.ID, 0)),
		"hours":      second(w.Hours(t.Context(), anna, ill.ID, 0)),
		"delivery":   second(w.Delivery(t.Context(), anna, ill.ID, failed.ID)),
		"redelivery": second(w.Redelivery(t.Context(), anna, ill.ID, "")),
		"purge":      w.purge(t.Context()),
		"listeners":  w.purgeListeners(t.Context()),
		"turns":      w.repairTurns(t.Context()),
		"review":     w.reviewFailing(t.Context()),
		"take over":  w.takeOver(t.Context(), false),
		"disable":    second(w.Update(t.Context(), anna, ill.ID, Change{Active: ptr(false)})),
		"list":       second(w.List(t.Context(), anna)),
		"delete":     w.Delete(t.Context(), anna, well.ID),
	} {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	w.measure(t.Context())
	mu.Lock()
	all := make([]string, 0, len(seen))
	for q := range seen {
		all = append(all, q)
	}
	mu.Unlock()
	checked := 0
	for _, q := range all {
		if !strings.Contains(q, "webhook") || slices.ContainsFunc(wholeByDesign, func(s string) bool { return strings.Contains(q, s) }) {
			continue
		}
		checked++
		for _, step := range plan(t, d, q) {
			if m := scanned.FindStringSubmatch(step); m != nil && slices.Contains(growing, m[1]) {
				t.Errorf("%s in\n%.400s", step, q)
			}
			if strings.Contains(step, "TEMP B-TREE") && strings.Contains(q, "webhook_deliveries") && !strings.Contains(q, "UNION ALL") {
				t.Logf("%s in\n%.300s", step, q)
			}
		}
	}
	if checked < 40 {
		t.Errorf("only %d statements were seen", checked)
	}
}

// plan returns SQLite's query plan of a statement.
func plan(t *testing.T, d *db.DB, q string) []string {
	t.Helper()
	n := 0
	for _, m := range parameter.FindAllStringSubmatch(q, -1) {
		var i int
		fmt.Sscan(m[1], &i)
		n = max(n, i)
	}
	rows, err := d.Query(t.Context(), "EXPLAIN QUERY PLAN "+q, make([]any, n)...)
	steps, err := db.Collect(rows, err, func(row db.Scanner) (step string, err error) {
		var a, b, c int
		return step, row.Scan(&a, &b, &c, &step)
	})
	if err != nil {
		t.Fatalf("%s: %v", q, err)
	}
	return steps
}
