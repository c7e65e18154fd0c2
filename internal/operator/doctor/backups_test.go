package doctor

import (
	"strings"
	"testing"

	"slipway/internal/operator/installation"
	"slipway/internal/platform/db"
)

// Doctor reports the state of the installation's backups and lists the damaged ones.
func TestBackups(t *testing.T) {
	t.Parallel()
	s := installation.Store{DataDir: t.TempDir()}
	if c := backups(t.Context(), s); !c.OK || !strings.Contains(c.Text, "not backed up") {
		t.Errorf("a new installation: %+v", c)
	}
	d, err := s.OpenDatabase(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for _, tt := range []struct {
		set, want string
		ok        bool
	}{
		{"every = 86400, succeeded_at = $1, proven_at = $1", "the newest backup of the installation is of 20", true},
		{"failed_at = $1 + 1, error = 'the bucket is gone'", "failed: the bucket is gone", false},
		{"failed_at = 0, damaged = 'bkp_a,bkp_b'", "Stored objects of bkp_a, bkp_b are missing or damaged", false},
		{"damaged = '', succeeded_at = $1 - 200000000", "A backup is due every 24h0m0s, and the newest is of", false},
		{"succeeded_at = $1, proven_at = $1 - 2678400000", "was not read for more than 30 days", false},
	} {
		if err := d.Write(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), `INSERT INTO installation_backup (id) VALUES (1) ON CONFLICT DO NOTHING`)
			if err == nil {
				_, err = tx.Exec(t.Context(), `UPDATE installation_backup SET `+tt.set, d.Now())
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if c := backups(t.Context(), s); c.OK != tt.ok || c.Required || !strings.Contains(c.Text, tt.want) {
			t.Errorf("%s: %+v", tt.set, c)
		}
	}
}
