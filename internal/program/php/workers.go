package php

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"slipway/internal/platform/fair"
)

// Workers hands the workers of one PHP-FPM to requests. A visitor has at most four fifths of them, so that no one takes a site
// from all others.
type Workers struct {
	c     WorkersConfig
	pool  *fair.Pool
	share int // of one visitor

	mu     sync.Mutex // guards what follows
	sent   int        // requests that PHP-FPM has
	silent int        // those of them that it has not begun to answer
	pokes  int        // that may still be made
	quick  int        // those of them that follow one another quickly
	waking bool       // a wake is under way
	told   time.Time  // when the log last said that requests wait
}

// WorkersConfig says which PHP-FPM it is.
type WorkersConfig struct {
	Workers int // that it has at most
	Server  Server
	Log     Log // Optional.
}

// Server is a PHP-FPM that runs.
type Server interface {
	Dial(ctx context.Context) (net.Conn, error)
}

// Log is a site's log.
type Log interface {
	Say(line string)
}

// NewWorkers returns Workers of which none is taken.
func NewWorkers(c WorkersConfig) *Workers {
	w := &Workers{c: c, share: c.Workers - max(1, c.Workers/5), pokes: maxPokes}
	// share: total the workers of a site's PHP; owner the visitors of its site, each four fifths; edge the request waits, beyond 1,024 503
	w.pool = fair.New(fair.Config{Places: c.Workers, Visitor: w.share, Waiting: 1024})
	return w
}

// Log says that requests wait once they have waited so long, and not more often than that.
const (
	longWait  = time.Second
	tellEvery = time.Minute
)

// take waits for a worker. release gives it back.
func (w *Workers) take(ctx context.Context, visitor string) (release func(), err error) {
	if w == nil {
		return func() {}, nil
	}
	who := fair.Who{Visitor: visitor}
	if release, ok := w.pool.Try(who); ok {
		return release, nil
	}
	late := time.AfterFunc(longWait, w.tell)
	defer late.Stop()
	release, err = w.pool.Take(ctx, who)
	if errors.Is(err, fair.ErrFull) {
		return nil, &refusal{http.StatusServiceUnavailable, "Too many requests wait for this application"}
	}
	return release, err
}

// tell says that requests wait.
func (w *Workers) tell() {
	w.mu.Lock()
	due := time.Since(w.told) >= tellEvery
	if due {
		w.told = time.Now()
	}
	w.mu.Unlock()
	if !due || w.c.Log == nil {
		return
	}
	held, waiting := w.pool.Held()
	if held < w.c.Workers {
		w.c.Log.Say(fmt.Sprintf("A visitor uses %d of PHP's %d workers, its share: %d more requests wait", w.share, w.c.Workers, waiting))
		return
	}
	w.c.Log.Say(fmt.Sprintf("All %d workers of PHP are busy: %d requests wait. More memory (run.memoryMiB) means more workers",
		w.c.Workers, waiting))
}

// PHP-FPM looks for a free worker when a connection comes, and starts at most one: of several that come at the same moment most
// would wait for those before them. A connection that says nothing makes it look again. So many are made, at most, of which
// PHP-FPM may have taken none; and so often.
const (
	maxPokes  = 64
	pokeEvery = 10 * time.Millisecond
	pokeLater = 250 * time.Millisecond
)

// asks counts a request that is sent to PHP-FPM, and has workers started while requests wait. answered is to be called when the
// answer begins, and ended when it has ended; each may be called more than once.
func (w *Workers) asks() (answered, ended func()) {
	if w == nil {
		return func() {}, func() {}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sent++
	w.silent++
	w.quick = 2 * w.silent
	if w.sent > 1 && !w.waking {
		w.waking = true
		// uncaught: connects, and waits
		go w.wake()
	}
	answered = sync.OnceFunc(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.silent--
		w.pokes = min(maxPokes, w.pokes+1) // its worker takes the next connection
	})
	return answered, sync.OnceFunc(func() {
		answered()
		w.mu.Lock()
		defer w.mu.Unlock()
		w.sent--
	})
}

// wake has PHP-FPM look for free workers while requests wait.
func (w *Workers) wake() {
	for {
		w.mu.Lock()
		if w.silent == 0 || w.sent < 2 {
			if w.waking = false; w.silent == 0 {
				w.pokes = maxPokes
			}
			w.mu.Unlock()
			return
		}
		pause := pokeLater
		if w.quick > 0 {
			pause = pokeEvery
			w.quick--
		}
		poke := w.pokes > 0
		if poke {
			w.pokes--
		}
		w.mu.Unlock()
		time.Sleep(pause)
		if !poke {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		if c, err := w.c.Server.Dial(ctx); err == nil {
			_ = c.Close()
		}
		cancel()
	}
}
