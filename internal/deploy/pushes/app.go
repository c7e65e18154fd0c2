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

// maxAppSites caps the sites that one GitHub App event affects. Owners take turns.
const maxAppSites = 100

// AppOutcome is the outcome of a GitHub App event for one site.
type AppOutcome struct {
	Site site.Site
	Outcome
}

// HandleAppTx handles a verified webhook event e of a GitHub App, for each site of the event's repository on the app's
// host for which uses returns true. A site's refusal doesn't affect the others.
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
		if f := fault.As(err); f != nil && f.Kind != fault.Internal { // such as too many waiting deployments
			one, err = skipped(f.Message), nil
		}
		if err != nil {
			return nil, err
		}
		out = append(out, AppOutcome{s, one})
	}
	return out, nil
}

// inTurns orders sites so that every owner's first site comes before any owner's second.
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
