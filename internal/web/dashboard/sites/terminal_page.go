package sites

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/panics"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/site"
	"slipway/internal/web/dashboard/shell"
	"slipway/internal/web/dashboard/socket"
	"slipway/internal/web/requestinfo"
)

// CloseRefused is the WebSocket close code for reasons that the page displays.
const CloseRefused websocket.StatusCode = 4000

// MaxMessage caps a browser's message in bytes.
const MaxMessage = 64 << 10

// Terminal is the browser's end of a terminal.
type Terminal struct {
	Input         io.Reader // keyboard input
	Output        io.Writer // screen output
	Columns, Rows int
	Sizes         <-chan [2]int // columns and rows after each change
}

// Limits of terminals: number per user, duration with and without activity, and output.
const (
	MaxUserTerminals = requestinfo.UserTerminals
	terminalTime     = time.Hour
	terminalIdle     = 15 * time.Minute
	terminalOutput   = 64 << 20 // bytes
)

// The intervals of pings, and of checking that the site still allows the terminal.
const (
	pingEvery  = 15 * time.Second
	checkEvery = 3 * time.Second
)

func (d *Pages) terminalRoutes() []shell.Route {
	return []shell.Route{
		shell.Get("/sites/{id}/terminal", shell.User, d.terminalPage).Takes(account.SitesWrite),
		shell.Post("/sites/{id}/terminal", shell.User, d.allowTerminal, d.terminalPage).Takes(account.SitesWrite),
		shell.Get("/sites/{id}/terminal/connect", shell.User, d.connectTerminal).Takes(account.SitesWrite),
	}
}

type terminalData struct {
	SiteHead
	Allowed bool
	Connect string
}

// Running reports whether a terminal can be opened.
func (t terminalData) Running() bool { return t.HasProgram() && t.Site.Status != site.Stopped }

// allowsTerminal reports whether the owner allows terminals for the site.
func allowsTerminal(s site.Site) bool { return s.Run.Terminal != nil && *s.Run.Terminal }

func (d *Pages) terminalPage(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	head, err := d.Head(ctx, q, "terminal")
	return shell.Page("site_terminal", "Terminal of "+head.Site.Name, terminalData{
		head,
		allowsTerminal(head.Site),
		head.Base() + "/terminal/connect",
	}), err
}

// allowTerminal allows or forbids terminals for a site.
func (d *Pages) allowTerminal(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	allow, id := q.Value("allow") == "1", shell.PathID[site.ID](q, "id")
	action, said := "site.terminal_disabled", "Terminal disabled"
	if allow {
		action, said = "site.terminal_enabled", "Terminal enabled"
	}
	err := d.Act(ctx, q, action, func(tx *db.Tx) (string, error) {
		_, err := d.Sites.UpdateTx(ctx, tx, q.Caller.Owner, id, site.Patch{Run: &site.Run{Terminal: &allow}})
		return string(id), err
	})
	return shell.GoTo("/sites/"+string(id)+"/terminal", said), err
}

// connectTerminal opens a terminal over a WebSocket.
func (d *Pages) connectTerminal(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	head, err := d.Head(ctx, q, "terminal")
	if err != nil {
		return shell.Answer{}, err
	}
	if !socket.Wanted(q.Request) {
		return shell.GoTo(head.Base()+"/terminal", ""), nil
	}
	if !socket.OwnOrigin(q.Request, d.BaseURL) {
		return shell.Answer{}, fault.New(fault.Forbidden, "cross_origin", "Cross-origin request blocked",
			"open the terminal from the site's page")
	}
	return shell.Raw(func(w http.ResponseWriter) { d.serveTerminal(w, q, head.Site.ID) }), nil
}

