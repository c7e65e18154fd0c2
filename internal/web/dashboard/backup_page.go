package dashboard

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
	"slipway/internal/tenant/site"
)

func (d *Dashboard) backupRoutes() []route {
	return []route{
		get("/sites/{id}/backups", user, d.backupsPage),
		get("/sites/{id}/backups/follow", user, d.backupsLive),
		get("/sites/{id}/backups/download", user, d.downloadBackup),
		post("/sites/{id}/backups", user, d.createBackup, d.backupsPage),
		post("/sites/{id}/backups/schedule", user, d.scheduleBackups, d.backupsPage),
		post("/sites/{id}/backups/restore", user, d.restoreBackup, d.backupsPage),
		post("/sites/{id}/backups/verify", user, d.verifyBackup, d.backupsPage),
		post("/sites/{id}/backups/delete", user, d.deleteBackup, d.backupsPage),
	}
}

type backupsData struct {
	siteHead
	List     []backup.Backup // the newest first
	Schedule backup.Schedule
	Under    []backup.Progress
	Weeks    [][]backupDay
	Why      string // there are no backups here
	Live     string
}

// backupDay is a day of the calendar.
type backupDay struct {
	Date   string
	Number int
	Tone   string // ok, wait, bad, or empty: none
	Says   string
	Future bool
}

const (
	calendarWeeks = 6
	listedBackups = 100
)

func (d *Dashboard) backupsData(ctx context.Context, q *request) (data backupsData, err error) {
	head, err := d.head(ctx, q, "backups")
	if err != nil {
		return data, err
	}
	data = backupsData{siteHead: head, Why: d.Backups.Possible(), Live: head.Base() + "/backups/follow"}
	if data.List, _, err = d.Backups.List(ctx, q.caller.Owner, backup.Filter{
		Site:  head.Site.ID,
		Page:  1,
		Limit: listedBackups,
	}); err != nil {
		return data, err
	}
	if data.Schedule, err = d.Backups.ScheduleOf(ctx, d.DB, head.Site.ID); err != nil {
		return data, err
	}
	data.Under, err = d.Backups.Under(ctx, q.caller.Owner, head.Site.ID)
	data.Weeks = calendar(data.List, time.Now().UTC())
	return data, err
}

// calendar shows for each day of the last weeks which backups of it there are.
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
			if x.Says = strings.Join(says, ", "); x.Says == "" {
				x.Says = "no backup"
			}
			week = append(week, x)
			at = at.AddDate(0, 0, 1)
		}
		weeks = append(weeks, week)
	}
	return weeks
}

// State is the word for where a backup stands.
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

// WhatRestores says in a sentence what a restore of the backup does.
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

func (d *Dashboard) backupsPage(ctx context.Context, q *request) (answer, error) {
	data, err := d.backupsData(ctx, q)
	return page("site_backups", "Backups of "+data.Site.Name, data), err
}

// backupsLive sends the list again whenever something of it changes.
func (d *Dashboard) backupsLive(ctx context.Context, q *request) (answer, error) {
	if _, err := d.head(ctx, q, "backups"); err != nil {
		return answer{}, err
	}
	wake, stop := d.follow(q)
	return answer{live: live{wake: wake, stop: stop, poll: time.Second, render: func(ctx context.Context) ([]byte, bool, error) {
		data, err := d.backupsData(ctx, q)
		if err != nil {
			return nil, false, err
		}
		html, err := d.part(ctx, q, "site_backups", "backups", data)
		return html, false, err
	}}}, nil
}

func (d *Dashboard) createBackup(ctx context.Context, q *request) (answer, error) {
	id := site.ID(q.PathValue("id"))
	err := d.actOn(ctx, q, func(tx *db.Tx) (account.AuditEvent, error) {
		b, err := d.Backups.CreateTx(ctx, tx, q.caller.Owner, id, backup.NewBackup{
			Type: backup.Manual,
			Note: strings.TrimSpace(q.value("note")),
		})
		return account.AuditEvent{Action: "backup.created", Subject: string(id), Detail: string(b.ID)}, err
	})
	return goTo("/sites/"+string(id)+"/backups", "Backup started"), err
}

func (d *Dashboard) scheduleBackups(ctx context.Context, q *request) (answer, error) {
	id := site.ID(q.PathValue("id"))
	every, at := q.value("every"), q.value("at")
	p := backup.SchedulePatch{Every: &every, At: &at}
	for name, to := range map[string]**int{"daily": &p.Daily, "weekly": &p.Weekly, "monthly": &p.Monthly} {
		n, err := strconv.Atoi(q.value(name))
		if err != nil {
			n = -1 // which the schedule refuses in words
		}
		*to = &n
	}
	err := d.actOn(ctx, q, func(tx *db.Tx) (account.AuditEvent, error) {
		_, err := d.Backups.ScheduleTx(ctx, tx, q.caller.Owner, id, p)
		return account.AuditEvent{Action: "site.updated", Subject: string(id), Detail: "backups"}, err
	})
	return goTo("/sites/"+string(id)+"/backups", "Schedule saved"), err
}

