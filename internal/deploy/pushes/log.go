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

// keepEvents is how many events of a site are shown; some more are remembered.
const keepEvents = 50

// Logged holds what a forge told of, or a poll found, and what came of it.
type Logged struct {
	ID         string
	Provider   string // of forge.Provider, ViaApp or ViaPoll
	Name       string // as the forge calls it
	Ref        string // branch, tag or pull request; empty: none
	Commit     string
	Outcome    string
	Deployment deployment.ID // empty: nothing was deployed
	At         db.Time
}

// Events returns the newest events of the owner's site, the newest first.
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

// noteEventTx remembers an event.
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

// pullRef is how a pull request is called among branches and tags.
func pullRef(number int) string { return fmt.Sprintf("#%d", number) }

// triggeredTx returns the deployment that an earlier event of a branch, tag or pull request
// triggered, where it was of the same commit, came another way, and no event of another
// commit came since: by the site's own hook, a GitHub App and polling the same push may be
// told of three times. Empty: there is none.
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
