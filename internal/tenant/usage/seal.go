package usage

import (
	"context"
	"fmt"
	"strings"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/id"
	"slipway/internal/platform/job"
)

// Seal is the hourly job that seals ended hours and deletes old rows. There is one. Running it twice is harmless.
type Seal struct{}

// Kind implements [job.Args].
func (Seal) Kind() string { return "usage.seal" }

func (u *Usage) Work(j *job.Jobs) {
	job.Handle(j, job.Policy{Timeout: 30 * time.Minute, Attempts: 1 << 30}, func(ctx context.Context, _ Seal, _ int64) error {
		if err := u.Tidy(ctx); err != nil {
			return err
		}
		now := u.now()
		return job.Later(floor(now, hour).Add(hour + time.Minute).Sub(now))
	})
}

// Schedule enqueues the job unless it exists, and enforces the current limits.
func (u *Usage) Schedule(ctx context.Context) error {
	if err := u.reconsider(ctx); err != nil {
		return err
	}
	if err := u.armSmall(ctx, u.now()); err != nil {
		return err
	}
	return u.c.DB.Write(ctx, func(tx *db.Tx) error {
		_, err := job.Enqueue(ctx, tx, Seal{}, job.Options{Unique: "usage.seal"})
		return err
	})
}

// Tidy samples storage, seals due hours and deletes old rows.
func (u *Usage) Tidy(ctx context.Context) error {
	if err := u.sample(ctx); err != nil {
		return err
	}
	if err := u.seal(ctx); err != nil {
		return fmt.Errorf("seal usage: %w", err)
	}
	if err := u.reconsider(ctx); err != nil {
		return err
	}
	now := u.now()
	const parts = `INSERT INTO usage_parts (owner_id, meter, hour, quantity)
		SELECT h.owner_id, h.meter, h.hour, h.quantity FROM usage_hours h
		JOIN usage_divided d ON d.owner_id = h.owner_id AND d.day = h.hour - h.hour % 86400000
		WHERE h.hour = (SELECT MIN(hour) FROM usage_hours WHERE hour < $1)
		ON CONFLICT (owner_id, meter, hour) DO UPDATE SET quantity = usage_parts.quantity + excluded.quantity`
	for _, f := range []struct {
		table, column string
		before        db.Time
		first         string // Optional: statement to execute before rows are deleted
	}{
		{"usage_sources", "hour", floor(now.Add(-keepSources), hour), ""},
		{"usage_hours", "hour", floor(now.Add(-keepHours), hour), parts},
		{"usage_sites", "day", floor(now.Add(-keepSites), day), ""},
		{"usage_parts", "hour", floor(now.Add(-keepParts), day), ""},
		{"usage_divided", "day", floor(now.Add(-keepParts), day), ""},
	} {
		if err := u.forget(ctx, f.table, f.column, f.before, f.first); err != nil {
			return fmt.Errorf("forget usage: %w", err)
		}
	}
	return nil
}

// seal seals every hour that ended at least two hours ago, in order.
func (u *Usage) seal(ctx context.Context) error {
	for {
		var sealed, next db.Time
		// Skip hours without use; late rows go to the next hour with use, or to the last.
		err := u.c.DB.QueryRow(ctx, `
			SELECT s.hour, COALESCE((SELECT MIN(hour) FROM usage_sources WHERE hour > s.hour), 0) FROM usage_sealed s`).Scan(&sealed, &next)
		if err != nil {
			return err
		}
		last := floor(u.now().Add(-sealAfter), hour).Add(-hour)
		if last <= sealed {
			return nil // also if the clock was set back
		}
		if next == 0 || next > last {
			next = last
		}
		if err := u.sealHour(ctx, sealed, next); err != nil {
			return err
		}
	}
}

// sealHour adds up the rows of an hour, and late rows of earlier ones. After a crash, some owners are counted and the
// hour is still open; the next run counts the rest.
func (u *Usage) sealHour(ctx context.Context, before, at db.Time) error {
	for {
		owners, err := u.uncounted(ctx, at)
		if err != nil {
			return err
		}
		err = u.c.DB.Write(ctx, func(tx *db.Tx) error {
			// The row's lock keeps other nodes from sealing.
			n, err := tx.Exec(ctx, `UPDATE usage_sealed SET hour = hour WHERE hour = $1`, before)
			if err != nil {
				return err
			}
			if n == 0 {
				return errSealed
			}
			if len(owners) > 0 {
				return u.countTx(ctx, tx, at, owners)
			}
			_, err = tx.Exec(ctx, `UPDATE usage_sealed SET hour = $1`, at)
			return err
		})
		if err != nil || len(owners) == 0 {
			return err
		}
	}
}

