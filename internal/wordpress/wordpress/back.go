package wordpress

import (
	"context"
	"fmt"
	"slices"
	"time"

	"slipway/internal/backup/backup"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/job"
	"slipway/internal/tenant/operation"
	"slipway/internal/tenant/site"
)

// maxColumns caps the columns of a site's tables that are compared, and maxColumn what is stored of one. With more, the database goes back
// with the files.
const (
	maxColumns = 10_000
	maxColumn  = 10
)

// schema returns digests of the columns of a site's tables; nil where they can't be compared.
func (r *run) schema(ctx context.Context, s site.Site) ([]string, error) {
	var out struct{ Columns []string }
	err := r.task(ctx, s, s.LiveDeployment, "schema", map[string]any{"most": maxColumns}, &out)
	if f := fault.As(err); f != nil && f.Code == outdated || len(out.Columns) > maxColumns ||
		slices.ContainsFunc(out.Columns, func(c string) bool { return len(c) > maxColumn }) {
		return nil, nil
	}
	return out.Columns, err
}

// lacks reports whether tables or columns of before are gone, or have another type. What is added harms nobody.
func lacks(before, now []string) bool {
	have := map[string]bool{}
	for _, c := range now {
		have[c] = true
	}
	return slices.ContainsFunc(before, func(c string) bool { return !have[c] })
}

// backParts returns what of the backup comes back first: of an update the files alone, since visitors have written to the database
// meanwhile.
func (r *run) backParts() []string {
	switch {
	case r.step.Whole:
		return nil
	case r.x.What == kindReplace, r.x.What == kindNetwork:
		return []string{backup.Databases}
	case (r.x.What == kindUpdate || r.x.What == kindManage) && len(r.step.Schema) > 0:
		return []string{backup.Files}
	}
	return nil
}

// goBack brings the site back as the backup has it, and ends the operation with why.
func (r *run) goBack(ctx context.Context, why string) error {
	if r.step.At != atBack {
		r.step.Why = why
		r.c.Log.WarnContext(ctx, "WordPress is brought back from its backup", "site", r.x.Site, "why", why)
		if err := r.to(ctx, atBack, 0.8, "Restoring the state before: "+why); err != nil {
			return err
		}
	}
	parts := r.backParts()
	if r.step.Restore == "" {
		plan, err := r.c.Backups.PlanRestore(ctx, r.x.Owner, r.step.Backup, backup.RestoreTo{Part: true, Includes: parts})
		if err == nil {
			err = r.to(ctx, atBack, 0.8, "Restoring the state before: "+r.step.Why, func(tx *db.Tx) error {
				o, err := r.c.Backups.RestoreTx(ctx, tx, r.x.Owner, plan)
				r.step.Restore = o.ID
				return err
			})
		}
		if f := fault.As(err); f != nil {
			return r.notBack(ctx, f.Message)
		}
		if err != nil {
			return err
		}
	}
	o, err := r.c.Operations.Get(ctx, r.x.Owner, r.step.Restore)
	if err != nil {
		return err
	}
	switch o.Status {
	case operation.Success:
	case operation.Failed, operation.Canceled:
		return r.notBack(ctx, o.Error)
	default:
		return job.Later(waitFor)
	}
	r.purgeAll(ctx, r.x.Site)
	ready, result, err := r.waitRestore(ctx)
	if err != nil || !ready {
		return err
	}
	out := r.result()
	out["restored"] = true
	if slices.Equal(parts, []string{backup.Files}) {
		needed, err := r.needsDatabase(ctx)
		if err != nil {
			return err
		}
		if !needed {
			out["databaseKept"] = true
			return r.end(ctx, "", r.step.Why+". The files are as they were before; the database has what was written meanwhile", out)
		}
		return r.wholeBack(ctx)
	}
	return r.end(ctx, "", r.step.Why+". "+r.asBefore(result, out), out)
}

// asBefore says that all is as it was before, and where that is which was written since.
func (r *run) asBefore(restored, out map[string]any) string {
	id, _ := restored["backupId"].(string)
	if id == "" || r.step.Since == 0 {
		return "The site is as it was before"
	}
	out["replacedBackupId"] = id
	return fmt.Sprintf("The site is as it was before. What was written to its database since %s is in the backup %s",
		r.step.Since.Time().UTC().Format(time.RFC3339), id)
}

// wholeBack brings back the database too.
func (r *run) wholeBack(ctx context.Context) error {
	r.step.Whole, r.step.Restore = true, ""
	if err := r.to(ctx, atBack, 0.9, "Restoring the database before: "+r.step.Why); err != nil {
		return err
	}
	return job.Later(waitFor)
}

// needsDatabase reports whether a site whose files are back needs the database of before, too: because tables of it lack something, or the
// site isn't as it was.
func (r *run) needsDatabase(ctx context.Context) (bool, error) {
	back := db.Now()
	s, err := r.site(ctx)
	if err != nil {
		return false, err
	}
	now, err := r.schema(ctx, s)
	if f := fault.As(err); f != nil || err == nil && lacks(r.step.Schema, now) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	why, err := r.check(ctx, s, r.step.Before, back)
	return why != "", err
}

// notBack ends the operation where what was there can't come back.
func (r *run) notBack(ctx context.Context, why string) error {
	return r.end(ctx, "",
		fmt.Sprintf("%s. The state before could not be restored: %s. Its backup is %s", r.step.Why, why, r.step.Backup), r.result())
}
