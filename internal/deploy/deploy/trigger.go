package deploy

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"slipway/internal/deploy/deployment"
	"slipway/internal/deploy/journal"
	"slipway/internal/deploy/upload"
	"slipway/internal/git/fetch"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/job"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
	"slipway/internal/tenant/webhook/event"
)

// Run is the job that runs one deployment.
type Run struct{ Deployment deployment.ID }

func (Run) Kind() string { return "deploy.run" }

// QueueName is the job queue of deployments.
const QueueName = "deploy"

// maxPending caps the waiting deployments of a site.
const maxPending = 100

// Trigger says what to deploy. All fields except Cause are optional.
type Trigger struct {
	Cause      deployment.Cause
	Branch     string            // empty: the site's branch
	Commit     string            // 40 or 64 hexadecimal digits; empty: the branch's newest
	Target     deployment.Target // empty: production for the production branch, else preview
	Pull       int               // number of its pull request; such a deployment is a preview
	Fork       bool              // the commit is from a fork, and a member approved it
	Attach     int               // number of an open pull request of the branch, whose address shows the preview too; 0: none
	Title      string            // shown in the list of deployments
	ClearCache bool              // build without the cache
	Upload     upload.ID         // upload to deploy; empty: for a site without a repository, its last one
	HookBody   string            // body of the deploy hook's call, for the build
	Hops       int               // number of webhooks and deploy hooks that led to it
}

// TriggerTx triggers a deployment of the owner's site. It runs after those that already wait, and is never dropped.
func (d *Deployments) TriggerTx(
	ctx context.Context,
	tx *db.Tx,
	owner account.OwnerID,
	id site.ID,
	t Trigger,
) (deployment.Deployment, error) {
	s, err := d.c.Sites.LockTx(ctx, tx, owner, id)
	if err != nil {
		return deployment.Deployment{}, err
	}
	return d.insert(ctx, tx, s, t)
}

// Trigger is TriggerTx in a transaction of its own.
func (d *Deployments) Trigger(ctx context.Context, owner account.OwnerID, id site.ID, t Trigger) (x deployment.Deployment, err error) {
	err = d.c.DB.Write(ctx, func(tx *db.Tx) (err error) {
		x, err = d.TriggerTx(ctx, tx, owner, id, t)
		return err
	})
	return x, err
}

