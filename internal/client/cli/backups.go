package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

type backupsCommand struct {
	List    listBackups   `cmd:"" help:"List a site's backups."`
	Create  createBackup  `cmd:"" help:"Back up a site now."`
	Restore restoreBackup `cmd:"" help:"Restore a backup. The current state is backed up first."`
}

// backup is a backup in API responses.
type backup struct {
	ID         string
	SiteID     string
	Type       string
	Status     string
	SizeBytes  *int64
	VerifiedAt string
	Error      string
	CreatedAt  string
}

type listBackups struct{ ofSite }

// Run lists backups.
func (l listBackups) Run(ctx context.Context, e *Env) error {
	c, s, err := l.find(ctx, e)
	if err != nil {
		return failure(err)
	}
	all, err := c.List(ctx, "/sites/"+s.ID+"/backups")
	if err != nil {
		return failure(err)
	}
	return show(e, l.JSON, all, []string{"backup", "status", "type", "size", "verified", "created"}, func(b backup) []string {
		return []string{b.ID, b.Status, b.Type, sizeOf(b.SizeBytes), e.ago(b.VerifiedAt), e.ago(b.CreatedAt)}
	})
}

type createBackup struct {
	ofSite
	Note   string `env:"-" short:"m" help:"Note shown with the backup." placeholder:"TEXT"`
	NoWait bool   `name:"no-wait" env:"-" help:"Don't wait until it is completed."`
}

// Run backs a site up, and prints the backup's id.
func (n createBackup) Run(ctx context.Context, e *Env) error {
	c, s, err := n.find(ctx, e)
	if err != nil {
		return failure(err)
	}
	in := map[string]any{}
	if n.Note != "" {
		in["note"] = n.Note
	}
	answer, err := c.Do(ctx, http.MethodPost, "/sites/"+s.ID+"/backups", in)
	if err != nil {
		return failure(err)
	}
	var b backup
	for pause := 200 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		if err := json.Unmarshal(answer, &b); err != nil {
			return err
		}
		if n.NoWait || b.Status == "completed" || b.Status == "failed" {
			break
		}
		select {
		case <-ctx.Done():
			e.say("The backup %s goes on", printable(b.ID))
			return failure(context.Cause(ctx))
		case <-time.After(pause):
		}
		if answer, err = c.Do(ctx, http.MethodGet, "/backups/"+url.PathEscape(b.ID), nil); err != nil {
			return failure(err)
		}
	}
	switch {
	case n.JSON:
		err = e.json(answer)
	default:
		_, err = fmt.Fprintln(e.Out, printable(b.ID))
	}
	if err == nil && b.Status == "failed" {
		err = fmt.Errorf("the backup failed: %s", printable(b.Error))
	}
	return err
}

type restoreBackup struct {
	target
	Backup string   `arg:"" help:"Id of the backup, bkp_…"`
	Table  []string `help:"Restore only this table of the databases. May be repeated." env:"-" placeholder:"TABLE" sep:"none"`
	Path   []string `help:"Restore only this file or folder of the storage. May be repeated." env:"-" placeholder:"PATH" sep:"none"`
	Yes    string   `env:"-" help:"Confirm by the site's slug instead of typing it." placeholder:"SLUG"`
}

// Run restores a backup to its site.
func (r restoreBackup) Run(ctx context.Context, e *Env) error {
	c, err := r.client(e)
	if err != nil {
		return failure(err)
	}
	var b backup
	if err := c.Get(ctx, "/backups/"+url.PathEscape(r.Backup), &b); err != nil {
		return failure(err)
	}
	s, err := siteNamed(ctx, c, b.SiteID)
	if err != nil {
		return failure(err)
	}
	what, body := "the files, databases and settings", map[string]any{}
	if some := slices.Concat(r.Table, r.Path); len(some) > 0 {
		what = strings.Join(some, ", ")
	}
	if len(r.Table) > 0 {
		body["tables"] = r.Table
	}
	if len(r.Path) > 0 {
		body["paths"] = r.Path
	}
	if err := e.confirm(ctx, "Restoring "+b.ID+" replaces "+what+" of "+s.Name+".", s.Slug, r.Yes); err != nil {
		return err
	}
	answer, err := c.Do(ctx, http.MethodPost, "/backups/"+url.PathEscape(b.ID)+"/restore", body)
	if err != nil {
		return failure(err)
	}
	return r.ended(ctx, e, c, answer, "Restored "+printable(s.Name)+". slipway backups list shows the state before")
}
