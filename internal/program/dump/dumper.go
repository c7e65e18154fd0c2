// Package dump owns the SQL text of databases: it writes a schema as statements that any MariaDB client
// loads, cuts such text into statements, and makes a stranger's fit. It knows a connection, and nothing of
// servers, owners or sites.
package dump

import (
	"bufio"
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
)

// Bounds of a dump. A row is sent back in one packet, which the server takes up to 64 MiB.
const (
	insertSize = 1 << 20
	maxRow     = 60 << 20
)

// Sum describes a table's rows: how many rows, and the sum of their hashes, in any order.
type Sum struct {
	Table string `json:"table"`
	Rows  uint64 `json:"rows"`
	Hash  string `json:"hash"`
}

// dumper writes one database, or only counts it.
type dumper struct {
	w      *bufio.Writer // nil: the sums alone are wanted
	schema string
	sums   []Sum
}

// Write writes a schema as SQL that any MariaDB client loads: tables and their rows, sequences,
// routines, triggers and views, all as they were at the moment of the first byte. It reads in
// one transaction and locks nobody out. Definers are left out: who loads it owns what it makes.
// The last lines hold the sum of each table.
func Write(ctx context.Context, from *sql.DB, schema string, w io.Writer) error {
	return (&dumper{w: bufio.NewWriterSize(w, 256<<10), schema: schema}).read(ctx, from)
}

// Sums reads the sum of each table of a schema.
func Sums(ctx context.Context, from *sql.DB, schema string) ([]Sum, error) {
	o := &dumper{schema: schema}
	err := o.read(ctx, from)
	return o.sums, err
}

// Session is what a connection must have said before a dump is loaded; a dump begins with it.
const Session = "SET NAMES utf8mb4;\nSET time_zone = '+00:00';\nSET sql_mode = 'NO_AUTO_VALUE_ON_ZERO';\nSET foreign_key_checks " +
	"= 0;\nSET unique_checks = 0;\n/*M!100201 SET check_constraint_checks = 0 */;\n"

func (o *dumper) print(parts ...string) {
	if o.w == nil {
		return
	}
	for _, p := range parts {
		_, _ = o.w.WriteString(p) // the last Flush reports an error
	}
}

// name quotes an identifier.
func name(s string) string { return "`" + strings.ReplaceAll(s, "`", "``") + "`" }

// object is something of a schema beside the rows.
type object struct{ kind, name string }

// Bytes reads a schema in one transaction of a connection of its own.
func (o *dumper) read(ctx context.Context, from *sql.DB) (err error) {
	c, err := from.Conn(ctx)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	broken := true
	defer func() {
		if broken { // its session has settings of ours, and maybe an answer half read
			_ = c.Raw(func(any) error { return driver.ErrBadConn })
		}
		_ = c.Close()
	}()
	for _, q := range []string{
		"SET NAMES utf8mb4", "SET SESSION time_zone = '+00:00'", "SET SESSION sql_mode = ''",
		"SET SESSION sql_quote_show_create = 1", "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
		"SET SESSION lock_wait_timeout = 20",
		"USE " + name(o.schema),
		"START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY",
	} {
		if _, err := c.ExecContext(ctx, q); err != nil {
			return err
		}
	}
	o.print("-- Database dump by Slipway\n", Session)
	if o.w != nil { // the moment has been: who waits for it goes on
		if err := o.w.Flush(); err != nil {
			return err
		}
	}
	list, err := objects(
		ctx,
		c,
		`SELECT table_type, table_name FROM information_schema.tables WHERE table_schema = ? ORDER BY table_name`,
		o.schema,
	)
	if err != nil {
		return err
	}
	// Metadata locks end with each table: whoever changes another one meanwhile doesn't wait.
	if _, err := c.ExecContext(ctx, "SAVEPOINT table_read"); err != nil {
		return err
	}
	var views []string
	for _, x := range list {
		switch x.kind {
		case "BASE TABLE", "SYSTEM VERSIONED":
			err = o.table(ctx, c, x.name)
		case "SEQUENCE":
			err = o.sequence(ctx, c, x.name)
		case "VIEW":
			views = append(views, x.name)
		}
		if err != nil {
			return fmt.Errorf("table %q: %w", x.name, err)
		}
		if _, err := c.ExecContext(ctx, "ROLLBACK TO SAVEPOINT table_read"); err != nil {
			return err
		}
	}
	if o.w != nil {
		if err := o.programs(ctx, c, views); err != nil {
			return err
		}
		for _, s := range o.sums {
			o.print("-- slipway:sum ", jsonLine(s), "\n")
		}
		o.print("-- slipway:end\n")
		if err := o.w.Flush(); err != nil {
			return err
		}
	}
	return nil
}

