package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"slipway/internal/platform/dbtest"
)

// A node ID emptied by a power failure is replaced by a new one if nothing refers to it. If this machine may already be
// listed, the error contains the ID to restore. An invalid ID is rejected.
func TestEmptyIdentity(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	at := func(dir, text string) (*Self, error) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "node-id"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return New(Config{DB: d, Dir: dir, Blobs: "s3://files", SiteDomain: "sites.test"})
	}
	dir := t.TempDir()
	s, err := at(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	if again, err := New(s.c); err != nil || again.ID() != s.ID() || s.ID() == "" {
		t.Fatalf("the next start is %v, %v; want %s", again, err, s.ID())
	}
	if err := s.Join(t.Context()); err != nil {
		t.Fatal(err)
	}
	again, err := at(dir, "")
	if d.Single() {
		if err != nil || again.ID() == s.ID() {
			t.Errorf("where there is one node: %v, %v", again, err)
		}
	} else if err == nil || !strings.Contains(err.Error(), "write this node's id into it ("+s.ID()+")") {
		t.Errorf("this machine is in the list: %v", err)
	}
	if _, err := at(dir, "garbage"); err == nil || !strings.Contains(err.Error(), "doesn't hold an id") {
		t.Errorf("garbage: %v", err)
	}
}
