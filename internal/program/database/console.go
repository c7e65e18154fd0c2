package database

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/go-sql-driver/mysql"

	"slipway/internal/platform/fair"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/lazyregexp"
	"slipway/internal/platform/text"
	"slipway/internal/tenant/account"
)

// Bounds of what people ask a database: time, bytes of the statement, and rows and bytes of its answer.
const (
	queryTime     = 15 * time.Second
	exportTime    = 10 * time.Minute
	maxStatement  = 64 << 10
	MaxRows       = 500
	maxAnswer     = 4 << 20
	maxExported   = 512 << 20
	maxConsoles   = 8
	maxTables     = 2000
	maxColumnsOf  = 4096 // MariaDB's own limit
	consoleMemory = 64 << 20
)

func newConsoles() *fair.Pool {
	// share: total 8 queries of people; owner 1 of a user; edge 429
	return fair.New(fair.Config{Places: maxConsoles, Owner: 1})
}

// Person is a user who asks a database for its owner.
type Person struct {
	Owner account.OwnerID
	User  account.UserID
}

// Table is a table or a view of a database.
type Table struct {
	Name string
	View bool
	Rows int64 // about, as the server estimates
	Size int64 // bytes, with its indexes
}

// Cell is a value of an answer as text. Binary values are in hexadecimal digits, after 0x.
type Cell struct {
	Null bool
	Text string
}

// Answer is what a statement returned.
type Answer struct {
	Columns  []string
	Rows     [][]Cell
	More     bool  // there are more rows, which were not read
	Affected int64 // rows that it changed
	Took     time.Duration
}

// Statement is SQL that a person wrote.
type Statement struct {
	SQL   string
	Write bool // it may change the database
}

// Filter chooses rows of a table.
type Filter struct {
	Table      string
	Sort       string // a column; empty: the order of the server
	Descending bool
	Column     string // of the condition; empty: all rows
	Is         string // one of Conditions
	Value      string
	Page       int // from 1
	Limit      int // at most MaxRows
}

// Conditions are those of a Filter.
var Conditions = []string{"equals", "contains", "begins", "less", "greater", "null", "filled"}

// console is a connection of a person to a database.
type console struct {
	*sql.Conn
	over *atomic.Bool
	done func()
}

// explain gives an error of a person's statement its words.
func (c *console) explain(err error) error {
	if err != nil && c.over.Load() {
		return errTooMuch
	}
	return explain(err)
}

// console opens a connection to a database with its site's own rights, for one person, and bounds what it returns.
func (d *Databases) console(ctx context.Context, who Person, x Database, most int64) (_ *console, err error) {
	var over atomic.Bool
	if x.Status != Active {
		return nil, fault.New(fault.Conflict, "database_not_ready", "The database is not ready", "its status is "+string(x.Status))
	}
	release, ok := d.consoles.Try(fair.Who{Owner: string(who.User)})
	if !ok {
		return nil, &fault.Error{
			Kind: fault.Limited, Message: "Another query is running", Details: "a user runs one query at a time", Code: "too_many_queries",
			RetryAfter: 2 * time.Second,
		}
	}
	defer func() {
		if err != nil {
			release()
		}
	}()
	s, err := d.named(x.server)
	if err != nil {
		return nil, err
	}
	password, err := d.password(x)
	if err != nil {
		return nil, err
	}
	_, away, err := s.use(ctx)
	if err != nil {
		return nil, err
	}
	c := mysql.NewConfig()
	c.User, c.Passwd, c.DBName, c.Net, c.Logger = x.Schema, password, x.Schema, "unix", nobody{}
	c.Timeout, c.ReadTimeout, c.WriteTimeout, c.InterpolateParams = 10*time.Second, time.Minute, time.Minute, true
	c.Collation = "utf8mb4_unicode_ci"
	c.DialFunc = func(ctx context.Context, _, _ string) (net.Conn, error) {
		conn, err := s.dial(ctx)
		if err != nil {
			return nil, err
		}
		return &bounded{Conn: conn, left: most, over: &over}, nil
	}
	if s.outside != nil {
		c.TLS = s.outside.TLS
	}
	connector, err := mysql.NewConnector(c)
	if err != nil {
		away()
		return nil, fmt.Errorf("connect to database: %w", err)
	}
	pool := sql.OpenDB(connector)
	// share: none, one connection of one person
	pool.SetMaxOpenConns(1)
	closeAll := func() {
		_ = pool.Close()
		away()
	}
	conn, err := pool.Conn(ctx)
	if err != nil {
		closeAll()
		return nil, explain(err)
	}
	for _, q := range []string{
		fmt.Sprintf("SET SESSION max_session_mem_used = %d", consoleMemory),
		"SET SESSION lock_wait_timeout = 5, innodb_lock_wait_timeout = 5",
	} {
		_, _ = conn.ExecContext(ctx, q) // a server of the operator's may know no such bound
	}
	return &console{conn, &over, func() {
		_ = conn.Raw(func(any) error { return driver.ErrBadConn }) // its rows aren't read to their end
		closeAll()
		release()
	}}, nil
}

