// Package terminal owns the session of a terminal over a WebSocket, of the API as well as of the dashboard.
//
// Binary messages are what is typed and what is shown, {"columns": 80, "rows": 24} as text changes the size.
package terminal

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"slipway/internal/build/framework"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/panics"
	"slipway/internal/program/app"
	"slipway/internal/program/runtime"
	"slipway/internal/program/task"
	"slipway/internal/tenant/site"
)

// Limits of a terminal: time with and without activity, bytes of output, and bytes of a message.
const (
	maxTime    = time.Hour
	maxIdle    = 15 * time.Minute
	maxOutput  = 64 << 20
	MaxMessage = 64 << 10
)

// Interval of checks that a terminal may stay open, the number of checks between pings, and the time for a message.
const (
	checkEvery    = 3 * time.Second
	checksPerPing = 5
	sendTime      = 15 * time.Second
)

// CloseRefused is the close code for our own reasons.
const CloseRefused websocket.StatusCode = 4000

// maxReason caps the bytes of the reason in a close frame (RFC 6455 §5.5).
const maxReason = 123

// Shell is the default command: the best shell that the sandbox has, with the directory in its prompt.
var Shell = task.Command{
	Shell: `if command -v bash >/dev/null 2>&1; then export PS1='\w \$ '; exec bash --norc --noprofile; fi; export PS1='$ '; exec sh -i`,
}

var (
	errLeft   = &fault.Error{Kind: fault.Invalid, Message: "Closed"}
	errTime   = &fault.Error{Kind: fault.Invalid, Message: "Closed after an hour"}
	errIdle   = &fault.Error{Kind: fault.Invalid, Message: "Closed after 15 minutes without activity"}
	errOutput = &fault.Error{Kind: fault.Invalid, Message: "Closed: more than 64 MiB of output"}
)

// Check returns why a site's owner can't open a terminal for it, or nil.
func Check(s site.Site) error {
	switch {
	case s.AllowsTerminal() != nil:
		return s.AllowsTerminal()
	case s.Runtime == "" || s.Runtime == framework.Static || s.LiveDeployment == "":
		return fault.New(fault.Conflict, "no_program", "This site has no program", "a terminal opens in the files of an application")
	case s.Status == site.Stopped:
		return fault.New(fault.Conflict, "site_stopped", "This site is stopped", "start it first")
	}
	return nil
}

// Execution returns what a terminal runs in the live deployment of a site.
func Execution(s site.Site, command task.Command, t *runtime.Terminal) app.Execution {
	return app.Execution{
		Deployment: s.LiveDeployment, Command: command, Process: "terminal", Timeout: 2 * maxTime, // the session ends before
		Terminal: t,
	}
}

// Accept takes a WebSocket over from a request. Origins are the caller's business.
func Accept(w http.ResponseWriter, r *http.Request) (*websocket.Conn, error) {
	c, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true})
	if err == nil {
		c.SetReadLimit(MaxMessage)
	}
	return c, err
}

// Wanted reports whether a request asks for a WebSocket.
func Wanted(r *http.Request) bool { return strings.EqualFold(r.Header.Get("Upgrade"), "websocket") }

// Close closes a connection with a reason, which is cut to what a close frame holds.
func Close(c *websocket.Conn, code websocket.StatusCode, reason string) {
	_ = c.Close(code, strings.ToValidUTF8(reason[:min(len(reason), maxReason)], "")) // fails if already closed for another reason
}

// For is the caller of a terminal and its site.
type For interface {
	// Allowed returns why the terminal may not be open, or nil. An unavailable database doesn't close it.
	Allowed(ctx context.Context) error
	// Watch calls end when the caller's right has ended, and returns when ctx ends.
	Watch(ctx context.Context, end func())
	// Audit writes the audit log. If the first line can't be written, the terminal doesn't start.
	Audit(ctx context.Context, action, detail string) error
	// Run runs the command until it exits. It returns a last message, which is optional, and how it ended.
	Run(ctx context.Context, t *runtime.Terminal) (last []byte, how string, err error)
}

// Session is a terminal that is about to be opened.
type Session struct {
	Conn    *websocket.Conn
	Size    runtime.Size
	Release func() // frees the terminal's place
	Log     *slog.Logger

	// Gone is what the client reads when the caller's right has ended.
	Gone *fault.Error
	For  For

	ctx    context.Context
	end    context.CancelCauseFunc
	shown  int64        // bytes; only used by the output
	active atomic.Int64 // time of the last input or output, in nanoseconds
}

