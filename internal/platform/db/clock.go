package db

import (
	"context"
	"fmt"
	"time"
)

// clock is the database server's time as it was last asked, and when that was by this process's own
// clock, whose steps don't matter: Go compares such moments monotonically.
type clock struct {
	server Time
	asked  time.Time
}

// Now returns the present moment by the clock that all processes of the database have in common: that of
// the PostgreSQL server, as of the last call of Sync. With SQLite, and before the first call, it is this machine's.
func (d *DB) Now() Time {
	c := d.clock.Load()
	if c == nil {
		return Now()
	}
	return c.server.Add(time.Since(c.asked))
}

// Sync asks the database server for the time, and returns how far this machine's clock is ahead of it, which is less
// than nothing where it is behind. The answer is wrong by half of what the question took at most. With SQLite it is 0.
func (d *DB) Sync(ctx context.Context) (ahead time.Duration, err error) {
	if d.single {
		return 0, nil
	}
	begun := time.Now()
	var server Time
	err = d.QueryRow(ctx, `SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)`).Scan(&server)
	if err != nil {
		return 0, fmt.Errorf("ask for the database's time: %w", err)
	}
	middle := begun.Add(time.Since(begun) / 2)
	d.clock.Store(&clock{server, middle})
	return At(middle).Sub(server), nil
}

// Shift has Now be ahead of this machine's clock, or behind it. It is for tests.
func (d *DB) Shift(ahead time.Duration) { d.clock.Store(&clock{Now().Add(ahead), time.Now()}) }

// Now is the database's Now.
func (t *Tx) Now() Time { return t.d.Now() }
