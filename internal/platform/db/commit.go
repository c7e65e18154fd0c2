package db

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// A commit whose answer is lost took place or not. Each transaction of Write that changes something on PostgreSQL therefore leaves a
// mark in commit_marks, which goes with COMMIT in one round trip. After a lost answer, settle writes the same mark: a conflict says that
// the transaction was committed; otherwise it never can be, not even when its COMMIT is still under way or the server fails over.

// markText leaves out transactions that changed nothing.
const (
	markText  = `INSERT INTO commit_marks (id) SELECT $1 WHERE txid_current_if_assigned() IS NOT NULL`
	settle    = `INSERT INTO commit_marks (id, barred) VALUES ($1, TRUE) ON CONFLICT (id) DO UPDATE SET id = excluded.id RETURNING barred`
	markKept  = time.Hour // longer than any commit is under way, or anybody repeats a write
	markTidy  = time.Minute
	markBatch = 10_000
)

// settleTime is how long Write tries to reach the database again.
const settleTime = 6 * time.Second

var (
	errNoAnswer = errors.New("no answer to the commit")
	errDropped  = errors.New("the transaction was lost and not committed")
	errUnknown  = errors.New("it is unknown whether the transaction was committed")
)

// Unknown reports whether err says that a Write may or may not have been committed, and that the database didn't answer when it was
// asked. A caller that repeats such a write passes a mark (MarkTx) or writes what may be written twice.
func Unknown(err error) bool { return errors.Is(err, errUnknown) }

// Fault is what a test has go wrong with a commit.
type Fault int

// The faults.
const (
	Sound   Fault = iota
	Dropped       // not committed, and the connection is lost
	Muted         // committed, and the answer is lost
	Silent        // committed, and the database doesn't answer later, either
	Gone          // not committed, and the database doesn't answer later, either
)

// Faults returns what goes wrong with each commit.
type Faults interface{ Next() Fault }

type markingKey struct{}

// marking returns the context to begin a transaction of Write with.
func (d *DB) marking(ctx context.Context, t *Tx) context.Context {
	if d.single {
		return ctx
	}
	if d.marked.Load() {
		t.mark = NewID("cm")
	}
	return context.WithValue(ctx, markingKey{}, t)
}

// commit commits, and finds out whether it did where the answer is lost. Its error says that the transaction was not committed, unless
// it is one that Unknown reports.
func (d *DB) commit(ctx context.Context, sqlTx *sql.Tx, t *Tx) error {
	fault := Sound
	if d.faults != nil {
		fault = d.faults.Next()
	}
	var err error
	switch fault {
	case Dropped, Gone:
		err = errors.Join(errNoAnswer, sqlTx.Rollback())
	default:
		err = sqlTx.Commit()
	}
	switch {
	case err == nil && fault == Muted && t.mark != "":
		err = errNoAnswer
	case err == nil && fault == Silent, fault == Gone:
		return errUnknown
	}
	if !errors.Is(err, errNoAnswer) {
		return err
	}
	if d.single { // an injected one
		return errDropped
	}
	if t.mark == "" {
		return fmt.Errorf("%w: %w", errUnknown, err)
	}
	limit, waited := d.limit(ctx, settleTime)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	for {
		var barred bool
		asked := d.write.QueryRowContext(ctx, settle, t.mark).Scan(&barred)
		switch {
		case asked == nil && barred:
			return fmt.Errorf("%w: %w", errDropped, err)
		case asked == nil:
			d.log.InfoContext(ctx, "commit confirmed after its answer was lost")
			return nil
		}
		select {
		case <-ctx.Done():
			waited(true)
			return fmt.Errorf("%w: %w: %w", errUnknown, err, asked)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// MarkTx leaves a mark of the caller's, which NewMark made, and reports false if an earlier transaction left it: a write whose outcome was
// unknown is then already there. Marks are kept for an hour.
func (t *Tx) MarkTx(ctx context.Context, mark string) (first bool, err error) {
	n, err := t.Exec(ctx, `INSERT INTO commit_marks (id) VALUES ($1) ON CONFLICT (id) DO NOTHING`, mark)
	if err != nil {
		return false, fmt.Errorf("leave mark: %w", err)
	}
	return n == 1, nil
}

// NewMark returns a mark for MarkTx.
func NewMark() string { return NewID("cm") }

// forgetMarks deletes marks that are older than they are kept.
func (d *DB) forgetMarks(ctx context.Context) error {
	for {
		n, err := func() (n int64, err error) {
			err = d.Write(ctx, func(tx *Tx) error {
				n, err = tx.Exec(ctx, `
					DELETE FROM commit_marks WHERE id IN (SELECT id FROM commit_marks WHERE id < $1 ORDER BY id LIMIT $2`+tx.SkipLocked()+`)`,
					FirstID("cm", Now().Add(-markKept)), markBatch)
				return err
			})
			return n, err
		}()
		if err != nil || n < markBatch {
			return err
		}
	}
}