// serveTerminal runs a terminal and closes its connection with the reason.
func (d *Pages) serveTerminal(w http.ResponseWriter, q *shell.Request, id site.ID) {
	c, err := socket.Accept(w, q.Request, MaxMessage)
	if err != nil {
		d.Log.DebugContext(q.Context(), "terminal not opened", "request", q.ID, "err", err)
		return
	}
	done, ok := d.Streams.Terminals.Begin(q.User.ID, q.Addr)
	if !ok {
		socket.Close(c, CloseRefused,
			fmt.Sprintf("At most %d terminals of a user, %d of a network, and %d in all, are open at a time",
				MaxUserTerminals, requestinfo.NetworkTerminals, requestinfo.AllTerminals))
		return
	}
	done = sync.OnceFunc(done)
	defer done()
	ctx, cancel := context.WithTimeoutCause(q.Context(), terminalTime, &fault.Error{Kind: fault.Invalid, Message: "Closed after an hour"})
	defer cancel()
	begun := time.Now()
	t := &terminal{d: d, q: q, c: c, id: id}
	code, reason := t.run(ctx)
	done() // free the place before the browser sees the end
	socket.Close(c, code, reason)
	t.receiving.Wait()
	if t.audited {
		t.closed(time.Since(begun))
	}
}

// terminal is an open terminal.
type terminal struct {
	d  *Pages
	q  *shell.Request
	c  *websocket.Conn
	id site.ID

	audited bool
	sent    int64        // bytes of output
	active  atomic.Int64 // time of the last activity in nanoseconds
	end     context.CancelCauseFunc

	receiving panics.Background
}

var (
	errTerminalLeft   = &fault.Error{Kind: fault.Invalid, Message: "Closed"}
	errTerminalOutput = &fault.Error{Kind: fault.Invalid, Message: "Closed: more than 64 MiB of output"}
	errTerminalIdle   = &fault.Error{Kind: fault.Invalid, Message: "Closed after 15 minutes without activity"}
	errTerminalEnded  = &fault.Error{Kind: fault.Invalid, Message: "Closed: the session has ended or the server is restarting"}
	errTerminalOff    = &fault.Error{Kind: fault.Conflict, Message: "The terminal is not enabled for this site", Code: "terminal_disabled"}
)

// allowed returns the site if it allows terminals.
func (t *terminal) allowed(ctx context.Context) (site.Site, error) {
	s, err := t.d.Sites.Get(ctx, t.q.Caller.Owner, t.id)
	switch {
	case err != nil:
		return s, err
	case !allowsTerminal(s):
		return s, errTerminalOff
	case s.Status == site.Stopped:
		return s, fault.New(fault.Conflict, "site_stopped", "This site is stopped", "start it first")
	}
	return s, nil
}

// run runs the terminal and returns the connection's close code and reason.
func (t *terminal) run(ctx context.Context) (code websocket.StatusCode, reason string) {
	ctx, t.end = context.WithCancelCause(ctx)
	defer t.end(nil)
	refused := func(err error) (websocket.StatusCode, string) {
		if f := fault.As(err); f != nil {
			if f.Details != "" {
				return CloseRefused, f.Message + ": " + f.Details
			}
			return CloseRefused, f.Message
		}
		if errors.Is(err, context.Canceled) {
			return CloseRefused, errTerminalEnded.Message
		}
		t.d.Log.ErrorContext(ctx, "terminal not run", "request", t.q.ID, "site", t.id, "err", err)
		return CloseRefused, "Internal error (request " + t.q.ID + ")"
	}
	s, err := t.allowed(ctx)
	if err != nil {
		return refused(err)
	}
	if t.d.Programs == nil {
		return refused(&fault.Error{Kind: fault.Unavailable, Message: "Applications can't run on this server", Code: "no_runtime"})
	}
	if !t.audit("site.terminal", "") { // don't open a terminal that can't be audited
		return CloseRefused, "Internal error (request " + t.q.ID + ")"
	}
	t.audited = true
	// right: terminal of the dashboard
	panics.Go(func() { t.d.Watch(ctx, func() { t.end(errTerminalEnded) }, t.q, t.d.Ready) })
	in, typed := io.Pipe()
	defer in.Close()
	sizes := make(chan [2]int, 1)
	t.active.Store(time.Now().UnixNano())
	t.receiving.Go(func() {
		defer typed.Close()
		defer t.end(errTerminalLeft) // before the program sees the end, so that this is the reason
		t.receive(context.WithoutCancel(ctx), typed, sizes)
	})
	panics.Go(func() { t.keep(ctx) })
	how, err := t.d.Programs.Terminal(ctx, s, Terminal{
		Input:   in,
		Output:  t,
		Columns: side(t.q.Query("columns")),
		Rows:    side(t.q.Query("rows")),
		Sizes:   sizes,
	})
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return refused(err)
	}
	return websocket.StatusNormalClosure, how
}

