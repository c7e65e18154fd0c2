package traffic

import (
	"context"

	"slipway/internal/platform/db"
	"slipway/internal/platform/id"
	"slipway/internal/platform/visit"
	"slipway/internal/tenant/usage"
)

// Recorder stores the counts of one edge, for sites and for their owners' usage. It is used by one goroutine. See
// [Traffic.Recorder].
type Recorder struct {
	*Traffic
	source *usage.Source
	last   int64 // number of the latest batch counted by source
}

// Recorder returns the recorder for this process's edge.
func (t *Traffic) Recorder() *Recorder {
	return &Recorder{Traffic: t, source: usage.ProcessSource("edge")}
}

// Record adds a group of counts. A batch repeated after a lost answer is added once.
func (r *Recorder) Record(ctx context.Context, b visit.Batch, group []visit.Counts) error {
	if b.Number > r.last { // a repeated batch is already counted
		for _, v := range group {
			at := db.At(b.Since)
			r.source.Add(at, v.Owner, usage.Bandwidth, v.Site, v.Bytes)
			r.source.Add(at, v.Owner, usage.Requests, v.Site, countsOf(v).Requests())
		}
		r.last = b.Number
	}
	bySite := make(map[id.Site]Counts, len(group))
	details := make([]Details, 0, len(group))
	for _, v := range group {
		bySite[v.Site] = bySite[v.Site].Plus(countsOf(v))
		details = append(details, Details{Site: v.Site, Names: v.Names, Lines: v.Lines, Omitted: v.Omitted})
	}
	return r.Add(ctx, Batch{Since: b.Since, Counter: b.Counter, Number: b.Number, Usage: r.source}, bySite, details...)
}

func countsOf(v visit.Counts) Counts {
	return Counts{
		OK: v.Classes[0], Redirected: v.Classes[1], ClientErrors: v.Classes[2], ServerErrors: v.Classes[3], Pages: v.Pages, Bytes: v.Bytes,
	}
}
