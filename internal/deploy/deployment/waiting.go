package deployment

import (
	"context"
	"fmt"
	"strings"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/site"
)

// Why a pushed commit is not deployed although its owner didn't choose to leave it out: it waits.
const (
	WhyOff     = "automatic deployments are off"
	WhyStopped = "the site is stopped"
)

// SkippedFor is the error of a pushed commit that is not deployed.
func SkippedFor(why string) string { return "Skipped: " + why }

// Skipped says why the pushed commit that the deployment is on record for was not deployed; empty: it is no such record.
func (x Deployment) Skipped() string {
	if why, ok := strings.CutPrefix(x.Error, SkippedFor("")); ok && x.Status == Canceled && x.Cause == ByPush {
		return why
	}
	return ""
}

// Waits reports whether the deployment is on record for a pushed commit that nobody has left out.
func (x Deployment) Waits() bool {
	why := x.Skipped()
	return why == WhyOff || why == WhyStopped
}

// waitingWindow is how many of a site's newest deployments are looked at for a commit that waits.
const waitingWindow = 50

// Waiting returns the newest commit of the site's production branch where it, or one before it, was pushed and waits to be
// deployed; nil where none does. It is told from what pushes left on record: no repository is asked. The caller knows that
// the site is its user's.
func (d *Deployments) Waiting(ctx context.Context, r db.Reader, s site.Site) (*Deployment, error) {
	// Each page of a site asks: what is long of a deployment is read of the one that waits alone.
	rows, err := r.Query(ctx, `
		SELECT id, status, cause, branch, repository, commit_hash, pinned, rollback_of, upload_id, error FROM deployments
		WHERE id IN (SELECT id FROM deployments WHERE site_id = $1 ORDER BY id DESC LIMIT $2) AND target = 'production'
		ORDER BY id DESC`, s.ID, waitingWindow)
	list, err := db.Collect(rows, err, func(r db.Scanner) (x Deployment, err error) {
		return x, r.Scan(&x.ID, &x.Status, &x.Cause, &x.Branch, &x.Repository, &x.CommitHash, &x.Pinned, &x.ReleaseOf, &x.Upload, &x.Error)
	})
	if err != nil {
		return nil, fmt.Errorf("find the commit that waits: %w", err)
	}
	head := waiting(list, s)
	if head == nil {
		return nil, nil
	}
	x, err := d.ByID(ctx, r, head.ID)
	if err != nil {
		return nil, err
	}
	return &x, nil
}

// waiting is Waiting of the production deployments, the newest first.
func waiting(list []Deployment, s site.Site) *Deployment {
	var head *Deployment
	deployed := map[string]bool{} // commits that were deployed, or are being, since
	for _, x := range list {
		if x.Repository != s.Repository || s.Branch != "" && x.Branch != s.Branch {
			continue // of what the site was made from before
		}
		ended := x.Status == Failed || x.Status == Canceled
		switch {
		case x.ReleaseOf != "" || x.Upload != "" || x.Pinned && x.Cause != ByPush: // of what was chosen, not of the branch's head
			if !ended {
				deployed[x.CommitHash] = true
			}
		case !ended:
			return nil // it took, or takes, the head of the branch, with all that was pushed before
		default:
			if head == nil && x.CommitHash != "" {
				head = &x
			}
			if head != nil && x.Waits() {
				if deployed[head.CommitHash] {
					return nil
				}
				return head
			}
		}
	}
	return nil
}
