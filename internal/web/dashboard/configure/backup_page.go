package configure

import (
	"context"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"slipway/internal/backup/backup"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/site"
	"slipway/internal/web/dashboard/shell"
	"slipway/internal/web/dashboard/sites"
	wordpresspages "slipway/internal/web/dashboard/wordpress"
	"slipway/internal/wordpress/difference"
)

func (d *Pages) backupRoutes() []shell.Route {
	return []shell.Route{
		shell.Get("/sites/{id}/backups", shell.User, d.backupsPage).Takes(account.BackupsRead),
		shell.Get("/sites/{id}/backups/follow", shell.User, d.backupsLive).Takes(account.BackupsRead),
		shell.Get("/sites/{id}/backups/download", shell.User, d.downloadBackup).Takes(account.BackupsRead).Least(account.RoleDeveloper),
		shell.Post("/sites/{id}/backups", shell.User, d.createBackup, d.backupsPage).Takes(account.BackupsWrite),
		shell.Post("/sites/{id}/backups/schedule", shell.User, d.scheduleBackups, d.backupsPage).Takes(account.BackupsWrite),
		shell.Post("/sites/{id}/backups/restore", shell.User, d.restoreBackup, d.backupsPage).
			Takes(account.BackupsWrite).Least(account.RoleManager),
		shell.Post("/sites/{id}/backups/verify", shell.User, d.verifyBackup, d.backupsPage).Takes(account.BackupsWrite),
		shell.Post("/sites/{id}/backups/delete", shell.User, d.deleteBackup, d.backupsPage).Takes(account.BackupsWrite),
	}
}

type backupsData struct {
	sites.SiteHead
	List     []backup.Backup // newest first
	Schedule backup.Schedule
	Under    []backup.Progress
	Weeks    [][]backupDay
	Why      string // why backups are unavailable
	Live     string
	Content  difference.Content // WordPress's last report
}

// ChangedSince lists what WordPress last reported as changed since a backup, such as "posts (2 Jan 15:04 UTC)", or
// returns "".
func (d backupsData) ChangedSince(b backup.Backup) string {
	var parts []string
	add := func(a difference.Amount, kind, name string) {
		if at := a.Changed.At(); at > b.CreatedAt {
			if noun := wordpresspages.Noun(kind); noun != "" {
				name = noun + "s"
			}
			parts = append(parts, name+at.Time().UTC().Format(" (2 Jan 15:04 UTC)"))
		}
	}
	for _, p := range d.Content.Posts {
		add(p, p.Type, p.Name)
	}
	for _, x := range []struct {
		kind string
		of   *difference.Amount
	}{{"comment", d.Content.Comments}, {"user", d.Content.Users}, {"file", d.Content.Files}} {
		if x.of != nil {
			add(*x.of, x.kind, "")
		}
	}
	return shell.Enumerate(parts)
}

// backupDay is a day in the calendar.
type backupDay struct {
	Date   string
	Number int
	Tone   string // ok, wait, bad, or empty: no backup
	Says   string
	Future bool
}

const (
	calendarWeeks = 6
	listedBackups = 100
)

func (d *Pages) backupsData(ctx context.Context, q *shell.Request) (data backupsData, err error) {
	head, err := d.Head(ctx, q, "backups")
	if err != nil {
		return data, err
	}
	data = backupsData{SiteHead: head, Why: d.Backups.Possible(), Live: head.Base() + "/backups/follow"}
	if data.List, _, err = d.Backups.List(ctx, q.Caller.Owner, backup.Filter{
		Site:  head.Site.ID,
		Page:  1,
		Limit: listedBackups,
	}); err != nil {
		return data, err
	}
	if data.Schedule, err = d.Backups.ScheduleOf(ctx, d.DB, head.Site.ID); err != nil {
		return data, err
	}
	data.Under, err = d.Backups.Under(ctx, q.Caller.Owner, head.Site.ID)
	data.Weeks = calendar(data.List, time.Now().UTC())
	if err == nil && head.Site.Type == site.WordPress {
		state, _, stored := d.WordPress.Stored(ctx, q.Caller.Owner, head.Site.ID)
		if stored != nil && fault.As(stored) == nil {
			return data, stored
		}
		data.Content = state.Content // empty if WordPress isn't installed yet
	}
	return data, err
}

