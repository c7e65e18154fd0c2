package db

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// What waits for PostgreSQL waits for three things: a free connection, a new connection, and answers. Each has its limit, and all that
// one request waits for has one together: somebody waits for its answer.

// requestSpare is how much less than a write's longest wait for its turn a request waits for a database that doesn't answer.
const requestSpare = 2 * time.Second

// requestForgets is after how long a request that goes on for long, such as a stream, waits anew.
const requestForgets = 30 * time.Second

type requestKey struct{}

// request counts how long one has waited in vain.
type request struct {
	mu     sync.Mutex // guards the rest
	waited time.Duration
	last   time.Time
}

// ForRequest returns the context of a request that is answered within 10 seconds even if PostgreSQL doesn't answer: all its statements
// together wait in vain for 8 seconds at most, two less than [Config.Wait].
func ForRequest(ctx context.Context) context.Context {
	return context.WithValue(ctx, requestKey{}, new(request))
}

// limit returns how long something that waits for the database may wait under ctx, most at most, and what to call with whether it did so
// in vain.
func (d *DB) limit(ctx context.Context, most time.Duration) (limit time.Duration, end func(vain bool)) {
	r, _ := ctx.Value(requestKey{}).(*request)
	if r == nil {
		return most, func(bool) {}
	}
	begun := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if begun.Sub(r.last) > requestForgets {
		r.waited = 0
	}
	return min(most, max(d.wait-requestSpare-r.waited, time.Millisecond)), func(vain bool) {
		if vain {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.last = time.Now()
			r.waited += r.last.Sub(begun)
		}
	}
}

// errNoConnection is what Busy reports of a statement outside of a write.
var errNoConnection = errors.New("no connection to the database was free in time")

type freeKey struct{}

// free is the context of a statement outside of a transaction, which ends if no connection is free in time: database/sql waits for one as
// long as the context lasts.
type free struct {
	context.Context
	timer *time.Timer
	got   atomic.Bool // there is a connection
}

// Err is the cause if there was no connection.
func (f *free) Err() error {
	if context.Cause(f.Context) == errNoConnection {
		return errNoConnection
	}
	return f.Context.Err()
}

func (d *DB) waitFree(ctx context.Context) *free {
	limit, waited := d.limit(ctx, d.wait)
	ctx, cancel := context.WithCancelCause(ctx)
	f := &free{}
	f.Context = context.WithValue(ctx, freeKey{}, f)
	f.timer = time.AfterFunc(limit, func() {
		if f.got.Load() {
			cancel(nil)
			return
		}
		waited(true)
		cancel(errNoConnection)
	})
	return f
}

// got says that there is a connection. It may be called more than once.
func got(ctx context.Context) {
	if f, _ := ctx.Value(freeKey{}).(*free); f != nil {
		f.got.Store(true)
		f.timer.Stop()
	}
}

// done has the context end in a while, and be forgotten by the one that it was made of: now, the rows could take it for their end.
func done(ctx context.Context) {
	if f, _ := ctx.Value(freeKey{}).(*free); f != nil {
		f.timer.Reset(time.Second)
	}
}

// conn takes a connection for a transaction that reads.
func (d *DB) conn(ctx context.Context) (*sql.Conn, error) {
	limit, waited := d.limit(ctx, d.wait)
	wait, cancel := context.WithTimeoutCause(ctx, limit, errNoConnection)
	defer cancel()
	conn, err := d.read.Conn(wait)
	if err != nil && context.Cause(wait) == errNoConnection {
		waited(true)
		err = errNoConnection
	}
	return conn, err
}
