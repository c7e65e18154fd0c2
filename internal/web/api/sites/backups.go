package sites

import (
	"context"
	"mime"
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"slipway/internal/backup/backup"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/panics"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/site"
	"slipway/internal/web/api/contract"
)

type backupBody struct {
	ID          backup.ID `json:"id" example:"bkp_25o5kzh3mc7yw4tn6pqd2xlfae"`
	SiteID      site.ID   `json:"siteId" doc:"The site, which may be deleted."`
	Type        string    `json:"type" enum:"manual,scheduled,before_update,before_restore,before_delete"`
	Status      string    `json:"status" enum:"pending,running,completed,failed"`
	Includes    []string  `json:"includes" doc:"The requested contents: config, files, database."`
	Note        *string   `json:"note"`
	SizeBytes   *int64    `json:"sizeBytes" doc:"Bytes in the backup. While it is running: bytes read so far."`
	StoredBytes *int64    `json:"storedBytes" doc:"Bytes added to the store. Content of earlier backups is not stored again."`
	Checksum    *string   `json:"checksum" doc:"SHA-256 of its file list, which has the SHA-256 of each file."`
	VerifiedAt  *string   `json:"verifiedAt" format:"date-time" doc:"When it was last verified: all of it was read, its databases were loaded and compared, and WordPress responded from the restored copy."`
	Answer      *string   `json:"answer" example:"Restored copy: GET / returned 200" doc:"The site's response when the backup was verified. Its program runs from the restored copy, without network and mail. Applications that depend on external services may not respond; WordPress must."`
	Error       *string   `json:"error" doc:"Why the backup or its verification failed."`
	CreatedAt   string    `json:"createdAt" format:"date-time"`
	CompletedAt *string   `json:"completedAt" format:"date-time"`
	ExpiresAt   *string   `json:"expiresAt" format:"date-time" doc:"Null: kept until it is deleted or the schedule no longer keeps it."`
}

// scheduleBody is a site's backup schedule.
type scheduleBody struct {
	Every string   `json:"every" enum:"off,hourly,daily,weekly"`
	At    string   `json:"at" example:"03:00" doc:"Time of day in UTC. Weekly backups run on Sunday."`
	Keep  keepBody `json:"keep" doc:"How many scheduled backups are kept. The latest is always kept."`
}

type keepBody struct {
	Daily   int `json:"daily" minimum:"0" maximum:"366"`
	Weekly  int `json:"weekly" minimum:"0" maximum:"366"`
	Monthly int `json:"monthly" minimum:"0" maximum:"366"`
}

// schedulePatch holds the changeable fields of a schedule.
type schedulePatch struct {
	Every *string `json:"every,omitempty" enum:"off,hourly,daily,weekly"`
	At    *string `json:"at,omitempty" example:"03:00"`
	Keep  *struct {
		Daily   *int `json:"daily,omitempty"`
		Weekly  *int `json:"weekly,omitempty"`
		Monthly *int `json:"monthly,omitempty"`
	} `json:"keep,omitempty"`
}

func (a *API) backupRoutes() {
	r := func(path, id, summary, doc string, s account.Scope) contract.Route {
		return contract.Route{Path: path, ID: id, Tag: "Backups", Summary: summary, Doc: doc, Scope: s, Noun: "backup"}
	}
	contract.Get(a.API, r("/sites/{id}/backups", "listBackups", "List a site's backups", "Newest first.", account.BackupsRead), a.listBackups)
	create := r("/sites/{id}/backups", "createBackup", "Back a site up",
		"The body is optional. Backs up the site's settings and variables, release, storage and databases at one moment, while the site "+
			"runs. Once completed, the backup is verified: it is restored to a temporary location, compared and run. See `verifiedAt` and `answer`.",
		account.BackupsWrite)
	create.Status, create.Limited = 201, true
	contract.Post(a.API, create, a.createBackup)
	contract.Get(a.API,
		r("/backups", "listAllBackups", "List backups", "Newest first, those of deleted sites too.", account.BackupsRead),
		a.listAllBackups)
	contract.Get(a.API, r("/backups/{id}", "getBackup", "Read a backup", "", account.BackupsRead), a.getBackup)
	contract.Change(a.API, "DELETE",
		r("/backups/{id}", "deleteBackup", "Delete a backup", "What other backups hold too stays.", account.BackupsWrite),
		a.deleteBackup)
	verify := r("/backups/{id}/verify", "verifyBackup", "Verify a backup",
		"Restores the backup to a temporary location, compares it and runs it there. Every backup is verified once when it is completed.",
		account.BackupsWrite)
	verify.Status = 202
	contract.Post(a.API, verify, a.verifyBackup)
	restore := r("/backups/{id}/restore", "restoreBackup", "Restore a backup",
		"Without a body, everything is restored to the backup's own site. The site's current state is backed up first: restore "+
			"the operation's `result.backupId` to undo. `newSite` restores to a new site, for example after the site was deleted.",
		account.BackupsWrite)
	restore.Status, restore.Limited, restore.Role = 202, true, account.RoleManager
	contract.PostPrepared(a.API, restore, a.planRestore, a.restoreBackup)
	download := r("/backups/{id}/download", "downloadBackup", "Download a backup",
		"A plain archive: `site.json`, `env.json`, `files/` (what the site serves), `app/` (its program), `storage/`, `database/` "+
			"and `manifest.json` with the SHA-256 of each file. `env.json` has values only for keys with the scope `env:read`. In a team, it "+
			"takes the role developer.",
		account.BackupsRead)
	download.Role = account.RoleDeveloper
	a.downloadRoute(download)
}

