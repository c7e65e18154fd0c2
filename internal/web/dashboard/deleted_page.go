package dashboard

import (
	"context"
	"net/http"
	"strings"

	"slipway/internal/backup/backup"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
)

func (d *Dashboard) deletedRoutes() []route {
	return []route{
		get("/deleted", user, d.deletedPage),
		get("/deleted/download", user, d.downloadDeleted),
		post("/deleted/restore", user, d.restoreDeleted, d.deletedPage),
		post("/deleted/forget", user, d.forgetDeleted, d.deletedPage),
	}
}

type deletedData struct {
	List []backup.Backup // of sites that are gone, the newest first
}

// deletedPage lists the deleted sites that can be brought back.
func (d *Dashboard) deletedPage(ctx context.Context, q *request) (answer, error) {
	list, err := d.Backups.Deleted(ctx, q.caller.Owner)
	return page("deleted", "Deleted sites", deletedData{list}), err
}

// deletedBackup returns the backup of a deleted site that the form or the link names.
func (d *Dashboard) deletedBackup(ctx context.Context, q *request, id string) (backup.Backup, error) {
	list, err := d.Backups.Deleted(ctx, q.caller.Owner)
	for _, b := range list {
		if string(b.ID) == id {
			return b, nil
		}
	}
	if err == nil {
		err = fault.Missing("backup")
	}
	return backup.Backup{}, err
}

func (d *Dashboard) restoreDeleted(ctx context.Context, q *request) (answer, error) {
	b, err := d.deletedBackup(ctx, q, q.value("backup"))
	if err != nil {
		return answer{}, err
	}
	name := strings.TrimSpace(q.value("name"))
	if name == "" {
		return answer{}, &fault.Error{Kind: fault.Invalid, Message: "The site needs a name", Details: "nothing was restored"}
	}
	plan, err := d.Backups.PlanRestore(ctx, q.caller.Owner, b.ID, backup.RestoreTo{NewName: name})
	if err != nil {
		return answer{}, err
	}
	at := ""
	err = d.actOn(ctx, q, func(tx *db.Tx) (account.AuditEvent, error) {
		o, err := d.Backups.RestoreTx(ctx, tx, q.caller.Owner, plan)
		at = o.Site
		return account.AuditEvent{Action: "backup.restored", Subject: o.Site, Detail: string(b.ID)}, err
	})
	return goTo("/sites/"+at+"/backups", "Restore started"), err
}

func (d *Dashboard) forgetDeleted(ctx context.Context, q *request) (answer, error) {
	b, err := d.deletedBackup(ctx, q, q.value("backup"))
	if err != nil {
		return answer{}, err
	}
	err = d.actOn(ctx, q, func(tx *db.Tx) (account.AuditEvent, error) {
		return account.AuditEvent{
			Action:  "backup.deleted",
			Subject: string(b.Site),
			Detail:  string(b.ID),
		}, d.Backups.DeleteTx(ctx, tx, q.caller.Owner, b.ID)
	})
	return goTo("/deleted", "Backup deleted"), err
}

func (d *Dashboard) downloadDeleted(ctx context.Context, q *request) (answer, error) {
	if q.query("backup") == "" {
		return goTo("/deleted", ""), nil
	}
	b, err := d.deletedBackup(ctx, q, q.query("backup"))
	if err != nil {
		return answer{}, err
	}
	archive, err := d.Backups.Open(ctx, q.caller.Owner, b.ID, false)
	if err != nil {
		return answer{}, err
	}
	return answer{raw: func(w http.ResponseWriter) { d.sendArchive(w, q, archive) }}, nil
}