func (d *Deployments) insert(ctx context.Context, tx *db.Tx, s site.Site, t Trigger) (deployment.Deployment, error) {
	if s.Status == site.Stopped {
		return deployment.Deployment{}, fault.New(fault.Conflict, "site_stopped", "The site is stopped", "start it, then deploy")
	}
	if t.Branch != "" {
		if err := fetch.CheckBranch(t.Branch); err != nil {
			return deployment.Deployment{}, err
		}
	}
	if utf8.RuneCountInString(t.Title) > 200 || strings.ContainsRune(t.Title, 0) {
		return deployment.Deployment{}, fault.New(fault.Invalid, "invalid_title", "The title is too long",
			"title has at most 200 characters")
	}
	if t.Commit != "" {
		if err := fetch.CheckCommit(t.Commit); err != nil {
			return deployment.Deployment{}, err
		}
	}
	uploaded, err := d.sourceTx(ctx, tx, s, &t)
	if err != nil {
		return deployment.Deployment{}, err
	}
	target, err := chooseTarget(s, t)
	if err != nil {
		return deployment.Deployment{}, err
	}
	var waiting int
	if err := tx.QueryRow(ctx, `SELECT count(*) FROM deployments WHERE site_id = $1 AND `+waits, s.ID).Scan(&waiting); err != nil {
		return deployment.Deployment{}, fmt.Errorf("count pending deployments: %w", err)
	}
	if waiting >= maxPending {
		return deployment.Deployment{}, fault.New(fault.Conflict, "deploy_queue_full",
			"Too many deployments of this site are queued",
			"at most 100 can be queued; cancel some or wait until they finish")
	}
	if t.Cause != deployment.ByProvision { // provisioning is part of creating the site, and is not limited
		if err := d.requireTx(ctx, tx, s); err != nil {
			return deployment.Deployment{}, err
		}
	}
	x := deployment.Deployment{
		ID:         db.ID[deployment.ID]("dep"),
		Site:       s.ID,
		Owner:      s.Owner,
		Status:     deployment.Pending,
		Cause:      t.Cause,
		Target:     target,
		CommitHash: t.Commit,
		Pinned:     t.Commit != "",
		Branch:     cmp.Or(t.Branch, s.Branch),
		Pull:       t.Pull,
		Fork:       t.Fork,
		Repository: s.Repository,
		Title:      t.Title,
		ClearCache: t.ClearCache,
		Hops:       t.Hops,
		HookBody:   d.c.Sites.SealHookBody(s.ID, t.HookBody),
		CreatedAt:  db.Now(),
		Queue:      &deployment.Queue{Position: waiting + 1, Reason: "workers_busy"},
	}
	if t.Upload != "" {
		describe(&x, uploaded, t)
	}
	x.URL = d.c.Sites.DeploymentURL(x.ID.Label(), s.Slug)
	label := ""
	if target == deployment.Preview {
		if label, err = d.Previews.HostTx(ctx, tx, s, previewKey(x), true); err != nil {
			return deployment.Deployment{}, err
		}
		x.PreviewURL = d.c.Sites.DeploymentURL(label, s.Slug)
	}
	if err := d.write(ctx, tx, x, label); err != nil {
		return deployment.Deployment{}, err
	}
	tx.Notify(x.Owner.Topic())
	if err := d.tell(ctx, tx, x, s.Name); err != nil {
		return deployment.Deployment{}, err
	}
	_, err = job.Enqueue(ctx, tx, Run{x.ID}, job.Options{
		Queue:  QueueName,
		Unique: runKey(x.ID),
		Group:  string(x.Site),
		Share:  string(x.Owner),
	})
	return x, err
}

func runKey(id deployment.ID) string { return "deploy/" + string(id) }

func (d *Deployments) write(ctx context.Context, tx *db.Tx, x deployment.Deployment, previewLabel string) error {
	source := ""
	if x.Source != nil {
		text, err := json.Marshal(x.Source)
		if err != nil {
			return err
		}
		source = string(text)
	}
	_, err := tx.Exec(
		ctx, `
		INSERT INTO deployments (id, site_id, owner_id, label, status, cause, branch, title, clear_cache, commit_hash, commit_message,
			commit_author, framework, plan, release, runtime, rollback_of, error, stages, attempt, cancel, created_at, started_at,
			completed_at, target, pinned, preview_label, hops, hook_body, bundle, pull_request, fork, repository, source, upload_id)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, '', '[]', 0, '', $18, $19,
			$20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31)`,
		x.ID, x.Site, x.Owner, x.ID.Label(), x.Status, x.Cause, x.Branch, x.Title, x.ClearCache, x.CommitHash, x.CommitMessage,
		x.CommitAuthor, x.Framework, string(x.Plan), x.Release, x.Runtime, x.ReleaseOf, x.CreatedAt, x.StartedAt,
		x.CompletedAt, x.Target, x.Pinned, previewLabel, x.Hops, x.HookBody, x.Bundle, x.Pull, x.Fork, x.Repository, source, x.Upload,
	)
	if err != nil {
		return fmt.Errorf("insert deployment: %w", err)
	}
	return nil
}

// HookCall holds the parameters of a deploy hook's call.
type HookCall struct {
	Branch     string
	Title      string
	ClearCache bool
	Body       string // for the build, at most site.MaxHookBody bytes; a call with a body is never merged into another
	Hops       int    // number of webhooks and deploy hooks that led to it
}