// bounded is a connection that ends after so many bytes were read.
type bounded struct {
	net.Conn
	left int64
	over *atomic.Bool // whether that was reached
}

var errTooMuch = fault.New(fault.Invalid, "answer_too_large", "The answer is too large",
	"ask for fewer columns or rows, or export the table")

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		b.over.Store(true)
		return 0, errTooMuch
	}
	n, err := b.Conn.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}

// explain gives an error of a person's statement its words.
func explain(err error) error {
	var refused *mysql.MySQLError
	switch {
	case err == nil, fault.As(err) != nil:
		return err
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &refused) && refused.Number == 1969: // max_statement_time
		return fault.New(fault.Invalid, "query_timeout", "The query took too long", fmt.Sprintf("a query may take %s", queryTime))
	case errors.As(err, &refused) && refused.Number == 1792:
		return fault.New(fault.Invalid, "query_writes", "This query would change the database", "allow changes for this query")
	case errors.As(err, &refused) && !ending(refused):
		return fault.New(fault.Invalid, "query_failed", "The query failed", text.Clip(refused.Message, 500))
	}
	return away(err)
}

// onlyReads matches statements that a query without Write may have. The transaction that they run in is read-only as well.
var onlyReads = lazyregexp.New(`(?i)^(SELECT|SHOW|DESCRIBE|DESC|EXPLAIN|WITH|VALUES)\b`)

// localFile matches statements that ask the client for a file.
var localFile = lazyregexp.New(`(?is)^LOAD\s+(DATA|XML)\b.*\bLOCAL\s+INFILE\b`)

// plainComments matches comments before a statement that the server doesn't execute.
var plainComments = lazyregexp.New(`^(?:\s+|--[ \t][^\n]*(?:\n|$)|#[^\n]*(?:\n|$)|/\*[^!M](?:[^*]|\*+[^*/])*\*+/|/\*\*/)+`)

// Ask runs one statement of a person and returns its first rows.
func (d *Databases) Ask(ctx context.Context, who Person, x Database, q Statement) (Answer, error) {
	q.SQL = strings.TrimRight(strings.TrimSpace(q.SQL), "; \t\r\n")
	switch {
	case q.SQL == "" || len(q.SQL) > maxStatement || !utf8.ValidString(q.SQL) || strings.ContainsRune(q.SQL, 0):
		return Answer{}, fault.New(fault.Invalid, "invalid_query", "Invalid query", fmt.Sprintf("1 to %d KiB of SQL", maxStatement>>10))
	case localFile.MatchString(q.SQL): // the driver would refuse it, in its own words
		return Answer{}, fault.New(fault.Invalid, "invalid_query", "Files can't be loaded here", "load them in a terminal")
	case !q.Write && !onlyReads.MatchString(plainComments.ReplaceAllString(q.SQL, "")):
		return Answer{}, fault.New(fault.Invalid, "query_writes", "This query would change the database",
			"without changes, a query begins with SELECT, SHOW, DESCRIBE, EXPLAIN, WITH or VALUES; allow changes for this query")
	}
	return d.ask(ctx, who, x, q, MaxRows)
}

func (d *Databases) ask(ctx context.Context, who Person, x Database, q Statement, most int, args ...any) (out Answer, err error) {
	ctx, cancel := context.WithTimeout(ctx, queryTime+5*time.Second)
	defer cancel()
	conn, err := d.console(ctx, who, x, maxAnswer)
	if err != nil {
		return out, err
	}
	defer conn.done()
	if err := begin(ctx, conn.Conn, q.Write, queryTime); err != nil {
		return out, conn.explain(err)
	}
	begun := time.Now()
	rows, err := conn.QueryContext(ctx, q.SQL, args...)
	if err != nil {
		return out, conn.explain(err)
	}
	out.Columns, err = rows.Columns()
	if err != nil {
		return out, conn.explain(err)
	}
	read := newReader(rows, len(out.Columns))
	for rows.Next() {
		if len(out.Rows) == most {
			out.More = true
			break
		}
		row, err := read.row()
		if err != nil {
			return out, conn.explain(err)
		}
		out.Rows = append(out.Rows, row)
	}
	out.Took = time.Since(begun)
	if out.More {
		return out, nil
	}
	if err := rows.Err(); err != nil {
		return out, conn.explain(err)
	}
	_ = rows.Close()
	if q.Write && len(out.Columns) == 0 {
		err = conn.QueryRowContext(ctx, "SELECT ROW_COUNT()").Scan(&out.Affected)
		out.Affected = max(out.Affected, 0)
	}
	return out, conn.explain(err)
}

