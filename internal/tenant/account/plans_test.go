package account_test

import (
	"strings"
	"sync"
	"testing"

	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
	"slipway/internal/tenant/account"
)

// The queries that find a caller's identity and rights use indexes, so that requests don't slow down with the number of
// users.
func TestRightsAreFoundByIndexes(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex // guards seen
	var seen []string
	d := dbtest.New(t, func(c *db.Config) {
		c.Seen = func(q string) { mu.Lock(); seen = append(seen, q); mu.Unlock() }
	})
	if !d.Single() {
		t.Skip("PostgreSQL plans by what is in the table")
	}
	ctx := t.Context()
	a := account.New(account.Config{DB: d})
	u, err := a.CreateUser(ctx, "ada@example.test", "", false)
	if err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	seen = nil
	mu.Unlock()
	if _, err := account.MembershipOf(ctx, d, u.ID, u.Owner); err != nil {
		t.Fatal(err)
	}
	if _, err := a.User(ctx, u.ID); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	list := seen
	mu.Unlock()
	if len(list) != 2 {
		t.Fatalf("%d statements were seen", len(list))
	}
	for _, q := range list {
		rows, err := d.Query(ctx, "EXPLAIN QUERY PLAN "+q, make([]any, strings.Count(q, "$"))...)
		steps, err := db.Collect(rows, err, func(r db.Scanner) (step string, err error) {
			var a, b, c int
			return step, r.Scan(&a, &b, &c, &step)
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range steps {
			// r holds the member's own site roles, read from an index in its order.
			if strings.HasPrefix(s, "SCAN ") && s != "SCAN r" && !strings.HasPrefix(s, "SCAN memberships") || strings.Contains(s, "AUTOMATIC") {
				t.Errorf("%s\n  %s", q, strings.Join(steps, "\n  "))
			}
		}
	}
}
