package pushes

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"slipway/internal/git/forge"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
)

// maxAppSites is how many sites one event of a GitHub App acts on, each account's in turn.
const maxAppSites = 100

// AppOutcome says what came of a GitHub App's event for one site.
type AppOutcome struct {
	Site site.Site
	Outcome
}

// HandleAppTx does what a verified call of a GitHub App's webhook, of which e was read, asks for: for each site of
// the event's repository on the app's host that uses reports to be one of the app's. What
// one site refuses doesn't concern the others.
func (g *Pushes) HandleAppTx(
	ctx context.Context,
	tx *db.Tx,
	host string,
	e forge.Event,
	h http.Header,
	body []byte,
	uses func(site.Site) (bool, error),
) ([]AppOutcome, error) {
	if e.Kind != forge.Push && e.Kind != forge.PullRequest || e.FullName == "" {
		return nil, nil
	}
	repository := host + "/" + e.FullName
	e.Repository = []string{"https://" + repository}
	sites, err := g.c.Sites.OfRepository(ctx, tx, repository)
	if err != nil {
		return nil, err
	}
	var out []AppOutcome
	for _, s := range inTurns(sites) {
		if len(out) == maxAppSites {
			break
		}
		if ok, err := uses(s); err != nil || !ok {
			if err != nil {
				return nil, err
			}
			continue
		}
		one, err := g.handleAppTx(ctx, tx, s, incoming{e, ViaApp}, h, body)
		if f := fault.As(err); f != nil && f.Kind != fault.Internal { // such as too many deployments that wait
			one, err = skipped(f.Message), nil
		}
		if err != nil {
			return nil, err
		}
		out = append(out, AppOutcome{s, one})
	}
	return out, nil
}

// inTurns orders sites so that each owner's first one comes before anybody's second: many sites of one account leave room for others'.
func inTurns(sites []site.Site) []site.Site {
	turn, of := make(map[site.ID]int, len(sites)), map[account.OwnerID]int{}
	for _, s := range sites {
		turn[s.ID] = of[s.Owner]
		of[s.Owner]++
	}
	slices.SortStableFunc(sites, func(a, b site.Site) int { return turn[a.ID] - turn[b.ID] })
	return sites
}

func (g *Pushes) handleAppTx(ctx context.Context, tx *db.Tx, s site.Site, e incoming, h http.Header, body []byte) (Outcome, error) {
	set, err := g.lockTx(ctx, tx, s.Owner, s.ID)
	if err != nil {
		return Outcome{}, err
	}
	if !strings.EqualFold(s.Repository, strings.TrimPrefix(e.Repository[0], "https://")) {
		return skipped("The event is of another repository"), nil
	}
	return g.handleTx(ctx, tx, set, s, e, h, body)
}
