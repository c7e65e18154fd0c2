package wordpress

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	"slipway/internal/backup/backup"
	"slipway/internal/deploy/deployment"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/job"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/operation"
	"slipway/internal/tenant/site"
	"slipway/internal/wordpress/probe"
)

// QueueName is the queue of this package's jobs: each waits for WordPress most of its time.
const QueueName = "wordpress"

// Work is the job that carries an operation of a WordPress site to its end. What it has
// done stands in the operation's step, so that a crash at any line goes on or goes back.
type Work struct {
	Operation operation.ID
	Owner     account.OwnerID
	Site      site.ID
	What      string // the operation's kind

	Update  *Update     `json:",omitempty"`
	Replace *Replace    `json:",omitempty"`
	Copy    *Copy       `json:",omitempty"`
	Import  *Import     `json:",omitempty"`
	Manage  *Manage     `json:",omitempty"`
	User    *UserChange `json:",omitempty"`
	Hosts   []string    `json:",omitempty"` // that the content may name
	Network string      `json:",omitempty"` // that the site becomes
}

// Kind names the job.
func (Work) Kind() string { return "wordpress.work" }

// tableWork is the Work of a push of some tables. Versions that don't know Copy.Tables would push whole databases: they must not take it.
type tableWork struct{ Work }

// Kind names the job.
func (tableWork) Kind() string { return "wordpress.push_tables" }

// The kinds of operations.
const (
	kindUpdate  = "wordpress.update"
	kindReplace = "wordpress.search_replace"
	kindClone   = "site.clone"
	kindPush    = "site.push"
	kindImport  = "wordpress.import"
	kindManage  = "wordpress.extensions"
	kindUser    = "wordpress.user"
	kindAdopt   = "wordpress.adopt" // the end of another operation
	kindAddress = "wordpress.address"
	kindNetwork = "wordpress.network"
)

// Work registers this service's jobs.
func (w *WordPress) Work(j *job.Jobs) {
	policy := job.Policy{
		Timeout:  2 * time.Hour,
		Attempts: 6,
		Backoff:  func(n int) time.Duration { return time.Duration(n) * 2 * time.Second },
		GivenUp:  w.givenUp,
	}
	job.Handle(j, policy, w.work)
	job.Handle(j, policy, func(ctx context.Context, x tableWork, n int64) error { return w.work(ctx, x.Work, n) })
}

func (w *WordPress) givenUp(ctx context.Context, args []byte, _ error) error {
	var x Work
	if err := json.Unmarshal(args, &x); err != nil {
		return err
	}
	w.dropImport(x)
	o, err := w.c.Operations.Get(ctx, x.Owner, x.Operation)
	if err != nil || o.CompletedAt != 0 {
		return err
	}
	r := &run{WordPress: w, x: x}
	if o.Step != "" {
		if err := json.Unmarshal([]byte(o.Step), &r.step); err != nil {
			return fmt.Errorf("read step: %w", err)
		}
	}
	why, plan := "Internal error; the operator's log has the details", backup.Plan{}
	if r.changed() || r.step.At == atBack {
		w.purgeAll(ctx, r.changedSite())
	}
	r.step.Whole = true // whether the old files work with the database as it is now was not looked at
	back := r.changed() && r.step.Backup != ""
	if back { // not half: what was there comes back
		plan, err = w.c.Backups.PlanRestore(ctx, x.Owner, r.step.Backup, backup.RestoreTo{Part: true, Includes: r.backParts()})
		back = err == nil
	}
	return w.c.DB.Write(ctx, func(tx *db.Tx) error {
		out := r.result()
		switch {
		case back:
			o, err := w.c.Backups.RestoreTx(ctx, tx, x.Owner, plan)
			if err != nil && fault.As(err) == nil {
				return err
			}
			if err == nil {
				why += fmt.Sprintf(". The state before is being restored by %s", o.ID)
				out["restoreId"] = o.ID
			}
		case r.step.Backup != "":
			why += fmt.Sprintf(". The backup %s holds the state before", r.step.Backup)
		case x.What == kindAddress:
			why += ". " + addressLater
			if err := w.readdressLaterTx(ctx, tx, x); err != nil {
				return err
			}
		}
		return w.c.Operations.EndTx(ctx, tx, x.Operation, "", why, out)
	})
}

