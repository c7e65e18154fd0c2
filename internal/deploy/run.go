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

	"slipway/internal/blob"
	"slipway/internal/db"
	"slipway/internal/fault"
	"slipway/internal/framework"
	"slipway/internal/job"
	"slipway/internal/release"
	"slipway/internal/site"
	"slipway/internal/source"
	"slipway/internal/webhook"
)

// errOvertaken ends a run whose site has something newer live, or is gone.
var errOvertaken = errors.New("a newer deployment or rollback is already live")

// errDeadly ends a deployment over which the process has died too often.
var errDeadly = errors.New("the process died over it too often")

// work is the handler of Run: it starts a deployment, carries it, and writes its end
// whatever that is. It may be called again after a crash at any line.
func (d *Deployments) work(ctx context.Context, r Run, attempt int64) (err error) {
	// A cancellation that comes while this starts must not end the job: the job is gone
	// then, and nobody would write the deployment's end.
	starting, done := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer done()
	next, err := d.suspect(starting, r.Deployment)
	if err != nil {
		return err
	}
	defer next()
	x, canceled, err := d.start(starting, r.Deployment, attempt)
	if errors.Is(err, errFenced) {
		return nil
	}
	deadly := errors.Is(err, errDeadly)
	if deadly {
		err = nil
	}
	if err != nil || x.Status.Ended() {
		return err // nil: it ended before, or its site is gone
	}
	defer func() {
		if err != nil { // a panic leaves it nil, and so counted
			d.survived(ctx, x.ID)
		}
	}()
	p, err := d.progress(starting, x, attempt)
	if err != nil {
		return err
	}
	if deadly {
		return d.fail(ctx, x, p, Failed, fmt.Sprintf("The service stopped unexpectedly %d times while working on this deployment, so it was given up; redeploy to try again", maxCrashes))
	}
	if canceled != "" {
		return d.fail(ctx, x, p, Canceled, canceled)
	}
	run, lost := context.WithCancelCause(ctx)
	p.clock = newClock(d.c.Timeout, func() { lost(context.DeadlineExceeded) })
	defer p.clock.stop()
	flushing, stop := context.WithCancel(run)
	var wg sync.WaitGroup
	wg.Go(func() { p.run(flushing, lost) })
	err = d.run(run, &x, p)
	stop()
	wg.Wait()
	cause := context.Cause(run)
	lost(nil)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errFenced), errors.Is(cause, errFenced):
		return nil // whoever holds the token now writes the end
	case errors.Is(cause, job.ErrStopping), errors.Is(cause, job.ErrLost):
		return cause // it is run again, here or elsewhere
	case errors.Is(cause, job.ErrCanceled):
		return d.fail(ctx, x, p, Canceled, "")
	case errors.Is(err, errOvertaken):
		return d.fail(ctx, x, p, Canceled, "A newer deployment or rollback is already live")
	case errors.Is(err, blob.ErrUnavailable):
		d.c.Log.ErrorContext(ctx, "deployment failed", "deployment", x.ID, "site", x.Site, "err", err)
		return d.fail(ctx, x, p, Failed, "The file storage of this service is not available at the moment; redeploy in a few minutes")
	case errors.Is(cause, context.DeadlineExceeded):
		return d.fail(ctx, x, p, Failed, fmt.Sprintf("The deployment took longer than %s and was ended", d.c.Timeout.Round(time.Second)))
	}
	if f := fault.As(err); f != nil {
		why := f.Message
		if f.Details != "" {
			why += ": " + f.Details
		}
		return d.fail(ctx, x, p, Failed, why)
	}
	d.c.Log.ErrorContext(ctx, "deployment failed on our side", "deployment", x.ID, "site", x.Site, "err", err)
	return d.fail(ctx, x, p, Failed, "Internal error; the operator's log names this deployment")
}

