package configure

import (
	"context"
	"strings"
	"time"

	"slipway/internal/backup/backup"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/web/dashboard/shell"
)

func (d *Pages) deletedRoutes() []shell.Route {
	return []shell.Route{
		shell.Get("/deleted", shell.User, d.deletedPage).Takes(account.BackupsRead).Wide(),
		shell.Get("/deleted/follow", shell.User, d.deletedLive).Takes(account.BackupsRead).Wide(),
		shell.Get("/deleted/download", shell.User, d.downloadDeleted).Takes(account.BackupsRead).Least(account.RoleDeveloper).Wide(),
		shell.Post("/deleted/restore", shell.User, d.restoreDeleted, d.deletedPage).Takes(account.BackupsWrite).Least(account.RoleManager).Wide(),
		shell.Post("/deleted/forget", shell.User, d.forgetDeleted, d.deletedPage).Takes(account.BackupsWrite).Wide(),
	}
}

type deletedData struct {
	List    []backup.Backup // of deleted sites, newest first
	Pending []backup.Backup // of sites that will be deleted after these backups
}

// Refreshing reports whether deletions are in progress.
func (d deletedData) Refreshing() bool { return len(d.Pending) > 0 }

// pendingShown caps the deletions in progress that are shown.
const pendingShown = 20

// deletedPage lists the deleted sites that can be restored.
func (d *Pages) deletedPage(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	data, err := d.deletedData(ctx, q)
	return shell.Page("deleted", "Deleted sites", data), err
}

// deletedLive updates the list until no deletion is in progress.
func (d *Pages) deletedLive(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	return shell.LivePart(2*time.Second, func(ctx context.Context) ([]byte, bool, error) {
		data, err := d.deletedData(ctx, q)
		if err != nil {
			return nil, false, err
		}
		html, err := d.Part(ctx, q, "deleted", "deleted", data)
		return html, len(data.Pending) == 0, err
	}), nil
}

func (d *Pages) deletedData(ctx context.Context, q *shell.Request) (deletedData, error) {
	list, err := d.Backups.Deleted(ctx, q.Caller.Owner)
	if err != nil {
		return deletedData{}, err
	}
	data := deletedData{List: list}
	latest, _, err := d.Backups.List(ctx, q.Caller.Owner, backup.Filter{Type: backup.BeforeDelete, Page: 1, Limit: pendingShown})
	for _, b := range latest {
		if b.Status == backup.Pending || b.Status == backup.Running {
			data.Pending = append(data.Pending, b)
		}
	}
	return data, err
}

// deletedBackup returns the backup of a deleted site selected in the form or URL.
func (d *Pages) deletedBackup(ctx context.Context, q *shell.Request, id string) (backup.Backup, error) {
	list, err := d.Backups.Deleted(ctx, q.Caller.Owner)
	for _, b := range list {
		if b.ID == backup.ID(id) {
			return b, nil
		}
	}
	if err == nil {
		err = fault.Missing("backup")
	}
	return backup.Backup{}, err
}

func (d *Pages) restoreDeleted(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	b, err := d.deletedBackup(ctx, q, q.Value("backup"))
	if err != nil {
		return shell.Answer{}, err
	}
	name := strings.TrimSpace(q.Value("name"))
	if name == "" {
		return shell.Answer{}, &fault.Error{Kind: fault.Invalid, Message: "The site needs a name", Details: "nothing was restored"}
	}
	plan, err := d.Backups.PlanRestore(ctx, q.Caller.Owner, b.ID, backup.RestoreTo{NewName: name})
	if err != nil {
		return shell.Answer{}, err
	}
	at := ""
	err = d.ActOn(ctx, q, func(tx *db.Tx) (audit.Event, error) {
		o, err := d.Backups.RestoreTx(ctx, tx, q.Caller.Owner, plan)
		at = string(o.Site)
		return audit.Event{Action: "backup.restored", Subject: string(o.Site), Detail: string(b.ID)}, err
	})
	return shell.GoTo("/sites/"+at+"/backups", "Restore started"), err
}

func (d *Pages) forgetDeleted(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	b, err := d.deletedBackup(ctx, q, q.Value("backup"))
	if err != nil {
		return shell.Answer{}, err
	}
	err = d.ActOn(ctx, q, func(tx *db.Tx) (audit.Event, error) {
		return audit.Event{
			Action:  "backup.deleted",
			Subject: string(b.Site),
			Detail:  string(b.ID),
		}, d.Backups.DeleteTx(ctx, tx, q.Caller.Owner, b.ID)
	})
	return shell.GoTo("/deleted", "Backup deleted"), err
}

func (d *Pages) downloadDeleted(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	if q.Query("backup") == "" {
		return shell.GoTo("/deleted", ""), nil
	}
	b, err := d.deletedBackup(ctx, q, q.Query("backup"))
	if err != nil {
		return shell.Answer{}, err
	}
	return d.archive(ctx, q, b)
}