// receive reads the browser's messages until they end: input as bytes, and sizes as JSON.
func (t *terminal) receive(ctx context.Context, typed io.Writer, sizes chan [2]int) {
	for {
		kind, data, err := t.c.Read(ctx)
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
		var size struct{ Columns, Rows int }
		if json.Unmarshal(data, &size) != nil || size.Columns < 1 || size.Rows < 1 {
			socket.Close(t.c, websocket.StatusInvalidFramePayloadData, "Unknown message")
			return
		}
		select { // only the newest size matters
		case <-sizes:
		default:
		}
		sizes <- [2]int{size.Columns, size.Rows}
	}
}

// Write sends the program's output to the browser.
func (t *terminal) Write(p []byte) (int, error) {
	t.active.Store(time.Now().UnixNano())
	t.sent += int64(len(p))
	if t.sent > terminalOutput {
		t.end(errTerminalOutput)
		return 0, errTerminalOutput
	}
	if err := socket.Send(t.q.Context(), t.c, p); err != nil {
		t.end(errTerminalLeft)
		return 0, err
	}
	return len(p), nil
}

// keep ends the terminal if the browser is gone, nothing happens, or the owner no longer allows it.
func (t *terminal) keep(ctx context.Context) {
	tick := time.NewTicker(checkEvery)
	defer tick.Stop()
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if time.Since(time.Unix(0, t.active.Load())) > terminalIdle {
			t.end(errTerminalIdle)
			return
		}
		if _, err := t.allowed(ctx); fault.As(err) != nil { // an unavailable database isn't a reason to end it
			t.end(err)
			return
		}
		if n%int(pingEvery/checkEvery) == 0 && socket.Ping(ctx, t.c, checkEvery) != nil {
			t.end(errTerminalLeft)
			return
		}
	}
}

// audit writes the audit log and reports success.
func (t *terminal) audit(action, detail string) bool {
	ctx, done := context.WithTimeout(context.WithoutCancel(t.q.Context()), 10*time.Second)
	defer done()
	err := t.d.ActOn(ctx, t.q, func(*db.Tx) (audit.Event, error) {
		return audit.Event{Action: action, Subject: string(t.id), Detail: detail}, nil
	})
	if err != nil {
		t.d.Log.ErrorContext(ctx, "terminal not recorded", "request", t.q.ID, "site", t.id, "err", err)
	}
	return err == nil
}

// closed records the end. The entry isn't an act of the user, who may have been removed, which may be why it ended.
func (t *terminal) closed(after time.Duration) {
	ctx, done := context.WithTimeout(context.WithoutCancel(t.q.Context()), 10*time.Second)
	defer done()
	err := t.d.DB.Write(ctx, func(tx *db.Tx) error {
		return audit.WriteTx(ctx, tx, t.q.Actor(), audit.Event{
			Action: "site.terminal_closed", Subject: string(t.id), Detail: "after " + after.Round(time.Second).String(),
		})
	})
	if err != nil {
		t.d.Log.ErrorContext(ctx, "end of terminal not recorded", "request", t.q.ID, "site", t.id, "err", err)
	}
}

func side(text string) int {
	n, _ := strconv.Atoi(text)
	return max(0, min(n, 1000))
}
