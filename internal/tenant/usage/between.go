package usage

import (
	"context"
	"fmt"

	"slipway/internal/platform/db"
	"slipway/internal/platform/id"
)

// Stretch is the use in a day or part of a day.
type Stretch struct {
	At       db.Time // start
	Quantity int64
}

// Sealed returns the time before which every hour is sealed.
func (u *Usage) Sealed(ctx context.Context, r db.Reader) (db.Time, error) {
	var at db.Time
	if err := r.QueryRow(ctx, `SELECT hour FROM usage_sealed`).Scan(&at); err != nil {
		return 0, fmt.Errorf("read sealed hours: %w", err)
	}
	return at.Add(hour), nil
}

// Between returns an owner's use by day between two sealed whole hours, without unused days. The first and last day may
// be partial; their hours are kept for three years if DivideTx was called for that time, otherwise for 100 days. Whole
// days are kept forever. Sealed data never changes, so the result is always the same.
func (u *Usage) Between(ctx context.Context, r db.Reader, owner id.Owner, from, to db.Time) (map[Meter][]Stretch, error) {
	out := map[Meter][]Stretch{}
	if from >= to {
		return out, nil
	}
	first, last := floor(from+db.Time(day.Milliseconds())-1, day), floor(to, day) // the whole days
	if first > last {                                                             // from and to are within one day
		first, last = to, to
	}
	rows, err := r.Query(ctx, `
		SELECT meter, at, CAST(SUM(quantity) AS BIGINT) FROM (
			SELECT meter, $2 + 0 * hour AS at, quantity FROM usage_hours WHERE owner_id = $1 AND hour >= $2 AND hour < $3
			UNION ALL
			SELECT meter, $2 + 0 * hour AS at, quantity FROM usage_parts WHERE owner_id = $1 AND hour >= $2 AND hour < $3
			UNION ALL
			SELECT meter, $4 + 0 * hour AS at, quantity FROM usage_parts WHERE owner_id = $1 AND hour >= $4 AND hour < $5
			UNION ALL
			SELECT meter, day AS at, quantity FROM usage_days WHERE owner_id = $1 AND day >= $3 AND day < $4
			UNION ALL
			SELECT meter, $4 + 0 * hour AS at, quantity FROM usage_hours WHERE owner_id = $1 AND hour >= $4 AND hour < $5
		) AS used GROUP BY meter, at ORDER BY meter, at`, owner, from, first, last, to)
	_, err = db.Collect(rows, err, func(s db.Scanner) (_ int, err error) {
		var m Meter
		var x Stretch
		if err := s.Scan(&m, &x.At, &x.Quantity); err != nil {
			return 0, err
		}
		out[m] = append(out[m], x)
		return 0, nil
	})
	if err != nil {
		return nil, fmt.Errorf("read usage of a period: %w", err)
	}
	return out, nil
}

// DivideTx keeps the hours of the days containing the times for [Usage.Between], since a period begins or ends within
// the day.
func (u *Usage) DivideTx(ctx context.Context, tx *db.Tx, owner id.Owner, at ...db.Time) error {
	for _, t := range at {
		if t == floor(t, day) {
			continue
		}
		if _, err := tx.Exec(ctx, `INSERT INTO usage_divided (owner_id, day) VALUES ($1, $2) ON CONFLICT (owner_id, day) DO NOTHING`,
			owner, floor(t, day)); err != nil {
			return fmt.Errorf("divide day: %w", err)
		}
	}
	return nil
}
