package fetch

import (
	"context"
	"errors"
	"time"

	"slipway/internal/platform/fair"
	"slipway/internal/platform/fault"
)

// take waits for a place among gits that work at once, so that neither memory nor processes
// grow with the number of requests. It refuses, in words, where too many wait already.
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
