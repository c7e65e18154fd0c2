package deploy

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"slipway/internal/build/build"
	"slipway/internal/build/framework"
	"slipway/internal/build/publish"
	"slipway/internal/build/release"
	"slipway/internal/deploy/deployment"
	"slipway/internal/deploy/journal"
	"slipway/internal/deploy/screenshot"
	"slipway/internal/git/fetch"
	"slipway/internal/platform/blob"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/job"
	"slipway/internal/platform/panics"
	"slipway/internal/tenant/site"
	"slipway/internal/tenant/webhook/event"
)

// errOvertaken ends a run if a newer deployment of its site is live, or the site is gone.
var errOvertaken = errors.New("a newer deployment or rollback is already live")

// errDeadly ends a deployment during which the process crashed too often.
var errDeadly = errors.New("the process died over it too often")

// work is the handler of Run: it runs a deployment and always records its end. It may be repeated after a crash at any
// line.
func (d *Deployments) work(ctx context.Context, r Run, attempt int64) (err error) {
	// A cancellation must not interrupt the start: the job would be gone, and nothing would record the deployment's
	// end.
	starting, done := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer done()
	if d.c.Programs != nil {
		if err := d.c.Programs.Place(starting, r.Deployment); err != nil {
			return err
		}
	}
	next, err := d.suspect(starting, r.Deployment)
	if err != nil {
		return err
	}
	defer next()
	x, s, canceled, err := d.start(starting, r.Deployment, attempt)
	if errors.Is(err, journal.ErrFenced) {
		return nil
	}
	deadly := errors.Is(err, errDeadly)
	if deadly {
		err = nil
	}
	if err != nil || x.Status.Ended() {
		return err // nil: it had ended, or its site is gone
	}
	defer func() {
		if err != nil { // after a panic, err is nil, so the crash counts
			d.survived(ctx, x.ID)
		}
	}()
	p, err := d.progress(starting, x, attempt)
	if err != nil {
		return err
	}
	if deadly {
		return d.fail(ctx, x, p, deployment.Failed, fmt.Sprintf("The service stopped unexpectedly %d times "+
			"while working on this deployment, so the deployment failed; redeploy to try again", maxCrashes))
	}
	if canceled != "" {
		return d.fail(ctx, x, p, deployment.Canceled, canceled)
	}
	run, lost := context.WithCancelCause(ctx)
	p.clock = journal.NewClock(d.c.Timeout, func() { lost(context.DeadlineExceeded) })
	defer p.clock.Stop()
	flushing, stop := context.WithCancel(run)
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := panics.Call(func() error { p.Run(flushing, lost); return nil }); err != nil {
			lost(err)
		}
	})
	err = d.run(run, s, &x, p)
	stop()
	wg.Wait()
	cause := context.Cause(run)
	lost(nil)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, journal.ErrFenced), errors.Is(cause, journal.ErrFenced):
		return nil // the holder of the token records the end
	case errors.Is(cause, job.ErrStopping) && !failedBuild(err), errors.Is(cause, job.ErrLost):
		return cause // it is retried, here or on another node
	case errors.Is(cause, job.ErrCanceled):
		return d.fail(ctx, x, p, deployment.Canceled, "")
	case db.Lost(err):
		return err // it is retried when the database is back
	case errors.Is(err, job.ErrStopping):
		return err // its program was stopped with the service, just before this
	case errors.Is(err, errOvertaken):
		return d.fail(ctx, x, p, deployment.Canceled, "A newer deployment or rollback is already live")
	case errors.Is(err, blob.ErrUnavailable):
		d.c.Log.ErrorContext(ctx, "deployment failed", "deployment", x.ID, "site", x.Site, "err", err)
		return d.fail(ctx, x, p, deployment.Failed,
			"The file storage of this service is not available at the moment; redeploy in a few minutes")
	case db.Full(err):
		d.c.Log.ErrorContext(ctx, "deployment failed: the disk is full", "deployment", x.ID, "site", x.Site, "err", err)
		return d.fail(ctx, x, p, deployment.Failed, "The server's disk is full; redeploy once the operator has made room")
	case errors.Is(cause, context.DeadlineExceeded):
		return d.fail(ctx, x, p, deployment.Failed, fmt.Sprintf("The deployment timed out after %s", d.c.Timeout.Round(time.Second)))
	}
	if f := fault.As(err); f != nil {
		why := f.Message
		if f.Details != "" {
			why += ": " + f.Details
		}
		return d.fail(ctx, x, p, deployment.Failed, why)
	}
	d.c.Log.ErrorContext(ctx, "deployment failed with an internal error", "deployment", x.ID, "site", x.Site, "err", err)
	return d.fail(ctx, x, p, deployment.Failed, "Internal error; the operator's log has the details under this deployment's id")
}

