package db

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"slipway/internal/platform/disk"
)

// Moved says what Move has copied.
type Moved struct {
	Tables int
	Rows   int64
	Before bool // an earlier call had copied all of it
}

// Move copies all rows of a database to another one, of either kind, and compares the number and a digest of the rows of each table, in
// one transaction of the target. Nothing else may use either database meanwhile. The source is only read. PostgreSQL must be empty, or
// have what an interrupted call has left; it is complete once Move has returned, and has no rows before.
func Move(ctx context.Context, from, to *DB) (m Moved, err error) {
	ctx = Patient(ctx, migrateTime)
	version, err := from.version(ctx)
	if err != nil {
		return m, err
	}
	if newest, err := Newest(); err != nil || version != newest {
		return m, errors.Join(err, fmt.Errorf("the database has schema version %d and this program knows %d: use the slipway that serves it",
			version, newest))
	}
	if !to.single {
		if err := to.vacant(ctx); err != nil {
			if same, sameErr := from.holdsAs(ctx, to); sameErr == nil && same.Tables > 0 {
				same.Before = true
				return same, nil
			}
			return m, err
		}
		if err := to.Admin(ctx, `CREATE TABLE IF NOT EXISTS `+underWay+` ()`); err != nil {
			return m, err
		}
	}
	if err := to.MigrateTo(ctx, version); err != nil {
		return m, err
	}
	err = from.readRows(ctx, func(r rows) error {
		return to.fillRows(ctx, func(w rows) error {
			m, err = copyRows(ctx, r, w)
			return err
		})
	})
	if err != nil {
		return Moved{}, err
	}
	return m, nil
}

// copyRows copies the rows of all tables, and compares them.
func copyRows(ctx context.Context, from, to rows) (m Moved, err error) {
	tables, err := from.tables(ctx)
	if err != nil {
		return m, err
	}
	there, err := to.tables(ctx)
	if err != nil {
		return m, err
	}
	if err := sameTables(tables, there); err != nil {
		return m, err
	}
	for _, t := range tables {
		sum, err := pipe(ctx, t, from, to)
		if err != nil {
			return m, fmt.Errorf("copy table %s: %w", t.name, err)
		}
		var got digest
		if err := to.read(ctx, t, &got); err != nil {
			return m, fmt.Errorf("compare table %s: %w", t.name, err)
		}
		if got != sum {
			return m, fmt.Errorf("table %s has %d rows and its copy %d, or they differ: nothing was moved", t.name, sum.rows, got.rows)
		}
		m.Tables, m.Rows = m.Tables+1, m.Rows+sum.rows
	}
	return m, nil
}

// pipe copies the rows of one table, and returns what was read.
func pipe(ctx context.Context, t table, from, to rows) (sum digest, err error) {
	r, w := io.Pipe()
	var g errgroup.Group
	// uncaught: reads a table
	g.Go(func() error {
		err := from.read(ctx, t, io.MultiWriter(&sum, w))
		w.CloseWithError(err) // nil is the end
		return err
	})
	err = to.write(ctx, t, r)
	r.CloseWithError(errors.Join(err, io.ErrClosedPipe)) // the reader ends, too
	if readErr := g.Wait(); readErr != nil && !errors.Is(readErr, io.ErrClosedPipe) {
		err = readErr
	}
	return sum, err
}

// holdsAs compares the rows of two databases, and returns an error where they differ.
func (d *DB) holdsAs(ctx context.Context, other *DB) (m Moved, err error) {
	version, err := other.version(ctx)
	if newest, _ := Newest(); err != nil || version != newest {
		return m, errors.Join(err, errors.New("another schema"))
	}
	err = d.readRows(ctx, func(a rows) error {
		return other.readRows(ctx, func(b rows) error {
			tables, err := a.tables(ctx)
			if err != nil {
				return err
			}
			there, err := b.tables(ctx)
			if err != nil {
				return err
			}
			if err := sameTables(tables, there); err != nil {
				return err
			}
			for _, t := range tables {
				var one, two digest
				if err := errors.Join(a.read(ctx, t, &one), b.read(ctx, t, &two)); err != nil {
					return err
				}
				if one != two {
					return fmt.Errorf("table %s differs", t.name)
				}
				m.Tables, m.Rows = m.Tables+1, m.Rows+one.rows
			}
			return nil
		})
	})
	return m, err
}

