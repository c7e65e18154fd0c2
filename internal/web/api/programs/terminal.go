package programs

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"slipway/internal/build/framework"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/program/runtime"
	"slipway/internal/program/task"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/site"
	"slipway/internal/web/api/contract"
	"slipway/internal/web/requestinfo"
	"slipway/internal/web/terminal"
)

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
	if err == nil {
		err = terminal.Check(s)
	}
	return s, err
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
	command := terminal.Shell
	if text := strings.TrimSpace(in.Command); len(text) > 4096 {
		return nil, fault.New(fault.Invalid, "invalid_command", "Invalid command", "1 to 4,096 bytes of text")
	} else if text != "" {
		command = task.Command(framework.ParseCommand(text))
	}
	if !terminal.Wanted(contract.From(ctx).HTTP) {
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
		req, w := humago.Unwrap(hctx)
		// The origin needs no check: the only credential is the key, which browsers don't add by themselves.
		conn, err := terminal.Accept(w, req)
		if err != nil {
			done()
			a.Log.DebugContext(ctx, "terminal not opened", "site", s.ID, "err", err)
			return
		}
		t := &terminal.Session{
			Conn: conn, Size: runtime.Size{Columns: int(min(columns, 1000)), Rows: int(min(rows, 1000))}, Release: done,
			Log: a.Log.With("site", s.ID), For: terminalOf{a, c, s, command},
			Gone: &fault.Error{Kind: fault.Invalid, Message: "Closed: the credential is no longer valid"},
		}
		t.Serve(db.WithShare(req.Context(), string(c.Owner)))
	}, nil
}

// terminalOf implements [terminal.For].
type terminalOf struct {
	*API
	c       account.Caller
	s       site.Site
	command task.Command
}

func (t terminalOf) Allowed(ctx context.Context) error {
	_, err := t.terminalSite(ctx, t.c, t.s.ID)
	return err
}

func (t terminalOf) Watch(ctx context.Context, end func()) {
	// right: terminal of a key
	t.API.Watch(ctx, end, t.c)
}

func (t terminalOf) Audit(ctx context.Context, action, detail string) error {
	return t.DB.Write(ctx, func(tx *db.Tx) error {
		did := audit.Event{Action: action, Subject: string(t.s.ID), Detail: detail}
		return t.Accounts.AuditTx(ctx, tx, t.c.Actor(contract.From(ctx).Addr), did)
	})
}

func (t terminalOf) Run(ctx context.Context, at *runtime.Terminal) (last []byte, how string, err error) {
	exit, err := t.Apps.Execute(ctx, terminal.Execution(t.s, t.command, at))
	if err == nil {
		last, err = json.Marshal(terminalEnd{exit.Code, exit.Reason})
	}
	return last, "", err
}