// failedBuild reports whether err is the build's own failure. It counts even if the process is stopping: systemd stops
// a service when the kernel kills one of its processes for its memory (OOMPolicy=stop), and a retry would do that
// again.
func failedBuild(err error) bool {
	f := fault.As(err)
	return f != nil && f.Code == build.CodeFailed
}

// start takes the fencing token and, on the first attempt, reports that the deployment has left the queue. With
// errDeadly, it returns the deployment, too.
func (d *Deployments) start(
	ctx context.Context,
	id deployment.ID,
	attempt int64,
) (x deployment.Deployment, s site.Site, canceled string, err error) {
	deadly := false
	err = d.c.DB.Write(ctx, func(tx *db.Tx) error {
		deadly = false
		x, canceled, err = take(ctx, tx, id, attempt)
		if err != nil || x.Status.Ended() {
			return err
		}
		s, err = d.c.Sites.LockByIDTx(ctx, tx, x.Site)
		if fault.Is(err, fault.NotFound) {
			x.Status = deployment.Canceled // the site is gone, and with it everything that waited
			return nil
		}
		if err != nil {
			return err
		}
		d.Locate(&x, s.Slug)
		x.Current, x.SiteName = s.LiveDeployment == id, s.Name
		tooOften, err := countTx(ctx, tx, id)
		if err != nil {
			return err
		}
		if tooOften && canceled == "" {
			deadly = true
			return nil
		}
		if x.Status != deployment.Pending || canceled != "" {
			return nil
		}
		first := x.StartedAt == 0 // else a process died while this waited for a build slot
		x.Status, x.StartedAt = deployment.Building, cmp.Or(x.StartedAt, db.Now())
		if _, err := tx.Exec(ctx, `UPDATE deployments SET status = $2, started_at = $3, place = 0 WHERE id = $1`, id,
			x.Status, x.StartedAt); err != nil {
			return fmt.Errorf("start deployment: %w", err)
		}
		tx.Notify(journal.Topic(id))
		if !first {
			return nil
		}
		if err := d.retargetTx(ctx, tx, s, &x); err != nil {
			return err
		}
		if x.Target == deployment.Production {
			if err := d.c.Sites.ProvisioningTx(ctx, tx, s); err != nil {
				return err
			}
		}
		return d.emit(ctx, tx, x, event.DeploymentStarted)
	})
	if err == nil && deadly {
		err = errDeadly
	}
	return x, s, canceled, err
}

// take writes a worker's fencing token, and returns the deployment and why it must be canceled. It doesn't change a
// deployment that has ended or is gone.
func take(ctx context.Context, tx *db.Tx, id deployment.ID, attempt int64) (x deployment.Deployment, canceled string, err error) {
	x, err = deployment.ScanOwn(
		tx.QueryRow(
			ctx,
			`
		UPDATE deployments SET attempt = $2 WHERE id = $1 AND attempt <= $2 AND status IN `+open+`
		RETURNING `+strings.ReplaceAll(deployment.Own, "d.",
				"")+`, COALESCE((SELECT provider FROM site_forges f WHERE f.site_id = deployments.site_id), ''), cancel`,
			id,
			attempt,
		),
		&canceled,
	)
	if !fault.Is(err, fault.NotFound) {
		return x, canceled, err
	}
	err = tx.QueryRow(ctx, `SELECT status FROM deployments WHERE id = $1`, id).Scan(&x.Status)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		x.Status = deployment.Canceled
		return x, "", nil
	case err != nil:
		return x, "", fmt.Errorf("take deployment: %w", err)
	case !x.Status.Ended():
		return x, "", journal.ErrFenced // this worker was too slow, and another one took over
	}
	return x, "", nil
}

