// Package ratelimit owns rate limits, counted in exact fixed windows.
//
// A window of 60 s begins with a key's first request, and lets exactly the limit's number of requests pass, even
// concurrent ones. A single node counts in memory. Several nodes count in their shared database, and answer keys over
// their limit from memory until the window ends. Nodes compare their own clocks, which must agree. The package knows
// nothing about HTTP and never waits.
package ratelimit

import (
	"cmp"
	"context"
	"fmt"
	"hash/maphash"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"slipway/internal/platform/db"
)

type Config struct {
	DB     *db.DB
	Log    *slog.Logger
	Length time.Duration // length of a window. Optional: 0 means a minute.
	Shared bool          // count in the database even if only one process uses it. Optional.
	Keys   int           // keys per class in memory. Optional: 0 means 200,000 (about 30 MB).
}

// Window is the result of one Take.
type Window struct {
	Limit     int
	Remaining int       // requests left after this one
	Ends      time.Time // when the window ends
	Allowed   bool
}

// Reset returns the first whole Unix second after the window's end.
func (w Window) Reset() int64 {
	return (w.Ends.UnixNano() + int64(time.Second) - 1) / int64(time.Second)
}

// Wait returns the whole seconds until the window has ended, at least 1.
func (w Window) Wait() int64 { return max(1, int64((time.Until(w.Ends)+time.Second-1)/time.Second)) }

// Limiter counts requests. It is safe for concurrent use.
type Limiter struct {
	db     *db.DB
	log    *slog.Logger
	length time.Duration
	most   int
	shared bool
	seed   maphash.Seed

	mu sync.Mutex // guards classes and what is in them
	// share: total 200,000 keys of each class; owner one window for each key, credential or network; edge newcomers share 1,024 windows
	classes map[string]map[string]*window
}

// window counts one key in memory. With several nodes, only keys over their limit have one.
type window struct {
	n    int
	ends time.Time
}

// New returns a limiter. It counts in the database if several processes may use it.
func New(c Config) *Limiter {
	return &Limiter{
		db:      c.DB,
		log:     cmp.Or(c.Log, slog.New(slog.DiscardHandler)),
		length:  cmp.Or(c.Length, time.Minute),
		most:    cmp.Or(c.Keys, 200_000),
		shared:  c.Shared || c.DB != nil && !c.DB.Single(),
		seed:    maphash.MakeSeed(),
		classes: map[string]map[string]*window{},
	}
}

// Take counts one request of the key, and reports in the Window whether it is within the limit. Keys are "class:rest".
// A class that fills memory, such as strangers' addresses, doesn't evict another, such as users' keys. Errors come from
// the database.
func (l *Limiter) Take(ctx context.Context, key string, limit int) (Window, error) {
	if !l.shared {
		return l.local(key, limit, time.Now()), nil
	}
	now := time.Now()
	if w, over := l.over(key, limit, now); over {
		return w, nil
	}
	var n int
	var ends db.Time
	err := l.db.Write(ctx, func(tx *db.Tx) error {
		return tx.QueryRow(ctx, `
			INSERT INTO rate_windows (key, n, ends_at) VALUES ($1, 1, $2)
			ON CONFLICT (key) DO UPDATE SET
			  n = CASE WHEN rate_windows.ends_at <= $3 THEN 1 ELSE rate_windows.n + 1 END,
			  ends_at = CASE WHEN rate_windows.ends_at <= $3 THEN excluded.ends_at ELSE rate_windows.ends_at END
			RETURNING n, ends_at`, key, db.At(now.Add(l.length)), db.At(now)).Scan(&n, &ends)
	})
	if err != nil {
		return Window{Limit: limit, Ends: now.Add(l.length)}, fmt.Errorf("take from window: %w", err)
	}
	if n > limit {
		l.mu.Lock()
		if c := l.class(key); len(c) < l.most {
			c[key] = &window{n, ends.Time()}
		}
		l.mu.Unlock()
	}
	return Window{limit, max(0, limit-n), ends.Time(), n <= limit}, nil
}

// over reports whether this node knows that the key's window is used up.
func (l *Limiter) over(key string, limit int, now time.Time) (Window, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.class(key)
	w := c[key]
	if w == nil {
		return Window{}, false
	}
	if !now.Before(w.ends) {
		delete(c, key)
		return Window{}, false
	}
	return Window{limit, 0, w.ends, false}, w.n > limit
}

// local counts in memory.
func (l *Limiter) local(key string, limit int, now time.Time) Window {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.class(key)
	w := c[key]
	if w == nil && len(c) >= l.most {
		// No room: new keys share a few windows, which limits memory and never allows more than the limit.
		// anybody have more than the limit.
		key = "full " + strconv.FormatUint(maphash.String(l.seed, key)%1024, 10)
		w = c[key]
	}
	if w == nil || !now.Before(w.ends) {
		w = &window{ends: now.Add(l.length)}
		c[key] = w
	}
	w.n++
	return Window{limit, max(0, limit-w.n), w.ends, w.n <= limit}
}

// class returns the windows of a key's class. The caller holds mu.
func (l *Limiter) class(key string) map[string]*window {
	name, _, _ := strings.Cut(key, ":")
	if l.classes[name] == nil {
		l.classes[name] = map[string]*window{}
	}
	return l.classes[name]
}

// Run deletes ended windows from memory and the database until ctx ends.
func (l *Limiter) Run(ctx context.Context) error {
	tick := time.NewTicker(l.length / 2)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if err := l.purge(ctx, time.Now()); err != nil && ctx.Err() == nil {
				l.log.WarnContext(ctx, "ended rate windows not removed, will be retried", "err", err)
			}
		}
	}
}

func (l *Limiter) purge(ctx context.Context, now time.Time) error {
	l.mu.Lock()
	for _, c := range l.classes {
		for key, w := range c {
			if !now.Before(w.ends) {
				delete(c, key)
			}
		}
	}
	l.mu.Unlock()
	if !l.shared {
		return nil
	}
	return l.db.Write(ctx, func(tx *db.Tx) error {
		// Windows are kept longer than they last, for nodes whose clocks are behind.
		_, err := tx.Exec(ctx, `DELETE FROM rate_windows WHERE ends_at < $1`, db.At(now.Add(-l.length)))
		return err
	})
}