// table is a table with its columns, in the order in which they are copied.
type table struct {
	name    string
	columns []tableColumn
}

// tableColumn has the type text, bigint or boolean: there are no others.
type tableColumn struct{ name, kind string }

func (t table) list() string {
	names := make([]string, len(t.columns))
	for i, c := range t.columns {
		names[i] = pgx.Identifier{c.name}.Sanitize()
	}
	return strings.Join(names, ", ")
}

func (t table) quoted() string { return pgx.Identifier{t.name}.Sanitize() }

func sameTables(a, b []table) error {
	known := map[string]string{}
	for _, t := range b {
		for _, c := range t.columns {
			known[t.name+"."+c.name] = c.kind
		}
	}
	for _, t := range a {
		for _, c := range t.columns {
			if kind := known[t.name+"."+c.name]; kind != c.kind {
				return fmt.Errorf("column %s of table %s is %s here and %q in the other database", c.name, t.name, c.kind, kind)
			}
			delete(known, t.name+"."+c.name)
		}
	}
	if len(known) > 0 || len(a) != len(b) {
		return fmt.Errorf("the other database has %d tables, not %d, or other columns", len(b), len(a))
	}
	return nil
}

// digest sums up rows in any order. Its input is rows as PostgreSQL's COPY writes them in its text format, a line each.
type digest struct {
	rows int64
	sum  [4]uint64
	part string // of a line that hasn't ended
}

func (s *digest) Write(p []byte) (int, error) {
	n := len(p)
	for {
		at := bytes.IndexByte(p, '\n')
		if at < 0 {
			s.part += string(p)
			return n, nil
		}
		line := p[:at]
		if s.part != "" {
			line = append([]byte(s.part), line...)
			s.part = ""
		}
		h := sha256.Sum256(line)
		for i := range s.sum {
			s.sum[i] += binary.BigEndian.Uint64(h[8*i:])
		}
		s.rows++
		p = p[at+1:]
	}
}

// rows reads and writes all rows of tables within a transaction, in the form of COPY.
type rows interface {
	tables(ctx context.Context) ([]table, error) // by name
	read(ctx context.Context, t table, w io.Writer) error
	write(ctx context.Context, t table, r io.Reader) error
}

// version returns that of the schema.
func (d *DB) version(ctx context.Context) (v int64, err error) {
	err = d.QueryRow(ctx, `SELECT MAX(version_id) FROM `+versionTable).Scan(&v)
	if err != nil {
		return 0, fmt.Errorf("version of the schema: %w", err)
	}
	return v, nil
}

// readRows lets fn read all rows as they are at one moment. On SQLite nobody else writes until it returns.
func (d *DB) readRows(ctx context.Context, fn func(rows) error) error {
	if d.single {
		return d.inSQLite(ctx, false, fn)
	}
	return d.inPostgres(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		return fn(postgresRows{tx})
	})
}

// fillRows empties all tables, has fn write their rows, and commits, or changes nothing.
func (d *DB) fillRows(ctx context.Context, fn func(rows) error) error {
	if d.single {
		return d.inSQLite(ctx, true, func(r rows) error {
			x := r.(sqliteRows)
			tables, err := x.tables(ctx)
			if err != nil {
				return err
			}
			for _, t := range tables { // what migrations have put there is in the source, as it is by now
				if _, err := x.tx.ExecContext(ctx, `DELETE FROM `+t.quoted()); err != nil {
					return err
				}
			}
			if err := fn(r); err != nil {
				return err
			}
			return integrity(ctx, x.tx)
		})
	}
	return d.inPostgres(ctx, pgx.TxOptions{}, func(tx pgx.Tx) error {
		return emptied(ctx, tx, func() error { return fn(postgresRows{tx}) })
	})
}

