package server

import (
	"context"

	"slipway/internal/edge/visits"
	"slipway/internal/platform/db"
	"slipway/internal/platform/id"
	"slipway/internal/tenant/traffic"
	"slipway/internal/tenant/usage"
)

// edgeVisits hands what the edge counted to the services that store it. The edge calls it from one goroutine.
type edgeVisits struct {
	*traffic.Traffic
	source *usage.Source
	last   int64 // the number of the latest batch that source has counted
}

func (t *edgeVisits) Record(ctx context.Context, b visits.Batch, group []visits.Counts) error {
	if b.Number > t.last { // one that is offered again is counted already
		for _, v := range group {
			at, owner := db.At(b.Since), v.Owner
			t.source.Add(at, owner, usage.Bandwidth, v.Site, v.Bytes)
			t.source.Add(at, owner, usage.Requests, v.Site, v.Classes[0]+v.Classes[1]+v.Classes[2]+v.Classes[3])
		}
		t.last = b.Number
	}
	bySite := make(map[id.Site]traffic.Counts, len(group))
	var details []traffic.Details
	for _, v := range group {
		bySite[v.Site] = bySite[v.Site].Plus(traffic.Counts{
			OK: v.Classes[0], Redirected: v.Classes[1], ClientErrors: v.Classes[2], ServerErrors: v.Classes[3],
			Pages: v.Pages, Bytes: v.Bytes,
		})
		d := traffic.Details{Site: v.Site, Omitted: v.Omitted, Names: make(map[traffic.Name]int64, len(v.Tops))}
		for t, n := range v.Tops {
			d.Names[traffic.Name{Kind: traffic.Kind(t.Kind), Name: t.Name}] = n
		}
		for _, l := range v.Lines {
			d.Lines = append(d.Lines, traffic.Line{
				Time:     l.At,
				Method:   l.Method,
				Host:     l.Host,
				Path:     l.Path,
				Protocol: l.Protocol,
				Status:   l.Status,
				Bytes:    l.Bytes,
				Referrer: l.Referrer,
				Agent:    l.Agent,
				Address:  l.Address,
				Country:  l.Country,
				Request:  l.Request,
			})
		}
		details = append(details, d)
	}
	return t.Add(ctx, traffic.Batch{Since: b.Since, Counter: b.Counter, Number: b.Number, Usage: t.source}, bySite, details...)
}