// run runs one deployment until it is live, and fills in x. Every step before activate leaves only unreferenced bytes
// behind; activate is one transaction.
func (d *Deployments) run(ctx context.Context, s site.Site, x *deployment.Deployment, p *progress) error {
	if s.Type == site.WordPress {
		return d.runWordPress(ctx, s, x, p)
	}

	p.enter("fetch", deployment.Building)
	// The branch stays empty in the table until the end, so that a retry looks up the default branch again.
	byDefault := x.Branch == "" && x.Upload == ""
	tree, err := d.source(ctx, s, x, p)
	if err != nil {
		return err
	}
	defer tree.Close()

	plan, err := d.plan(ctx, s, x, tree, p)
	if err != nil {
		return err
	}
	rel, plan, err := d.release(ctx, s, x, tree, plan, p)
	if err != nil {
		return d.lacking(ctx, *x, tree, plan, "build", err)
	}

	if plan.Runtime == framework.Static {
		if err := publish.WarnNoIndex(ctx, d.c.Releases, rel, p.Printf); err != nil {
			return err
		}
	} else {
		if err := d.runRelease(ctx, *x, plan, p); err != nil {
			return d.lacking(ctx, *x, tree, plan, "runtime", err)
		}
		done, err := d.startProgram(ctx, *x, plan, p)
		if err != nil {
			return d.lacking(ctx, *x, tree, plan, "runtime", err)
		}
		defer done() // when the site serves the release
	}
	p.enter("activate", deployment.Deploying)
	return d.activate(ctx, s, *x, rel, plan, byDefault, p)
}

// sourceTree is what a deployment is made from: a commit or an upload.
type sourceTree interface {
	publish.Tree
	build.Tree
	Close() error
}

// source returns the deployment's commit or upload.
func (d *Deployments) source(ctx context.Context, s site.Site, x *deployment.Deployment, p *progress) (sourceTree, error) {
	if x.Upload != "" {
		return d.uploaded(ctx, x, p)
	}
	tree, err := d.fetch(ctx, s, x, p)
	if err != nil {
		return nil, err
	}
	publish.WarnUnfetched(tree.Unfetched, p.Printf)
	return tree, nil
}

// fetch fetches the deployment's commit and records which one it is.
func (d *Deployments) fetch(ctx context.Context, s site.Site, x *deployment.Deployment, p *progress) (*fetch.Tree, error) {
	repo, err := fetch.ParseRepository(s.Repository)
	if err != nil {
		return nil, err
	}
	cred, err := d.c.Sites.CredentialOf(ctx, s)
	if err != nil {
		return nil, err
	}
	wanted := cmp.Or(x.Branch, "the default branch")
	request := fetch.Request{
		Site:       s.ID,
		Repository: repo,
		Branch:     x.Branch,
		Credential: cred,
		Owner:      s.Owner,
		Untrusted:  x.Fork,
		Depth:      s.Build.History(),
	}
	if x.Pinned {
		request.Commit = x.CommitHash
		if request.OnBranch, err = d.mustBeOnBranch(ctx, s.Repository, *x); err != nil {
			return nil, err
		}
		wanted = fmt.Sprintf("commit %.12s", x.CommitHash)
	}
	p.Printf("info", "Fetching %s of %s", wanted, s.Repository)
	tree, err := d.c.Source.Fetch(ctx, request)
	if err != nil {
		return nil, fmt.Errorf("fetch: %w", err)
	}
	x.Branch, x.CommitHash, x.CommitMessage, x.CommitAuthor = tree.Branch, tree.Commit, journal.Clip(
		tree.Message,
	), journal.Clip(tree.Author)
	subject, _, _ := strings.Cut(strings.TrimSpace(x.CommitMessage), "\n")
	p.Printf("info", "Commit %.12s on %s: %s", tree.Commit, tree.Branch, subject)
	err = p.Commit(ctx, func(tx *db.Tx) error {
		if err := noteTx(ctx, tx, *x); err != nil {
			return err
		}
		return d.tell(ctx, tx, *x, s.Name) // reports can name the commit from now on
	})
	if err != nil {
		tree.Close()
		return nil, err
	}
	return tree, nil
}

// mustBeOnBranch reports whether the deployment's commit must be in its branch. Otherwise anyone could deploy commits
// of forks, because providers serve those too. Exceptions: a member approved this commit of a fork, or the commit was
// deployed from the branch before, since it may be redeployed after a force push, as its release may be rolled back to.
func (d *Deployments) mustBeOnBranch(ctx context.Context, repository string, x deployment.Deployment) (must bool, err error) {
	if x.Fork {
		return false, nil
	}
	err = d.c.DB.QueryRow(ctx, `
		SELECT NOT EXISTS (SELECT 1 FROM deployments WHERE site_id = $1 AND commit_hash = $2 AND branch = $3 AND repository = $4
			AND status = 'success' AND upload_id = '' AND NOT fork)`, x.Site, x.CommitHash, x.Branch, repository).Scan(&must)
	if err != nil {
		return true, fmt.Errorf("find earlier deployment of commit: %w", err)
	}
	return must, nil
}

