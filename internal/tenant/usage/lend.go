package usage

import (
	"context"
	"fmt"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/id"
	"slipway/internal/tenant/limits"
)

// loanEnds is the lifetime of a loan that isn't renewed. Nodes stop using a loan 35 seconds earlier to allow for clock
// skew.
const loanEnds = 90 * time.Second

// leastLoan is the minimum loan in bytes, if that much remains.
const leastLoan = 64 << 10

// ReturnTopic notifies nodes to return unused loans.
const ReturnTopic = "usage.return"

// Lender lends parts of owners' remaining bandwidth to one node.
type Lender struct {
	*Usage
	Node string // unique per process
}

// Lend records how many bytes this node has admitted but not yet reported. If more is true, it also lends another share
// of the remaining bandwidth. The sum of all use and loans never exceeds the limit, except for single responses larger
// than the rest.
func (l Lender) Lend(ctx context.Context, owner id.Owner, outstanding int64, more bool) (lent int64, err error) {
	err = l.c.DB.Write(ctx, func(tx *db.Tx) (err error) {
		lent, err = l.lendTx(ctx, tx, owner, outstanding, more)
		return err
	})
	return lent, err
}

// Arm makes nodes borrow bandwidth for those of the owners whose limit is small. Without owners it considers all.
func (l Lender) Arm(ctx context.Context, owners ...id.Owner) error {
	return l.armSmall(ctx, l.now(), owners...)
}

func (l Lender) lendTx(ctx context.Context, tx *db.Tx, owner id.Owner, outstanding int64, more bool) (lent int64, err error) {
	now := l.now()
	w, err := l.WindowOf(ctx, tx, owner, now)
	if err != nil {
		return 0, err
	}
	limit, err := l.c.Limits.LimitOf(ctx, tx, owner, limits.Bandwidth)
	if err != nil {
		return 0, err
	}
	// The row's lock serializes loans. The row exists unless the window has just changed.
	if _, err := tx.Exec(ctx, `
		INSERT INTO usage_caps (owner_id, meter, month, most, warned, armed, reached, begins, ends)
		VALUES ($1, $2, $3, $4, 0, TRUE, FALSE, $5, $6)
		ON CONFLICT (owner_id, meter, month) DO UPDATE SET reached = usage_caps.reached`,
		owner, Bandwidth, w.Key(), limit, w.From, w.To); err != nil {
		return 0, fmt.Errorf("lock cap of owner: %w", err)
	}
	var others, nodes int64
	if err := tx.QueryRow(ctx, `
		SELECT COALESCE(CAST(SUM(outstanding) AS BIGINT), 0), count(*) FROM usage_loans
		WHERE owner_id = $1 AND node <> $2 AND until > $3`, owner, l.Node, now).Scan(&others, &nodes); err != nil {
		return 0, fmt.Errorf("read loans: %w", err)
	}
	if more {
		// Usage is read after the loans, so that bytes stored meanwhile count twice rather than not at all.
		used, err := l.usedIn(ctx, tx, map[id.Owner]limits.Window{owner: w}, Bandwidth)
		if err != nil {
			return 0, err
		}
		left := limit - used[owner] - others - outstanding
		lent = max(0, min(left, max(left/(2*(nodes+1)), leastLoan)))
		if lent == 0 && others > 0 {
			tx.Notify(ReturnTopic)
		}
	}
	_, err = tx.Exec(ctx, `
		INSERT INTO usage_loans (owner_id, node, outstanding, until) VALUES ($1, $2, $3, $4)
		ON CONFLICT (owner_id, node) DO UPDATE SET outstanding = excluded.outstanding, until = excluded.until`,
		owner, l.Node, outstanding+lent, now.Add(loanEnds))
	if err != nil {
		return 0, fmt.Errorf("note loan: %w", err)
	}
	return lent, nil
}
