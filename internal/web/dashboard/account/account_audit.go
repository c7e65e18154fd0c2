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

// auditPerPage is the number of entries per page.
const auditPerPage = 50

// auditNouns lists the resources that can be selected.
var auditNouns = []string{
	"session", "password", "second_factor", "passkey", "key", "site", "deployment", "domain", "env", "hook", "webhook",
}

type auditData struct {
	Entries []audit.Entry
	Nouns   []string
	Path    string          // the page's path
	All     bool            // entries of all users
	Team    account.OwnerID // entries of this team only
	Older   string          // URL of the next page; empty at the end

	What      string // a noun or an action
	User      account.UserID
	Key       string            // key ID
	SiteNames map[string]string // names of existing sites by entry
	Narrowed  []narrowed
}

// narrowed describes a filter and has the link that removes it.
type narrowed struct{ Says, Without string }

// With returns the page's URL with one more filter or, for an empty value, without it.
func (a auditData) With(name, value string) string { return a.link(a.Path, name, value) }

// Download returns the URL of the complete filtered log.
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

// teamAudit reads the filter of a team's log, whose members see all members' entries.
func (d *Pages) teamAudit(q *shell.Request) auditData {
	data := d.auditOf(q, false)
	data.Team, data.Path, data.User = q.Caller.Owner, "/teams/"+q.Caller.Slug+"/audit", account.UserID(shell.Clean(q.Query("user")))
	data.Nouns = []string{"member", "invitation", "team", "site", "deployment", "domain", "env", "key", "app", "webhook"}
	return data
}

func (d *Pages) allAuditPage(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	return d.audit(ctx, q, d.auditOf(q, true), "operator_audit")
}

// auditOf reads the filter from the URL. Only operators, who see everyone's entries, can filter by user.
func (d *Pages) auditOf(q *shell.Request, all bool) auditData {
	data := auditData{Path: "/account/audit", What: shell.Clean(q.Query("what")), Key: shell.Clean(q.Query("key")), Nouns: auditNouns}
	data.All = all
	if all {
		data.Path, data.User = "/operator/audit", account.UserID(shell.Clean(q.Query("user")))
		data.Nouns = append(slices.Clone(auditNouns), "user", "mail")
	}
	return data
}

// filter returns the filter for the audit log.
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

// auditSites returns the names of entries' sites by entry ID.
func (d *Pages) auditSites(ctx context.Context, list []audit.Entry) (map[string]string, error) {
	out, names := map[string]string{}, map[site.ID]string{}
	for _, e := range list {
		if e.Owner == "" || strings.HasPrefix(e.Action, "site.") && e.Detail != "" {
			continue // without a site, or the detail has the name
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
			names[id] = s.Name // empty if the site is gone
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

// AuditRead is the number of entries read at a time for a download.
const AuditRead = 200

// auditFile downloads all entries that match the filter, newest first.
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
				_ = conn.SetWriteDeadline(time.Now().Add(shell.SendTime)) // test writers have no deadline
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

// auditOut writes entries as a file.
type auditOut struct {
	lines func([]audit.Entry) error
	end   func()
}

// auditColumns are the fields of both formats.
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
	table.Write(auditColumns) // an error is returned with the first entries
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

// inert keeps spreadsheets from treating untrusted text as a formula.
func inert(s string) string {
	if s != "" && strings.ContainsRune("=+-@\t\r", rune(s[0])) {
		return "'" + s
	}
	return s
}
