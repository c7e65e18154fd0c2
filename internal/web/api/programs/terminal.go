package programs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"slipway/internal/build/framework"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/panics"
	"slipway/internal/program/app"
	"slipway/internal/program/runtime"
	"slipway/internal/program/task"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/site"
	"slipway/internal/web/api/contract"
	"slipway/internal/web/requestinfo"
)

// Limits of a terminal: time with and without activity, and bytes of output. They equal the dashboard's.
const (
	terminalTime   = time.Hour
	terminalIdle   = 15 * time.Minute
	terminalOutput = 64 << 20
	maxTyped       = 64 << 10 // bytes of a message
)

// Interval of checks that a terminal may stay open, and the number of checks between pings.
const (
	terminalCheck = 3 * time.Second
	checksPerPing = 5
)

// closeRefused is the close code for our own reasons.
const closeRefused websocket.StatusCode = 4000

// maxReason caps the bytes of the reason in a close frame (RFC 6455 §5.5).
const maxReason = 123

// terminalShell is the default command: the best shell that the sandbox has.
const terminalShell = `if command -v bash >/dev/null 2>&1; then export PS1='\w \$ '; exec bash --norc --noprofile; fi; export PS1='$ '; exec sh -i`

type terminalIn struct {
	contract.ByID[site.ID]
	Command string         `query:"command" maxLength:"4096" doc:"The command. Default: a shell." example:"node"`
	Columns contract.Count `query:"columns" doc:"Width of the terminal, up to 1000. Default: 80."`
	Rows    contract.Count `query:"rows" doc:"Height of the terminal, up to 1000. Default: 24."`
}

// terminalEnd is the last message of a terminal.
type terminalEnd struct {
	ExitCode int    `json:"exitCode" doc:"As a shell would say it."`
	Reason   string `json:"reason" example:"exit code 1"`
}

func (a *API) terminalRoute() {
	r := contract.Route{
		Method:  http.MethodGet,
		Path:    "/sites/{id}/terminal",
		Status:  http.StatusSwitchingProtocols,
		ID:      "openTerminal",
		Tag:     "Applications",
		Summary: "Open a terminal",
		Scope:   account.SitesWrite,
		Noun:    "site",
		Doc: "A WebSocket (RFC 6455) to a command in the files of the live deployment, with the program's sandbox, runtime variables and " +
			"limits. It takes the site's `run.terminal`. Binary messages are what is typed and what is shown; " +
			"`{\"columns\": 80, \"rows\": 24}` as a text message changes the size. The last message is text, " +
			"the command's end: `{\"exitCode\": 0, \"reason\": \"exit code 0\"}`. " +
			"A terminal closes after an hour, 15 minutes without activity or 64 MiB of output; then there is no such message, and the " +
			"closing frame has the reason. A user has up to 3 open at a time. Nothing of it is in the site's log; the audit log has a line.",
	}
	op := a.Operation(r, reflect.TypeFor[terminalEnd]())
	op.Responses["409"] = &huma.Response{}
	contract.Writes(a.API, r, op, a.openTerminal)
}

// terminalSite returns the site if it allows terminals.
func (a *API) terminalSite(ctx context.Context, c account.Caller, id site.ID) (site.Site, error) {
	s, err := a.Site(ctx, c, id)
	switch {
	case err != nil:
		return s, err
	case s.AllowsTerminal() != nil:
		return s, s.AllowsTerminal()
	case !hasProgram(s):
		return s, fault.New(fault.Conflict, "no_program", "This site has no program",
			"a terminal opens in the files of an application")
	case s.Status == site.Stopped:
		return s, fault.New(fault.Conflict, "site_stopped", "This site is stopped", "start it first")
	}
	return s, nil
}

