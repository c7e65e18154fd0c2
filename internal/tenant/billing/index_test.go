package billing

import (
	"strings"
	"testing"

	"slipway/internal/platform/db"
)

// Finding due invoices and their payments uses indexes, because ten thousand periods can end at the same time.
func TestIndexes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if !w.db.Single() {
		t.Skip("a small table of PostgreSQL is read as a whole")
	}
	for _, q := range []string{
		`SELECT ` + invoiceColumns + ` FROM billing_invoices WHERE id = 'inv_x' OR number = 'inv_x' AND number <> ''`,
		`SELECT COALESCE(MAX(attempt), 0) FROM billing_payments WHERE invoice_id = 'inv_x'`,
		`SELECT COALESCE(MIN(due_at), 0) FROM billing_invoices WHERE subscription_id = 'sub_x' AND status = 'open' AND due_at <= 1`,
	} {
		rows, err := w.db.Query(t.Context(), `EXPLAIN QUERY PLAN `+q)
		steps, err := db.Collect(rows, err, func(s db.Scanner) (detail string, err error) {
			var id, parent, unused int64
			return detail, s.Scan(&id, &parent, &unused, &detail)
		})
		ok(t, err)
		for _, step := range steps {
			if strings.HasPrefix(step, "SCAN") {
				t.Errorf("%s: %s", q, step)
			}
		}
	}
}