// calendar returns the backups of each day of the last weeks.
func calendar(list []backup.Backup, now time.Time) [][]backupDay {
	type count struct{ verified, taken, failed int }
	days := map[string]count{}
	for _, b := range list {
		key := b.CreatedAt.Time().UTC().Format(time.DateOnly)
		c := days[key]
		switch {
		case b.Status == backup.Failed || b.Status == backup.Completed && b.Error != "":
			c.failed++
		case b.VerifiedAt != 0:
			c.verified++
		default:
			c.taken++
		}
		days[key] = c
	}
	today := time.Date(now.Year(), now.Month(), now.Day(), 0, 0, 0, 0, time.UTC)
	at := today.AddDate(0, 0, -7*(calendarWeeks-1)-(int(today.Weekday())+6)%7) // a Monday
	var weeks [][]backupDay
	for range calendarWeeks {
		var week []backupDay
		for range 7 {
			c := days[at.Format(time.DateOnly)]
			x := backupDay{Date: at.Format(time.DateOnly), Number: at.Day(), Future: at.After(today)}
			var says []string
			for _, p := range []struct {
				n    int
				tone string
				word string
			}{{c.failed, "bad", "failed"}, {c.taken, "wait", "not verified"}, {c.verified, "ok", "verified"}} {
				if p.n > 0 {
					x.Tone = p.tone
					says = append(says, strconv.Itoa(p.n)+" "+p.word)
				}
			}
			x.Says = strings.Join(says, ", ")
			if x.Says == "" {
				x.Says = "no backup"
			}
			week = append(week, x)
			at = at.AddDate(0, 0, 1)
		}
		weeks = append(weeks, week)
	}
	return weeks
}

// State returns a backup's display status.
func (backupsData) State(b backup.Backup) string {
	switch {
	case b.Status != backup.Completed:
		return string(b.Status)
	case b.Error != "":
		return "damaged"
	case b.VerifiedAt != 0:
		return "verified"
	}
	return "completed"
}

// WhatRestores describes in a sentence what restoring the backup does.
func (d backupsData) WhatRestores(b backup.Backup) string {
	what := "settings, environment variables, the deployment that was live, stored files and databases"
	for _, part := range []struct{ name, word string }{
		{backup.Settings, "settings and environment variables"},
		{backup.Files, "the deployment that was live and stored files"},
		{backup.Databases, "databases"},
	} {
		if len(b.Includes) == 1 && b.Includes[0] == part.name {
			what = part.word
		}
	}
	return "Replaces " + what + " of " + d.Site.Name + " with those of " + b.CreatedAt.Time().UTC().Format("2 January 2006, 15:04 UTC") +
		". What is there now is backed up first, so you can undo this. Requests wait for a moment while the application starts again."
}

func (d *Pages) backupsPage(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	data, err := d.backupsData(ctx, q)
	return shell.Page("site_backups", "Backups of "+data.Site.Name, data), err
}

// backupsLive updates the list when it changes.
func (d *Pages) backupsLive(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	if _, err := d.Head(ctx, q, "backups"); err != nil {
		return shell.Answer{}, err
	}
	return shell.LivePart(time.Second, func(ctx context.Context) ([]byte, bool, error) {
		data, err := d.backupsData(ctx, q)
		if err != nil {
			return nil, false, err
		}
		html, err := d.Part(ctx, q, "site_backups", "backups", data)
		return html, false, err
	}), nil
}

func (d *Pages) createBackup(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	id := shell.PathID[site.ID](q, "id")
	err := d.ActOn(ctx, q, func(tx *db.Tx) (audit.Event, error) {
		b, err := d.Backups.CreateTx(ctx, tx, q.Caller.Owner, id, backup.NewBackup{
			Type: backup.Manual,
			Note: strings.TrimSpace(q.Value("note")),
		})
		return audit.Event{Action: "backup.created", Subject: string(id), Detail: string(b.ID)}, err
	})
	return shell.GoTo("/sites/"+string(id)+"/backups", "Backup started"), err
}

func (d *Pages) scheduleBackups(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	id := shell.PathID[site.ID](q, "id")
	every, at := q.Value("every"), q.Value("at")
	p := backup.SchedulePatch{Every: &every, At: &at}
	for name, to := range map[string]**int{"daily": &p.Daily, "weekly": &p.Weekly, "monthly": &p.Monthly} {
		n, err := strconv.Atoi(q.Value(name))
		if err != nil {
			n = -1 // the schedule refuses -1 with a message
		}
		*to = &n
	}
	err := d.ActOn(ctx, q, func(tx *db.Tx) (audit.Event, error) {
		_, err := d.Backups.ScheduleTx(ctx, tx, q.Caller.Owner, id, p)
		return audit.Event{Action: "site.updated", Subject: string(id), Detail: "backups"}, err
	})
	return shell.GoTo("/sites/"+string(id)+"/backups", "Schedule saved"), err
}

// siteBackup returns a backup that belongs to the page's site.
func (d *Pages) siteBackup(ctx context.Context, q *shell.Request, id string) (sites.SiteHead, backup.Backup, error) {
	head, err := d.Head(ctx, q, "backups")
	if err != nil {
		return head, backup.Backup{}, err
	}
	b, err := d.Backups.Get(ctx, q.Caller.Owner, backup.ID(id))
	if err == nil && b.Site != head.Site.ID {
		err = fault.Missing("backup")
	}
	return head, b, err
}