// ownBackup returns a backup that the caller may access.
func (a *API) ownBackup(ctx context.Context, c account.Caller, id backup.ID) (backup.Backup, error) {
	b, err := a.Backups.Get(ctx, c.Owner, id)
	if err != nil {
		return b, err
	}
	return b, c.RequireSite(b.Site)
}

type listBackupsIn struct {
	contract.ByID[site.ID]
	contract.PartIn
	Type string `query:"type" enum:"manual,scheduled,before_update,before_restore,before_delete" doc:"Only backups of this type."`
}

// maxListed caps the backups in a list without pages.
const maxListed = 1000

func (a *API) listBackups(ctx context.Context, c account.Caller, in *listBackupsIn) (contract.Data[backupBody], error) {
	if _, err := a.Site(ctx, c, in.ID); err != nil {
		return contract.Data[backupBody]{}, err
	}
	list, _, err := a.Backups.List(ctx, c.Owner, backup.Filter{Site: in.ID, Type: backup.Type(in.Type), Page: 1, Limit: maxListed})
	return contract.Part(in.PartIn, contract.Each(list, showBackup), err)
}

type listAllBackupsIn struct {
	contract.PageIn
	SiteID site.ID `query:"siteId" doc:"Only backups of this site, which may be deleted."`
	Type   string  `query:"type" enum:"manual,scheduled,before_update,before_restore,before_delete" doc:"Only backups of this type."`
}

func (a *API) listAllBackups(ctx context.Context, c account.Caller, in *listAllBackupsIn) (contract.Page[backupBody], error) {
	p, err := in.Parse()
	if err != nil {
		return contract.Page[backupBody]{}, err
	}
	f := backup.Filter{Site: in.SiteID, Type: backup.Type(in.Type), Page: p.Page, Limit: p.Limit}
	for _, id := range c.Sites {
		f.Only = append(f.Only, site.ID(id))
	}
	list, total, err := a.Backups.List(ctx, c.Owner, f)
	return contract.Paged(contract.Each(list, showBackup), p, total), err
}

func (a *API) getBackup(ctx context.Context, c account.Caller, in *contract.ByID[backup.ID]) (backupBody, error) {
	b, err := a.ownBackup(ctx, c, in.ID)
	return showBackup(b), err
}

type createBackupIn struct {
	contract.ByID[site.ID]
	Body *struct {
		Note     string   `json:"note,omitempty" maxLength:"500" doc:"Note shown with the backup."`
		Includes []string `json:"includes,omitempty" enum:"config,files,database" doc:"What to back up. Default: everything."`
	}
}

func (a *API) createBackup(
	ctx context.Context,
	tx *db.Tx,
	c account.Caller,
	in *createBackupIn,
) (_ backupBody, did audit.Event, _ error) {
	if err := a.Allowed(ctx, tx, c, in.ID); err != nil {
		return backupBody{}, did, err
	}
	n := backup.NewBackup{Type: backup.Manual}
	if in.Body != nil {
		n.Note, n.Includes = in.Body.Note, in.Body.Includes
	}
	b, err := a.Backups.CreateTx(ctx, tx, c.Owner, in.ID, n)
	did = audit.Event{Action: "backup.created", Subject: string(in.ID), Detail: string(b.ID)}
	return showBackup(b), did, err
}

