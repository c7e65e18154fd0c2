package db

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// hearTime is how long a notification may take to arrive, which takes milliseconds.
const hearTime = 10 * time.Second

// errPooled says what to do about a pooler that shares connections.
var errPooled = errors.New("open database: what is between Slipway and PostgreSQL lends a connection to each transaction, as PgBouncer " +
	"does with pool_mode = transaction: notifications, the lock of migrations and prepared statements need connections of their own. " +
	"Set pool_mode = session for this database (docs: Connections to PostgreSQL), or connect to PostgreSQL directly")

// Sessions returns an error if a connection to the database has not a session of PostgreSQL to itself. It belongs before Migrate, whose
// lock might stay for ever otherwise.
func (d *DB) Sessions(ctx context.Context) error {
	if d.single {
		return nil
	}
	config, err := pgx.ParseConfig(d.url)
	if err != nil {
		return fmt.Errorf("open database: %w", err)
	}
	lively(config)
	ctx, cancel := context.WithTimeout(ctx, 2*hearTime)
	defer cancel()
	hears, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return fmt.Errorf("open database: %w", err)
	}
	defer hears.Close(context.WithoutCancel(ctx))
	topic := NewID("probe")
	if err := plainly(ctx, hears, "LISTEN "+topic); err != nil {
		return err
	}
	c, err := d.write.Conn(ctx)
	if err != nil {
		return fmt.Errorf("open database: %w", err)
	}
	defer c.Close()
	err = c.Raw(func(c any) error {
		return plainly(ctx, c.(*connection).Conn.Conn(), "NOTIFY "+topic)
	})
	if err != nil {
		return err
	}
	arrives, done := context.WithTimeout(ctx, hearTime)
	defer done()
	switch _, err := hears.WaitForNotification(arrives); {
	case err == nil:
		return nil
	case pgconn.Timeout(err) && ctx.Err() == nil: // a server that is slow would not have taken the statements
		return errPooled
	default:
		return fmt.Errorf("open database: %w", err)
	}
}

// plainly executes a statement without parameters, and prepares nothing.
func plainly(ctx context.Context, c *pgx.Conn, q string) error {
	if _, err := c.PgConn().Exec(ctx, q).ReadAll(); err != nil {
		return fmt.Errorf("open database: %w", err)
	}
	return nil
}
