package wordpress

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	"slipway/internal/backup/backup"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/job"
	"slipway/internal/platform/text"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/operation"
	"slipway/internal/tenant/site"
)

// Copy says what of a site goes where.
type Copy struct {
	From     site.ID
	NewName  string // of the site that is made for it; empty: the operation's site is there
	Files    bool
	Database bool
	Paths    []string `json:",omitempty"` // files and folders of wp-content, of a push; empty: all
	Tables   []string `json:",omitempty"` // of the database, of a push; empty: all
}

// maxPushPaths caps the files and folders that a push names, and maxPushTables its tables.
const (
	maxPushPaths  = 100
	maxPushTables = 100
)

// check says what of a push can't be done.
func (p Copy) check() error {
	invalid := func(details, received string) error {
		return fault.New(fault.Invalid, "invalid_push", "Invalid paths", details).Got(text.Clip(received, 200))
	}
	if len(p.Tables) > 0 && (!p.Database || p.Files && len(p.Paths) == 0 || len(p.Tables) > maxPushTables) {
		return fault.New(fault.Invalid, "invalid_push", "Invalid tables", fmt.Sprintf(
			"tables limits a push of the database to up to %d tables; all files can't be pushed with them", maxPushTables))
	}
	if len(p.Paths) == 0 {
		return nil
	}
	if !p.Files || p.Database && len(p.Tables) == 0 || len(p.Paths) > maxPushPaths {
		return invalid(fmt.Sprintf("paths limits a push of files to up to %d files and folders; push the whole database by itself",
			maxPushPaths), "")
	}
	for _, name := range p.Paths {
		if name == "" || path.Clean("/" + name)[1:] != strings.TrimSuffix(name, "/") || len(name) > 1000 {
			return invalid("paths are files and folders of wp-content, such as uploads/2026 or themes/ours", name)
		}
	}
	return nil
}

// CloneTx begins to copy the owner's WordPress to a new site, with its addresses rewritten
// and hidden from search engines.
func (w *WordPress) CloneTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, id site.ID, name string) (operation.Operation, error) {
	s, err := w.c.Sites.LockTx(ctx, tx, owner, id)
	if err == nil {
		err = w.live(s)
	}
	if err != nil {
		return operation.Operation{}, err
	}
	if name = strings.TrimSpace(name); name == "" {
		return operation.Operation{}, fault.New(fault.Invalid, "invalid_name", "The new site needs a name",
			"name must have 1 to 100 characters")
	}
	return w.beginTx(ctx, tx, owner, id, Work{What: kindClone, Copy: &Copy{From: id, NewName: name, Files: true, Database: true}})
}

// PushTx begins to bring files, the database, or both of the owner's WordPress, which p names, to another
// one of the same owner.
func (w *WordPress) PushTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, to site.ID, p Copy) (operation.Operation, error) {
	id := p.From
	if _, err := w.c.Sites.GetTx(ctx, tx, owner, id); err != nil {
		return operation.Operation{}, err
	}
	if err := p.check(); err != nil {
		return operation.Operation{}, err
	}
	switch {
	case id == to:
		return operation.Operation{}, fault.New(fault.Invalid, "invalid_push", "A site can't be pushed to itself",
			"to names another site")
	case !p.Files && !p.Database:
		return operation.Operation{}, fault.New(fault.Invalid, "invalid_push", "There is nothing to push",
			"send files, database or both as true")
	}
	for _, one := range []site.ID{min(id, to), max(id, to)} { // always in this order: two pushes never wait for each other
		s, err := w.c.Sites.LockTx(ctx, tx, owner, one)
		if err == nil {
			err = w.live(s)
		}
		if err != nil {
			return operation.Operation{}, err
		}
	}
	if len(p.Tables) > 0 {
		if err := w.pushesTablesTx(ctx, tx, id, to, p.Tables); err != nil {
			return operation.Operation{}, err
		}
	}
	return w.beginTx(ctx, tx, owner, to, Work{What: kindPush, Copy: &p})
}

// pushesTablesTx returns a fault unless both sites name their tables alike, and these are among them by their names.
func (w *WordPress) pushesTablesTx(ctx context.Context, tx *db.Tx, from, to site.ID, tables []string) error {
	source, err := w.get(ctx, tx, from)
	if err != nil {
		return err
	}
	target, err := w.get(ctx, tx, to)
	if err != nil {
		return err
	}
	refuse := func(details, received string) error {
		return fault.New(fault.Invalid, "invalid_push", "Invalid tables", details).Got(text.Clip(received, 64))
	}
	if source.Prefix != target.Prefix {
		return refuse(fmt.Sprintf("the tables of the two sites begin with %s and %s: push the whole database", source.Prefix, target.Prefix), "")
	}
	for _, t := range tables {
		if !strings.HasPrefix(t, source.Prefix) || len(t) > 64 {
			return refuse("tables are tables of WordPress and its plugins, such as "+source.Prefix+"posts", t)
		}
	}
	return nil
}

// CopyNote is the note of the backup that a clone or a push copies from.
const CopyNote = "Copied to another site"

