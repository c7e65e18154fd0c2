package account_test

import (
	"path/filepath"
	"testing"
	"time"

	"slipway/internal/platform/seal"
	"slipway/internal/tenant/account"
)

// Nodes that start before the first user exists print the same link until it is about to expire. Once the first user
// exists, the earlier links no longer work, and the next link is a new one.
func TestFirstLink(t *testing.T) {
	t.Parallel()
	a, d := guarded(t)
	ctx := t.Context()
	first, until, err := a.FirstLink(ctx, 72*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	again, sameUntil, err := a.FirstLink(ctx, 72*time.Hour)
	if err != nil || again != first || sameUntil != until {
		t.Fatalf("another node prints %q until %v in place of %q until %v: %v", again, sameUntil, first, until, err)
	}
	later, _, err := a.FirstLink(ctx, 10*72*time.Hour) // less than a third of the first link's time is left
	if err != nil || later == first {
		t.Fatalf("a link that ends soon is printed again: %v", err)
	}
	other, err := seal.Load(filepath.Join(t.TempDir(), "another"))
	if err != nil {
		t.Fatal(err)
	}
	b := account.New(account.Config{DB: d, HashMemory: 64, Seal: other, Site: "https://slipway.test"})
	if lost, _, err := b.FirstLink(ctx, 72*time.Hour); err != nil || lost == later {
		t.Fatalf("the key is lost: %v", err)
	}
	if _, err := a.UseSetupLink(ctx, later, "ada@example.test", "correct horse battery"); err != nil {
		t.Fatal(err)
	}
	for _, token := range []string{first, later} {
		if _, err := a.SetupLink(ctx, token); err == nil {
			t.Error("a link works after the first user was made")
		}
	}
	if next, _, err := a.FirstLink(ctx, 72*time.Hour); err != nil || next == later {
		t.Errorf("a spent link is printed again: %v", err)
	}
}