func objects(ctx context.Context, c *sql.Conn, query string, args ...any) ([]object, error) {
	rows, err := c.QueryContext(ctx, query, args...)
	return db.Collect(rows, err, func(s db.Scanner) (x object, err error) { return x, s.Scan(&x.kind, &x.name) })
}

// show returns a column of SHOW CREATE's answer, by its name.
func show(ctx context.Context, c *sql.Conn, query string, columns ...string) ([]string, error) {
	rows, err := c.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	names, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	if !rows.Next() {
		return nil, errors.Join(rows.Err(), sql.ErrNoRows)
	}
	values, into := make([]sql.NullString, len(names)), make([]any, len(names))
	for i := range values {
		into[i] = &values[i]
	}
	if err := rows.Scan(into...); err != nil {
		return nil, err
	}
	out := make([]string, len(columns))
	for i, want := range columns {
		for k, n := range names {
			if strings.EqualFold(n, want) {
				out[i] = values[k].String
			}
		}
	}
	return out, rows.Err()
}

// How the values of a column are written.
type form int

const (
	number form = iota
	textual
	octets
	hexadecimal // what isn't text and has a form of its own
)

func formOf(kind string) form {
	switch kind {
	case "tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "float", "double", "year":
		return number
	case "binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob":
		return octets
	case "bit",
		"geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon",
		"geometrycollection",
		"vector":
		return hexadecimal
	}
	return textual
}

// table writes a table and its rows.
func (o *dumper) table(ctx context.Context, c *sql.Conn, table string) error {
	if o.w != nil {
		create, err := show(ctx, c, "SHOW CREATE TABLE "+name(table), "Create Table")
		if err != nil {
			return err
		}
		o.print("\nDROP TABLE IF EXISTS ", name(table), ";\n", create[0], ";\n")
	}
	rows, err := c.QueryContext(ctx, `SELECT data_type, column_name FROM information_schema.columns
		WHERE table_schema = ? AND table_name = ? AND is_generated <> 'ALWAYS' AND extra NOT LIKE '%GENERATED%'
		ORDER BY ordinal_position`, o.schema, table)
	columns, err := db.Collect(rows, err, func(s db.Scanner) (x object, err error) { return x, s.Scan(&x.kind, &x.name) })
	if err != nil {
		return err
	}
	if len(columns) == 0 {
		return errors.New("it has no columns that could be read")
	}
	var names, read []string
	forms := make([]form, len(columns))
	for i, x := range columns {
		forms[i] = formOf(x.kind)
		names = append(names, name(x.name))
		if x.kind == "float" { // as text it would lose digits
			read = append(read, "CAST("+name(x.name)+" AS DOUBLE)")
		} else {
			read = append(read, name(x.name))
		}
	}
	r, err := c.QueryContext(ctx, "SELECT "+strings.Join(read, ", ")+" FROM "+name(table))
	if err != nil {
		return err
	}
	defer r.Close()
	values, into := make([]sql.RawBytes, len(columns)), make([]any, len(columns))
	for i := range values {
		into[i] = &values[i]
	}
	head := "INSERT INTO " + name(table) + " (" + strings.Join(names, ", ") + ") VALUES\n"
	s := Sum{Table: table}
	var hash uint64
	var row []byte
	pending := 0
	for r.Next() {
		if err := r.Scan(into...); err != nil {
			return err
		}
		row = append(row[:0], '(')
		for i, v := range values {
			if i > 0 {
				row = append(row, ',')
			}
			row = appendValue(row, v, forms[i])
		}
		row = append(row, ')')
		if len(row) > maxRow {
			return fault.New(fault.TooLarge, "row_too_large", "A row of the database is too large to be backed up",
				fmt.Sprintf(
					"a row of the table %q takes %d MiB as SQL; at most %d MiB can be loaded again",
					table,
					len(row)>>20,
					maxRow>>20,
				))
		}
		hash += xxhash.Sum64(row)
		s.Rows++
		if o.w == nil {
			continue
		}
		switch {
		case pending == 0:
			o.print(head)
		case pending+len(row) > insertSize:
			o.print(";\n", head)
			pending = 0
		default:
			o.print(",\n")
		}
		pending += len(row)
		if _, err := o.w.Write(row); err != nil {
			return err
		}
	}
	if pending > 0 {
		o.print(";\n")
	}
	s.Hash = strconv.FormatUint(hash, 16)
	o.sums = append(o.sums, s)
	return r.Err()
}

