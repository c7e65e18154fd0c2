package shell

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"slipway/internal/platform/fault"
	"slipway/internal/platform/panics"
	"slipway/internal/tenant/account"
	"slipway/internal/web/requestinfo"
)

// The interval of keep-alive comments, and the timeout for sending an event.
const (
	Heartbeat = 15 * time.Second
	SendTime  = 15 * time.Second
)

// live is a part of a page that is sent again when it changes. It is rendered on each notification about its owner, and
// at least every poll.
type live struct {
	render func(ctx context.Context) (html []byte, done bool, err error)
	poll   time.Duration
}

// LivePart returns an answer that keeps a part of a page up to date until render reports done.
func LivePart(poll time.Duration, render func(ctx context.Context) (html []byte, done bool, err error)) Answer {
	return Answer{live: live{render, poll}}
}

// Follow returns a channel that signals when something of the owner's changes.
func (d *Shell) Follow(q *Request) (wake <-chan struct{}, stop func()) {
	return d.DB.Listen(q.Caller.Owner.Topic())
}

// Events sends server-sent events (WHATWG HTML §9.2) to a browser.
type Events struct {
	Ctx   context.Context
	w     http.ResponseWriter
	conn  *http.ResponseController
	shell *Shell
	q     *Request
}

// errMoved ends the streams of a site that was transferred.
var errMoved = errors.New("the site belongs to another account")

// stays returns errMoved once the page's site has been transferred. Each round calls it before reading data.
func (e *Events) stays() error {
	if e.shell.moved(e.Ctx, e.q) {
		return errMoved
	}
	return nil
}

// Send sends an event. An empty name means "message", and an empty ID is omitted. An error means that the browser is
// gone.
func (e *Events) Send(name, id, data string) error {
	var b strings.Builder
	if name != "" {
		b.WriteString("event: " + name + "\n")
	}
	if id != "" {
		b.WriteString("id: " + id + "\n")
	}
	for line := range strings.SplitSeq(strings.ReplaceAll(data, "\r", ""), "\n") {
		b.WriteString("data: " + line + "\n")
	}
	b.WriteString("\n")
	return e.write(b.String())
}

// LastEvent returns the ID of the last event that a browser received, from the browser's own reconnect or from ?last=
// of the page's script, which opens a new stream when the browser has given up. It is "" for none.
func (q *Request) LastEvent() string { return cmp.Or(q.Header.Get("Last-Event-ID"), q.Query("last")) }

// Alive sends a comment, so that proxies keep the connection open.
func (e *Events) Alive() error { return e.write(": still here\n\n") }