func (d *Pages) restoreBackup(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	head, b, err := d.siteBackup(ctx, q, q.Value("backup"))
	if err != nil {
		return shell.Answer{}, err
	}
	var to backup.RestoreTo
	switch what := q.Value("what"); what {
	case "", "all":
	case "files":
		to.Includes = []string{backup.Files}
	case "database":
		to.Includes = []string{backup.Databases}
	case "some":
		to.Tables, to.Paths = q.Lines("tables"), q.Lines("paths")
		if len(to.Tables)+len(to.Paths) == 0 {
			return shell.Answer{}, &fault.Error{
				Kind: fault.Invalid, Message: "Name the tables or folders to restore", Details: "nothing was restored",
			}
		}
	case "new":
		to.NewName = strings.TrimSpace(q.Value("name"))
		if to.NewName == "" {
			return shell.Answer{}, &fault.Error{Kind: fault.Invalid, Message: "The new site needs a name", Details: "nothing was restored"}
		}
	default:
		return shell.Answer{}, &fault.Error{Kind: fault.Invalid, Message: "Invalid choice of what to restore", Received: what}
	}
	if to.NewName == "" {
		if err := sites.Confirmed(q, head.Site, "nothing was restored"); err != nil {
			return shell.Answer{}, err
		}
	}
	if to.NewName != "" { // creating a site requires a role on all sites
		if err := q.Caller.RequireAllSites(); err != nil {
			return shell.Answer{}, err
		}
	}
	plan, err := d.Backups.PlanRestore(ctx, q.Caller.Owner, b.ID, to)
	if err != nil {
		return shell.Answer{}, err
	}
	at := head.Site.ID
	err = d.ActOn(ctx, q, func(tx *db.Tx) (audit.Event, error) {
		o, err := d.Backups.RestoreTx(ctx, tx, q.Caller.Owner, plan)
		if err == nil {
			at = o.Site
		}
		return audit.Event{Action: "backup.restored", Subject: string(o.Site), Detail: string(b.ID)}, err
	})
	return shell.GoTo("/sites/"+string(at)+"/backups", "Restore started"), err
}

func (d *Pages) verifyBackup(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	head, b, err := d.siteBackup(ctx, q, q.Value("backup"))
	if err != nil {
		return shell.Answer{}, err
	}
	err = d.ActOn(ctx, q, func(tx *db.Tx) (audit.Event, error) {
		_, err := d.Backups.VerifyTx(ctx, tx, q.Caller.Owner, b.ID)
		return audit.Event{Action: "backup.verified", Subject: string(head.Site.ID), Detail: string(b.ID)}, err
	})
	return shell.GoTo(head.Base()+"/backups", "Verification started"), err
}

func (d *Pages) deleteBackup(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	head, b, err := d.siteBackup(ctx, q, q.Value("backup"))
	if err != nil {
		return shell.Answer{}, err
	}
	err = d.ActOn(ctx, q, func(tx *db.Tx) (audit.Event, error) {
		return audit.Event{
			Action:  "backup.deleted",
			Subject: string(head.Site.ID),
			Detail:  string(b.ID),
		}, d.Backups.DeleteTx(ctx, tx, q.Caller.Owner, b.ID)
	})
	return shell.GoTo(head.Base()+"/backups", "Backup deleted"), err
}

// downloadBackup sends the archive without secret values.
func (d *Pages) downloadBackup(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	if q.Query("backup") == "" {
		head, err := d.Head(ctx, q, "backups")
		return shell.GoTo(head.Base()+"/backups", ""), err
	}
	_, b, err := d.siteBackup(ctx, q, q.Query("backup"))
	if err != nil {
		return shell.Answer{}, err
	}
	return d.archive(ctx, q, b)
}

// archive responds with a backup's archive. It includes variables' values if the caller may read them.
func (d *Pages) archive(ctx context.Context, q *shell.Request, b backup.Backup) (shell.Answer, error) {
	values := backup.NoValues
	if q.Caller.RequireOn(account.EnvRead, b.Site) == nil {
		values = backup.OpenValues
	}
	archive, err := d.Backups.Open(ctx, q.Caller.Owner, b.ID, values)
	if err != nil {
		return shell.Answer{}, err
	}
	return shell.Raw(func(w http.ResponseWriter) { d.sendArchive(w, q, archive) }), nil
}

func (d *Pages) sendArchive(w http.ResponseWriter, q *shell.Request, archive *backup.Archive) {
	d.WhileAllowed(w, q, func(ctx context.Context, conn *http.ResponseController) error {
		w.Header().Set("Content-Type", "application/zip")
		w.Header().Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": archive.Name + ".zip"}))
		return archive.WriteZip(ctx, sending{w, conn})
	})
}

// sending extends the write deadline for as long as the browser keeps reading.
type sending struct {
	w    http.ResponseWriter
	conn *http.ResponseController
}

func (s sending) Write(b []byte) (int, error) {
	_ = s.conn.SetWriteDeadline(time.Now().Add(shell.SendTime)) // test writers have no deadline
	return s.w.Write(b)
}
