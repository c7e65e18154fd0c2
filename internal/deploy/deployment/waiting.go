package deployment

import (
	"context"
	"fmt"
	"strings"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/site"
)

// Reasons for which a pushed commit waits to be deployed, other than the owner's settings.
const (
	WhyOff     = "automatic deployments are off"
	WhyStopped = "the site is stopped"
)

// SkippedFor returns the error text of a pushed commit that isn't deployed.
func SkippedFor(why string) string { return "Skipped: " + why }

// Skipped returns why the pushed commit wasn't deployed; empty if this isn't the record of such a commit.
func (x Deployment) Skipped() string {
	if why, ok := strings.CutPrefix(x.Error, SkippedFor("")); ok && x.Status == Canceled && x.Cause == ByPush {
		return why
	}
	return ""
}

// Waits reports whether this is the record of a pushed commit that waits, rather than one that the settings exclude.
func (x Deployment) Waits() bool {
	why := x.Skipped()
	return why == WhyOff || why == WhyStopped
}

// waitingWindow is how many of a site's newest deployments are searched for a waiting commit.
const waitingWindow = 50

// Waiting returns the newest commit of the site's production branch if it or an earlier one was pushed and waits to be
// deployed, else nil. It uses the records of pushes and asks no repository. The caller must check access to the site.
func (d *Deployments) Waiting(ctx context.Context, r db.Reader, s site.Site) (*Deployment, error) {
	// Every page of a site calls this, so the long columns are read only of the deployment that waits.
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

// waiting implements Waiting for a list of production deployments, newest first.
func waiting(list []Deployment, s site.Site) *Deployment {
	var head *Deployment
	deployed := map[string]bool{} // commits deployed later, or being deployed
	for _, x := range list {
		if x.Repository != s.Repository || s.Branch != "" && x.Branch != s.Branch {
			continue // from a previous repository or branch
		}
		ended := x.Status == Failed || x.Status == Canceled
		switch {
		case x.ReleaseOf != "" || x.Upload != "" || x.Pinned && x.Cause != ByPush: // of a chosen commit or upload, not of the branch's head
			if !ended {
				deployed[x.CommitHash] = true
			}
		case !ended:
			return nil // it deployed the head of the branch, with everything that was pushed before
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