func (e *Events) write(text string) error {
	if err := e.conn.SetWriteDeadline(time.Now().Add(SendTime)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	if _, err := e.w.Write([]byte(text)); err != nil {
		return err
	}
	return e.conn.Flush()
}

// serveStream opens a stream and calls fn to fill it. The stream ends when fn returns, the browser is gone, the session
// has ended or the service stops.
func (d *Shell) serveStream(w http.ResponseWriter, q *Request, fn func(e *Events) error) {
	done, ok := d.Streams.Begin(q.User.ID, q.Addr)
	if !ok {
		d.finish(w, q, Route{}, Answer{}, &fault.Error{
			Kind:       fault.Limited,
			Message:    "Too many live pages open",
			Details:    fmt.Sprintf("close some of them: at most %d are updated at a time", requestinfo.UserStreams),
			Code:       "too_many_streams",
			RetryAfter: 5 * time.Second,
		})
		return
	}
	defer done()
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // otherwise nginx would buffer events
	w.WriteHeader(http.StatusOK)
	ctx, cancel := context.WithCancel(q.Context())
	defer cancel()
	// right: application log on a page
	panics.Go(func() { d.Watch(ctx, cancel, q, d.Ready) })
	e := &Events{ctx, w, http.NewResponseController(w), d, q}
	if e.write("retry: 2000\n\n") != nil {
		return
	}
	if err := fn(e); err != nil && ctx.Err() == nil {
		d.Log.DebugContext(ctx, "stream ended", "request", q.ID, "err", err)
	}
}

// WhileAllowed sends a download. fn's context, and a write in progress, end with the session. If fn fails, the
// connection is closed without the end of the response, so that a partial file doesn't look complete.
func (d *Shell) WhileAllowed(w http.ResponseWriter, q *Request, fn func(ctx context.Context, conn *http.ResponseController) error) {
	done, ok := d.Streams.Begin(q.User.ID, q.Addr)
	if !ok {
		d.finish(w, q, Route{}, Answer{}, &fault.Error{
			Kind:       fault.Limited,
			Message:    "Too many open downloads",
			Details:    fmt.Sprintf("at most %d downloads and live pages of a user are open at a time", requestinfo.UserStreams),
			Code:       "too_many_streams",
			RetryAfter: 5 * time.Second,
		})
		return
	}
	defer done()
	ctx, cancel := context.WithCancel(q.Context())
	defer cancel()
	conn := http.NewResponseController(w)
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		_ = conn.SetWriteDeadline(time.Now())
	})
	settle := sync.OnceFunc(func() {
		if !stop() { // after the handler returns, the connection must not be used
			<-ended
		}
	})
	defer settle()
	// right: download under way
	panics.Go(func() { d.Watch(ctx, cancel, q, nil) }) // downloads may finish while the service drains
	if err := fn(ctx, conn); err != nil || ctx.Err() != nil {
		d.Log.DebugContext(ctx, "download ended early", "request", q.ID, "err", err)
		panic(http.ErrAbortHandler)
	}
	settle()
	_ = conn.SetWriteDeadline(time.Time{}) // the connection may be reused
}

// Watch cancels what a session started once the session ends, the page's site is transferred, or ready is false.
func (d *Shell) Watch(ctx context.Context, cancel context.CancelFunc, q *Request, ready *atomic.Bool) {
	defer cancel() // also after a panic, so that nothing continues unwatched
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	token := d.ReadCookie(q.Request, SessionCookie)
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if ready != nil && !ready.Load() {
			cancel()
			return
		}
		if n%3 == 0 {
			if q.Caller.Team != "" && fault.As(d.Accounts.Holds(ctx, q.Caller)) != nil {
				cancel()
				return
			}
			if d.moved(ctx, q) {
				return
			}
			if _, _, err := d.Accounts.Session(ctx, token, q.Device()); fault.Is(err, fault.Unauthorized) {
				cancel()
				return
			}
		}
	}
}

// moved reports whether the page's site no longer belongs to the owner for whom the page was opened. It is false if the
// database is unavailable.
func (d *Shell) moved(ctx context.Context, q *Request) bool {
	if !strings.HasPrefix(q.URL.Path, "/sites/") || q.PathValue("id") == "" {
		return false
	}
	var owner account.OwnerID
	err := d.DB.QueryRow(ctx, `SELECT owner_id FROM open_sites WHERE id = $1`, q.PathValue("id")).Scan(&owner)
	return errors.Is(err, sql.ErrNoRows) || err == nil && owner != q.Caller.Owner
}

func (d *Shell) serveLive(w http.ResponseWriter, q *Request, l live) {
	wake, stop := d.Follow(q)
	defer stop()
	d.serveStream(w, q, func(e *Events) error {
		var last []byte
		said := time.Now()
		poll := time.NewTicker(l.poll)
		defer poll.Stop()
		for {
			if err := e.stays(); err != nil {
				return err
			}
			html, done, err := l.render(e.Ctx)
			if err != nil {
				return err
			}
			if !bytes.Equal(html, last) {
				if err := e.Send("html", "", string(html)); err != nil {
					return err
				}
				last, said = html, time.Now()
			}
			if done {
				return e.Send("end", "", "done")
			}
			if time.Since(said) > Heartbeat {
				if err := e.Alive(); err != nil {
					return err
				}
				said = time.Now()
			}
			select {
			case <-e.Ctx.Done():
				return nil
			case <-wake:
			case <-poll.C:
			}
		}
	})
}