// TriggerHookTx triggers the deployment of a deploy hook. If a deployment with the same branch, title and cache setting
// still waits, the call is merged into it: it hasn't fetched yet, so it will deploy the same commit. Otherwise it
// replaces those that wait for the same branch, which are canceled.
func (d *Deployments) TriggerHookTx(
	ctx context.Context,
	tx *db.Tx,
	id site.HookID,
	call HookCall,
) (x deployment.Deployment, folded bool, err error) {
	hook, err := d.c.Sites.Hook(ctx, tx, id)
	if err != nil {
		return deployment.Deployment{}, false, err
	}
	if err := d.c.Sites.CountHookTx(ctx, tx, hook); err != nil {
		return deployment.Deployment{}, false, err
	}
	if call.Branch != "" && call.Branch != hook.Branch && !hook.AnyBranch {
		return deployment.Deployment{}, false, fault.New(fault.Forbidden, "branch_not_allowed",
			"The deploy hook doesn't allow choosing a branch",
			"omit branch, or allow it in the deploy hook's settings")
	}
	s, err := d.c.Sites.LockTx(ctx, tx, hook.Owner, hook.Site)
	if err != nil {
		return deployment.Deployment{}, false, err
	}
	t := Trigger{
		Cause:      deployment.ByHook,
		Branch:     cmp.Or(call.Branch, hook.Branch, s.Branch),
		Title:      cmp.Or(call.Title, hook.Title),
		ClearCache: call.ClearCache || hook.ClearCache,
		HookBody:   call.Body,
		Hops:       call.Hops,
	}
	x, err = d.Find(ctx, tx, `
		WHERE d.site_id = $1 AND d.status IN `+open+` AND d.status = 'pending' AND d.started_at = 0 AND d.cause IN ('hook', 'push') AND NOT d.pinned AND NOT d.fork AND d.branch = $2 AND d.title = $3 AND d.clear_cache = $4
			AND d.hook_body = '' AND $5
		ORDER BY d.id DESC LIMIT 1`, s.ID, t.Branch, t.Title, t.ClearCache, call.Body == "")
	switch {
	case err == nil:
		folded = true
		if call.Hops > x.Hops { // merging must not shorten a chain of hooks
			if _, err := tx.Exec(ctx, `UPDATE deployments SET hops = $2 WHERE id = $1`, x.ID, call.Hops); err != nil {
				return deployment.Deployment{}, false, fmt.Errorf("fold deployment: %w", err)
			}
		}
	case fault.Is(err, fault.NotFound):
		if x, err = d.insert(ctx, tx, s, t); err != nil {
			return deployment.Deployment{}, false, err
		}
		if err := d.supersede(ctx, tx, x); err != nil {
			return deployment.Deployment{}, false, err
		}
	default:
		return deployment.Deployment{}, false, err
	}
	return x, folded, d.c.Sites.HookUsedTx(ctx, tx, id, x.ID)
}

// supersede cancels older deployments of the same branch that hooks and pushes triggered and that still wait: the newer
// one includes their commits.
func (d *Deployments) supersede(ctx context.Context, tx *db.Tx, x deployment.Deployment) error {
	ids, err := idsOf(
		ctx,
		tx,
		`
		SELECT id FROM deployments
		WHERE site_id = $1 AND `+waits+` AND cause IN ('hook', 'push') AND branch = $2 AND fork = $3 AND (NOT fork OR pull_request = $4)`,
		x.Site,
		x.Branch,
		x.Fork,
		x.Pull,
	)
	if err != nil {
		return fmt.Errorf("find superseded deployments: %w", err)
	}
	for _, id := range ids {
		if id >= x.ID { // in SQL, this condition would make SQLite read all smaller ids
			continue
		}
		if err := d.cancel(ctx, tx, id, "Superseded by a newer deployment of the same branch"); err != nil {
			return err
		}
	}
	return nil
}

