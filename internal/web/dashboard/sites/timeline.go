package sites

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"slipway/internal/backup/backup"
	"slipway/internal/deploy/deployment"
	"slipway/internal/platform/db"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/domain"
	"slipway/internal/web/dashboard/shell"
)

// The timeline shows the latest timelineRows events of a site from the last timelineDays. It reads up to timelineRead
// entries of the owner's audit log.
const (
	timelineRows = 12
	timelineDays = 30
	timelineRead = 100
)

// happening is an event in the timeline.
type happening struct {
	At     db.Time
	Kind   string // deployment, crash, backup or change
	Tone   string // ok, bad or empty
	Title  string
	Action string // audit action, instead of a title
	Text   string
	Path   string
}

// timeline collects a site's events from existing records, newest first.
func (d *Pages) timeline(
	ctx context.Context, q *shell.Request, head SiteHead, list []deployment.Deployment, domains []domain.Domain,
) ([]happening, error) {
	var out []happening
	for _, x := range list {
		row := DeploymentRow{Deployment: x, head: head}
		h := happening{At: cmp.Or(x.CompletedAt, x.CreatedAt), Kind: "deployment", Text: row.Name(), Path: row.Path()}
		switch {
		case x.Status == deployment.Success:
			h.Title, h.Tone = "Deployed", "ok"
			if x.Target == deployment.Preview {
				h.Title = "Preview deployed"
			}
		case x.Status == deployment.Failed:
			h.Title, h.Tone = "Deployment failed", "bad"
		case x.Skipped() != "":
			h.Title = "Push skipped"
		case x.Status.Ended():
			h.Title = "Deployment canceled"
		default:
			h.Title = "Deployment started"
		}
		out = append(out, h)
	}
	backups, _, err := d.Backups.List(ctx, q.Caller.Owner, backup.Filter{Site: head.Site.ID, Page: 1, Limit: 5})
	if err != nil {
		return nil, err
	}
	for _, b := range backups {
		h := happening{At: cmp.Or(b.CompletedAt, b.CreatedAt), Kind: "backup", Text: b.Note, Path: head.Base() + "/backups"}
		switch b.Status {
		case backup.Completed:
			h.Title, h.Tone = "Backup completed", "ok"
		case backup.Failed:
			h.Title, h.Tone, h.Text = "Backup failed", "bad", b.Error
		default:
			h.Title = "Backup started"
		}
		out = append(out, h)
	}
	crashes, err := d.crashes(ctx, head)
	if err != nil {
		return nil, err
	}
	out = append(out, crashes...)
	changes, err := d.changes(ctx, q, head, domains)
	if err != nil {
		return nil, err
	}
	out = append(out, changes...)
	slices.SortStableFunc(out, func(a, b happening) int { return cmp.Compare(b.At, a.At) })
	return out[:min(len(out), timelineRows)], nil
}

// crashes returns the crashes recorded in a program's log. Repeated messages are listed once with their latest time.
func (d *Pages) crashes(ctx context.Context, head SiteHead) (out []happening, err error) {
	if !head.HasProgram() || d.Programs == nil {
		return nil, nil
	}
	lines, err := d.Programs.ProgramLog(ctx, head.Site.ID, ProgramFilter{Stream: "system", Level: "warn", Limit: timelineRead})
	if err != nil {
		return nil, err
	}
	for _, x := range slices.Backward(lines) {
		if strings.Contains(x.Message, " was answered with ") { // a failed request, which the charts count
			continue
		}
		why, _, _ := strings.Cut(x.Message, ", ")
		if len(out) > 0 && strings.HasPrefix(out[len(out)-1].Text, why) {
			continue
		}
		out = append(out, happening{
			At: x.At, Kind: "crash", Tone: "bad", Title: "Application stopped", Text: x.Message,
			Path: shell.Link(head.Base()+"/logs", "line", strconv.FormatInt(x.N, 10)) + "#P" + strconv.FormatInt(x.N, 10),
		})
	}
	return out, nil
}

// changes returns people's changes to the site and its domains.
func (d *Pages) changes(ctx context.Context, q *shell.Request, head SiteHead, domains []domain.Domain) (out []happening, err error) {
	entries, err := d.Accounts.Audit(ctx, audit.Filter{
		Owner: q.Caller.Owner, Since: db.Now().Add(-timelineDays * 24 * time.Hour), Limit: timelineRead,
	})
	if err != nil {
		return nil, err
	}
	paths := map[string]string{string(head.Site.ID): head.Base() + "/settings"}
	for _, x := range domains {
		paths[string(x.ID)] = head.Base() + "/domains/" + string(x.ID)
	}
	for _, e := range entries {
		path, ok := paths[e.Subject]
		noun, _, _ := strings.Cut(e.Action, ".")
		if !ok || noun == "deployment" || noun == "backup" || e.Action == "site.deployed" {
			continue
		}
		text := e.Detail
		if text == head.Site.Name {
			text = ""
		}
		if noun == "domain" {
			text = domain.Unicode(text)
		}
		out = append(out, happening{At: e.At, Kind: "change", Action: e.Action, Text: text, Path: path})
	}
	return out, nil
}
