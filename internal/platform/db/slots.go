package db

import (
	"context"

	"slipway/internal/platform/fair"
)

type shareKey struct{}

// WithShare says on whose behalf writes under ctx are made. Shares take turns at writing,
// so that one user's many writes delay another's by one write at most. Writes without a
// share are the service's own: they get every other turn.
func WithShare(ctx context.Context, share string) context.Context {
	return context.WithValue(ctx, shareKey{}, share)
}

// Share returns the share that WithShare gave to ctx, or "": the service's own.
func Share(ctx context.Context) string {
	share, _ := ctx.Value(shareKey{}).(string)
	return share
}

// newSlots returns the places for writing: one on SQLite, several on PostgreSQL, of which one
// share may hold so many at once.
func newSlots(places, each int) *fair.Pool {
	// share: total 1 write at a time on SQLite, half of the connections on PostgreSQL; owner a quarter of the connections; edge writes wait for their turn, 10 s at most
	return fair.New(fair.Config{Places: places, Owner: each, Own: true})
}

// Waiting returns how many writes wait for their turn. It is for tests.
func (d *DB) Waiting() int {
	_, waiting := d.slots.Held()
	return waiting
}
