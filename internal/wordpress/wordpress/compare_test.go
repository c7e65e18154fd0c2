package wordpress

import (
	"path/filepath"
	"testing"

	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
	"slipway/internal/tenant/site"
	"slipway/internal/wordpress/difference"
)

// stored is a Host with a copy of a site's wp-content, and optionally the original.
type stored struct {
	host
	dir, copied string
}

func (h stored) StorageDir(site.ID) (string, bool) { return h.dir, true }
func (h stored) StorageFolders(site.ID) (map[string]string, error) {
	return map[string]string{"wp-content": filepath.Join(h.copied, "wp-content")}, nil
}

// Files are only read locally from the original. A copy of a volume may be incomplete, so PHP is asked instead.
func TestCopiesAreNoPlaces(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		host Host
		want difference.Tree
	}{
		{stored{dir: "/storage/site", copied: "/storage/site"}, difference.Dir("/storage/site/wp-content")},
		{stored{copied: "/copies/site"}, nil},
		{nil, nil},
	} {
		w := &WordPress{c: Config{Host: tt.host}}
		got := w.tree(site.Site{ID: "site"})
		if dir, here := got.(difference.Dir); here != (tt.want != nil) || here && dir != tt.want {
			t.Errorf("%+v: %T %v, want %v", tt.host, got, got, tt.want)
		}
	}
}

// A clone and its original were last the same when the clone was made, or at the last push between them in either
// direction.
func TestSameSince(t *testing.T) {
	t.Parallel()
	w := &WordPress{c: Config{DB: dbtest.New(t)}}
	ctx := t.Context()
	err := w.c.DB.Write(ctx, func(tx *db.Tx) error {
		for _, x := range [][2]string{{"shop", ""}, {"staging", "shop"}, {"other", ""}} {
			if _, err := tx.Exec(ctx, `INSERT INTO wordpress_sites (site_id, owner_id, secret, title, admin_email, admin_user, locale, database_id, installed, xmlrpc, debug, maintenance,
				memory_mib, upload_mib, execution_seconds, next_cron, created_at, origin) VALUES ($1, 'own', '', '', '', '', '', '', '', FALSE, FALSE, FALSE, 1, 1, 1, 0, 1000, $2)`,
				x[0], x[1]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	want := func(at db.Time) {
		t.Helper()
		for _, pair := range [][2]site.ID{{"shop", "staging"}, {"staging", "shop"}} {
			if got, err := w.sameSince(ctx, pair[0], pair[1]); err != nil || got != at {
				t.Errorf("%v: %d, %v, want %d", pair, got, err, at)
			}
		}
	}
	want(1000)
	for _, x := range []struct {
		to, from site.ID
		at       db.Time
	}{{"shop", "staging", 2000}, {"staging", "shop", 3000}, {"shop", "other", 4000}} {
		err := w.c.DB.Write(ctx, func(tx *db.Tx) error { return w.setSyncedTx(ctx, tx, x.to, x.from, x.at) })
		if err != nil {
			t.Fatal(err)
		}
		want(min(x.at, 3000))
	}
	if got, err := w.sameSince(ctx, "shop", "other"); err != nil || got != 0 {
		t.Errorf("of unrelated sites: %d, %v", got, err)
	}
}