// beginTx opens an operation of the owner's site and enqueues its job. A site has one at a
// time, and none while it is being restored.
func (w *WordPress) beginTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, id site.ID, x Work) (operation.Operation, error) {
	o, err := w.c.Operations.OpenTx(ctx, tx, owner, operation.NewOperation{
		Kind:   x.What,
		Site:   id,
		Unique: backup.ChangeKey(id),
		Apart:  backup.RestoreKey(id),
	})
	if err != nil {
		return o, err
	}
	x.Operation, x.Owner, x.Site = o.ID, owner, id
	return o, x.enqueueTx(ctx, tx)
}

func (x Work) enqueueTx(ctx context.Context, tx *db.Tx) error {
	options := job.Options{
		Queue:  QueueName,
		Unique: "wordpress/" + string(x.Operation),
		Group:  "wordpress/" + string(x.Site),
		Share:  string(x.Owner),
	}
	if x.Import != nil && x.Import.From != "" {
		options.Queue, options.Group = DownloadQueue, "wordpress-import/"+string(x.Owner)
	}
	var work job.Args = x
	if x.Copy != nil && len(x.Copy.Tables) > 0 {
		work = tableWork{x}
	}
	_, err := job.Enqueue(ctx, tx, work, options)
	return err
}

// step is where an operation stands, as its operation keeps it.
type step struct {
	At         string          `json:"at"`
	Backup     backup.ID       `json:"backup,omitempty"`     // of the state before
	Source     backup.ID       `json:"source,omitempty"`     // of the site that is copied
	Restore    operation.ID    `json:"restore,omitempty"`    // that is waited for
	Deployment deployment.ID   `json:"deployment,omitempty"` // that is waited for
	Before     []probe.Page    `json:"before,omitempty"`     // how the site answered
	Since      db.Time         `json:"since,omitempty"`      // when the change began
	Schema     []string        `json:"schema,omitempty"`     // of the tables before
	Whole      bool            `json:"whole,omitempty"`      // the files alone were not enough to go back
	Updated    []Changed       `json:"updated,omitempty"`
	Why        string          `json:"why,omitempty"` // for the end of what went back
	Place      json.RawMessage `json:"place,omitempty"`
	Pairs      [][2]string     `json:"pairs,omitempty"`
	Host       string          `json:"host,omitempty"` // the primary domain that they lead to
	Target     site.ID         `json:"target,omitempty"`
	Blogs      []Blog          `json:"blogs,omitempty"`  // of a network: where they go, or, before, where the target's are
	Public     int             `json:"public,omitempty"` // whether search engines may have the target
	Tries      int             `json:"tries,omitempty"`  // of what may end the process
	Result     map[string]any  `json:"result,omitempty"` // of what came before
}

// run is one call of the job.
type run struct {
	*WordPress
	x    Work
	step step
}

// waitFor is how soon something that is waited for is looked at again.
const waitFor = 500 * time.Millisecond

func (w *WordPress) work(ctx context.Context, x Work, _ int64) error {
	var o operation.Operation
	err := w.c.DB.Write(ctx, func(tx *db.Tx) (err error) {
		o, err = w.c.Operations.GetTx(ctx, tx, x.Operation)
		return err
	})
	if fault.Is(err, fault.NotFound) || err == nil && o.CompletedAt != 0 {
		return nil
	}
	if err != nil {
		return err
	}
	r := &run{WordPress: w, x: x}
	if o.Step != "" {
		if err := json.Unmarshal([]byte(o.Step), &r.step); err != nil {
			return fmt.Errorf("read step: %w", err)
		}
	}
	if x.Import != nil && x.Import.Node != "" && x.Import.Node != w.c.Places.Self() {
		return job.On(x.Import.Node)
	}
	if err := w.c.Places.Here(ctx, x.Site); err != nil && fault.As(err) == nil {
		return err
	} else if err != nil {
		return r.end(ctx, "", fault.As(err).Message, r.result())
	}
	switch x.What {
	case kindUpdate:
		err = r.update(ctx)
	case kindReplace:
		err = r.replace(ctx)
	case kindClone, kindPush:
		err = r.copySite(ctx)
	case kindImport:
		err = r.importSite(ctx)
	case kindManage:
		err = r.manage(ctx)
	case kindUser:
		err = r.changeUser(ctx)
	case kindAddress:
		err = r.readdressed(ctx)
	case kindNetwork:
		err = r.becomeNetwork(ctx)
	case kindAdopt:
		err = r.adoptRestored(ctx)
	default:
		err = fmt.Errorf("operation %s is of the unknown kind %s", x.Operation, x.What)
	}
	if f := fault.As(err); f != nil && ctx.Err() == nil { // in words, and for good
		why := f.Message
		if f.Details != "" {
			why += ": " + f.Details
		}
		if r.changed() && r.step.Backup != "" {
			return r.goBack(ctx, why)
		}
		out := r.result()
		if x.What == kindAddress {
			why += ". " + addressLater
			if err := r.c.DB.Write(ctx, func(tx *db.Tx) error { return r.readdressLaterTx(ctx, tx, x) }); err != nil {
				return err
			}
		}
		if x.What == kindClone && r.step.Target != "" {
			out["siteId"] = r.step.Target
		}
		return r.end(ctx, "", why, out)
	}
	return err
}