// copySite is one call of the job of a clone or a push. The source's state is what a backup
// of it holds, so the copy is of one moment; the target's is in the backup that its restore
// takes first.
func (r *run) copySite(ctx context.Context) error {
	p := r.x.Copy
	switch r.step.At {
	case atBackup:
		ready, err := r.backUp(ctx, p.From, &r.step.Source, CopyNote)
		if err != nil {
			return err
		}
		if !ready {
			return job.Later(waitFor)
		}
		if p.NewName == "" { // what the target is to search engines stays
			s, err := r.site(ctx)
			if err != nil {
				return err
			}
			var now struct{ Public int }
			if err := r.task(ctx, s, s.LiveDeployment, "info", map[string]any{}, &now); err != nil {
				return err
			}
			r.step.Public = now.Public
			if _, r.step.Blogs, err = r.blogs(ctx, s); err != nil {
				return err
			}
		}
		if p.Database { // a network that can't be moved is refused before anything changes
			from, err := r.c.Sites.Get(ctx, r.x.Owner, p.From)
			if err == nil {
				err = r.live(from)
			}
			if err != nil {
				return err
			}
			kind, blogs, err := r.blogs(ctx, from)
			if err == nil {
				_, _, err = move(kind, blogs, r.step.Blogs, "new.invalid", false)
			}
			if err != nil {
				return err
			}
		}
		to := backup.RestoreTo{NewName: p.NewName, Part: true}
		if p.NewName == "" {
			to.Site = r.x.Site
			if p.Files {
				to.Includes = append(to.Includes, backup.Files)
			}
			if p.Database {
				to.Includes = append(to.Includes, backup.Databases)
			}
			for _, name := range p.Paths {
				to.Paths = append(to.Paths, "wp-content/"+name)
			}
			for _, name := range p.Tables {
				to.Tables = append(to.Tables, DatabaseName+"/"+name)
			}
		}
		plan, err := r.c.Backups.PlanRestore(ctx, r.x.Owner, r.step.Source, to)
		if err != nil {
			return err
		}
		err = r.to(ctx, atFill, 0.3, "Copying", func(tx *db.Tx) error {
			o, err := r.c.Backups.RestoreTx(ctx, tx, r.x.Owner, plan)
			r.step.Restore, r.step.Target = o.ID, o.Site
			return err
		})
		if err != nil {
			return err
		}
		return job.Later(waitFor)
	case atFill:
		ready, result, err := r.waitRestore(ctx)
		if err != nil {
			return err
		}
		if !ready {
			return job.Later(waitFor)
		}
		if id, ok := result["backupId"].(string); ok {
			r.step.Backup = backup.ID(id)
		}
		r.step.Restore = ""
		if err := r.to(ctx, atChange, 0.7, "Rewriting addresses"); err != nil {
			return err
		}
		return r.rewrite(ctx)
	case atChange:
		return r.rewrite(ctx)
	}
	return r.goBack(ctx, "")
}

// changedSite is the site that a copy changes.
func (r *run) changedSite() site.ID {
	if r.step.Target != "" {
		return r.step.Target
	}
	return r.x.Site
}

// rewrite makes a database that came from elsewhere the target's own. It may be repeated.
func (r *run) rewrite(ctx context.Context) error {
	p := r.x.Copy
	id := r.changedSite()
	s, err := r.c.Sites.Get(ctx, r.x.Owner, id)
	if err == nil {
		err = r.live(s)
	}
	if err != nil {
		return err
	}
	if p.Database {
		from, err := r.c.Sites.Get(ctx, r.x.Owner, p.From)
		if err != nil {
			return err
		}
		if err := r.adoptPushed(ctx, s, from); err != nil {
			return err
		}
	}
	r.purgeAll(ctx, id)
	if err := r.copied(ctx, id); err != nil {
		return err
	}
	out := r.result()
	if r.x.What == kindClone {
		out["siteId"] = id
		return r.end(ctx, "Cloned", "", out)
	}
	return r.end(ctx, "Pushed", "", out)
}

// adoptPushed makes what a clone or a push brought of a database the site's own: all of it, or the tables that were chosen.
func (r *run) adoptPushed(ctx context.Context, s, from site.Site) error {
	x, err := r.get(ctx, r.c.DB, s.ID)
	if err != nil {
		return err
	}
	tables := r.x.Copy.Tables
	if len(tables) == 0 || slices.Contains(tables, x.Prefix+"options") {
		return r.adopt(ctx, s, &r.step.Public, from)
	}
	r.c.Programs.Renew(s.ID) // what runs may know the tables of before
	old, err := r.Address(ctx, from)
	if err != nil {
		return err
	}
	to, err := r.Address(ctx, s)
	if err != nil {
		return err
	}
	list := addressPairs([]string{old, r.c.Sites.URL(from.Slug)}, to)
	if len(list) == 0 {
		return nil
	}
	_, err = r.replaceAll(ctx, s, pairs{List: list, Addresses: true, Tables: tables}, false, 0.75)
	return err
}