// CancelTx cancels a deployment: immediately if it waits, else once its processes have ended.
func (d *Deployments) CancelTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, id deployment.ID) (deployment.Deployment, error) {
	x, err := d.OwnedTx(ctx, tx, owner, id)
	if err != nil {
		return deployment.Deployment{}, err
	}
	if x.Status == deployment.Canceled {
		return x, nil
	}
	if x.Status.Ended() {
		return deployment.Deployment{}, fault.New(fault.Conflict, "deployment_ended",
			fmt.Sprintf("The deployment has already finished with status %s", x.Status), "")
	}
	if err := d.cancel(ctx, tx, id, "Canceled by its owner"); err != nil {
		return deployment.Deployment{}, err
	}
	return d.OwnedTx(ctx, tx, owner, id)
}

func (d *Deployments) cancel(ctx context.Context, tx *db.Tx, id deployment.ID, why string) error {
	running, err := job.Cancel(ctx, tx, runKey(id))
	if err != nil {
		return err
	}
	if running { // its worker records the end, or the next one after a crash
		_, err = tx.Exec(ctx, `UPDATE deployments SET cancel = $2 WHERE id = $1 AND status IN `+open, id, why)
		return err
	}
	return d.endTx(ctx, tx, id, deployment.Canceled, why)
}

// endTx records, once, the end of a deployment that didn't become live.
func (d *Deployments) endTx(ctx context.Context, tx *db.Tx, id deployment.ID, end deployment.Status, why string) error {
	var at db.Time
	err := tx.QueryRow(ctx, `
		UPDATE deployments SET status = $2, error = $3, completed_at = $4
		WHERE id = $1 AND status IN `+open+` RETURNING completed_at`, id, end, why, db.Now()).Scan(&at)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("end deployment: %w", err)
	}
	tx.Notify(journal.Topic(id))
	x, err := d.ByID(ctx, tx, id)
	if fault.Is(err, fault.NotFound) {
		return nil // the site is gone
	}
	if err != nil {
		return err
	}
	// A site that was never live has the status error once no deployment is left that may make it live.
	if x.Target == deployment.Production {
		var left bool
		if err := tx.QueryRow(ctx,
			`SELECT EXISTS (SELECT 1 FROM deployments WHERE site_id = $1 AND target = 'production' AND status IN `+open+`)`,
			x.Site).Scan(&left); err != nil {
			return fmt.Errorf("find open deployments: %w", err)
		}
		if !left {
			if err := d.c.Sites.FailTx(ctx, tx, x.Site, why); err != nil && !fault.Is(err, fault.NotFound) {
				return err
			}
		}
	}
	return d.emit(ctx, tx, x, event.DeploymentFailed)
}

// RetryTx builds the commit of an ended deployment again, for the same target. If its commit was never known, it builds
// the branch's newest.
func (d *Deployments) RetryTx(
	ctx context.Context,
	tx *db.Tx,
	owner account.OwnerID,
	id deployment.ID,
	by deployment.Cause,
) (deployment.Deployment, error) {
	x, err := d.OwnedTx(ctx, tx, owner, id)
	if err != nil {
		return deployment.Deployment{}, err
	}
	if !x.Status.Ended() {
		return deployment.Deployment{}, fault.New(fault.Conflict, "deployment_running", "The deployment has not finished yet",
			"wait until it finishes, or cancel it")
	}
	commit := x.CommitHash
	if x.Upload != "" {
		commit = "" // an upload's commit is only claimed, and can't be fetched
	}
	return d.TriggerTx(ctx, tx, owner, x.Site, Trigger{
		Cause:      by,
		Branch:     x.Branch,
		Commit:     commit,
		Upload:     x.Upload,
		Target:     x.Target,
		Pull:       x.Pull,
		Fork:       x.Fork,
		Title:      x.Title,
		ClearCache: x.ClearCache,
	})
}
