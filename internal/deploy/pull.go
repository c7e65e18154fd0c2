package deploy

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"strings"

	"slipway/internal/account"
	"slipway/internal/db"
	"slipway/internal/fault"
	"slipway/internal/framework"
	"slipway/internal/site"
)

// AttachPullTx gives a pull request the newest preview of its branch that is of this very
// commit and has not failed, so that one commit is not built twice. It reports whether
// there is one. The commit may be the beginning of its id, in hexadecimal digits.
func (d *Deployments) AttachPullTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, id site.ID, branch, commit string, pull int) (Deployment, bool, error) {
	s, err := d.c.Sites.LockTx(ctx, tx, owner, id)
	if err != nil {
		return Deployment{}, false, err
	}
	x, err := d.scan(tx.QueryRow(ctx, `
		SELECT `+columns+from+`
		WHERE d.site_id = $1 AND d.branch = $2 AND d.commit_hash LIKE $3 AND d.target = 'preview' AND NOT d.fork AND d.pull_request IN (0, $4)
			AND (d.status = 'success' AND d.release <> '' OR d.status IN `+open+`)
		ORDER BY d.id DESC LIMIT 1`, id, branch, commit+"%", pull))
	if fault.Is(err, fault.NotFound) {
		return Deployment{}, false, nil
	}
	if err != nil {
		return Deployment{}, false, err
	}
	x.Pull = pull
	if _, err := tx.Exec(ctx, `UPDATE deployments SET pull_request = $2 WHERE id = $1`, x.ID, pull); err != nil {
		return Deployment{}, false, fmt.Errorf("attach pull request: %w", err)
	}
	if _, err := d.previewHostTx(ctx, tx, s, pullKey(pull), true); err != nil {
		return Deployment{}, false, err
	}
	if x.Status == Success {
		err = d.showPreviewTx(ctx, tx, x)
	}
	tx.Notify(x.Owner.Topic())
	return x, true, err
}

// EndUnusedTx ends the preview addresses of sites for which no deployment was asked for
// since then, and says how many.
func (d *Deployments) EndUnusedTx(ctx context.Context, tx *db.Tx, sites []site.ID, since db.Time) (int64, error) {
	args := db.Args{since}
	n, err := tx.Exec(ctx, `DELETE FROM preview_hosts WHERE used_at < $1 AND site_id IN (`+db.AddList(&args, sites)+`)`, args...)
	if err != nil {
		return 0, fmt.Errorf("end unused preview addresses: %w", err)
	}
	if n > 0 {
		tx.Notify("previews")
	}
	return n, nil
}

// PreviewAddress is the stable address of a branch or a pull request.
type PreviewAddress struct {
	Branch     string // empty for a pull request
	Pull       int    // 0 for a branch
	URL        string
	Deployment ID // that it serves; empty: none has succeeded yet
	UsedAt     db.Time
}

// Previews returns the preview addresses of the owner's site, the last used first.
func (d *Deployments) Previews(ctx context.Context, owner account.OwnerID, id site.ID) ([]PreviewAddress, error) {
	s, err := d.c.Sites.Get(ctx, owner, id)
	if err != nil {
		return nil, err
	}
	rows, err := d.c.DB.Query(ctx, `
		SELECT branch, label, deployment_id, used_at FROM preview_hosts WHERE site_id = $1 ORDER BY used_at DESC, branch LIMIT $2`, id, maxPreviews)
	list, err := db.Collect(rows, err, func(r db.Scanner) (p PreviewAddress, err error) {
		var label string
		if err := r.Scan(&p.Branch, &label, &p.Deployment, &p.UsedAt); err != nil {
			return p, err
		}
		if m := pullLabel.FindStringSubmatch(p.Branch); m != nil {
			p.Branch = ""
			if _, err := fmt.Sscan(m[1], &p.Pull); err != nil {
				return p, err
			}
		}
		p.URL = d.c.Sites.DeploymentURL(label, s.Slug)
		return p, nil
	})
	if err != nil {
		return nil, fmt.Errorf("list preview addresses: %w", err)
	}
	return list, nil
}

// WatchOf returns build.watch of the slipway.toml that the site's live deployment was
// built with, nil where there is none, and the folders of the workspace's members that it was
// made of, nil where they are not known.
func (d *Deployments) WatchOf(ctx context.Context, r db.Reader, s site.Site) (watch, uses []string, err error) {
	if s.LiveDeployment == "" {
		return nil, nil, nil
	}
	x, err := d.byID(ctx, r, ID(s.LiveDeployment))
	if fault.Is(err, fault.NotFound) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	var plan framework.Plan
	if len(x.Plan) == 0 || json.Unmarshal(x.Plan, &plan) != nil { // of another version of the program
		return nil, nil, nil
	}
	if s.Build.Root != nil && strings.Trim(path.Clean("/"+*s.Build.Root), "/") != plan.Root {
		return plan.Watch, nil, nil // the root was changed since
	}
	return plan.Watch, plan.Uses, nil
}

// CommitURL is the page of the commit at the forge; empty where the forge or the commit is
// not known.
func (x Deployment) CommitURL() string { return x.Forge.CommitURL(x.Repository, x.CommitHash) }

// BranchURL is the page of the branch at the forge; empty where it is not known, and for a
// fork's, which lies elsewhere.
func (x Deployment) BranchURL() string {
	if x.Fork {
		return ""
	}
	return x.Forge.BranchURL(x.Repository, x.Branch)
}

// PullURL is the page of the pull request at the forge; empty without one.
func (x Deployment) PullURL() string { return x.Forge.PullURL(x.Repository, x.Pull) }