// copied notes which site a clone was made of, which is what is pushed to by default, and of when the content is
// that both have now.
func (r *run) copied(ctx context.Context, id site.ID) error {
	p := r.x.Copy
	at := db.Now()
	b, err := r.c.Backups.Get(ctx, r.x.Owner, r.step.Source)
	switch {
	case err == nil:
		at = b.CreatedAt
	case !fault.Is(err, fault.NotFound): // it was deleted since
		return err
	}
	return r.c.DB.Write(ctx, func(tx *db.Tx) error {
		if r.x.What == kindClone {
			_, err := tx.Exec(ctx, `UPDATE wordpress_sites SET origin = $2, revision = revision + 1
				WHERE site_id = $1 AND origin <> $2`, id, p.From)
			if err != nil {
				return err
			}
			tx.Notify("live") // its program is to know
		}
		if !p.Database || len(p.Tables) > 0 {
			return nil
		}
		return r.setSyncedTx(ctx, tx, id, p.From, at)
	})
}

// adopt rewrites the addresses of a database that came from elsewhere. from is the site
// that it came from; the zero one where it was imported. public says whether search engines
// may have it; nil leaves that as it is.
func (r *run) adopt(ctx context.Context, s site.Site, public *int, from site.Site) error {
	var got struct {
		Addresses    []string
		Admin, Title string
		Network      string
		Blogs        []Blog
	}
	if err := r.task(ctx, s, s.LiveDeployment, "adopt", map[string]any{"public": public}, &got); err != nil {
		return err
	}
	host, err := r.c.Domains.Primary(ctx, r.c.DB, s.ID)
	if err != nil {
		return err
	}
	to, err := r.Address(ctx, s)
	if err != nil {
		return err
	}
	if len(r.step.Pairs) == 0 { // once: a repeated call would find the new addresses
		old := got.Addresses
		if from.ID != "" {
			address, err := r.Address(ctx, from)
			if err != nil {
				return err
			}
			old = append(old, address, r.c.Sites.URL(from.Slug))
		}
		blogs, list, err := move(got.Network, got.Blogs, r.step.Blogs, strings.TrimPrefix(to, "https://"), from.ID == "")
		if err != nil {
			return err
		}
		r.step.Pairs, r.step.Host, r.step.Blogs = longestFirst(append(list, addressPairs(old, to)...)), host, blogs
		if err := r.to(ctx, r.step.At, 0.75, "Rewriting addresses"); err != nil {
			return err
		}
	}
	if len(r.step.Blogs) > 0 {
		in := map[string]any{"blogs": r.step.Blogs, "public": public, "most": maxBlogs}
		if err := r.task(ctx, s, s.LiveDeployment, "network", in, &struct{}{}); err != nil {
			return err
		}
	}
	if len(r.step.Pairs) > 0 {
		found, err := r.replaceAll(ctx, s, pairs{List: r.step.Pairs, Addresses: true}, false, 0.75)
		if err != nil {
			return err
		}
		if len(found.Skipped) > 0 {
			r.step.Result = r.result()
			r.step.Result["skippedTables"] = found.Skipped
		}
	}
	return r.c.DB.Write(ctx, func(tx *db.Tx) error {
		if err := r.setNetworkTx(ctx, tx, s.ID, got.Network); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `UPDATE wordpress_sites SET content_host = $2, admin_user = CASE WHEN $3 = '' THEN admin_user ELSE $3 END
			WHERE site_id = $1`, s.ID, r.step.Host, text.Clip(got.Admin, 60))
		return err
	})
}

// AdoptTx begins to rewrite the addresses of a WordPress whose database was restored from a
// backup of another site, as the rest of the restore's operation. It returns false for sites
// that are no WordPress, or serve nothing.
func (w *WordPress) AdoptTx(
	ctx context.Context,
	tx *db.Tx,
	s site.Site,
	from site.ID,
	o operation.ID,
	result map[string]any,
) (begun bool, err error) {
	if s.Type != site.WordPress || s.LiveDeployment == "" {
		return false, nil
	}
	text, err := json.Marshal(step{At: atFill, Result: result})
	if err != nil {
		return false, err
	}
	if err := w.c.Operations.AdvanceTx(ctx, tx, o, 0.7, string(text), "Rewriting addresses"); err != nil {
		return false, err
	}
	return true, Work{What: kindAdopt, Operation: o, Owner: s.Owner, Site: s.ID, Copy: &Copy{From: from, Database: true}}.enqueueTx(ctx, tx)
}

// adoptRestored is one call of the job that AdoptTx begins.
func (r *run) adoptRestored(ctx context.Context) error {
	s, err := r.site(ctx)
	if err != nil {
		return err
	}
	from, err := r.c.Sites.Get(ctx, r.x.Owner, r.x.Copy.From)
	if err != nil && !fault.Is(err, fault.NotFound) { // it may be deleted: the database knows its address
		return err
	}
	r.c.Programs.Renew(s.ID) // what runs may know the database of before
	if err := r.adopt(ctx, s, nil, from); err != nil {
		return err
	}
	r.purgeAll(ctx, s.ID)
	return r.end(ctx, "Restored", "", r.result())
}