// emptied takes the mark of a load and all rows and references between tables away, calls fill, and makes the references again.
func emptied(ctx context.Context, tx pgx.Tx, fill func() error) error {
	if _, err := tx.Exec(ctx, `DROP TABLE `+underWay); err != nil {
		return err
	}
	tables, err := tablesOf(ctx, tx)
	if err != nil {
		return err
	}
	// Tables come in no order that references to others would allow.
	references, err := referencesOf(ctx, tx)
	if err != nil {
		return err
	}
	var again strings.Builder
	for _, x := range references {
		if _, err := tx.Exec(ctx, x.drop); err != nil {
			return err
		}
		again.WriteString(x.add + ";\n")
	}
	for _, t := range tables { // what migrations have put there is in the copy, as it was by then
		if _, err := tx.Exec(ctx, `DELETE FROM `+t.name); err != nil {
			return err
		}
	}
	if err := fill(); err != nil {
		return err
	}
	_, err = tx.Exec(ctx, again.String())
	return err
}

// postgresRows are those of PostgreSQL.
type postgresRows struct{ tx pgx.Tx }

func (x postgresRows) tables(ctx context.Context) (list []table, err error) {
	found, err := x.tx.Query(ctx, `
		SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod)
		FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
		WHERE c.relkind = 'r' AND c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = current_schema())
			AND c.relname NOT IN ('`+versionTable+`', '`+underWay+`')
		ORDER BY c.relname COLLATE "C", a.attnum`)
	if err != nil {
		return nil, err
	}
	var name, col, kind string
	_, err = pgx.ForEachRow(found, []any{&name, &col, &kind}, func() error {
		if len(list) == 0 || list[len(list)-1].name != name {
			list = append(list, table{name: name})
		}
		t := &list[len(list)-1]
		t.columns = append(t.columns, tableColumn{col, kind})
		return nil
	})
	return list, err
}

func (x postgresRows) read(ctx context.Context, t table, w io.Writer) error {
	_, err := x.tx.Conn().PgConn().CopyTo(ctx, w, "COPY "+t.quoted()+" ("+t.list()+") TO STDOUT")
	return err
}

func (x postgresRows) write(ctx context.Context, t table, r io.Reader) error {
	_, err := x.tx.Conn().PgConn().CopyFrom(ctx, r, "COPY "+t.quoted()+" ("+t.list()+") FROM STDIN")
	return err
}

// inSQLite runs fn in a transaction of the writer, which is kept if write is true. References between tables are checked at its end.
func (d *DB) inSQLite(ctx context.Context, write bool, fn func(rows) error) error {
	conn, err := d.write.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if write {
		if _, err := conn.ExecContext(ctx, "PRAGMA foreign_keys = OFF"); err != nil {
			return err
		}
		defer conn.ExecContext(context.WithoutCancel(ctx), "PRAGMA foreign_keys = ON")
	}
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := fn(sqliteRows{tx}); err != nil || !write {
		return err
	}
	return tx.Commit()
}

// sqliteRows are those of SQLite.
type sqliteRows struct{ tx *sql.Tx }

func (x sqliteRows) tables(ctx context.Context) (list []table, err error) {
	found, err := x.tx.QueryContext(ctx, `
		SELECT m.name, c.name, lower(c.type) FROM sqlite_master m JOIN pragma_table_info(m.name) c
		WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite\_%' ESCAPE '\' AND m.name <> $1 ORDER BY m.name, c.cid`, versionTable)
	if err != nil {
		return nil, err
	}
	defer found.Close()
	for found.Next() {
		var name, col, kind string
		if err := found.Scan(&name, &col, &kind); err != nil {
			return nil, err
		}
		if len(list) == 0 || list[len(list)-1].name != name {
			list = append(list, table{name: name})
		}
		t := &list[len(list)-1]
		t.columns = append(t.columns, tableColumn{col, kind})
	}
	return list, found.Err()
}

func (x sqliteRows) read(ctx context.Context, t table, w io.Writer) error {
	found, err := x.tx.QueryContext(ctx, `SELECT `+t.list()+` FROM `+t.quoted())
	if err != nil {
		return err
	}
	defer found.Close()
	values, at := make([]any, len(t.columns)), make([]any, len(t.columns))
	for i := range values {
		at[i] = &values[i]
	}
	out := bufio.NewWriterSize(w, 64<<10)
	var line []byte
	for found.Next() {
		if err := found.Scan(at...); err != nil {
			return err
		}
		line = line[:0]
		for i, v := range values {
			if i > 0 {
				line = append(line, '\t')
			}
			if line, err = appendField(line, t.columns[i], v); err != nil {
				return err
			}
		}
		if _, err := out.Write(append(line, '\n')); err != nil {
			return err
		}
	}
	return errors.Join(found.Err(), out.Flush())
}