func (a *API) openTerminal(ctx context.Context, r contract.Route, in *terminalIn) (func(huma.Context), error) {
	c, err := r.Permit(contract.From(ctx).Caller)
	if err != nil {
		return nil, err
	}
	s, err := a.terminalSite(ctx, c, in.ID)
	if err != nil {
		return nil, err
	}
	columns, err := in.Columns.Parse("columns", "invalid_columns")
	if err != nil {
		return nil, err
	}
	rows, err := in.Rows.Parse("rows", "invalid_rows")
	if err != nil {
		return nil, err
	}
	command := task.Command{Shell: terminalShell}
	if text := strings.TrimSpace(in.Command); len(text) > 4096 {
		return nil, fault.New(fault.Invalid, "invalid_command", "Invalid command", "1 to 4,096 bytes of text")
	} else if text != "" {
		parsed := framework.ParseCommand(text)
		command = task.Command{Argv: parsed.Argv, Shell: parsed.Shell}
	}
	if !strings.EqualFold(contract.From(ctx).HTTP.Header.Get("Upgrade"), "websocket") {
		return nil, fault.New(fault.Invalid, "websocket_required", "A terminal takes a WebSocket", "send the headers of RFC 6455")
	}
	done, ok := a.Streams.Terminals.Begin(c.User, contract.From(ctx).Addr)
	if !ok {
		return nil, &fault.Error{
			Kind: fault.Limited, Message: "Too many open terminals",
			Details: fmt.Sprintf("a user has up to %d open at a time", requestinfo.UserTerminals), Code: "too_many_streams",
			RetryAfter: 5 * time.Second,
		}
	}
	return func(hctx huma.Context) {
		done := sync.OnceFunc(done)
		defer done()
		req, w := humago.Unwrap(hctx)
		// The origin needs no check: the only credential is the key, which browsers don't add by themselves.
		conn, err := websocket.Accept(w, req, &websocket.AcceptOptions{InsecureSkipVerify: true})
		if err != nil {
			a.Log.DebugContext(ctx, "terminal not opened", "site", s.ID, "err", err)
			return
		}
		conn.SetReadLimit(maxTyped)
		t := &terminal{a: a, c: c, conn: conn, site: s.ID}
		t.serve(req.Context(), app.Execution{
			Deployment: s.LiveDeployment, Command: command, Process: "terminal", Timeout: 2 * terminalTime,
			Terminal: &runtime.Terminal{Output: t, Size: runtime.Size{Columns: int(min(columns, 1000)), Rows: int(min(rows, 1000))}},
		}, done)
	}, nil
}

// terminal is an open terminal.
type terminal struct {
	a    *API
	c    account.Caller
	conn *websocket.Conn
	site site.ID

	ctx    context.Context
	end    context.CancelCauseFunc
	shown  int64        // bytes; only used by the output
	active atomic.Int64 // time of the last input or output, in nanoseconds
}

var (
	errLeft   = &fault.Error{Kind: fault.Invalid, Message: "Closed"}
	errTime   = &fault.Error{Kind: fault.Invalid, Message: "Closed after an hour"}
	errIdle   = &fault.Error{Kind: fault.Invalid, Message: "Closed after 15 minutes without activity"}
	errOutput = &fault.Error{Kind: fault.Invalid, Message: "Closed: more than 64 MiB of output"}
	errKey    = &fault.Error{Kind: fault.Invalid, Message: "Closed: the credential is no longer valid"}
)