// siteBackup returns a backup of the very site of the page.
func (d *Dashboard) siteBackup(ctx context.Context, q *request, id string) (siteHead, backup.Backup, error) {
	head, err := d.head(ctx, q, "backups")
	if err != nil {
		return head, backup.Backup{}, err
	}
	b, err := d.Backups.Get(ctx, q.caller.Owner, backup.ID(id))
	if err == nil && b.Site != head.Site.ID {
		err = fault.Missing("backup")
	}
	return head, b, err
}

func (d *Dashboard) restoreBackup(ctx context.Context, q *request) (answer, error) {
	head, b, err := d.siteBackup(ctx, q, q.value("backup"))
	if err != nil {
		return answer{}, err
	}
	var to backup.RestoreTo
	switch what := q.value("what"); what {
	case "", "all":
	case "files":
		to.Includes = []string{backup.Files}
	case "database":
		to.Includes = []string{backup.Databases}
	case "new":
		if to.NewName = strings.TrimSpace(q.value("name")); to.NewName == "" {
			return answer{}, &fault.Error{Kind: fault.Invalid, Message: "The new site needs a name", Details: "nothing was restored"}
		}
	default:
		return answer{}, &fault.Error{Kind: fault.Invalid, Message: "Invalid choice of what to restore", Received: what}
	}
	plan, err := d.Backups.PlanRestore(ctx, q.caller.Owner, b.ID, to)
	if err != nil {
		return answer{}, err
	}
	at := string(head.Site.ID)
	err = d.actOn(ctx, q, func(tx *db.Tx) (account.AuditEvent, error) {
		o, err := d.Backups.RestoreTx(ctx, tx, q.caller.Owner, plan)
		if err == nil {
			at = o.Site
		}
		return account.AuditEvent{Action: "backup.restored", Subject: o.Site, Detail: string(b.ID)}, err
	})
	return goTo("/sites/"+at+"/backups", "Restore started"), err
}

func (d *Dashboard) verifyBackup(ctx context.Context, q *request) (answer, error) {
	head, b, err := d.siteBackup(ctx, q, q.value("backup"))
	if err != nil {
		return answer{}, err
	}
	err = d.actOn(ctx, q, func(tx *db.Tx) (account.AuditEvent, error) {
		_, err := d.Backups.VerifyTx(ctx, tx, q.caller.Owner, b.ID)
		return account.AuditEvent{Action: "backup.verified", Subject: string(head.Site.ID), Detail: string(b.ID)}, err
	})
	return goTo(head.Base()+"/backups", "Verification started"), err
}

func (d *Dashboard) deleteBackup(ctx context.Context, q *request) (answer, error) {
	head, b, err := d.siteBackup(ctx, q, q.value("backup"))
	if err != nil {
		return answer{}, err
	}
	err = d.actOn(ctx, q, func(tx *db.Tx) (account.AuditEvent, error) {
		return account.AuditEvent{
			Action:  "backup.deleted",
			Subject: string(head.Site.ID),
			Detail:  string(b.ID),
		}, d.Backups.DeleteTx(ctx, tx, q.caller.Owner, b.ID)
	})
	return goTo(head.Base()+"/backups", "Backup deleted"), err
}

// downloadBackup sends the archive, without the values of secrets.
func (d *Dashboard) downloadBackup(ctx context.Context, q *request) (answer, error) {
	if q.query("backup") == "" {
		head, err := d.head(ctx, q, "backups")
		return goTo(head.Base()+"/backups", ""), err
	}
	_, b, err := d.siteBackup(ctx, q, q.query("backup"))
	if err != nil {
		return answer{}, err
	}
	archive, err := d.Backups.Open(ctx, q.caller.Owner, b.ID, false)
	if err != nil {
		return answer{}, err
	}
	return answer{raw: func(w http.ResponseWriter) { d.sendArchive(w, q, archive) }}, nil
}

func (d *Dashboard) sendArchive(w http.ResponseWriter, q *request, archive *backup.Archive) {
	d.whileAllowed(w, q, func(ctx context.Context, conn *http.ResponseController) error {
		w.Header().Set("Content-Type", "application/zip")
		w.Header().Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": archive.Name + ".zip"}))
		return archive.WriteZip(ctx, sending{w, conn})
	})
}

// sending writes for as long as the browser takes something every sendTime.
type sending struct {
	w    http.ResponseWriter
	conn *http.ResponseController
}

func (s sending) Write(b []byte) (int, error) {
	_ = s.conn.SetWriteDeadline(time.Now().Add(sendTime)) // where there is none to be set, there is none
	return s.w.Write(b)
}
