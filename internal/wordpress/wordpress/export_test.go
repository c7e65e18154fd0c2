package wordpress

import (
	"encoding/json"
	"path/filepath"
	"testing"

	"slipway/internal/backup/backup"
	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
	"slipway/internal/platform/seal"
	"slipway/internal/tenant/site"
)

// A partial restore restores what belongs to the part: the tables' prefix is restored with the tables. If only the
// settings are restored, the current tables are still used.
func TestImportInPart(t *testing.T) {
	t.Parallel()
	key, err := seal.Load(filepath.Join(t.TempDir(), "key"))
	if err != nil {
		t.Fatal(err)
	}
	w := New(Config{DB: dbtest.New(t), Seal: key})
	s := site.Site{ID: "site", Owner: "own", Name: "Blog", Type: site.WordPress}
	then := Export{
		Title:       "Then",
		AdminEmail:  "ada@example.test",
		AdminUser:   "ada",
		Locale:      "en_US",
		Memory:      64,
		Upload:      2,
		Execution:   30,
		Prefix:      "then_",
		AutoUpdate:  AutoMinor,
		ObjectCache: true,
	}
	held, err := json.Marshal(then)
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		of            backup.Restored
		title, prefix string
	}{
		"settings": {backup.Restored{Settings: true}, "Then", "now_"},
		"database": {backup.Restored{Databases: true}, "Now", "then_"},
		"both":     {backup.Restored{Settings: true, Databases: true}, "Then", "then_"},
	} {
		err := w.c.DB.Write(t.Context(), func(tx *db.Tx) error {
			if err := w.ForgetSiteTx(t.Context(), tx, s.ID); err != nil {
				return err
			}
			if err := w.CreateTx(t.Context(), tx, s, Settings{Title: "Now", AdminUser: "eve"}, "eve@example.test"); err != nil {
				return err
			}
			if _, err := tx.Exec(t.Context(), `UPDATE wordpress_sites SET table_prefix = 'now_', readdress_at = 9 WHERE site_id = $1`,
				s.ID); err != nil {
				return err
			}
			return w.ImportTx(t.Context(), tx, s, held, tt.of)
		})
		if err != nil {
			t.Fatal(err)
		}
		x, err := w.get(t.Context(), w.c.DB, s.ID)
		if err != nil {
			t.Fatal(err)
		}
		if x.Title != tt.title || x.Prefix != tt.prefix || x.ObjectCache != tt.of.Settings {
			t.Errorf("%s: the title is %q, the prefix %q, an object cache is on: %v", name, x.Title, x.Prefix, x.ObjectCache)
		}
		var wait db.Time
		if err := w.c.DB.QueryRow(t.Context(), `SELECT readdress_at FROM wordpress_sites`).Scan(&wait); err != nil || (wait == 0) != tt.of.Databases {
			t.Errorf("%s: its addresses are rewritten again from %d, %v", name, wait, err)
		}
	}
}
