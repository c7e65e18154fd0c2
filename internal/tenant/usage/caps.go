package usage

import (
	"context"
	"fmt"
	"slices"

	"slipway/internal/platform/db"
	"slipway/internal/platform/id"
	"slipway/internal/tenant/limits"
)

// pausedTopic wakes who acts on owners whose bandwidth is used up, or is there again.
const pausedTopic = "paused"

// standing is how near an owner is to the limit of a month, as it is stored.
type standing struct {
	owner   id.Owner
	reached bool
}

// enforceTx compares what owners have used with what they may, and pauses the sites of those who have used it up.
// The owners are sorted.
func (u *Usage) enforceTx(ctx context.Context, tx *db.Tx, owners []id.Owner) error {
	if u.c.Limits == nil {
		return nil
	}
	month := limits.Month(u.now())
	for some := range slices.Chunk(owners, 200) {
		used, err := u.months(ctx, tx, some, Bandwidth)
		if err != nil {
			return err
		}
		stored, err := u.standings(ctx, tx, month, some)
		if err != nil {
			return err
		}
		for _, o := range some {
			most, err := u.c.Limits.LimitOf(ctx, tx, o, limits.Bandwidth)
			if err != nil {
				return err
			}
			reached := used[o] >= most
			if reached == stored[o].reached {
				continue
			}
			if _, err := tx.Exec(ctx, `
				INSERT INTO usage_caps (owner_id, meter, month, most, warned, armed, reached) VALUES ($1, $2, $3, $4, 0, FALSE, $5)
				ON CONFLICT (owner_id, meter, month) DO UPDATE SET most = excluded.most, reached = excluded.reached`,
				o, Bandwidth, month, most, reached); err != nil {
				return fmt.Errorf("pause sites of owner: %w", err)
			}
			tx.Notify(pausedTopic)
			tx.Notify(o.Topic())
		}
	}
	return nil
}

// standings returns what is stored of owners' limits in a month.
func (u *Usage) standings(ctx context.Context, r db.Reader, month int64, owners []id.Owner) (map[id.Owner]standing, error) {
	args := db.Args{Bandwidth, month}
	list := db.AddList(&args, owners)
	rows, err := r.Query(ctx, `SELECT owner_id, reached FROM usage_caps WHERE meter = $1 AND month = $2 AND owner_id IN (`+list+`)`, args...)
	out := map[id.Owner]standing{}
	_, err = db.Collect(rows, err, func(s db.Scanner) (x standing, err error) {
		if err := s.Scan(&x.owner, &x.reached); err != nil {
			return x, err
		}
		out[x.owner] = x
		return x, nil
	})
	if err != nil {
		return nil, fmt.Errorf("read caps: %w", err)
	}
	return out, nil
}

// reconsider looks again at who is paused: the operator may have changed their limit.
func (u *Usage) reconsider(ctx context.Context) error {
	if u.c.Limits == nil {
		return nil
	}
	month := limits.Month(u.now())
	return u.c.DB.Write(ctx, func(tx *db.Tx) error {
		rows, err := tx.Query(ctx, `SELECT owner_id FROM usage_caps WHERE meter = $1 AND month = $2 AND reached ORDER BY owner_id`, Bandwidth, month)
		owners, err := db.Collect(rows, err, func(s db.Scanner) (o id.Owner, err error) { return o, s.Scan(&o) })
		if err != nil {
			return fmt.Errorf("find paused owners: %w", err)
		}
		if err := u.enforceTx(ctx, tx, owners); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `DELETE FROM usage_caps WHERE month < $1`, limits.Month(u.now().Add(-keepSites)))
		return err
	})
}
