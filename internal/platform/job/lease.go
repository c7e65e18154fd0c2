package job

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"slipway/internal/platform/db"
)

// LeaseTime is how long a lease lasts unless it is renewed. It is renewed, and the
// leases of others are examined, every quarter of it: work of a node that died is taken
// over after at most five quarters, which is 20 s.
const LeaseTime = 16 * time.Second

// Leases keeps what this process has leased from a queue, which is a table with a
// column that says until when a row is leased and one that counts its leases. The count
// is the fencing token: every write of the holder names it in its WHERE, so that a
// holder who lost the lease changes nothing.
type Leases struct {
	DB  *db.DB
	Log *slog.Logger
	For time.Duration // Optional: 0 means LeaseTime.

	// Renew writes until into the row, if token is still the row's. It returns ErrLost
	// when it is not, and ErrCanceled when the work is to end; either ends the context of
	// the work. Any other error is of the database, and the next turn tries again.
	Renew func(ctx context.Context, tx *db.Tx, key string, token int64, until db.Time) error

	mu sync.Mutex // guards held, and until of each
	// share: total the jobs, orders and checks that run here; owner its share of their queues; edge gone with the work
	held map[string]*lease
}

// lease is one row that this process holds.
type lease struct {
	key   string
	token int64
	until time.Time // as last written
	end   context.CancelCauseFunc
}

// Time is how long a lease lasts.
func (l *Leases) Time() time.Duration { return cmp.Or(l.For, LeaseTime) }

// Hold registers a row that was leased just now for Time. The context that
// it returns ends with ErrLost once somebody else may have leased the row. The caller
// calls release when the end of the work is written.
func (l *Leases) Hold(ctx context.Context, key string, token int64) (held context.Context, release func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	h := &lease{key: key, token: token, until: time.Now().Add(l.Time()), end: cancel}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held == nil {
		l.held = map[string]*lease{}
	}
	l.held[key] = h
	return ctx, func() {
		cancel(nil)
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.held[key] == h {
			delete(l.held, key)
		}
	}
}

// RenewAll renews every lease once. Run calls it; whoever hears that something was
// canceled may call it sooner.
func (l *Leases) RenewAll(ctx context.Context) error {
	held := l.all()
	if len(held) == 0 {
		return nil
	}
	until, written := time.Now().Add(l.Time()), l.DB.Now().Add(l.Time())
	ends := map[*lease]error{}
	err := l.DB.Write(ctx, func(tx *db.Tx) error {
		clear(ends)
		for _, h := range held {
			err := l.Renew(ctx, tx, h.key, h.token, written)
			switch {
			case errors.Is(err, ErrLost), errors.Is(err, ErrCanceled):
				ends[h] = err
			case err != nil:
				return fmt.Errorf("renew lease of %s: %w", h.key, err)
			}
		}
		return nil
	})
	for _, h := range held {
		l.mu.Lock()
		if err == nil && ends[h] == nil {
			h.until = until
		}
		late := time.Now().After(h.until)
		l.mu.Unlock()
		switch {
		case ends[h] != nil && err == nil:
			h.end(ends[h])
		case err != nil && late && !l.DB.Single():
			// Nobody could tell the others that we are alive: the row is theirs by now.
			h.end(ErrLost)
		}
	}
	return err
}

// Run renews until ctx ends, which is after the last work has ended.
func (l *Leases) Run(ctx context.Context) {
	tick := time.NewTicker(l.Time() / 4)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		bounded, cancel := context.WithTimeout(ctx, l.Time()/2)
		if err := l.RenewAll(bounded); err != nil && ctx.Err() == nil {
			l.Log.ErrorContext(ctx, "leases not renewed", "err", err)
		}
		cancel()
	}
}

func (l *Leases) all() []*lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]*lease, 0, len(l.held))
	for _, h := range l.held {
		out = append(out, h)
	}
	return out
}

// keys returns the rows that this process holds.
func (l *Leases) keys() []string {
	var out []string
	for _, h := range l.all() {
		out = append(out, h.key)
	}
	return out
}