// begin bounds the statements of a connection, and keeps them from writing unless they may.
func begin(ctx context.Context, conn *sql.Conn, write bool, most time.Duration) error {
	list := []string{fmt.Sprintf("SET SESSION max_statement_time = %d", int(most.Seconds()))}
	if !write {
		list = append(list, "SET SESSION TRANSACTION READ ONLY", "START TRANSACTION READ ONLY")
	}
	for _, q := range list {
		if _, err := conn.ExecContext(ctx, q); err != nil {
			return err
		}
	}
	return nil
}

// reader reads rows as cells.
type reader struct {
	rows   *sql.Rows
	binary []bool
	raw    []sql.RawBytes
	into   []any
}

func newReader(rows *sql.Rows, columns int) *reader {
	r := &reader{rows: rows, binary: make([]bool, columns), raw: make([]sql.RawBytes, columns), into: make([]any, columns)}
	types, _ := rows.ColumnTypes()
	for i := range r.raw {
		r.into[i] = &r.raw[i]
		if i < len(types) {
			kind := types[i].DatabaseTypeName()
			r.binary[i] = strings.HasSuffix(kind, "BLOB") || strings.HasSuffix(kind, "BINARY") || kind == "BIT" || kind == "GEOMETRY"
		}
	}
	return r
}

func (r *reader) row() ([]Cell, error) {
	if err := r.rows.Scan(r.into...); err != nil {
		return nil, err
	}
	row := make([]Cell, len(r.raw))
	for i, b := range r.raw {
		switch {
		case b == nil:
			row[i] = Cell{Null: true}
		case r.binary[i] || !utf8.Valid(b):
			row[i] = Cell{Text: fmt.Sprintf("0x%x", []byte(b))}
		default:
			row[i] = Cell{Text: string(b)}
		}
	}
	return row, nil
}

// Tables lists the tables and views of a database by name.
func (d *Databases) Tables(ctx context.Context, who Person, x Database) (list []Table, err error) {
	got, err := d.ask(ctx, who, x, Statement{SQL: `SELECT table_name, table_type, CAST(COALESCE(table_rows, 0) AS CHAR),
		CAST(COALESCE(data_length + index_length, 0) AS CHAR) FROM information_schema.tables WHERE table_schema = DATABASE()
		AND table_type IN ('BASE TABLE', 'VIEW', 'SYSTEM VERSIONED') ORDER BY table_name`}, maxTables)
	for _, r := range got.Rows {
		t := Table{Name: r[0].Text, View: r[1].Text == "VIEW"}
		_, _ = fmt.Sscan(r[2].Text, &t.Rows)
		_, _ = fmt.Sscan(r[3].Text, &t.Size)
		list = append(list, t)
	}
	return list, err
}

// Rows returns a page of a table's rows.
func (d *Databases) Rows(ctx context.Context, who Person, x Database, f Filter) (Answer, error) {
	f.Page, f.Limit = max(1, f.Page), min(max(1, cmp.Or(f.Limit, 50)), MaxRows)
	q, args, err := d.selection(ctx, who, x, f)
	if err != nil {
		return Answer{}, err
	}
	if f.Page > 1<<30/f.Limit {
		return Answer{}, fault.New(fault.Invalid, "invalid_page", "Invalid page", "there are fewer pages")
	}
	return d.ask(ctx, who, x, Statement{SQL: fmt.Sprintf("%s LIMIT %d OFFSET %d", q, f.Limit+1, (f.Page-1)*f.Limit)}, f.Limit, args...)
}