var errSealed = fmt.Errorf("another node has sealed the hour")

// ownersAtOnce caps the owners per transaction, to keep it short.
const ownersAtOnce = 100

// uncounted returns some owners with uncounted rows up to an hour.
func (u *Usage) uncounted(ctx context.Context, at db.Time) ([]id.Owner, error) {
	rows, err := u.c.DB.Query(ctx, `
		SELECT DISTINCT owner_id FROM usage_sources WHERE hour <= $1 AND counted < quantity ORDER BY owner_id LIMIT $2`, at, ownersAtOnce)
	return db.Collect(rows, err, func(s db.Scanner) (o id.Owner, err error) { return o, s.Scan(&o) })
}

// countTx adds uncounted rows to an hour and its day. A single statement marks rows as counted and returns their
// quantities, so that concurrent writes are either included or stay uncounted.
func (u *Usage) countTx(ctx context.Context, tx *db.Tx, at db.Time, owners []id.Owner) error {
	args := db.Args{at}
	list := db.AddList(&args, owners)
	rows, err := tx.Query(ctx, `
		UPDATE usage_sources SET counted = quantity, moved = quantity - counted
		WHERE hour <= $1 AND counted < quantity AND owner_id IN (`+list+`)
		RETURNING owner_id, meter, site_id, moved`, args...)
	sums, sites := map[entry]int64{}, map[entry]int64{}
	_, err = db.Collect(rows, err, func(s db.Scanner) (e entry, err error) {
		var n int64
		if err := s.Scan(&e.owner, &e.meter, &e.site, &n); err != nil {
			return e, err
		}
		if e.site != "" {
			sites[e] += n
		}
		e.site = ""
		sums[e] += n
		return e, nil
	})
	if err != nil {
		return fmt.Errorf("count usage: %w", err)
	}
	for _, t := range []struct {
		table, column string
		at            db.Time
		sums          map[entry]int64
	}{
		{"usage_hours", "hour", at, sums},
		{"usage_days", "day", floor(at, day), sums},
		{"usage_sites", "day", floor(at, day), sites},
	} {
		if err := addTx(ctx, tx, t.table, t.column, t.at, t.sums); err != nil {
			return fmt.Errorf("add to %s: %w", t.table, err)
		}
	}
	return nil
}

// addTx adds the sums to rows of a table.
func addTx(ctx context.Context, tx *db.Tx, table, column string, at db.Time, sums map[entry]int64) error {
	bySite := ""
	if table == "usage_sites" {
		bySite = ", site_id"
	}
	var q strings.Builder
	var args db.Args
	write := func() error {
		if len(args) == 0 {
			return nil
		}
		text := `INSERT INTO ` + table + ` (owner_id, meter, ` + column + bySite + `, quantity) VALUES ` + q.String() + `
			ON CONFLICT (owner_id, meter, ` + column + bySite + `) DO UPDATE SET quantity = ` + table + `.quantity + excluded.quantity`
		_, err := tx.Exec(ctx, text, args...)
		q.Reset()
		args = nil
		return err
	}
	for e, n := range sums {
		if len(args) > 0 {
			q.WriteByte(',')
		}
		q.WriteString("(" + args.Add(e.owner) + ", " + args.Add(e.meter) + ", " + args.Add(at))
		if bySite != "" {
			q.WriteString(", " + args.Add(string(e.site)))
		}
		q.WriteString(", " + args.Add(n) + ")")
		if len(args) >= 5*rowsAtOnce {
			if err := write(); err != nil {
				return err
			}
		}
	}
	return write()
}

// forget deletes rows before a time, one interval per transaction. first, if not empty, is a statement to execute
// before each.
func (u *Usage) forget(ctx context.Context, table, column string, before db.Time, first string) error {
	for {
		var n int64
		err := u.c.DB.Write(ctx, func(tx *db.Tx) (err error) {
			if first != "" {
				if _, err := tx.Exec(ctx, first, before); err != nil {
					return err
				}
			}
			n, err = tx.Exec(ctx, `DELETE FROM `+table+` WHERE `+column+` = (SELECT MIN(`+column+`) FROM `+table+` WHERE `+column+` < $1)`, before)
			return err
		})
		if err != nil || n == 0 {
			return err
		}
	}
}
