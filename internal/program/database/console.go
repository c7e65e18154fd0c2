package database

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/hex"
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
	maxDiscarded  = 256 << 20 // of a statement that may write: what is over maxAnswer is read and dropped
	maxExported   = 512 << 20
	maxTables     = 2000
	maxColumnsOf  = 4096 // MariaDB's own limit
	consoleMemory = 64 << 20
)

func newConsoles() *fair.Pool {
	// share: total 8 queries of people; owner 2, 1 of a user; edge 429
	return fair.New(fair.Config{Places: 8, Owner: 2, Site: 1})
}

func newExports() *fair.Pool {
	// share: total 2 exports of tables, each of which may hold a row of 64 MiB; owner 1; edge 429
	return fair.New(fair.Config{Places: 2, Owner: 1})
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

	insertable bool // without columns that the server computes
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
func (d *Databases) console(ctx context.Context, who Person, x Database, pool *fair.Pool, most int64) (_ *console, err error) {
	var over atomic.Bool
	if x.Status != Active {
		return nil, fault.New(fault.Conflict, "database_not_ready", "The database is not ready", "its status is "+string(x.Status))
	}
	release, ok := pool.Try(fair.Who{Owner: string(who.Owner), Site: string(who.User)})
	if !ok {
		details := "a user runs one query at a time, an account two, and this server eight"
		if pool == d.exports {
			details = "an account exports one table at a time, and this server two"
		}
		return nil, &fault.Error{
			Kind: fault.Limited, Message: "Too many queries are running", Details: details + "; try again in a moment",
			Code: "too_many_queries", RetryAfter: 2 * time.Second,
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
	a, away, err := s.use(ctx)
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
	own := sql.OpenDB(connector)
	// share: none, one connection of one person
	own.SetMaxOpenConns(1)
	closeAll := func() {
		_ = own.Close()
		away()
	}
	conn, err := own.Conn(ctx)
	if err != nil {
		closeAll()
		return nil, explain(err)
	}
	var number int64
	if err := conn.QueryRowContext(ctx, "SELECT CONNECTION_ID()").Scan(&number); err != nil {
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
		// A statement may have lifted its own bound, and rows may be left: neither outlives the connection.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_, _ = a.sql.ExecContext(ctx, fmt.Sprintf("KILL %d", number)) // an error: it has ended
		_ = conn.Raw(func(any) error { return driver.ErrBadConn })
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
	left := int64(maxAnswer)
	if q.Write {
		left = maxDiscarded
	}
	conn, err := d.console(ctx, who, x, d.consoles, left)
	if err != nil {
		return out, err
	}
	defer func() {
		cancel() // ends rows that weren't read to their end: done waits for them
		conn.done()
	}()
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
			if q.Write { // its rows are read to their end: a change that is cut off may be undone
				continue
			}
			break
		}
		row, err := read.row()
		if err != nil {
			return out, conn.explain(err)
		}
		size := 0
		for _, c := range row {
			size += len(c.Text)
		}
		if left -= int64(size); q.Write && left < maxDiscarded-maxAnswer {
			out.More = true
			most = len(out.Rows)
			continue
		}
		out.Rows = append(out.Rows, row)
	}
	out.Took = time.Since(begun)
	if out.More && !q.Write {
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
	got, err := d.ask(ctx, who, x, Statement{SQL: `SELECT column_name, COALESCE(is_generated, '') FROM information_schema.columns
		WHERE table_schema = DATABASE() AND table_name = ? ORDER BY ordinal_position`}, maxColumnsOf, f.Table)
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
	what := "*"
	if f.insertable {
		var names []string
		for _, r := range got.Rows {
			if r[1].Text != "ALWAYS" {
				names = append(names, quote(r[0].Text))
			}
		}
		what = strings.Join(names, ", ")
	}
	q = "SELECT " + what + " FROM " + quote(f.Table)
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
	f.insertable = format == "sql"
	q, args, err := d.selection(ctx, who, x, f)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, exportTime)
	defer cancel()
	conn, err := d.console(ctx, who, x, d.exports, maxExported)
	if err != nil {
		return err
	}
	defer func() {
		cancel() // ends rows that weren't read to their end: done waits for them
		conn.done()
	}()
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
	out := bufio.NewWriterSize(w, 64<<10)
	if format == "csv" {
		err = writeCSV(out, newReader(rows, len(columns)), columns)
	} else {
		err = writeSQL(out, newReader(rows, len(columns)), f.Table, columns)
	}
	return conn.explain(errors.Join(err, rows.Err(), out.Flush()))
}

// next reads a row into raw and reports whether there is one.
func (r *reader) next() (bool, error) {
	if !r.rows.Next() {
		return false, nil
	}
	return true, r.rows.Scan(r.into...)
}

// hexed reports whether a value is written in hexadecimal digits.
func (r *reader) hexed(i int) bool { return r.binary[i] || !utf8.Valid(r.raw[i]) }

// writeCSV writes rows as RFC 4180 has them. Values are written piece by piece: one may have many megabytes.
func writeCSV(w *bufio.Writer, read *reader, columns []string) error {
	field := func(i int, b []byte) {
		if i > 0 {
			_ = w.WriteByte(',')
		}
		if !bytes.ContainsAny(b, "\",\r\n") {
			_, _ = w.Write(b)
			return
		}
		_ = w.WriteByte('"')
		for part := range bytes.SplitAfterSeq(b, []byte{'"'}) {
			_, _ = w.Write(part)
			if bytes.HasSuffix(part, []byte{'"'}) {
				_ = w.WriteByte('"')
			}
		}
		_ = w.WriteByte('"')
	}
	for i, c := range columns {
		field(i, []byte(c))
	}
	_ = w.WriteByte('\n')
	for {
		more, err := read.next()
		if !more || err != nil {
			return err
		}
		for i, b := range read.raw {
			if b != nil && read.hexed(i) {
				field(i, []byte("0x"))
				_, _ = hex.NewEncoder(w).Write(b)
				continue
			}
			field(i, b)
		}
		if err := w.WriteByte('\n'); err != nil { // the first error of a write stays
			return err
		}
	}
}

// writeSQL writes rows as statements that insert them. Values are written piece by piece: one may have many megabytes.
func writeSQL(w *bufio.Writer, read *reader, table string, columns []string) error {
	names := make([]string, len(columns))
	for i, c := range columns {
		names[i] = quote(c)
	}
	// Text is escaped with backslashes, which another mode turns off; and a 0 is no wish for a number.
	_, _ = w.WriteString("SET NAMES utf8mb4;\nSET SESSION sql_mode = 'NO_AUTO_VALUE_ON_ZERO';\n")
	head := "INSERT INTO " + quote(table) + " (" + strings.Join(names, ", ") + ") VALUES ("
	escape := map[byte]string{'\\': `\\`, '\'': `\'`, 0: `\0`, '\n': `\n`, '\r': `\r`, 0x1a: `\Z`}
	for {
		more, err := read.next()
		if !more || err != nil {
			return err
		}
		_, _ = w.WriteString(head)
		for i, b := range read.raw {
			if i > 0 {
				_, _ = w.WriteString(", ")
			}
			switch {
			case b == nil:
				_, _ = w.WriteString("NULL")
			case len(b) > 0 && read.hexed(i):
				_, _ = w.WriteString("0x")
				_, _ = hex.NewEncoder(w).Write(b)
			default:
				_ = w.WriteByte('\'')
				for _, c := range b {
					if text, special := escape[c]; special {
						_, _ = w.WriteString(text)
					} else {
						_ = w.WriteByte(c)
					}
				}
				_ = w.WriteByte('\'')
			}
		}
		if _, err := w.WriteString(");\n"); err != nil { // the first error of a write stays
			return err
		}
	}
}

// maxShort caps a value in a list of rows, in bytes.
const maxShort = 300

// Short returns the beginning of the value.
func (c Cell) Short() string { return text.Clip(c.Text, maxShort) }
