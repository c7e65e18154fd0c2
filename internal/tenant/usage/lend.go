package usage

import (
	"context"
	"fmt"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/id"
	"slipway/internal/tenant/limits"
)

// loanEnds is when a loan ends that isn't noted again. Nodes stop using theirs 35 seconds earlier: so far apart their
// clocks may be.
const loanEnds = 90 * time.Second

// leastLoan is how much is lent at least, where there is as much.
const leastLoan = 64 << 10

// ReturnTopic wakes nodes to hand back what they have borrowed and not used.
const ReturnTopic = "usage.return"

// Lender lends one node parts of what owners have left of their bandwidth.
type Lender struct {
	*Usage
	Node string // no other process has it
}

// Lend notes how much the node has outstanding of an owner's bandwidth: admitted, or still to be, and not in the owner's
// usage. With more it lends it a part of what is left: all that is used and outstanding anywhere is never more than the
// limit, but for what single responses exceed it.
func (l Lender) Lend(ctx context.Context, owner id.Owner, outstanding int64, more bool) (lent int64, err error) {
	err = l.c.DB.Write(ctx, func(tx *db.Tx) (err error) {
		lent, err = l.lendTx(ctx, tx, owner, outstanding, more)
		return err
	})
	return lent, err
}

// Arm has nodes borrow for those of some owners whose limit is small; without owners for all.
func (l Lender) Arm(ctx context.Context, owners ...id.Owner) error {
	return l.armSmall(ctx, l.now(), owners...)
}

func (l Lender) lendTx(ctx context.Context, tx *db.Tx, owner id.Owner, outstanding int64, more bool) (lent int64, err error) {
	now := l.now()
	w, err := l.WindowOf(ctx, tx, owner, now)
	if err != nil {
		return 0, err
	}
	most, err := l.c.Limits.LimitOf(ctx, tx, owner, limits.Bandwidth)
	if err != nil {
		return 0, err
	}
	// The row's lock: one node is lent something at a time. It is there unless the window has just changed.
	if _, err := tx.Exec(ctx, `
		INSERT INTO usage_caps (owner_id, meter, month, most, warned, armed, reached, begins, ends)
		VALUES ($1, $2, $3, $4, 0, TRUE, FALSE, $5, $6)
		ON CONFLICT (owner_id, meter, month) DO UPDATE SET reached = usage_caps.reached`,
		owner, Bandwidth, w.Key(), most, w.From, w.To); err != nil {
		return 0, fmt.Errorf("lock cap of owner: %w", err)
	}
	var others, nodes int64
	if err := tx.QueryRow(ctx, `
		SELECT COALESCE(CAST(SUM(outstanding) AS BIGINT), 0), count(*) FROM usage_loans
		WHERE owner_id = $1 AND node <> $2 AND until > $3`, owner, l.Node, now).Scan(&others, &nodes); err != nil {
		return 0, fmt.Errorf("read loans: %w", err)
	}
	if more {
		// Usage is read after the loans: what a node stores meanwhile is in both rather than in neither.
		used, err := l.within(ctx, tx, map[id.Owner]limits.Window{owner: w}, Bandwidth)
		if err != nil {
			return 0, err
		}
		left := most - used[owner] - others - outstanding
		if lent = max(0, min(left, max(left/(2*(nodes+1)), leastLoan))); lent == 0 && others > 0 {
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
