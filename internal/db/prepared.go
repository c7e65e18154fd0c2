package db

import (
	"context"
	"database/sql"
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
	s, err := d.read.PrepareContext(ctx, q)
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
	return d.read.QueryContext(ctx, q, args...)
}

// QueryRow runs a statement that reads one row.
func (d *DB) QueryRow(ctx context.Context, q string, args ...any) *sql.Row {
	d.seen(q)
	if s := d.reading(ctx, q); s != nil {
		return s.QueryRowContext(ctx, args...)
	}
	return d.read.QueryRowContext(ctx, q, args...)
}
