package database

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/go-sql-driver/mysql"

	"slipway/internal/platform/fault"
	"slipway/internal/program/dump"
)

// Dump writes a database as SQL that any MariaDB client loads ([dump.Write]), with the sums that Load
// compares.
func (d *Databases) Dump(ctx context.Context, id ID, w io.Writer) error {
	x, err := d.byID(ctx, d.c.DB, id)
	if err != nil {
		return err
	}
	s, err := d.named(x.server)
	if err != nil {
		return err
	}
	return d.dump(ctx, s, x, w)
}

func (d *Databases) dump(ctx context.Context, s *server, x Database, w io.Writer) error {
	a, done, err := s.use(ctx)
	if err != nil {
		return err
	}
	defer done()
	if err := dump.Write(ctx, a.sql, x.Schema, w); err != nil {
		var refused *mysql.MySQLError
		if errors.As(err, &refused) && refused.Number == 1205 {
			return fault.New(fault.Conflict, "table_locked", "The database "+x.Name+" can't be backed up",
				"a table has been locked for 20 seconds by LOCK TABLES, or by a statement that changes its columns; try again later")
		}
		return fmt.Errorf("dump database %s: %w", x.Name, away(err))
	}
	return nil
}