// appendField appends a value as COPY writes it. What PostgreSQL can't hold is an error.
func appendField(b []byte, c tableColumn, v any) ([]byte, error) {
	if v == nil {
		return append(b, `\N`...), nil
	}
	switch c.kind {
	case "boolean":
		yes, ok := v.(bool)
		if n, number := v.(int64); number && (n == 0 || n == 1) {
			yes, ok = n == 1, true
		}
		if !ok {
			return nil, fmt.Errorf("column %s: %v is neither true nor false", c.name, v)
		}
		if yes {
			return append(b, 't'), nil
		}
		return append(b, 'f'), nil
	case "bigint":
		n, ok := v.(int64)
		if !ok {
			return nil, fmt.Errorf("column %s: %.40q is no number", c.name, fmt.Sprint(v))
		}
		return strconv.AppendInt(b, n, 10), nil
	}
	text, ok := v.(string)
	if bytes, isBytes := v.([]byte); isBytes {
		text, ok = string(bytes), true
	}
	if !ok || !utf8.ValidString(text) || strings.IndexByte(text, 0) >= 0 {
		return nil, fmt.Errorf("column %s: %.40q is no text that PostgreSQL can hold", c.name, fmt.Sprint(v))
	}
	for i := range len(text) {
		if at := strings.IndexByte(special, text[i]); at >= 0 {
			b = append(b, '\\', letters[at])
			continue
		}
		b = append(b, text[i])
	}
	return b, nil
}

// What COPY writes with a backslash, and as which letter.
const (
	special = "\\\b\f\n\r\t\v"
	letters = `\bfnrtv`
)

func (x sqliteRows) write(ctx context.Context, t table, r io.Reader) error {
	places := make([]string, len(t.columns))
	for i := range places {
		places[i] = "$" + strconv.Itoa(i+1)
	}
	insert, err := x.tx.PrepareContext(ctx, `INSERT INTO `+t.quoted()+` (`+t.list()+`) VALUES (`+strings.Join(places, ", ")+`)`)
	if err != nil {
		return err
	}
	defer insert.Close()
	in := bufio.NewReaderSize(r, 64<<10)
	for {
		line, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) && len(line) == 0 {
			return nil
		}
		if err != nil {
			return err
		}
		fields := bytes.Split(line[:len(line)-1], []byte("\t"))
		if len(fields) != len(t.columns) {
			return fmt.Errorf("a row has %d columns", len(fields))
		}
		values := make([]any, len(fields))
		for i, f := range fields {
			if values[i], err = parseField(f, t.columns[i]); err != nil {
				return err
			}
		}
		if _, err := insert.ExecContext(ctx, values...); err != nil {
			return err
		}
	}
}

// parseField is the reverse of appendField.
func parseField(f []byte, c tableColumn) (any, error) {
	switch {
	case string(f) == `\N`:
		return nil, nil
	case c.kind == "boolean":
		return string(f) == "t", nil
	case c.kind == "bigint":
		return strconv.ParseInt(string(f), 10, 64)
	}
	text := make([]byte, 0, len(f))
	for i := 0; i < len(f); i++ {
		if f[i] == '\\' && i+1 < len(f) {
			at := strings.IndexByte(letters, f[i+1])
			if at < 0 {
				return nil, fmt.Errorf("column %s: unknown escape %q", c.name, f[i:i+2])
			}
			text, i = append(text, special[at]), i+1
			continue
		}
		text = append(text, f[i])
	}
	return string(text), nil
}

// Into puts a closed database of SQLite, a file, into the place of another, which is kept beside it under a third name. A crash leaves one
// or the other there.
func Into(file, place, kept string) error {
	for _, x := range []string{file, place} {
		if info, err := os.Stat(x + "-wal"); err == nil && info.Size() > 0 {
			return fmt.Errorf("%s-wal still has changes: close the database first", x)
		}
		for _, beside := range []string{"-wal", "-shm"} {
			if err := os.Remove(x + beside); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
		}
	}
	if err := os.Link(place, kept); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return errors.Join(disk.Sync(file), disk.Rename(file, place), disk.Sync(filepath.Dir(place)))
}
