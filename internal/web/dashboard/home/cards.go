package home

import (
	"context"
	"slices"
	"time"

	"slipway/internal/tenant/site"
	"slipway/internal/tenant/traffic"
	"slipway/internal/web/dashboard/shell"
	"slipway/internal/web/dashboard/sites"
)

// days caches the last day's traffic of a page's sites for a minute. Cards are sent again whenever they change, and
// traffic always changes.
type days struct {
	at     time.Time
	ids    []site.ID
	bySite map[site.ID]traffic.Series
}

func (y *days) fill(ctx context.Context, d *Pages, q *shell.Request, ids []site.ID) (err error) {
	if slices.Equal(ids, y.ids) && time.Since(y.at) < time.Minute {
		return nil
	}
	y.bySite, err = d.Traffic.Day(ctx, q.Caller.Owner, ids)
	y.at, y.ids = time.Now(), ids
	return err
}

// addCardDetails adds pictures and traffic to cards.
func (d *Pages) addCardDetails(ctx context.Context, q *shell.Request, cards []card, kept *days) error {
	var ids []site.ID
	var names []site.ID
	for _, c := range cards {
		ids, names = append(ids, c.Site.ID), append(names, c.Site.ID)
	}
	taken, err := d.Screenshots.OfSites(ctx, q.Caller.Owner, ids)
	if err == nil {
		err = kept.fill(ctx, d, q, names)
	}
	if err != nil {
		return err
	}
	for i, c := range cards {
		cards[i].Theme = sites.ThemeOf(c.Site, taken[c.Site.ID])
		cards[i].Spark = shell.SparkOf(kept.bySite[c.Site.ID])
	}
	return nil
}