// to notes where the operation stands from now on.
func (r *run) to(ctx context.Context, at string, progress float64, message string, more ...func(tx *db.Tx) error) error {
	return r.c.DB.Write(ctx, func(tx *db.Tx) error {
		for _, fn := range more {
			if err := fn(tx); err != nil {
				return err
			}
		}
		r.step.At = at
		text, err := json.Marshal(r.step)
		if err != nil {
			return err
		}
		return r.c.Operations.AdvanceTx(ctx, tx, r.x.Operation, progress, string(text), message)
	})
}

// end writes the operation's end. failure is empty after a success.
func (r *run) end(ctx context.Context, message, failure string, result map[string]any) error {
	ctx, done := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer done()
	r.dropImport(r.x)
	if failure != "" && r.x.What == kindNetwork { // a setting began it
		r.c.Programs.Note(r.x.Site, "The site did not become a network: "+failure)
	}
	if failure != "" && (r.changed() || r.step.At == atBack) { // whatever is there now is seen
		r.purgeAll(ctx, r.changedSite())
	}
	err := r.c.DB.Write(ctx, func(tx *db.Tx) error {
		return r.c.Operations.EndTx(ctx, tx, r.x.Operation, message, failure, result)
	})
	if err == nil && (failure == "" || r.changed() || r.step.At == atBack || r.step.At == atApply) {
		r.relearn(ctx, r.x.Owner, r.changedSite())
	}
	return err
}

func (r *run) result() map[string]any {
	out := map[string]any{}
	maps.Copy(out, r.step.Result)
	if r.step.Backup != "" {
		out["backupId"] = r.step.Backup
	}
	return out
}

// site is the operation's site as it is now.
func (r *run) site(ctx context.Context) (site.Site, error) {
	s, err := r.c.Sites.Get(ctx, r.x.Owner, r.x.Site)
	if err == nil {
		err = r.live(s)
	}
	return s, err
}

// backUp has a site backed up, once, and says whether that is done. The backup's id goes to
// into.
func (r *run) backUp(ctx context.Context, id site.ID, into *backup.ID, note string) (ready bool, err error) {
	if *into == "" {
		return false, r.to(ctx, r.step.At, 0, "Backing up the site", func(tx *db.Tx) error {
			b, err := r.c.Backups.CreateTx(ctx, tx, r.x.Owner, id, backup.NewBackup{Type: backup.BeforeUpdate, Note: note})
			*into = b.ID
			return err
		})
	}
	b, err := r.c.Backups.Get(ctx, r.x.Owner, *into)
	switch {
	case err != nil:
		return false, err
	case b.Status == backup.Failed:
		return false, fault.New(fault.Conflict, "backup_failed",
			"Nothing was changed, because the site could not be backed up first",
			b.Error)
	}
	return b.Status == backup.Completed, nil
}

// changed reports whether the site may be half changed: an error or a crash then brings
// back what was there.
func (r *run) changed() bool {
	return r.step.At == atChange || r.step.At == atCheck || r.step.At == atDeploy
}

// The steps that several operations share.
const (
	atBackup = ""
	atChange = "change"
	atDeploy = "deploy"
	atCheck  = "check"
	atBack   = "back"
	atFill   = "fill"
)

// waitRestore waits for the restore that the step names, and returns its result.
func (r *run) waitRestore(ctx context.Context) (ready bool, result map[string]any, err error) {
	o, err := r.c.Operations.Get(ctx, r.x.Owner, r.step.Restore)
	if err != nil {
		return false, nil, err
	}
	switch o.Status {
	case operation.Success:
		return true, result, json.Unmarshal(o.Result, &result)
	case operation.Failed, operation.Canceled:
		return false, nil, &fault.Error{Kind: fault.Conflict, Message: o.Error, Code: "copy_failed"}
	}
	return false, nil, nil
}

// addressLater says what follows a rewriting of addresses that failed.
const addressLater = "Content may still name the former domain. Slipway tries again after 10 minutes, and later at least once a day"

// interrupted is why what a restart cut off goes back.
const interrupted = "It was interrupted by a restart of the server"