func (a *API) deleteBackup(
	ctx context.Context, tx *db.Tx, c account.Caller, in *contract.ByID[backup.ID],
) (_ contract.Message, did audit.Event, _ error) {
	b, err := a.Backups.GetTx(ctx, tx, c.Owner, in.ID)
	if err == nil {
		err = c.RequireSite(b.Site)
	}
	if err != nil {
		return contract.Message{}, did, err
	}
	did = audit.Event{Action: "backup.deleted", Subject: string(b.Site), Detail: string(in.ID)}
	return contract.Message{Message: "Backup deleted"}, did, a.Backups.DeleteTx(ctx, tx, c.Owner, b.ID)
}

func (a *API) verifyBackup(
	ctx context.Context, tx *db.Tx, c account.Caller, in *contract.ByID[backup.ID],
) (_ contract.OperationBody, did audit.Event, _ error) {
	b, err := a.Backups.GetTx(ctx, tx, c.Owner, in.ID)
	if err == nil {
		err = c.RequireSite(b.Site)
	}
	if err != nil {
		return contract.OperationBody{}, did, err
	}
	o, err := a.Backups.VerifyTx(ctx, tx, c.Owner, b.ID)
	did = audit.Event{Action: "backup.verified", Subject: string(b.Site), Detail: string(in.ID)}
	return contract.ShowOperation(o), did, err
}

type restoreBackupIn struct {
	contract.ByID[backup.ID]
	Body *struct {
		Includes []string `json:"includes,omitempty" enum:"config,files,database" doc:"What to restore. Default: everything in the backup."`
		Paths    []string `json:"paths,omitempty" maxItems:"1000" doc:"Only these files and folders of the site's storage are restored." example:"[\"uploads/2026\"]"`
		Tables   []string `json:"tables,omitempty" maxItems:"200" doc:"Only these tables of the databases are restored, as TABLE, or DATABASE/TABLE if the backup has several databases. Others stay. Tables with foreign keys are restored together." example:"[\"wp_posts\", \"wp_postmeta\"]"`
		SiteID   site.ID  `json:"siteId,omitempty" doc:"Another site to restore to."`
		NewSite  *struct {
			Name string `json:"name" doc:"Display name, 1 to 100 characters."`
		} `json:"newSite,omitempty" doc:"Create a site and restore to it."`
	}
}

func (a *API) planRestore(ctx context.Context, c account.Caller, in *restoreBackupIn) (backup.Plan, error) {
	if _, err := a.ownBackup(ctx, c, in.ID); err != nil {
		return backup.Plan{}, err
	}
	var to backup.RestoreTo
	if b := in.Body; b != nil {
		to = backup.RestoreTo{Includes: b.Includes, Paths: b.Paths, Tables: b.Tables, Site: b.SiteID}
		if b.SiteID != "" {
			if err := c.RequireSite(b.SiteID); err != nil {
				return backup.Plan{}, err
			}
		}
		if b.NewSite != nil {
			if err := c.RequireAllSites(); err != nil {
				return backup.Plan{}, err
			}
			to.NewName = strings.TrimSpace(b.NewSite.Name)
			if to.NewName == "" {
				return backup.Plan{}, fault.New(fault.Invalid, "invalid_name", "The site needs a name",
					"newSite.name must have 1 to 100 characters")
			}
		}
	}
	return a.Backups.PlanRestore(ctx, c.Owner, in.ID, to)
}

func (a *API) restoreBackup(
	ctx context.Context,
	tx *db.Tx,
	c account.Caller,
	in *restoreBackupIn,
	p backup.Plan,
) (_ contract.OperationBody, did audit.Event, _ error) {
	o, err := a.Backups.RestoreTx(ctx, tx, c.Owner, p)
	did = audit.Event{Action: "backup.restored", Subject: string(o.Site), Detail: string(in.ID)}
	return contract.ShowOperation(o), did, err
}

type downloadIn struct {
	contract.ByID[backup.ID]
	Format  string `query:"format" enum:"tar.zst,zip" doc:"Default: tar.zst."`
	Secrets string `query:"secrets" enum:"true,false" doc:"Whether to include the values of secret variables in env.json and the repository credential in site.json. Requires the scope env:write."`
}

