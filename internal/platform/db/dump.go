package db

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/jackc/pgx/v5"
)

// dumpTitle begins what dump writes; the schema's version follows.
const dumpTitle = "-- The rows of a Slipway installation, for the tables of schema version "

// versionTable is the table in which the schema's version is kept. Migrations fill it.
const versionTable = "goose_db_version"

// dump writes the rows of all tables of PostgreSQL as they are at one moment, as COPY does in its text format (PostgreSQL, "COPY"): for
// each table a line "COPY …", its rows, and a line "\.". The tables themselves are made by migrations, so that neither PostgreSQL's
// programs nor their version matter.
func (d *DB) dump(ctx context.Context, w io.Writer) error {
	return d.inPostgres(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		var version int64
		if err := tx.QueryRow(ctx, `SELECT MAX(version_id) FROM `+versionTable).Scan(&version); err != nil {
			return err
		}
		if _, err := fmt.Fprintf(w, "%s%d\n", dumpTitle, version); err != nil {
			return err
		}
		tables, err := tablesOf(ctx, tx)
		if err != nil {
			return err
		}
		for _, t := range tables {
			if _, err := io.WriteString(w, t.copies("FROM stdin;\n")); err != nil {
				return err
			}
			if _, err := tx.Conn().PgConn().CopyTo(ctx, w, t.copies("TO STDOUT")); err != nil {
				return err
			}
			if _, err := io.WriteString(w, "\\.\n"); err != nil {
				return err
			}
		}
		return nil
	})
}

// load fills an empty database with what dump has written, of which the first line comes next.
func (d *DB) load(ctx context.Context, r *bufio.Reader) error {
	line, err := r.ReadString('\n')
	if err != nil {
		return err
	}
	var version int64
	if _, err := fmt.Sscanf(line[len(dumpTitle):], "%d\n", &version); err != nil {
		return errors.New("the copy does not say the version of its schema")
	}
	if newest, err := Newest(); err != nil || version > newest {
		return errors.Join(err, fmt.Errorf(
			"the copy has schema version %d and this program knows only up to %d: use the newer slipway that wrote it", version, newest,
		))
	}
	if err := d.vacant(ctx); err != nil {
		return err
	}
	if err := d.Admin(ctx, `CREATE TABLE IF NOT EXISTS `+underWay+` ()`); err != nil {
		return err
	}
	if err := d.MigrateTo(ctx, version); err != nil {
		return err
	}
	return d.inPostgres(ctx, pgx.TxOptions{}, func(tx pgx.Tx) error {
		tables, err := tablesOf(ctx, tx)
		if err != nil {
			return err
		}
		known := map[string]bool{}
		for _, t := range tables {
			known[t.copies("FROM stdin;\n")] = true
		}
		return emptied(ctx, tx, func() error {
			for {
				line, err := r.ReadString('\n')
				if errors.Is(err, io.EOF) && line == "" {
					break
				}
				if err != nil || !known[line] { // known are also the columns: of each table once
					return errors.Join(err, fmt.Errorf("the copy has %.200q, which is no table of schema version %d", line, version))
				}
				delete(known, line)
				if _, err := tx.Conn().PgConn().CopyFrom(ctx, &tableRows{r: r}, strings.TrimSuffix(line, ";\n")); err != nil {
					return err
				}
			}
			if len(known) > 0 {
				return fmt.Errorf("the copy lacks %d tables", len(known))
			}
			return nil
		})
	})
}

// underWay is a table that is there while a load has not ended.
const underWay = "load_under_way"

// errHalf says that a database is no installation's yet.
var errHalf = errors.New("a load or move into this database was interrupted, and it has no rows: begin it again, or name another database")

// half reports whether a load of PostgreSQL has not ended.
func (d *DB) half(ctx context.Context) (is bool, err error) {
	if d.single {
		return false, nil
	}
	err = d.QueryRow(ctx, `SELECT to_regclass('`+underWay+`') IS NOT NULL`).Scan(&is)
	return is, err
}

// vacant returns an error unless the database is empty, or has what an interrupted load has left.
func (d *DB) vacant(ctx context.Context) error {
	var tables, ours int
	err := d.QueryRow(ctx, `
		SELECT count(*), count(*) FILTER (WHERE tablename = '`+underWay+`') FROM pg_tables WHERE schemaname = current_schema()`,
	).Scan(&tables, &ours)
	if err == nil && tables > 0 && ours == 0 {
		err = errors.New("the database already has tables: name an empty one")
	}
	return err
}

// pgTable is a table with its columns, all quoted.
type pgTable struct{ name, columns string }

// copies is a statement that copies all rows.
func (t pgTable) copies(where string) string {
	return "COPY " + t.name + " (" + t.columns + ") " + where
}

// tablesOf returns the tables of an installation, except that of versions.
func tablesOf(ctx context.Context, tx pgx.Tx) ([]pgTable, error) {
	rows, err := tx.Query(ctx, `
		SELECT quote_ident(c.relname), string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum)
		FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
		WHERE c.relkind = 'r' AND c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = current_schema()) AND c.relname <> '`+versionTable+`'
		GROUP BY c.relname ORDER BY c.relname`)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (t pgTable, err error) {
		err = row.Scan(&t.name, &t.columns)
		return t, err
	})
}

// reference is a foreign key, and the statements that take it away and make it again.
type reference struct{ drop, add string }

func referencesOf(ctx context.Context, tx pgx.Tx) ([]reference, error) {
	rows, err := tx.Query(ctx, `
		SELECT 'ALTER TABLE ' || conrelid::regclass || ' DROP CONSTRAINT ' || quote_ident(conname),
			'ALTER TABLE ' || conrelid::regclass || ' ADD CONSTRAINT ' || quote_ident(conname) || ' ' || pg_get_constraintdef(oid)
		FROM pg_constraint
		WHERE contype = 'f' AND connamespace = (SELECT oid FROM pg_namespace WHERE nspname = current_schema()) ORDER BY conname`)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (x reference, err error) {
		err = row.Scan(&x.drop, &x.add)
		return x, err
	})
}

// inPostgres runs fn in a transaction of PostgreSQL's own driver.
func (d *DB) inPostgres(ctx context.Context, o pgx.TxOptions, fn func(tx pgx.Tx) error) error {
	conn, err := d.write.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	return conn.Raw(func(driver any) error { return pgx.BeginTxFunc(ctx, driver.(*connection).Conn.Conn(), o, fn) })
}

// tableRows reads the rows of one table, up to the line "\."; it fails where that does not come.
type tableRows struct {
	r       *bufio.Reader
	within  bool   // the last read ended within a line
	rest    []byte // of what was read last
	rowsEnd bool
}

func (x *tableRows) Read(p []byte) (int, error) {
	if x.rowsEnd {
		return 0, io.EOF
	}
	if len(x.rest) == 0 {
		part, err := x.r.ReadSlice('\n') // a line, or as much of it as is buffered
		switch {
		case !x.within && bytes.Equal(part, []byte("\\.\n")):
			x.rowsEnd = true
			return 0, io.EOF
		case errors.Is(err, io.EOF):
			return 0, io.ErrUnexpectedEOF
		case err != nil && !errors.Is(err, bufio.ErrBufferFull):
			return 0, err
		}
		x.within, x.rest = err != nil, part
	}
	n := copy(p, x.rest)
	x.rest = x.rest[n:]
	return n, nil
}
