package account

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"slipway/internal/deploy/deployment"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/domain"
	"slipway/internal/tenant/site"
	"slipway/internal/web/dashboard/shell"
)

// auditPerPage is how many lines of the log a page shows.
const auditPerPage = 50

// auditNouns are the resources by which the log can be filtered.
var auditNouns = []string{
	"session", "password", "second_factor", "passkey", "key", "site", "deployment", "domain", "env", "hook", "webhook",
}

type auditData struct {
	Entries []audit.Entry
	Nouns   []string
	Path    string          // of the page
	All     bool            // everybody's
	Team    account.OwnerID // of this team alone
	Older   string          // link; empty at the end

	What      string // a noun or a whole action
	User      account.UserID
	Key       string            // ids
	SiteNames map[string]string // by entry: the site that it is about, where that still exists
	Narrowed  []narrowed
}

// narrowed is one thing that the log is narrowed to, and the way back.
type narrowed struct{ Says, Without string }

// With is the page narrowed to one thing more, or, for an empty value, to one thing less.
func (a auditData) With(name, value string) string { return a.link(a.Path, name, value) }

// Download is the whole of what the page shows a part of.
func (a auditData) Download(format string) string {
	return a.link(a.Path+"/download", "format", format)
}

func (a auditData) link(path, name, value string) string {
	v := map[string]string{"what": a.What, "user": string(a.User), "key": a.Key, name: value}
	return shell.Link(path, "what", v["what"], "user", v["user"], "key", v["key"], "before", v["before"], "format", v["format"])
}

func (d *Pages) auditPage(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	return d.audit(ctx, q, d.auditOf(q, false), "account_audit")
}

func (d *Pages) teamAuditPage(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	return d.audit(ctx, q, d.teamAudit(q), "team_audit")
}

func (d *Pages) teamAuditDownload(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	return d.auditFile(ctx, q, d.teamAudit(q))
}

// teamAudit reads what a team's log is narrowed to. Its members see what all of them did.
func (d *Pages) teamAudit(q *shell.Request) auditData {
	data := d.auditOf(q, false)
	data.Team, data.Path, data.User = q.Caller.Owner, "/teams/"+q.Caller.Slug+"/audit", account.UserID(shell.Clean(q.Query("user")))
	data.Nouns = []string{"member", "invitation", "team", "site", "deployment", "domain", "env", "key", "app", "webhook"}
	return data
}

func (d *Pages) allAuditPage(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	return d.audit(ctx, q, d.auditOf(q, true), "operator_audit")
}

// auditOf reads what the log is narrowed to. Only the operator, who sees everybody's, may
// choose whose.
func (d *Pages) auditOf(q *shell.Request, all bool) auditData {
	data := auditData{Path: "/account/audit", What: shell.Clean(q.Query("what")), Key: shell.Clean(q.Query("key")), Nouns: auditNouns}
	data.All = all
	if all {
		data.Path, data.User = "/operator/audit", account.UserID(shell.Clean(q.Query("user")))
		data.Nouns = append(slices.Clone(auditNouns), "user", "mail")
	}
	return data
}

// filter returns what to ask the audit log for.
func (a auditData) filter(by account.Caller, before string, limit int) audit.Filter {
	if a.Team != "" {
		return audit.Filter{
			Owner: a.Team, By: a.User, Key: account.KeyID(a.Key), Action: a.What, Before: before, Limit: limit,
		}
	}
	if a.All {
		by = account.Caller{User: a.User}
	}
	return audit.Filter{User: by.User, Owner: by.Owner, Key: account.KeyID(a.Key), Action: a.What, Before: before, Limit: limit}
}

func (d *Pages) audit(ctx context.Context, q *shell.Request, data auditData, template string) (shell.Answer, error) {
	list, err := d.Accounts.Audit(ctx, data.filter(q.Caller, shell.Clean(q.Query("before")), auditPerPage+1))
	if err != nil {
		return shell.Answer{}, err
	}
	data.Entries = list
	if len(list) > auditPerPage {
		data.Entries = list[:auditPerPage]
		data.Older = data.link(data.Path, "before", list[auditPerPage-1].ID)
	}
	if data.User != "" {
		says := "Deleted user"
		u, err := d.Accounts.User(ctx, data.User)
		if err == nil {
			says = u.Email
		} else if !fault.Is(err, fault.NotFound) {
			return shell.Answer{}, err
		}
		data.Narrowed = append(data.Narrowed, narrowed{says, data.With("user", "")})
	}
	if data.Key != "" {
		says := "API key " + data.Key
		if len(list) > 0 {
			says = "API key " + list[0].Via
		}
		data.Narrowed = append(data.Narrowed, narrowed{says, data.With("key", "")})
	}
	if strings.Contains(data.What, ".") {
		data.Narrowed = append(data.Narrowed, narrowed{AuditLabel(data.What), data.With("what", "")})
	}
	data.SiteNames, err = d.auditSites(ctx, data.Entries)
	return shell.Page(template, "Audit log", data), err
}