func (a *API) downloadRoute(r contract.Route) {
	r.Method, r.Status = http.MethodGet, http.StatusOK
	op := a.Operation(r, reflect.TypeFor[string]())
	op.Responses["409"] = &huma.Response{}
	binary := &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"}}
	op.Responses["200"].Content = map[string]*huma.MediaType{"application/zstd": binary, "application/zip": binary}
	contract.Writes(a.API, r, op, a.download)
}

func (a *API) download(ctx context.Context, r contract.Route, in *downloadIn) (func(huma.Context), error) {
	c, err := r.Permit(contract.From(ctx).Caller)
	if err != nil {
		return nil, err
	}
	b, err := a.ownBackup(ctx, c, in.ID)
	if err != nil {
		return nil, err
	}
	if err := contract.OneOf("format", in.Format, "tar.zst", "zip"); err != nil {
		return nil, err
	}
	if err := contract.OneOf("secrets", in.Secrets, "true", "false"); err != nil {
		return nil, err
	}
	values := backup.NoValues
	switch {
	case in.Secrets == "true":
		if err := c.RequireOn(account.EnvWrite, b.Site); err != nil {
			return nil, err
		}
		values = backup.AllValues
	case c.RequireOn(account.EnvRead, b.Site) == nil:
		values = backup.OpenValues
	}
	done, ok := a.Streams.Begin(c.User, contract.From(ctx).Addr)
	if !ok {
		return nil, &fault.Error{
			Kind:       fault.Limited,
			Message:    "Too many open downloads",
			Details:    "wait until one of them finishes",
			Code:       "too_many_streams",
			RetryAfter: 5 * time.Second,
		}
	}
	archive, err := a.Backups.Open(ctx, c.Owner, b.ID, values)
	if err != nil {
		done()
		return nil, err
	}
	return func(hctx huma.Context) {
		defer done()
		req, w := humago.Unwrap(hctx)
		ctx, cancel := context.WithCancel(hctx.Context())
		defer cancel()
		// right: download under way
		panics.Go(func() {
			a.Watch(ctx, cancel, c, func(ctx context.Context) error {
				_, err := a.Backups.Get(ctx, c.Owner, b.ID)
				return err
			})
		})
		format, write, mediaType := "tar.zst", archive.WriteTar, "application/zstd"
		if in.Format == "zip" {
			format, write, mediaType = "zip", archive.WriteZip, "application/zip"
		}
		w.Header().Set("Content-Type", mediaType)
		w.Header().Set("Content-Disposition",
			mime.FormatMediaType("attachment", map[string]string{"filename": archive.Name + "." + format}))
		w.WriteHeader(http.StatusOK)
		if req.Method == http.MethodHead {
			return
		}
		if err := write(ctx, contract.Patiently(ctx, w)); err != nil {
			a.Log.InfoContext(ctx, "backup download failed", "backup", b.ID, "err", err)
			panic(http.ErrAbortHandler) // a partial archive must not look complete
		}
	}, nil
}

func showBackup(b backup.Backup) backupBody {
	out := backupBody{
		ID:          b.ID,
		SiteID:      b.Site,
		Type:        string(b.Type),
		Status:      string(b.Status),
		Includes:    b.Includes,
		Note:        contract.Some(b.Note),
		Checksum:    contract.Some(b.Checksum),
		VerifiedAt:  contract.When(b.VerifiedAt),
		Answer:      contract.Some(b.Answer),
		Error:       contract.Some(b.Error),
		CreatedAt:   b.CreatedAt.String(),
		CompletedAt: contract.When(b.CompletedAt),
		ExpiresAt:   contract.When(b.ExpiresAt),
	}
	if b.Status == backup.Running || b.Status == backup.Completed {
		out.SizeBytes = &b.Size
	}
	if b.Status == backup.Completed {
		out.StoredBytes = &b.Stored
	}
	return out
}

func showSchedule(s backup.Schedule) scheduleBody {
	return scheduleBody{s.Every, s.At, keepBody(s.Keep)}
}

func (p *schedulePatch) read() (out backup.SchedulePatch) {
	out.Every, out.At = p.Every, p.At // nil: unchanged
	if p.Keep != nil {
		out.Daily, out.Weekly, out.Monthly = p.Keep.Daily, p.Keep.Weekly, p.Keep.Monthly
	}
	return out
}
