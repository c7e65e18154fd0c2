package db

import (
	"context"
	"fmt"
	"sync"
	"time"

	"slipway/internal/platform/panics"
)

// Batch runs writes that are asked for at the same moment in one transaction, each in a
// savepoint of its own: one waits for the disk once for all of them. It is for what comes in
// bursts. Writes of different shares are never in one transaction: they take turns as ever.
type Batch struct {
	db *DB
	mu sync.Mutex // guards lanes
	// share: total the shares that have writes waiting; owner a lane of its own, written in turn; edge waits, 10 s at most
	lanes map[string][]*batched
}

// batched is a write that waits for its transaction.
type batched struct {
	fn   func(ctx context.Context, tx *Tx) error
	err  error
	done chan struct{} // closed when err counts
}

const (
	maxBatch  = 64 // writes in one transaction
	batchTime = 30 * time.Second
)

// NewBatch returns a Batch of the database.
func (d *DB) NewBatch() *Batch { return &Batch{db: d, lanes: map[string][]*batched{}} }

// Write is [DB.Write], in one transaction with others. fn gets a context of its own, which does
// not end with ctx: an interrupted statement would end the whole transaction. When ctx ends
// before fn began, fn never runs. fn may run again.
func (b *Batch) Write(ctx context.Context, fn func(ctx context.Context, tx *Tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	w, share := &batched{fn: fn, done: make(chan struct{})}, Share(ctx)
	b.mu.Lock()
	waiting, led := b.lanes[share]
	b.lanes[share] = append(waiting, w)
	b.mu.Unlock()
	if !led { // whoever finds the lane empty sees to it until it is empty again
		// uncaught: safely catches
		go b.lead(context.WithoutCancel(ctx), share)
	}
	select {
	case <-w.done:
		return w.err
	case <-ctx.Done():
	}
	if b.leave(share, w) {
		return ctx.Err()
	}
	<-w.done
	return w.err
}

// leave takes a write out of its lane. It reports false when its transaction has begun.
func (b *Batch) leave(share string, w *batched) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, other := range b.lanes[share] {
		if other == w {
			b.lanes[share] = append(b.lanes[share][:i:i], b.lanes[share][i+1:]...)
			return true
		}
	}
	return false
}

func (b *Batch) lead(ctx context.Context, share string) {
	for {
		b.mu.Lock()
		all := b.lanes[share]
		if len(all) == 0 {
			delete(b.lanes, share)
			b.mu.Unlock()
			return
		}
		b.mu.Unlock()
		b.run(ctx, func() []*batched { // once it is this share's turn: more may have come
			b.mu.Lock()
			defer b.mu.Unlock()
			all := b.lanes[share]
			n := min(len(all), maxBatch)
			b.lanes[share] = all[n:]
			return all[:n:n]
		})
	}
}

// run runs the writes that take returns.
func (b *Batch) run(ctx context.Context, take func() []*batched) {
	ctx, cancel := context.WithTimeout(ctx, batchTime)
	defer cancel()
	var list []*batched
	taken := false
	err := b.db.Write(ctx, func(tx *Tx) error {
		if !taken {
			list, taken = take(), true
		}
		if len(list) == 1 { // nobody's work is lost with its own
			return safely(ctx, tx, list[0].fn)
		}
		for _, w := range list {
			var fatal error
			if w.err, fatal = tx.savepoint(ctx, w.fn); fatal != nil {
				return fatal
			}
		}
		return nil
	})
	if !taken {
		list = take() // they waited as long as any write may
	}
	for _, w := range list {
		switch {
		case err == nil:
		case len(list) > 1 && ctx.Err() == nil && !Busy(err) && !Full(err) && !Lost(err): // what broke it may have been one of them
			w.err = b.db.Write(ctx, func(tx *Tx) error { return safely(ctx, tx, w.fn) })
		default:
			w.err = err
		}
		close(w.done)
	}
}

// savepoint runs fn so that nothing of it is left when it fails. fatal says that the whole
// transaction can't go on.
func (t *Tx) savepoint(ctx context.Context, fn func(ctx context.Context, tx *Tx) error) (err, fatal error) {
	if _, err := t.Exec(ctx, "SAVEPOINT one"); err != nil {
		return nil, fmt.Errorf("savepoint: %w", err)
	}
	topics, after := len(t.topics), len(t.after)
	if err = safely(ctx, t, fn); err != nil {
		t.topics, t.after = t.topics[:topics], t.after[:after]
		if _, fatal := t.Exec(ctx, "ROLLBACK TO SAVEPOINT one"); fatal != nil {
			return nil, fmt.Errorf("roll back to savepoint: %w", fatal)
		}
	}
	if _, fatal := t.Exec(ctx, "RELEASE SAVEPOINT one"); fatal != nil {
		return nil, fmt.Errorf("release savepoint: %w", fatal)
	}
	return err, nil
}

// safely turns a panic of fn into an error: it runs beside writes of others, and in no
// goroutine of its caller.
func safely(ctx context.Context, t *Tx, fn func(ctx context.Context, tx *Tx) error) error {
	return panics.Call(func() error { return fn(ctx, t) })
}
