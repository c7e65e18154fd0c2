package kube

import (
	"context"
	"hash/fnv"
	"io"
	"testing"
	"time"

	"slipway/internal/platform/id"
)

const patience = 2 * time.Minute

func until(t testing.TB, what string, true func() bool) {
	t.Helper()
	for late := time.Now().Add(patience); !true(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(late) {
			t.Fatalf("not after %v: %s", patience, what)
		}
	}
}

// users assigns a uid to each site.
type users struct{}

func (users) UID(_ context.Context, site id.Site) (int, error) {
	h := fnv.New32a()
	io.WriteString(h, string(site))
	return 300_000 + int(h.Sum32()%1_000_000), nil
}