// serve runs x until it exits or the terminal must be closed. done releases its place.
func (t *terminal) serve(ctx context.Context, x app.Execution, done func()) {
	// The WebSocket has taken over the connection, so the request's context doesn't end with it.
	late, cancel := context.WithTimeoutCause(db.WithShare(context.WithoutCancel(ctx), string(t.c.Owner)), terminalTime, errTime)
	defer cancel()
	t.ctx, t.end = context.WithCancelCause(late)
	defer t.end(nil)
	if err := t.audit("site.terminal", ""); err != nil { // without an audit log entry, the terminal doesn't start
		t.refuse(err)
		return
	}
	begun := time.Now()
	in, typed := io.Pipe()
	sizes := make(chan runtime.Size, 1)
	x.Terminal.Input, x.Terminal.Sizes = in, sizes
	t.active.Store(begun.UnixNano())
	var receiving panics.Background
	receiving.Go(func() {
		defer typed.Close()
		defer t.end(errLeft) // before the program is killed, so that this is the reason
		t.receive(typed, sizes)
	})
	// right: terminal of a key
	panics.Go(func() { t.a.Watch(t.ctx, func() { t.end(errKey) }, t.c) })
	panics.Go(t.keep)
	exit, err := t.a.Apps.Execute(t.ctx, x)
	if err == nil && t.ctx.Err() != nil {
		err = context.Cause(t.ctx)
	}
	in.Close()
	done() // before the client learns of the end, so that it can open the next one
	if err != nil {
		t.refuse(err)
	} else if last, err := json.Marshal(terminalEnd{exit.Code, exit.Reason}); err == nil {
		t.send(websocket.MessageText, last)
		_ = t.conn.Close(websocket.StatusNormalClosure, "")
	}
	_ = t.conn.CloseNow()
	receiving.Wait()
	_ = t.audit("site.terminal_closed", "after "+time.Since(begun).Round(time.Second).String())
}

// refuse closes the connection with the reason.
func (t *terminal) refuse(err error) {
	reason := "Internal error"
	if f := fault.As(err); f != nil {
		reason = f.Message
		if f.Details != "" {
			reason += ": " + f.Details
		}
	} else if !errors.Is(err, context.Canceled) {
		t.a.Log.ErrorContext(t.ctx, "terminal not run", "site", t.site, "err", err)
	}
	_ = t.conn.Close(closeRefused, strings.ToValidUTF8(reason[:min(len(reason), maxReason)], ""))
}

// receive passes the client's input on until it ends.
func (t *terminal) receive(typed io.Writer, sizes chan runtime.Size) {
	for {
		kind, data, err := t.conn.Read(context.WithoutCancel(t.ctx)) // canceling the read would cut off the last output
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
			_ = t.conn.Close(websocket.StatusInvalidFramePayloadData, "Unknown message")
			return
		}
		select { // the newest size counts
		case <-sizes:
		default:
		}
		sizes <- runtime.Size{Columns: min(size.Columns, 1000), Rows: min(size.Rows, 1000)}
	}
}

func (t *terminal) send(kind websocket.MessageType, p []byte) error {
	ctx, done := context.WithTimeout(context.WithoutCancel(t.ctx), contract.SendTime) // the last output comes after the end
	defer done()
	return t.conn.Write(ctx, kind, p)
}

// Write sends the program's output to the client.
func (t *terminal) Write(p []byte) (int, error) {
	t.active.Store(time.Now().UnixNano())
	t.shown += int64(len(p))
	if t.shown > terminalOutput {
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
func (t *terminal) keep() {
	tick := time.NewTicker(terminalCheck)
	defer tick.Stop()
	for n := 1; ; n++ {
		select {
		case <-t.ctx.Done():
			return
		case <-tick.C:
		}
		if time.Since(time.Unix(0, t.active.Load())) > terminalIdle {
			t.end(errIdle)
			return
		}
		if _, err := t.a.terminalSite(t.ctx, t.c, t.site); fault.As(err) != nil { // an unavailable database doesn't close it
			t.end(err)
			return
		}
		if n%checksPerPing == 0 {
			waiting, done := context.WithTimeout(t.ctx, contract.SendTime)
			err := t.conn.Ping(waiting)
			late := waiting.Err() != nil // the program may not be reading its input at the moment
			done()
			if err != nil && !late {
				t.end(errLeft)
				return
			}
		}
	}
}

func (t *terminal) audit(action, detail string) error {
	ctx, done := context.WithTimeout(context.WithoutCancel(t.ctx), 10*time.Second)
	defer done()
	return t.a.DB.Write(ctx, func(tx *db.Tx) error {
		did := audit.Event{Action: action, Subject: string(t.site), Detail: detail}
		return t.a.Accounts.AuditTx(ctx, tx, t.c.Actor(contract.From(t.ctx).Addr), did)
	})
}
