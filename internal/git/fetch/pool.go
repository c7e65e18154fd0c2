package fetch

import (
	"context"
	"errors"
	"time"

	"slipway/internal/platform/fair"
	"slipway/internal/platform/fault"
)

// take waits for a free place in the pool, which bounds memory and processes. It returns a fault if too many requests
// wait already.
func take(ctx context.Context, p *fair.Pool, r Request) (release func(), err error) {
	release, err = p.Take(ctx, fair.Who{Owner: string(r.Owner), Site: string(r.Site)})
	switch {
	case errors.Is(err, fair.ErrOwnerFull):
		return nil, &fault.Error{
			Kind: fault.Limited, Code: "too_many_repositories", Message: "Too many concurrent repository reads",
			Details: "wait until one of them finishes", RetryAfter: 5 * time.Second,
		}
	case errors.Is(err, fair.ErrFull):
		return nil, &fault.Error{
			Kind:       fault.Unavailable,
			Code:       "repositories_busy",
			Message:    "Too many repositories are being read at the moment",
			Details:    "try again in a few seconds",
			RetryAfter: 10 * time.Second,
		}
	}
	return release, err
}