// Serve runs the terminal until its command exits or it must be closed, and closes the connection with the reason.
func (t *Session) Serve(ctx context.Context) {
	release := sync.OnceFunc(t.Release)
	defer release()
	// The WebSocket has taken over the connection, so the request's context doesn't end with it.
	late, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), maxTime, errTime)
	defer cancel()
	t.ctx, t.end = context.WithCancelCause(late)
	defer t.end(nil)
	err := t.For.Allowed(t.ctx)
	if err == nil {
		err = t.audit("site.terminal", "")
	}
	if err != nil {
		t.refuse(err)
		return
	}
	begun := time.Now()
	in, typed := io.Pipe()
	sizes := make(chan runtime.Size, 1)
	t.active.Store(begun.UnixNano())
	var receiving panics.Background
	receiving.Go(func() {
		defer typed.Close()
		defer t.end(errLeft) // before the program is killed, so that this is the reason
		t.receive(typed, sizes)
	})
	panics.Go(func() { t.For.Watch(t.ctx, func() { t.end(t.Gone) }) })
	panics.Go(t.keep)
	last, how, err := t.For.Run(t.ctx, &runtime.Terminal{Input: in, Output: t, Size: t.Size, Sizes: sizes})
	if err == nil && t.ctx.Err() != nil {
		err = context.Cause(t.ctx)
	}
	in.Close()
	release() // before the client learns of the end, so that it can open the next one
	if err != nil {
		t.refuse(err)
	} else {
		if last != nil {
			_ = t.send(websocket.MessageText, last)
		}
		Close(t.Conn, websocket.StatusNormalClosure, how)
	}
	_ = t.Conn.CloseNow()
	receiving.Wait()
	if err := t.audit("site.terminal_closed", "after "+time.Since(begun).Round(time.Second).String()); err != nil {
		t.Log.ErrorContext(t.ctx, "end of terminal not recorded", "err", err)
	}
}

func (t *Session) audit(action, detail string) error {
	ctx, done := context.WithTimeout(context.WithoutCancel(t.ctx), 10*time.Second)
	defer done()
	return t.For.Audit(ctx, action, detail)
}

// refuse closes the connection with the reason.
func (t *Session) refuse(err error) {
	reason := "Internal error"
	switch f := fault.As(err); {
	case f != nil && f.Details != "":
		reason = f.Message + ": " + f.Details
	case f != nil:
		reason = f.Message
	case errors.Is(err, context.Canceled):
		reason = "Closed: the server is restarting"
	default:
		t.Log.ErrorContext(t.ctx, "terminal not run", "err", err)
	}
	Close(t.Conn, CloseRefused, reason)
}

// receive passes the client's input on until it ends.
func (t *Session) receive(typed io.Writer, sizes chan runtime.Size) {
	for {
		kind, data, err := t.Conn.Read(context.WithoutCancel(t.ctx)) // canceling the read would cut off the last output
		if err != nil {
			return
		}
		if kind == websocket.MessageBinary {
			t.active.Store(time.Now().UnixNano())
			if _, err := typed.Write(data); err != nil {
				return // the program has exited
			}
			continue
		}
		var size runtime.Size
		if json.Unmarshal(data, &size) != nil || size.Columns < 1 || size.Rows < 1 {
			Close(t.Conn, websocket.StatusInvalidFramePayloadData, "Unknown message")
			return
		}
		select { // the newest size counts
		case <-sizes:
		default:
		}
		sizes <- runtime.Size{Columns: min(size.Columns, 1000), Rows: min(size.Rows, 1000)}
	}
}

func (t *Session) send(kind websocket.MessageType, p []byte) error {
	ctx, done := context.WithTimeout(context.WithoutCancel(t.ctx), sendTime) // the last output comes after the end
	defer done()
	return t.Conn.Write(ctx, kind, p)
}

// Write sends the program's output to the client.
func (t *Session) Write(p []byte) (int, error) {
	t.active.Store(time.Now().UnixNano())
	t.shown += int64(len(p))
	if t.shown > maxOutput {
		t.end(errOutput)
		return 0, errOutput
	}
	if err := t.send(websocket.MessageBinary, p); err != nil {
		t.end(errLeft)
		return 0, err
	}
	return len(p), nil
}

// keep closes the terminal when the client is gone, it is idle, or the site no longer allows it.
func (t *Session) keep() {
	tick := time.NewTicker(checkEvery)
	defer tick.Stop()
	for n := 1; ; n++ {
		select {
		case <-t.ctx.Done():
			return
		case <-tick.C:
		}
		if time.Since(time.Unix(0, t.active.Load())) > maxIdle {
			t.end(errIdle)
			return
		}
		if err := t.For.Allowed(t.ctx); fault.As(err) != nil {
			t.end(err)
			return
		}
		if n%checksPerPing == 0 {
			waiting, done := context.WithTimeout(t.ctx, sendTime)
			err := t.Conn.Ping(waiting)
			late := waiting.Err() != nil // the program may not be reading its input at the moment
			done()
			if err != nil && !late {
				t.end(errLeft)
				return
			}
		}
	}
}
