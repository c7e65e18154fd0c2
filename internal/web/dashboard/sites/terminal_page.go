package sites

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/program/runtime"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/site"
	"slipway/internal/web/dashboard/shell"
	"slipway/internal/web/requestinfo"
	"slipway/internal/web/terminal"
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

func (d *Pages) terminalPage(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	head, err := d.Head(ctx, q, "terminal")
	return shell.Page("site_terminal", "Terminal of "+head.Site.Name, terminalData{
		head,
		head.Site.AllowsTerminal() == nil,
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
	if !terminal.Wanted(q.Request) {
		return shell.GoTo(head.Base()+"/terminal", ""), nil
	}
	if !ownOrigin(q.Request, d.BaseURL) {
		return shell.Answer{}, fault.New(fault.Forbidden, "cross_origin", "Cross-origin request blocked",
			"open the terminal from the site's page")
	}
	return shell.Raw(func(w http.ResponseWriter) { d.serveTerminal(w, q, head.Site) }), nil
}

// serveTerminal runs a terminal.
func (d *Pages) serveTerminal(w http.ResponseWriter, q *shell.Request, s site.Site) {
	conn, err := terminal.Accept(w, q.Request)
	if err != nil {
		d.Log.DebugContext(q.Context(), "terminal not opened", "request", q.ID, "err", err)
		return
	}
	done, ok := d.Streams.Terminals.Begin(q.User.ID, q.Addr)
	if !ok {
		terminal.Close(conn, terminal.CloseRefused,
			fmt.Sprintf("At most %d terminals of a user, %d of a network, and %d in all, are open at a time",
				requestinfo.UserTerminals, requestinfo.NetworkTerminals, requestinfo.AllTerminals))
		return
	}
	t := &terminal.Session{
		Conn: conn, Size: runtime.Size{Columns: side(q.Query("columns")), Rows: side(q.Query("rows"))}, Release: done,
		Log: d.Log.With("request", q.ID, "site", s.ID),
		For: terminalOf{d, q, s}, Gone: &fault.Error{Kind: fault.Invalid, Message: "Closed: the session has ended or the server is restarting"},
	}
	t.Serve(q.Context())
}

// terminalOf implements [terminal.For].
type terminalOf struct {
	*Pages
	q *shell.Request
	s site.Site
}

func (t terminalOf) Allowed(ctx context.Context) error {
	s, err := t.Sites.Get(ctx, t.q.Caller.Owner, t.s.ID)
	if err == nil {
		err = terminal.Check(s)
	}
	if err == nil && t.Programs == nil {
		err = &fault.Error{Kind: fault.Unavailable, Message: "Applications can't run on this server", Code: "no_runtime"}
	}
	return err
}

func (t terminalOf) Watch(ctx context.Context, end func()) {
	// right: terminal of the dashboard
	t.Shell.Watch(ctx, end, t.q, t.Ready)
}

func (t terminalOf) Audit(ctx context.Context, action, detail string) error {
	did := audit.Event{Action: action, Subject: string(t.s.ID), Detail: detail}
	if action == "site.terminal_closed" { // not an act of the user, who may have been removed, which may be why it ended
		return t.DB.Write(ctx, func(tx *db.Tx) error { return audit.WriteTx(ctx, tx, t.q.Actor(), did) })
	}
	return t.ActOn(ctx, t.q, func(*db.Tx) (audit.Event, error) { return did, nil })
}

func (t terminalOf) Run(ctx context.Context, at *runtime.Terminal) (last []byte, how string, err error) {
	how, err = t.Programs.Terminal(ctx, t.s, at)
	return nil, how, err
}

// ownOrigin reports whether a request comes from a page of this dashboard. Requests without Origin don't.
func ownOrigin(r *http.Request, base string) bool {
	list := r.Header["Origin"]
	if len(list) != 1 {
		return false
	}
	at, err := url.Parse(list[0])
	if err != nil || at.Host == "" {
		return false
	}
	if base, err := url.Parse(base); err == nil && at.Scheme == base.Scheme && strings.EqualFold(at.Host, base.Host) {
		return true
	}
	return strings.EqualFold(at.Host, r.Host) && (r.TLS == nil || at.Scheme == "https")
}

func side(text string) int {
	n, _ := strconv.Atoi(text)
	return max(0, min(n, 1000))
}
