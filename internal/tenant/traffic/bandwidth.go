package traffic

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/limits"
)

// pausedTopic wakes who acts on owners whose bandwidth is used up, or is there again.
const pausedTopic = "paused"

// countBandwidth says how much bandwidth an owner uses this month.
func (t *Traffic) countBandwidth() {
	t.c.Limits.Count(limits.Bandwidth, func(ctx context.Context, r db.Reader, owner account.OwnerID) (n int64, err error) {
		return n, r.QueryRow(ctx, `SELECT COALESCE(CAST(SUM(bytes) AS BIGINT), 0) FROM bandwidth WHERE owner_id = $1 AND month = $2`,
			owner, limits.Month(t.c.Now())).Scan(&n)
	})
}

// spent holds what an owner has used, as far as it is written.
type spent struct {
	owner  account.OwnerID
	bytes  int64
	paused bool
}

// spendTx adds bytes to what owners have used in a month, and pauses those who have used
// up what they may. The owners are sorted.
func (t *Traffic) spendTx(ctx context.Context, tx *db.Tx, month int64, owners []account.OwnerID, bytes map[account.OwnerID]int64) error {
	var q strings.Builder
	q.WriteString(`INSERT INTO bandwidth (owner_id, month, bytes, paused) VALUES `)
	args := db.Args{month}
	for i, o := range owners {
		if i > 0 {
			q.WriteByte(',')
		}
		q.WriteString("(" + args.Add(o) + ", $1, " + args.Add(bytes[o]) + ", FALSE)")
	}
	q.WriteString(` ON CONFLICT (owner_id, month) DO UPDATE SET bytes = bandwidth.bytes + excluded.bytes RETURNING owner_id, bytes, paused`)
	rows, err := tx.Query(ctx, q.String(), args...)
	all, err := db.Collect(rows, err, scanSpent)
	if err != nil {
		return fmt.Errorf("add bandwidth: %w", err)
	}
	return t.pauseTx(ctx, tx, month, all)
}

func scanSpent(s db.Scanner) (x spent, err error) { return x, s.Scan(&x.owner, &x.bytes, &x.paused) }

// pauseTx pauses those owners who have used up what they may, and no others.
func (t *Traffic) pauseTx(ctx context.Context, tx *db.Tx, month int64, owners []spent) error {
	for _, s := range owners {
		most, err := t.c.Limits.LimitOf(ctx, tx, s.owner, limits.Bandwidth)
		if err != nil {
			return err
		}
		over := s.bytes >= most
		if over == s.paused {
			continue
		}
		if _, err := tx.Exec(ctx, `UPDATE bandwidth SET paused = $3 WHERE owner_id = $1 AND month = $2`, s.owner, month, over); err != nil {
			return fmt.Errorf("pause sites of owner: %w", err)
		}
		tx.Notify(pausedTopic)
		tx.Notify(s.owner.Topic())
	}
	return nil
}

// reconsider looks again at who is paused: the operator may have raised their limit. What
// was used in months long past is forgotten.
func (t *Traffic) reconsider(ctx context.Context) error {
	if t.c.Limits == nil {
		return nil
	}
	now := t.c.Now()
	month := limits.Month(now)
	return t.c.DB.Write(ctx, func(tx *db.Tx) error {
		rows, err := tx.Query(ctx, `SELECT owner_id, bytes, paused FROM bandwidth WHERE month = $1 AND paused ORDER BY owner_id`, month)
		all, err := db.Collect(rows, err, scanSpent)
		if err != nil {
			return fmt.Errorf("find paused owners: %w", err)
		}
		if err := t.pauseTx(ctx, tx, month, all); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `DELETE FROM bandwidth WHERE month < $1`, limits.Month(now.Add(-keepDay))); err != nil {
			return fmt.Errorf("forget bandwidth: %w", err)
		}
		return nil
	})
}

// spend adds up what sites sent by their owners.
func (t *Traffic) spend(
	ctx context.Context,
	tx *db.Tx,
	since time.Time,
	bySite map[string]Counts,
	owners map[string]account.OwnerID,
) error {
	if t.c.Limits == nil {
		return nil
	}
	sum := map[account.OwnerID]int64{}
	var sorted []account.OwnerID
	for site, c := range bySite {
		o, there := owners[site]
		if !there || c.Bytes <= 0 {
			continue
		}
		if _, seen := sum[o]; !seen {
			sorted = append(sorted, o)
		}
		sum[o] += c.Bytes
	}
	slices.Sort(sorted)
	for some := range slices.Chunk(sorted, 200) {
		if err := t.spendTx(ctx, tx, limits.Month(db.At(since)), some, sum); err != nil {
			return err
		}
	}
	return nil
}
