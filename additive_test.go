package slipway

import (
	"maps"
	"regexp"
	"slices"
	"testing"
)

// repeatable names each file with statements that add to values of a row, and says what keeps a write from counting
// twice if it is repeated after an unknown commit.
var repeatable = map[string]string{
	"internal/deploy/upload/receive.go":   "the client sends a file again only if the server says that it lacks it",
	"internal/program/figures/figures.go": "a mark (db.Tx.MarkTx); TestUnknownCommit of its package",
	"internal/tenant/billing/refund.go":   "the refund's own row, with the provider's id, is inserted in the same transaction",
	"internal/tenant/site/list.go":        "counts changes of rows that the same transaction makes",
	"internal/tenant/traffic/top.go":      "the batch's number; see traffic.go",
	"internal/tenant/traffic/traffic.go":  "the batch's number (Batch.claim); TestUnknownCommit of its package",
	"internal/tenant/usage/seal.go":       "adds what the same statement moves; sources themselves write absolute quantities",
	"internal/tenant/webhook/batch.go":    "counts attempts whose lease ends in the same transaction; TestUnknownCommits of its package",
	"internal/web/idempotency/usage.go":   "counts answers whose rows the same transaction inserts",
}

// A statement that adds to a row counts twice if it is repeated, unless something in its transaction shows that it was
// done. For each file with such a statement, the table must say what that is.
func TestAdditiveWritesAreRepeatable(t *testing.T) {
	t.Parallel()
	adds := regexp.MustCompile(`\+ excluded\.|\b(\w+) = (?:\w+\.)?(\w+) \+ \$\d`)
	found := map[string]bool{}
	sources(t, func(p string, source []byte) {
		if testOnly(p) {
			return
		}
		for _, m := range adds.FindAllSubmatch(source, -1) {
			if string(m[1]) == string(m[2]) {
				found[p] = true
			}
		}
	})
	for _, p := range slices.Sorted(maps.Keys(found)) {
		if repeatable[p] == "" {
			t.Errorf("%s adds to rows: say in the table of this test what keeps a repeated write from counting twice", p)
		}
	}
	for p := range repeatable {
		if !found[p] {
			t.Errorf("%s adds to no row", p)
		}
	}
}
