package db

import (
	"context"
	"database/sql"
	"strconv"
	"strings"
	"sync"
)

// maxPrepared bounds what is kept for texts that are put together as they are needed;
// the program's own are about a hundred.
const maxPrepared = 300

// prepared keeps what SQLite's readers have made of a statement, by its text: for most of
// ours, understanding it takes longer than running it. PostgreSQL's driver does the same
// by itself.
type prepared struct {
	mu sync.RWMutex // guards by
	// share: none, the program's own statements: 300
	by map[string]*sql.Stmt
}

// reading returns the statement as it was prepared, or nil where it is to be run as text:
// then an error in it shows as it always did.
func (d *DB) reading(ctx context.Context, q string) *sql.Stmt {
	if !d.single {
		return nil
	}
	p := &d.prepared
	p.mu.RLock()
	s, full := p.by[q], len(p.by) >= maxPrepared
	p.mu.RUnlock()
	if s != nil || full {
		return s
	}
	s, err := d.read.PrepareContext(ctx, unnumbered(q))
	if err != nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if other := p.by[q]; other != nil { // somebody was quicker
		s.Close()
		return other
	}
	if p.by == nil {
		p.by = map[string]*sql.Stmt{}
	}
	p.by[q] = s
	return s
}

// Query runs a statement that reads. The caller closes the rows; Collect does.
func (d *DB) Query(ctx context.Context, q string, args ...any) (*sql.Rows, error) {
	d.seen(q)
	if s := d.reading(ctx, q); s != nil {
		return s.QueryContext(ctx, args...)
	}
	if d.single {
		return d.read.QueryContext(ctx, q, args...)
	}
	return d.read.QueryContext(d.waitFree(ctx), q, args...)
}

// QueryRow runs a statement that reads one row.
func (d *DB) QueryRow(ctx context.Context, q string, args ...any) *sql.Row {
	d.seen(q)
	if s := d.reading(ctx, q); s != nil {
		return s.QueryRowContext(ctx, args...)
	}
	if d.single {
		return d.read.QueryRowContext(ctx, q, args...)
	}
	return d.read.QueryRowContext(d.waitFree(ctx), q, args...)
}

// writing keeps what SQLite's one writer has made of the statements that come again and
// again. A statement is prepared between two transactions, when the writer's connection
// is free; the transactions before that ran it as text.
type writing struct {
	mu sync.Mutex // guards both
	// share: none, the program's own statements: 300
	by map[string]*sql.Stmt
	// share: none, the program's own statements: 2,000
	seen map[string]int
}

// Statements are prepared when they have run prepareAfter times, and counted as long as
// there are no more than maxCounted.
const (
	prepareAfter = 3
	maxCounted   = 2000
)

// prepared returns the statement for this transaction, or nil where it is to be run as text.
func (t *Tx) prepared(ctx context.Context, q string) *sql.Stmt {
	if !t.d.single {
		return nil
	}
	if t.reads { // it knows the readers' statements, not the writer's; to prepare one it would need a second connection
		p := &t.d.prepared
		p.mu.RLock()
		s := p.by[q]
		p.mu.RUnlock()
		if s == nil {
			return nil
		}
		return t.tx.StmtContext(ctx, s)
	}
	w := &t.d.writing
	w.mu.Lock()
	s := w.by[q]
	w.mu.Unlock()
	if s == nil {
		t.ran = append(t.ran, q)
		return nil
	}
	return t.tx.StmtContext(ctx, s)
}

// learn prepares what a transaction ran as text and others did before.
func (w *writing) learn(d *sql.DB, t *Tx) {
	if !t.d.single {
		return
	}
	var due []string
	w.mu.Lock()
	if w.by == nil {
		w.by, w.seen = map[string]*sql.Stmt{}, map[string]int{}
	}
	for _, q := range t.ran {
		if n := w.seen[q]; n == 0 && len(w.seen) >= maxCounted || len(w.by)+len(due) >= maxPrepared {
			continue
		}
		if w.seen[q]++; w.seen[q] == prepareAfter {
			due = append(due, q)
		}
	}
	w.mu.Unlock()
	for _, q := range due {
		s, err := d.Prepare(unnumbered(q))
		if err != nil {
			continue // run as text it shows its error as it always did
		}
		w.mu.Lock()
		w.by[q] = s
		w.mu.Unlock()
	}
}

// unnumbered returns a statement whose parameters come once each, in the order of their
// numbers, with a ? for each, and any other as it is. SQLite keeps numbered ones as names, and
// its driver looks up each by going through all: with hundreds of them this took longer than
// the statement.
func unnumbered(q string) string {
	if strings.Contains(q, "--") || strings.Contains(q, "/*") || strings.Contains(q, "?") {
		return q
	}
	var b strings.Builder
	n, quoted := 0, false
	for i := 0; i < len(q); i++ {
		if q[i] == '\'' || q[i] == '"' {
			quoted = !quoted
		}
		if q[i] != '$' || quoted {
			b.WriteByte(q[i])
			continue
		}
		end := i + 1
		for end < len(q) && q[end] >= '0' && q[end] <= '9' {
			end++
		}
		if n++; q[i+1:end] != strconv.Itoa(n) {
			return q
		}
		b.WriteByte('?')
		i = end - 1
	}
	return b.String()
}
