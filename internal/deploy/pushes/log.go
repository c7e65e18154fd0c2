package pushes

import (
	"context"
	"fmt"

	"slipway/internal/deploy/deployment"
	"slipway/internal/platform/db"
	"slipway/internal/platform/text"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
)

// keepEvents is how many events of a site are shown. Some more are stored.
const keepEvents = 50

// Logged is an event of a Git provider or a poll, and its outcome.
type Logged struct {
	ID         string
	Provider   string // a forge.Provider, ViaApp or ViaPoll
	Name       string // as the provider names it
	Ref        string // branch, tag or pull request; empty if there is none
	Commit     string
	Outcome    string
	Deployment deployment.ID // empty if nothing was deployed
	At         db.Time
}

// Events returns the newest events of the owner's site, newest first.
func (g *Pushes) Events(ctx context.Context, r db.Reader, owner account.OwnerID, id site.ID) ([]Logged, error) {
	if _, err := g.Get(ctx, r, owner, id); err != nil {
		return nil, err
	}
	rows, err := r.Query(ctx, `
		SELECT id, provider, name, ref, commit_hash, outcome, deployment_id, at FROM git_events WHERE site_id = $1
		ORDER BY id DESC LIMIT $2`, id, keepEvents)
	list, err := db.Collect(rows, err, func(r db.Scanner) (l Logged, err error) {
		return l, r.Scan(&l.ID, &l.Provider, &l.Name, &l.Ref, &l.Commit, &l.Outcome, &l.Deployment, &l.At)
	})
	if err != nil {
		return nil, fmt.Errorf("list git events: %w", err)
	}
	return list, nil
}

// noteEventTx stores an event.
func noteEventTx(ctx context.Context, tx *db.Tx, id site.ID, e incoming, out Outcome, said string) error {
	ref, commit, deployment := "", "", deployment.ID("")
	switch {
	case e.Pull != nil:
		ref, commit = pullRef(e.Pull.Number), e.Pull.Commit
	case len(e.Changes) > 0:
		c := e.Changes[0]
		ref, commit = c.Branch, c.Commit
		if c.Tag != "" {
			ref = c.Tag
		}
		if n := len(e.Changes) - 1; n > 0 {
			ref = fmt.Sprintf("%s and %d more", text.Line(ref, 100), n)
		}
	}
	if len(out.Deployments) > 0 {
		deployment = out.Deployments[0].ID
	}
	_, err := tx.Exec(ctx, `
		INSERT INTO git_events (id, site_id, provider, name, ref, commit_hash, outcome, deployment_id, at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`,
		db.NewID("gev"), id, e.via, text.Line(e.Name,
			100), text.Line(ref, 200), text.Line(commit, 64), text.Line(said, 500), deployment, db.Now())
	if err != nil {
		return fmt.Errorf("note git event: %w", err)
	}
	if !trims() {
		return nil
	}
	_, err = tx.Exec(ctx, `
		DELETE FROM git_events WHERE site_id = $1 AND id < (
			SELECT MIN(id) FROM (SELECT id FROM git_events WHERE site_id = $1 ORDER BY id DESC LIMIT $2) AS kept)`, id, keepEvents)
	if err != nil {
		return fmt.Errorf("forget git events: %w", err)
	}
	return nil
}

// pullRef is the Ref of a pull request.
func pullRef(number int) string { return fmt.Sprintf("#%d", number) }

// triggeredTx returns the deployment that an earlier event of a branch, tag or pull request triggered, if that event
// had the same commit, arrived in another way, and no event with another commit came since. The site's own hook, a
// GitHub App and polling can all report the same push. It returns "" if there is none.
func triggeredTx(ctx context.Context, tx *db.Tx, id site.ID, via, ref, commit string) (deployment.ID, error) {
	type event struct {
		via, commit string
		deployment  deployment.ID
	}
	rows, err := tx.Query(ctx,
		`SELECT provider, commit_hash, deployment_id FROM git_events WHERE site_id = $1 AND ref = $2 ORDER BY id DESC LIMIT 5`,
		id, text.Line(ref, 200))
	list, err := db.Collect(rows, err, func(r db.Scanner) (e event, err error) { return e, r.Scan(&e.via, &e.commit, &e.deployment) })
	if err != nil {
		return "", fmt.Errorf("find events: %w", err)
	}
	beside := func(via string) bool { return via == ViaApp || via == ViaPoll }
	for _, e := range list {
		if e.commit != commit || e.via == via && e.deployment != "" {
			break
		}
		if e.deployment != "" && (beside(e.via) || beside(via)) {
			return e.deployment, nil
		}
	}
	return "", nil
}