// selection returns the SELECT of a filter. Names that it has are those of the database.
func (d *Databases) selection(ctx context.Context, who Person, x Database, f Filter) (q string, args []any, err error) {
	got, err := d.ask(ctx, who, x, Statement{SQL: `SELECT column_name FROM information_schema.columns WHERE table_schema = DATABASE()
		AND table_name = ? ORDER BY ordinal_position`}, maxColumnsOf, f.Table)
	if err != nil {
		return "", nil, err
	}
	if len(got.Rows) == 0 || f.Table == "" || len(f.Value) > maxStatement {
		return "", nil, fault.New(fault.NotFound, "table_not_found", "Table not found", "the database has no such table").
			Got(text.Clip(f.Table, 64))
	}
	known := func(name string) error {
		if slices.ContainsFunc(got.Rows, func(r []Cell) bool { return r[0].Text == name }) {
			return nil
		}
		return fault.New(fault.Invalid, "invalid_column", "Invalid column", "the table has no such column").Got(text.Clip(name, 64))
	}
	q = "SELECT * FROM " + quote(f.Table)
	if f.Column != "" {
		if err := known(f.Column); err != nil {
			return "", nil, err
		}
		column := quote(f.Column)
		like := strings.NewReplacer(`\`, `\\`, "%", `\%`, "_", `\_`).Replace(f.Value)
		switch f.Is {
		case "", "equals":
			q, args = q+" WHERE "+column+" = ?", []any{f.Value}
		case "contains":
			q, args = q+" WHERE "+column+" LIKE ?", []any{"%" + like + "%"}
		case "begins":
			q, args = q+" WHERE "+column+" LIKE ?", []any{like + "%"}
		case "less":
			q, args = q+" WHERE "+column+" < ?", []any{f.Value}
		case "greater":
			q, args = q+" WHERE "+column+" > ?", []any{f.Value}
		case "null":
			q += " WHERE " + column + " IS NULL"
		case "filled":
			q += " WHERE " + column + " IS NOT NULL AND " + column + " <> ''"
		default:
			return "", nil, fault.New(fault.Invalid, "invalid_condition", "Invalid condition", "one of "+strings.Join(Conditions, ", ")).Got(f.Is)
		}
	}
	if f.Sort != "" {
		if err := known(f.Sort); err != nil {
			return "", nil, err
		}
		q += " ORDER BY " + quote(f.Sort)
		if f.Descending {
			q += " DESC"
		}
	}
	return q, args, nil
}

// Formats are those of Export.
var Formats = []string{"csv", "sql"}

// Export writes the rows of a table that a filter chooses, all pages of them, as CSV or as SQL that inserts them.
func (d *Databases) Export(ctx context.Context, who Person, x Database, f Filter, format string, w io.Writer) error {
	if !slices.Contains(Formats, format) {
		return fault.New(fault.Invalid, "invalid_format", "Invalid format", "one of "+strings.Join(Formats, ", ")).Got(format)
	}
	q, args, err := d.selection(ctx, who, x, f)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, exportTime)
	defer cancel()
	conn, err := d.console(ctx, who, x, maxExported)
	if err != nil {
		return err
	}
	defer conn.done()
	if err := begin(ctx, conn.Conn, false, exportTime); err != nil {
		return conn.explain(err)
	}
	rows, err := conn.QueryContext(ctx, q, args...)
	if err != nil {
		return conn.explain(err)
	}
	columns, err := rows.Columns()
	if err != nil {
		return conn.explain(err)
	}
	read := newReader(rows, len(columns))
	if format == "csv" {
		err = writeCSV(w, rows, read, columns)
	} else {
		err = writeSQL(w, rows, read, f.Table, columns)
	}
	return conn.explain(errors.Join(err, rows.Err()))
}

func writeCSV(w io.Writer, rows *sql.Rows, read *reader, columns []string) error {
	out := csv.NewWriter(w)
	if err := out.Write(columns); err != nil {
		return err
	}
	line := make([]string, len(columns))
	for rows.Next() {
		row, err := read.row()
		if err != nil {
			return err
		}
		for i, c := range row {
			line[i] = c.Text
		}
		if err := out.Write(line); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

func writeSQL(w io.Writer, rows *sql.Rows, read *reader, table string, columns []string) error {
	names := make([]string, len(columns))
	for i, c := range columns {
		names[i] = quote(c)
	}
	// Text is escaped as with backslashes, which a mode may turn off.
	if _, err := io.WriteString(w, "SET NAMES utf8mb4;\nSET SESSION sql_mode = '';\n"); err != nil {
		return err
	}
	head := "INSERT INTO " + quote(table) + " (" + strings.Join(names, ", ") + ") VALUES ("
	escape := strings.NewReplacer(`\`, `\\`, "'", `\'`, "\x00", `\0`, "\n", `\n`, "\r", `\r`, "\x1a", `\Z`)
	for rows.Next() {
		row, err := read.row()
		if err != nil {
			return err
		}
		values := make([]string, len(row))
		for i, c := range row {
			switch {
			case c.Null:
				values[i] = "NULL"
			case c.Text == "0x":
				values[i] = "''"
			case read.binary[i] || strings.HasPrefix(c.Text, "0x") && !utf8.Valid(read.raw[i]):
				values[i] = c.Text
			default:
				values[i] = "'" + escape.Replace(c.Text) + "'"
			}
		}
		if _, err := io.WriteString(w, head+strings.Join(values, ", ")+");\n"); err != nil {
			return err
		}
	}
	return nil
}

// maxShort caps a value in a list of rows, in bytes.
const maxShort = 300

// Short returns the beginning of the value.
func (c Cell) Short() string { return text.Clip(c.Text, maxShort) }