// start takes the fencing token, and on the first attempt says that the deployment has
// left the queue. errDeadly comes with the deployment.
func (d *Deployments) start(ctx context.Context, id ID, attempt int64) (x Deployment, canceled string, err error) {
	deadly := false
	err = d.c.DB.Write(ctx, func(tx *db.Tx) error {
		deadly = false
		x, err = d.byID(ctx, tx, id)
		if fault.Is(err, fault.NotFound) {
			x.Status = Canceled // the site is gone, and with it all that waited
			return nil
		}
		if err != nil || x.Status.Ended() {
			return err
		}
		err := tx.QueryRow(ctx, `UPDATE deployments SET attempt = $2 WHERE id = $1 AND attempt <= $2 RETURNING cancel`, id, attempt).Scan(&canceled)
		if errors.Is(err, sql.ErrNoRows) {
			return errFenced // we were held up, and another worker took over meanwhile
		}
		if err != nil {
			return fmt.Errorf("take deployment: %w", err)
		}
		tooOften, err := countTx(ctx, tx, id)
		if err != nil {
			return err
		}
		if tooOften && canceled == "" {
			deadly = true
			return nil
		}
		if x.Status != Pending || canceled != "" {
			return nil
		}
		first := x.StartedAt == 0 // otherwise a process ended while it waited for a build slot
		x.Status, x.StartedAt = Building, cmp.Or(x.StartedAt, db.Now())
		if _, err := tx.Exec(ctx, `UPDATE deployments SET status = $2, started_at = $3, place = 0 WHERE id = $1`, id, x.Status, x.StartedAt); err != nil {
			return fmt.Errorf("start deployment: %w", err)
		}
		tx.Notify(logTopic(id))
		if !first {
			return nil
		}
		if err := d.retargetTx(ctx, tx, &x); err != nil {
			return err
		}
		if x.Target == Production {
			if err := d.c.Sites.ProvisioningTx(ctx, tx, x.Site); err != nil {
				return err
			}
		}
		return d.emit(ctx, tx, x, webhook.DeploymentStarted)
	})
	if err == nil && deadly {
		err = errDeadly
	}
	return x, canceled, err
}

// run carries one deployment from its start to being live, and notes in x what it finds
// out. Every step before activate leaves only unreferenced bytes behind, and activate is
// one transaction.
func (d *Deployments) run(ctx context.Context, x *Deployment, p *progress) error {
	s, err := d.c.Sites.ByID(ctx, d.c.DB, x.Site)
	if err != nil {
		return err
	}
	if s.Type == site.WordPress {
		return d.runWordPress(ctx, s, x, p)
	}

	p.enter("fetch", Building)
	byDefault := x.Branch == "" // so it stays in the table until the end: the next attempt asks again
	tree, err := d.fetch(ctx, s, x, p)
	if err != nil {
		return err
	}
	defer tree.Close()
	warnUnfetched(tree, p)

	plan, err := d.plan(ctx, s, x, tree, p)
	if err != nil {
		return err
	}
	rel, err := d.release(ctx, s, x, tree, plan, p)
	if err != nil {
		return err
	}

	if plan.Runtime == framework.Static {
		if err := d.warnNoIndex(ctx, rel, p); err != nil {
			return err
		}
	} else {
		if err := d.runRelease(ctx, *x, plan, p); err != nil {
			return err
		}
		done, err := d.startProgram(ctx, *x, plan, p)
		if err != nil {
			return err
		}
		defer done() // once the site serves it
	}
	p.enter("activate", Deploying)
	return d.activate(ctx, *x, rel, plan, byDefault, p)
}

// fetch brings the branch's newest commit here and notes which one it is.
func (d *Deployments) fetch(ctx context.Context, s site.Site, x *Deployment, p *progress) (*source.Tree, error) {
	repo, err := source.ParseRepository(s.Repository)
	if err != nil {
		return nil, err
	}
	cred, err := d.c.Sites.CredentialOf(ctx, s.ID)
	if err != nil {
		return nil, err
	}
	wanted := cmp.Or(x.Branch, "the default branch")
	request := source.Request{Site: string(s.ID), Repository: repo, Branch: x.Branch, Credential: cred, Owner: string(s.Owner), Untrusted: x.Fork}
	if x.Pinned {
		request.Commit = x.CommitHash
		wanted = fmt.Sprintf("commit %.12s", x.CommitHash)
	}
	p.Printf("info", "Fetching %s of %s", wanted, s.Repository)
	tree, err := d.c.Source.Fetch(ctx, request)
	if err != nil {
		return nil, fmt.Errorf("fetch: %w", err)
	}
	x.Branch, x.CommitHash, x.CommitMessage, x.CommitAuthor = tree.Branch, tree.Commit, clip(tree.Message), clip(tree.Author)
	subject, _, _ := strings.Cut(strings.TrimSpace(x.CommitMessage), "\n")
	p.Printf("info", "Commit %.12s on %s: %s", tree.Commit, tree.Branch, subject)
	err = p.commit(ctx, func(tx *db.Tx) error {
		if err := noteTx(ctx, tx, *x); err != nil {
			return err
		}
		return d.tell(ctx, tx, *x, s.Name) // now it is known of which commit
	})
	if err != nil {
		tree.Close()
		return nil, err
	}
	return tree, nil
}