// noteTx records what a run knows so far: for users who watch it, and permanently if it fails.
func noteTx(ctx context.Context, tx *db.Tx, x deployment.Deployment) error {
	_, err := tx.Exec(ctx, `
		UPDATE deployments SET commit_hash = $2, commit_message = $3, commit_author = $4, framework = $5, plan = $6 WHERE id = $1`,
		x.ID, x.CommitHash, x.CommitMessage, x.CommitAuthor, x.Framework, string(x.Plan))
	if err != nil {
		return fmt.Errorf("note commit: %w", err)
	}
	return nil
}

// activate makes the release live and emits the events, in one transaction.
func (d *Deployments) activate(
	ctx context.Context,
	s site.Site,
	x deployment.Deployment,
	rel release.Sealed,
	plan framework.Plan,
	byDefault bool,
	p *progress,
) error {
	p.End("success")
	if x.Target == deployment.Preview {
		p.Printf("info", "Preview at %s", x.PreviewURL)
	} else {
		p.Printf("info", "Live at %s", d.c.Sites.URL(s.Slug))
	}
	err := p.Commit(ctx, func(tx *db.Tx) (err error) {
		x.Status, x.Release, x.CompletedAt = deployment.Success, rel.ID, db.Now()
		if err := d.noteStorageTx(ctx, tx, x, rel, p); err != nil {
			return err
		}
		x.SiteName = "" // the site may have been renamed
		if x.Target == deployment.Preview {
			err = showPreviewTx(ctx, tx, x)
		} else {
			x.SiteName, err = d.activateTx(ctx, tx, x, plan, byDefault)
		}
		if err != nil {
			return err
		}
		n, err := tx.Exec(ctx, `
			UPDATE deployments SET status = $3, release = $4, runtime = $5, completed_at = $6, branch = $7,
				commit_hash = $8, commit_message = $9, commit_author = $10, framework = $11, plan = $12, error = ''
			WHERE id = $1 AND attempt = $2 AND status IN `+open,
			x.ID, p.attempt, x.Status, x.Release, plan.Runtime, x.CompletedAt, x.Branch,
			x.CommitHash, x.CommitMessage, x.CommitAuthor, x.Framework, string(x.Plan))
		if err != nil {
			return fmt.Errorf("activate: %w", err)
		}
		if n == 0 {
			return journal.ErrFenced
		}
		if x.Target == deployment.Production {
			if err := screenshot.TakeTx(ctx, tx, x.Owner, x.Site); err != nil {
				return err
			}
		}
		return d.emit(ctx, tx, x, event.DeploymentCompleted)
	})
	if err != nil {
		return err
	}
	d.c.Log.InfoContext(ctx, "deployment live", "deployment", x.ID, "site", x.Site, "files", rel.Files, "took",
		x.CompletedAt.Sub(x.StartedAt))
	return nil
}

// activateTx makes a production deployment's release live, and returns the site's name.
func (d *Deployments) activateTx(
	ctx context.Context,
	tx *db.Tx,
	x deployment.Deployment,
	plan framework.Plan,
	byDefault bool,
) (string, error) {
	live, err := d.c.Sites.ActivateTx(ctx, tx, x.Site, x.ID, x.Release, plan.Runtime)
	if err != nil {
		return "", err
	}
	if live == nil {
		return "", errOvertaken
	}
	if byDefault {
		err = d.c.Sites.DefaultBranchTx(ctx, tx, x.Site, x.Branch)
	}
	return live.Name, err
}

// fail records the end of a deployment that didn't succeed, with the reason in its log. It works even after ctx has
// ended, so that no deployment stays open. An empty why means the reason of the cancellation.
func (d *Deployments) fail(ctx context.Context, x deployment.Deployment, p *progress, end deployment.Status, why string) error {
	ctx, done := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer done()
	if why == "" {
		if err := d.c.DB.QueryRow(ctx, `SELECT cancel FROM deployments WHERE id = $1`, x.ID).Scan(&why); err != nil {
			return fmt.Errorf("read cancellation: %w", err)
		}
	}
	level := "error"
	if end == deployment.Canceled {
		level = "warn"
	}
	p.Printf(level, "%s", why)
	p.End("failed")
	err := p.Commit(ctx, func(tx *db.Tx) error {
		if err := noteTx(ctx, tx, x); err != nil {
			return err
		}
		return d.endTx(ctx, tx, x.ID, end, why)
	})
	if errors.Is(err, journal.ErrFenced) {
		return nil // the holder of the token records the end
	}
	return err
}

// givenUp ends a deployment whose job was interrupted or failed too often.
func (d *Deployments) givenUp(ctx context.Context, id deployment.ID) error {
	return d.c.DB.Write(ctx, func(tx *db.Tx) error {
		return d.endTx(ctx, tx, id, deployment.Failed, "The deployment was interrupted too often and failed")
	})
}