// appendValue writes a value as SQL, on one line.
func appendValue(b []byte, v sql.RawBytes, f form) []byte {
	if v == nil {
		return append(b, "NULL"...)
	}
	switch f {
	case number:
		return append(b, v...)
	case hexadecimal:
		b = append(b, "x'"...)
		b = hex.AppendEncode(b, v)
		return append(b, '\'')
	case octets:
		b = append(b, "_binary '"...)
	default:
		b = append(b, '\'')
	}
	for {
		n := plain(v)
		if b = append(b, v[:n]...); n == len(v) {
			return append(b, '\'')
		}
		b = append(b, '\\', escapes[v[n]])
		v = v[n+1:]
	}
}

// plain returns how many bytes v begins with that are written as they are. It looks at eight at
// once: a dump mostly consists of them.
func plain(v []byte) int {
	const ones, high = 0x0101010101010101, 0x8080808080808080
	i := 0
	for ; i+8 <= len(v); i += 8 {
		x := binary.LittleEndian.Uint64(v[i:])
		quote, backslash := x^'\''*ones, x^'\\'*ones
		// A high bit is left where a byte is below a space, a quote or a backslash.
		if ((x-' '*ones)&^x|(quote-ones)&^quote|(backslash-ones)&^backslash)&high == 0 {
			continue
		}
		for k := i; k < i+8; k++ {
			if escapes[v[k]] != 0 {
				return k
			}
		}
	}
	for ; i < len(v); i++ {
		if escapes[v[i]] != 0 {
			return i
		}
	}
	return i
}

// escapes are the characters of a string that are written after a backslash.
var escapes = [256]byte{0: '0', '\n': 'n', '\r': 'r', '\\': '\\', '\'': '\'', 26: 'Z'}

// sequence writes a sequence and where it stands.
func (o *dumper) sequence(ctx context.Context, c *sql.Conn, table string) error {
	if o.w == nil {
		return nil
	}
	create, err := show(ctx, c, "SHOW CREATE SEQUENCE "+name(table), "Create Table")
	if err != nil {
		return err
	}
	var next int64
	if err := c.QueryRowContext(ctx, "SELECT next_not_cached_value FROM "+name(table)).Scan(&next); err != nil {
		return err
	}
	o.print(
		"\nDROP SEQUENCE IF EXISTS ",
		name(table),
		";\n",
		create[0],
		";\nDO SETVAL(",
		name(table),
		", ",
		strconv.FormatInt(next, 10),
		", 0);\n",
	)
	return nil
}

