package imports

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// Concurrent imports keep each other's records, and records of an earlier version are read.
func TestRecord(t *testing.T) {
	t.Parallel()
	accounts := filepath.Join(t.TempDir(), "slipway", "auth.json")
	netlify, vercel := OpenRecord(accounts, "https://a.test", "netlify"), OpenRecord(accounts, "https://a.test", "vercel")
	if as, err := netlify.Site("n1"); as != "" || err != nil {
		t.Fatalf("a new record has %q, %v", as, err)
	}
	var all sync.WaitGroup
	for n := range 20 {
		for _, r := range []*Record{netlify, vercel} {
			all.Go(func() {
				if err := r.Note(fmt.Sprint("n", n), fmt.Sprint("site_", r.prefix, n)); err != nil {
					t.Error(err)
				}
			})
		}
	}
	all.Wait()
	for n := range 20 {
		for _, r := range []*Record{netlify, vercel} {
			if as, err := r.Site(fmt.Sprint("n", n)); as != fmt.Sprint("site_", r.prefix, n) || err != nil {
				t.Errorf("%d of %s is %q, %v", n, r.prefix, as, err)
			}
		}
	}
	old := filepath.Join(filepath.Dir(accounts), "imports.json")
	if err := os.WriteFile(old, []byte(`{"https://a.test netlify n50": "site_old", "https://a.test netlify n1": "site_older"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]string{"n50": "site_old", "n1": "site_https://a.test netlify 1", "n51": ""} {
		if as, err := netlify.Site(id); as != want || err != nil {
			t.Errorf("%s is %q, %v; want %q", id, as, err, want)
		}
	}
	if err := os.WriteFile(old, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := netlify.Site("n51"); err == nil {
		t.Error("a damaged record is taken for none: sites would be made twice")
	}
}