// auditSites returns the names of the sites that entries are about, by the entries' ids.
func (d *Pages) auditSites(ctx context.Context, list []audit.Entry) (map[string]string, error) {
	out, names := map[string]string{}, map[site.ID]string{}
	for _, e := range list {
		if e.Owner == "" || strings.HasPrefix(e.Action, "site.") && e.Detail != "" {
			continue // nobody's, or it says the name itself
		}
		id := site.ID(e.Subject)
		switch {
		case strings.HasPrefix(e.Subject, "site_"):
		case strings.HasPrefix(e.Subject, "dep_"):
			x, err := d.Deployments.Get(ctx, e.Owner, deployment.ParseID(e.Subject))
			if err != nil && fault.As(err) == nil {
				return nil, err
			}
			id = x.Site
		case strings.HasPrefix(e.Subject, "dom_"):
			x, err := d.Domains.Get(ctx, d.DB, e.Owner, domain.ID(e.Subject))
			if err != nil && fault.As(err) == nil {
				return nil, err
			}
			id = x.SiteID
		default:
			id = ""
		}
		if id == "" {
			continue
		}
		if _, known := names[id]; !known {
			s, err := d.Sites.Get(ctx, e.Owner, id)
			if err != nil && fault.As(err) == nil {
				return nil, err
			}
			names[id] = s.Name // empty for one that is gone
		}
		out[e.ID] = names[id]
	}
	return out, nil
}

func (d *Pages) auditDownload(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	return d.auditFile(ctx, q, d.auditOf(q, false))
}

func (d *Pages) allAuditDownload(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	return d.auditFile(ctx, q, d.auditOf(q, true))
}

// AuditRead is how many lines are read at a time for a download: the log may be long.
const AuditRead = 200

// auditFile is all that the filter lets through, the newest first.
func (d *Pages) auditFile(ctx context.Context, q *shell.Request, data auditData) (shell.Answer, error) {
	format := q.Query("format")
	if format == "" {
		format = "csv"
	}
	kind := map[string]string{
		"csv": "text/csv; charset=utf-8", "json": "application/json", "ndjson": "application/x-ndjson",
	}[format]
	if kind == "" {
		return shell.Answer{}, &fault.Error{Kind: fault.Invalid, Message: "Invalid format", Details: "format must be csv, json or ndjson"}
	}
	list, err := d.Accounts.Audit(ctx, data.filter(q.Caller, "", AuditRead))
	if err != nil {
		return shell.Answer{}, err
	}
	return shell.Raw(func(w http.ResponseWriter) {
		d.WhileAllowed(w, q, func(ctx context.Context, conn *http.ResponseController) error {
			w.Header().Set("Content-Type", kind)
			w.Header().Set("Content-Disposition", `attachment; filename="slipway-audit.`+format+`"`)
			out := auditWriter(w, format)
			for {
				_ = conn.SetWriteDeadline(time.Now().Add(shell.SendTime)) // where there is none to be set, there is none
				if err := out.lines(list); err != nil {
					return err
				}
				if len(list) < AuditRead {
					break
				}
				if list, err = d.Accounts.Audit(ctx, data.filter(q.Caller, list[len(list)-1].ID, AuditRead)); err != nil {
					return err
				}
			}
			out.end()
			return nil
		})
	}), nil
}

// auditOut writes the log as a file.
type auditOut struct {
	lines func([]audit.Entry) error
	end   func()
}

// auditColumns are the same in both formats.
var auditColumns = []string{"time", "user", "email", "action", "subject", "detail", "about", "key", "session", "with", "address"}

func auditFields(e audit.Entry) []string {
	return []string{
		e.At.String(),
		string(e.User),
		e.Email,
		e.Action,
		e.Subject,
		e.Detail,
		string(e.About),
		string(e.Key),
		string(e.Session),
		e.Via,
		e.Addr,
	}
}

func auditWriter(w io.Writer, format string) auditOut {
	if format != "csv" {
		sep, next, end := "[\n", ",\n", "\n]\n"
		if format == "ndjson" {
			sep, next, end = "", "\n", "\n"
		}
		begun := false
		return auditOut{func(list []audit.Entry) error {
			for _, e := range list {
				line := map[string]string{}
				for i, v := range auditFields(e) {
					line[auditColumns[i]] = v
				}
				text, err := json.Marshal(line)
				if err != nil {
					return err
				}
				if _, err := fmt.Fprintf(w, "%s%s", sep, text); err != nil {
					return err
				}
				sep, begun = next, true
			}
			return nil
		}, func() {
			switch {
			case begun:
				fmt.Fprint(w, end)
			case format == "json":
				fmt.Fprint(w, "[]\n")
			}
		}}
	}
	table := csv.NewWriter(w)
	table.Write(auditColumns) // its error comes back with the first lines
	return auditOut{func(list []audit.Entry) error {
		for _, e := range list {
			fields := auditFields(e)
			for i, v := range fields {
				fields[i] = inert(v)
			}
			table.Write(fields)
		}
		table.Flush()
		return table.Error()
	}, func() {}}
}

// inert keeps a spreadsheet from taking a stranger's text for a formula.
func inert(s string) string {
	if s != "" && strings.ContainsRune("=+-@\t\r", rune(s[0])) {
		return "'" + s
	}
	return s
}
