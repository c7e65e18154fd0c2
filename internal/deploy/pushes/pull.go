package pushes

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"slipway/internal/deploy/deploy"
	"slipway/internal/deploy/deployment"
	"slipway/internal/git/fetch"
	"slipway/internal/git/forge"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/text"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
)

// maxPulls is how many pull requests of a site are stored.
const maxPulls = 200

// maxPullNumber is the largest pull request number that can have an address.
const maxPullNumber = 999_999_999

// Pull is a pull request of a site's repository.
type Pull struct {
	Number    int
	Title     string
	Branch    string
	Source    string // the fork that has the branch; empty for the site's own repository
	Author    string
	Commit    string
	Open      bool
	Fork      bool
	Approved  string // the commit of a fork that a member approved; empty if none
	UpdatedAt db.Time
}

// Waits reports whether a member must approve the commit before it is built.
func (p Pull) Waits() bool {
	return p.Open && p.Fork && p.Approved != p.Commit && fetch.CheckCommit(p.Commit) == nil
}

// abbreviated reports whether a commit id is abbreviated: Bitbucket sends 12 digits for pull requests.
func abbreviated(commit string) bool {
	return len(commit) >= 12 && len(commit) < 40 && strings.Trim(commit, "0123456789abcdef") == ""
}

const pullColumns = `number, title, branch, source, author, commit_hash, open, fork, approved, updated_at`

func scanPull(r db.Scanner) (p Pull, err error) {
	err = r.Scan(&p.Number, &p.Title, &p.Branch, &p.Source, &p.Author, &p.Commit, &p.Open, &p.Fork, &p.Approved, &p.UpdatedAt)
	return p, err
}

// Pulls returns the pull requests of the owner's site, open ones first, newest first.
func (g *Pushes) Pulls(ctx context.Context, r db.Reader, owner account.OwnerID, id site.ID) ([]Pull, error) {
	if _, err := g.Get(ctx, r, owner, id); err != nil {
		return nil, err
	}
	rows, err := r.Query(ctx,
		`SELECT `+pullColumns+` FROM git_pulls WHERE site_id = $1 ORDER BY open DESC, number DESC LIMIT $2`, id,
		maxPulls)
	list, err := db.Collect(rows, err, scanPull)
	if err != nil {
		return nil, fmt.Errorf("list pull requests: %w", err)
	}
	return list, nil
}

// Pull returns one pull request, or a NotFound fault.
func (g *Pushes) Pull(ctx context.Context, r db.Reader, owner account.OwnerID, id site.ID, number int) (Pull, error) {
	if _, err := g.Get(ctx, r, owner, id); err != nil {
		return Pull{}, err
	}
	p, err := scanPull(r.QueryRow(ctx, `SELECT `+pullColumns+` FROM git_pulls WHERE site_id = $1 AND number = $2`, id, number))
	if errors.Is(err, sql.ErrNoRows) {
		return Pull{}, fault.Missing("pull request")
	}
	return p, err
}

// PullTitles returns the stored titles of a site's pull requests, by number. The caller must check access to the site.
func (g *Pushes) PullTitles(ctx context.Context, r db.Reader, id site.ID, numbers []int) (map[int]string, error) {
	slices.Sort(numbers)
	numbers = slices.Compact(numbers)
	if len(numbers) == 0 {
		return nil, nil
	}
	args := db.Args{id}
	rows, err := r.Query(ctx, `SELECT number, title FROM git_pulls WHERE site_id = $1 AND number IN (`+db.AddList(&args,
		numbers)+`)`, args...)
	titles := make(map[int]string, len(numbers))
	_, err = db.Collect(rows, err, func(s db.Scanner) (_ struct{}, err error) {
		var n int
		var title string
		err = s.Scan(&n, &title)
		titles[n] = title
		return struct{}{}, err
	})
	if err != nil {
		return nil, fmt.Errorf("find titles of pull requests: %w", err)
	}
	return titles, nil
}

// ApproveTx builds a commit of a fork's pull request that a member has reviewed. It is a Conflict if the pull request
// has another commit now, because the approval is for the reviewed one.
func (g *Pushes) ApproveTx(
	ctx context.Context,
	tx *db.Tx,
	owner account.OwnerID,
	id site.ID,
	number int,
	commit string,
	by deployment.Cause,
) (deployment.Deployment, error) {
	if _, err := g.lockTx(ctx, tx, owner, id); err != nil {
		return deployment.Deployment{}, err
	}
	p, err := g.Pull(ctx, tx, owner, id, number)
	if err != nil {
		return deployment.Deployment{}, err
	}
	refuse := func(why, details, code string) (deployment.Deployment, error) {
		return deployment.Deployment{}, fault.New(fault.Conflict, code, why, details)
	}
	switch {
	case !p.Fork:
		return refuse("The pull request is not from a fork",
			"its commits are built without approval, as previews in the Git settings says", "approval_not_needed")
	case !p.Open:
		return refuse("The pull request is closed", "", "pull_request_closed")
	case p.Commit != commit:
		return refuse("The pull request has a newer commit", "look at "+p.Commit+" and approve that", "pull_request_moved")
	}
	if abbreviated(p.Commit) {
		return refuse("The commit can't be fetched",
			"Bitbucket doesn't offer a fork's commits in the repository that the pull request is for",
			"commit_not_available")
	}
	if _, err := tx.Exec(ctx, `UPDATE git_pulls SET approved = $3 WHERE site_id = $1 AND number = $2`, id, number, commit); err != nil {
		return deployment.Deployment{}, fmt.Errorf("approve pull request: %w", err)
	}
	return g.c.Deployments.TriggerTx(ctx, tx, owner, id, deploy.Trigger{
		Cause:  by,
		Branch: p.Branch,
		Commit: commit,
		Target: deployment.Preview,
		Pull:   number,
		Fork:   true,
	})
}

