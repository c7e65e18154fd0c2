package server

import (
	"context"
	"time"

	"slipway/internal/edge"
	"slipway/internal/site"
	"slipway/internal/traffic"
)

// recordVisits hands what the edge counted to the service that stores it.
func (h *node) recordVisits(ctx context.Context, since time.Time, group []edge.Visits) error {
	bySite := make(map[string]traffic.Counts, len(group))
	for _, v := range group {
		bySite[v.Site] = traffic.Counts{OK: v.Classes[0], Redirected: v.Classes[1], ClientErrors: v.Classes[2], ServerErrors: v.Classes[3],
			Pages: v.Pages, Bytes: v.Bytes}
	}
	return h.traffic.Add(ctx, since, bySite)
}

// forgetTraffic forgets the visits of a deleted site.
func (h *node) forgetTraffic(ctx context.Context, id site.ID) error {
	return h.traffic.Forget(ctx, string(id))
}