// noteTx writes what a run has found out so far, for those who look at it meanwhile, and
// for good where it fails.
func noteTx(ctx context.Context, tx *db.Tx, x Deployment) error {
	_, err := tx.Exec(ctx, `
		UPDATE deployments SET commit_hash = $2, commit_message = $3, commit_author = $4, framework = $5, plan = $6 WHERE id = $1`,
		x.ID, x.CommitHash, x.CommitMessage, x.CommitAuthor, x.Framework, string(x.Plan))
	if err != nil {
		return fmt.Errorf("note commit: %w", err)
	}
	return nil
}

// activate makes the release live and says so, in one transaction.
func (d *Deployments) activate(ctx context.Context, x Deployment, rel release.Sealed, plan framework.Plan, byDefault bool, p *progress) error {
	p.end("success")
	if x.Target == Preview {
		p.Printf("info", "Preview at %s", x.PreviewURL)
	} else {
		p.Printf("info", "Live at %s", d.siteURL(ctx, x))
	}
	err := p.commit(ctx, func(tx *db.Tx) (err error) {
		x.Status, x.Release, x.CompletedAt = Success, rel.ID, db.Now()
		if err := d.noteStorageTx(ctx, tx, x, rel); err != nil {
			return err
		}
		if x.Target == Preview {
			err = d.showPreviewTx(ctx, tx, x)
		} else {
			err = d.activateTx(ctx, tx, x, plan, byDefault)
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
			return errFenced
		}
		if x.Target == Production {
			if err := drawThumbnailTx(ctx, tx, rel.ID); err != nil {
				return err
			}
		}
		return d.emit(ctx, tx, x, webhook.DeploymentCompleted)
	})
	if err != nil {
		return err
	}
	d.c.Log.InfoContext(ctx, "deployment live", "deployment", x.ID, "site", x.Site, "files", rel.Files, "took", x.CompletedAt.Sub(x.StartedAt))
	return nil
}

// activateTx makes a production deployment's release what the site serves.
func (d *Deployments) activateTx(ctx context.Context, tx *db.Tx, x Deployment, plan framework.Plan, byDefault bool) error {
	live, err := d.c.Sites.ActivateTx(ctx, tx, x.Site, string(x.ID), string(x.Release), plan.Runtime)
	if err != nil {
		return err
	}
	if !live {
		return errOvertaken
	}
	if byDefault {
		return d.c.Sites.DefaultBranchTx(ctx, tx, x.Site, x.Branch)
	}
	return nil
}

func (d *Deployments) siteURL(ctx context.Context, x Deployment) string {
	var sub string
	if err := d.c.DB.QueryRow(ctx, `SELECT subdomain FROM open_sites WHERE id = $1`, x.Site).Scan(&sub); err != nil {
		return x.URL
	}
	return d.c.Sites.URL(sub)
}

// fail writes a deployment's end that is not success, with the reason in its log. It
// does so although ctx may have ended: a deployment never stays open. An empty why is
// the one that was given with the cancellation.
func (d *Deployments) fail(ctx context.Context, x Deployment, p *progress, end Status, why string) error {
	ctx, done := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer done()
	if why == "" {
		if err := d.c.DB.QueryRow(ctx, `SELECT cancel FROM deployments WHERE id = $1`, x.ID).Scan(&why); err != nil {
			return fmt.Errorf("read cancellation: %w", err)
		}
	}
	level := "error"
	if end == Canceled {
		level = "warn"
	}
	p.Printf(level, "%s", why)
	p.end("failed")
	err := p.commit(ctx, func(tx *db.Tx) error {
		if err := noteTx(ctx, tx, x); err != nil {
			return err
		}
		return d.endTx(ctx, tx, x.ID, end, why)
	})
	if errors.Is(err, errFenced) {
		return nil // whoever holds the token now writes the end
	}
	return err
}

// givenUp ends a deployment whose job was interrupted or failed too often.
func (d *Deployments) givenUp(ctx context.Context, id ID) error {
	return d.c.DB.Write(ctx, func(tx *db.Tx) error {
		return d.endTx(ctx, tx, id, Failed, "The deployment was interrupted too often and was given up")
	})
}
