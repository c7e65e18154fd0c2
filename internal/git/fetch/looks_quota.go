package fetch

import (
	"sync"
	"time"

	"slipway/internal/platform/id"

	"slipway/internal/platform/fault"
)

// quota limits how often an owner may look at repositories per hour. Each look fetches from a host that the owner
// chose, and stores nothing that another limit counts.
type quota struct {
	most int

	mu    sync.Mutex // guards the following fields
	since time.Time  // start of the hour
	// share: total the owners whose repositories were read for a look within this hour; owner 600 looks; edge 429 with Retry-After
	used map[string]int
}

// take counts one look, or returns a fault that says when the next one is possible.
func (q *quota) take(owner id.Owner) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	if q.used == nil || now.Sub(q.since) >= time.Hour {
		q.since, q.used = now, map[string]int{}
	}
	if q.used[string(owner)] >= q.most {
		return &fault.Error{
			Kind: fault.Limited, Code: "too_many_repositories", Message: "Too many repository previews this hour",
			Details: "create the site without a preview, or try again later", RetryAfter: time.Until(q.since.Add(time.Hour)),
		}
	}
	q.used[string(owner)]++
	return nil
}