// pull handles an event of a pull request.
func (g *Pushes) pull(ctx context.Context, tx *db.Tx, set Settings, s site.Site, e incoming) (Outcome, error) {
	p := *e.Pull
	c := forge.Change{Branch: p.Branch, Commit: p.Commit, Message: p.Title, Author: p.Author}
	switch {
	case p.Number < 1 || p.Number > maxPullNumber:
		return skipped("The pull request has no number"), nil
	case fetch.CheckBranch(p.Branch) != nil:
		return skipped("The branch's name has characters that are not supported"), nil
	case !p.Open: // some providers leave the commit out
	case fetch.CheckCommit(p.Commit) != nil && !abbreviated(p.Commit):
		return skipped("The pull request has no commit"), nil
	}
	if err := g.notePullTx(ctx, tx, s.ID, p); err != nil {
		return Outcome{}, err
	}
	own := !p.Fork && (p.Branch == s.Branch || s.Branch == "" && p.Branch == e.DefaultBranch)
	switch {
	case !p.Open:
		had, err := g.c.Deployments.EndPullTx(ctx, tx, s.Owner, s.ID, p.Number)
		if !had {
			return skipped("The pull request was closed"), err
		}
		return skipped("The pull request was closed; its preview was removed"), err
	case set.Previews != PullRequests && set.Previews != All:
		return skipped("Pull requests don't trigger deployments: previews are set to " + string(set.Previews)), nil
	case own:
		return skipped("The production branch has no preview"), nil
	case !p.Moved:
		return skipped("The pull request has no new commit"), nil
	case p.Fork && set.Forks == Ignore:
		return skipped("Pull requests from forks are not deployed, as the settings say"), nil
	case p.Fork && abbreviated(p.Commit):
		return skipped("Bitbucket doesn't offer a fork's commits: they can't be fetched"), nil
	case p.Fork:
		return skipped("Pull requests from forks are built after a member approved the commit"), nil
	}
	if set.Previews == All { // the push to its branch is deployed
		x, there, err := g.c.Deployments.AttachPullTx(ctx, tx, s.Owner, s.ID, p.Branch, p.Commit, p.Number)
		if err != nil {
			return Outcome{}, err
		}
		if there {
			return skipped("The preview of its branch, " + string(x.ID) + ", is of this commit"), nil
		}
		if !p.Opened {
			return skipped("The push to its branch deploys it"), nil
		}
	}
	why, err := g.unwanted(ctx, tx, set, s, c)
	if err != nil {
		return Outcome{}, err
	}
	if abbreviated(p.Commit) { // this is, or is newer than, the branch's newest commit
		p.Commit = ""
	}
	return g.deploy(ctx, tx, s, e, deploy.Trigger{Target: deployment.Preview, Branch: p.Branch, Commit: p.Commit, Pull: p.Number}, c, why)
}

// notePullTx stores a pull request. An approval is for one commit, so a new commit ends it.
func (g *Pushes) notePullTx(ctx context.Context, tx *db.Tx, id site.ID, p forge.Pull) error {
	from := ""
	if p.Fork {
		from = text.Line(p.Source, 200)
	}
	_, err := tx.Exec(ctx, `
		INSERT INTO git_pulls (site_id, number, title, branch, source, author, commit_hash, open, fork, approved, updated_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, '', $10)
		ON CONFLICT (site_id, number) DO UPDATE SET title = excluded.title, branch = excluded.branch, source = excluded.source,
		author = excluded.author,
			commit_hash = CASE WHEN excluded.commit_hash = '' THEN git_pulls.commit_hash ELSE excluded.commit_hash END,
			open = excluded.open, fork = excluded.fork, updated_at = excluded.updated_at`,
		id, p.Number, text.Line(p.Title, 200), p.Branch, from, text.Line(p.Author, 100), text.Line(p.Commit, 64), p.Open, p.Fork, db.Now())
	if err != nil {
		return fmt.Errorf("note pull request: %w", err)
	}
	_, err = tx.Exec(ctx, `
		DELETE FROM git_pulls WHERE site_id = $1 AND number NOT IN (
			SELECT number FROM git_pulls WHERE site_id = $1 ORDER BY open DESC, updated_at DESC, number DESC LIMIT $2)`, id, maxPulls)
	if err != nil {
		return fmt.Errorf("forget pull requests: %w", err)
	}
	return nil
}

// pullOf returns the newest open pull request of a branch of the repository itself, or 0.
func pullOf(ctx context.Context, r db.Reader, id site.ID, branch string) (number int, err error) {
	err = r.QueryRow(ctx,
		`SELECT number FROM git_pulls WHERE site_id = $1 AND branch = $2 AND open AND NOT fork ORDER BY number DESC LIMIT 1`,
		id, branch).Scan(&number)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return 0, fmt.Errorf("find pull request: %w", err)
	}
	return number, nil
}