// programs writes what runs in the database: routines, triggers and views. A view may use
// another one, so that all of them first stand for their columns alone.
func (o *dumper) programs(ctx context.Context, c *sql.Conn, views []string) error {
	var good []string
	for _, v := range views {
		rows, err := c.QueryContext(ctx, "SHOW COLUMNS FROM "+name(v))
		var columns []string
		if err == nil {
			columns, err = firstColumn(rows)
		}
		if err != nil || len(columns) == 0 {
			o.print("\n-- The view ", jsonLine(v), " doesn't work and was left out\n")
			continue
		}
		good = append(good, v)
		for i := range columns {
			columns[i] = "1 AS " + name(columns[i])
		}
		o.print("\nDROP VIEW IF EXISTS ", name(v), ";\nCREATE VIEW ", name(v), " AS SELECT ", strings.Join(columns, ", "), ";\n")
	}
	routines, err := objects(
		ctx,
		c,
		`SELECT routine_type, routine_name FROM information_schema.routines WHERE routine_schema = ? ORDER BY routine_type, routine_name`,
		o.schema,
	)
	if err != nil {
		return err
	}
	for _, x := range routines {
		word := map[string]string{
			"FUNCTION":     "Function",
			"PROCEDURE":    "Procedure",
			"PACKAGE":      "Package",
			"PACKAGE BODY": "Package body",
		}[x.kind]
		if word == "" {
			return fmt.Errorf("routine %q: %s can't be dumped", x.name, x.kind)
		}
		got, err := show(ctx, c, "SHOW CREATE "+x.kind+" "+name(x.name), "sql_mode", "Create "+word)
		if err != nil {
			return fmt.Errorf("routine %q: %w", x.name, err)
		}
		o.program("DROP "+x.kind+" IF EXISTS "+name(x.name), got)
	}
	triggers, err := objects(
		ctx,
		c,
		`SELECT event_object_table, trigger_name FROM information_schema.triggers WHERE trigger_schema = ?
			ORDER BY event_object_table, action_timing, event_manipulation, action_order`,
		o.schema,
	)
	if err != nil {
		return err
	}
	for _, x := range triggers {
		got, err := show(ctx, c, "SHOW CREATE TRIGGER "+name(x.name), "sql_mode", "SQL Original Statement")
		if err != nil {
			return fmt.Errorf("trigger %q: %w", x.name, err)
		}
		o.program("DROP TRIGGER IF EXISTS "+name(x.name), got)
	}
	for _, v := range good {
		got, err := show(ctx, c, "SHOW CREATE VIEW "+name(v), "Create View")
		if err != nil {
			return fmt.Errorf("view %q: %w", v, err)
		}
		o.print("\nDROP VIEW IF EXISTS ", name(v), ";\n", withoutDefiner(got[0]), ";\n")
	}
	return nil
}

// program writes a statement that may hold semicolons, with the mode it was written in.
func (o *dumper) program(drop string, got []string) {
	mark := ";;"
	for strings.Contains(got[1], mark) {
		mark += ";"
	}
	o.print(
		"\n",
		drop,
		";\nSET sql_mode = '",
		strings.ReplaceAll(got[0], "'", ""),
		"';\nDELIMITER ",
		mark,
		"\n",
		withoutDefiner(got[1]),
		"\n",
		mark,
		"\nDELIMITER ;\nSET sql_mode = 'NO_AUTO_VALUE_ON_ZERO';\n",
	)
}

// withoutDefiner leaves out who a routine, a trigger or a view belongs to: the server writes
// it before anything that the site has named, in the quotes of the mode it was made in.
func withoutDefiner(create string) string {
	const mark = " DEFINER="
	at := strings.Index(create, mark)
	if at < 0 || strings.ContainsAny(create[:at], "`'\"(") {
		return create
	}
	end := quoted(create, at+len(mark))
	if end > 0 && strings.HasPrefix(create[end:], "@") {
		end = quoted(create, end+1)
	}
	if end < 0 {
		return create
	}
	return create[:at] + create[end:]
}

// quoted returns where the identifier in backquotes or double quotes that begins at s[at] has
// ended; -1 where there is none.
func quoted(s string, at int) int {
	if at >= len(s) || s[at] != '`' && s[at] != '"' {
		return -1
	}
	for i := at + 1; i < len(s); i++ {
		if s[i] != s[at] {
			continue
		}
		if i+1 < len(s) && s[i+1] == s[at] {
			i++
			continue
		}
		return i + 1
	}
	return -1
}

func firstColumn(rows *sql.Rows) (list []string, err error) {
	defer rows.Close()
	names, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	var first string
	into := make([]any, len(names))
	for i := range into {
		into[i] = new(sql.RawBytes)
	}
	into[0] = &first
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return nil, err
		}
		list = append(list, first)
	}
	return list, rows.Err()
}

// jsonLine writes v on one line, whatever names it holds.
func jsonLine(v any) string {
	b, _ := json.Marshal(v) // strings and numbers
	return string(b)
}
