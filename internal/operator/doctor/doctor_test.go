package doctor

import (
	"strings"
	"testing"
	"time"

	"slipway/internal/operator/installation"
	"slipway/internal/platform/db"
)

// Jobs that only another version knows stay queued, and doctor names their kind.
func TestDoctorNamesUnknownJobs(t *testing.T) {
	t.Parallel()
	s := installation.Store{DataDir: t.TempDir()}
	if c := jobs(t.Context(), s); !c.OK {
		t.Fatalf("nothing waits, and the doctor says %q", c.Text)
	}
	d, _, err := s.Open(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	due := db.Now().Add(-time.Hour)
	err = d.Write(t.Context(), func(tx *db.Tx) error {
		if _, err := tx.Exec(
			t.Context(),
			`INSERT INTO job_kinds (node, kind, lease_until) VALUES ('n', 'known', $1)`,
			db.Now().Add(time.Hour),
		); err != nil {
			return err
		}
		for _, kind := range []string{"known", "novel"} {
			if _, err := tx.Exec(t.Context(), `
				INSERT INTO jobs (id, kind, queue, args, share, state, attempt, failures, run_at, lease_until, canceled, error, created_at)
				VALUES ($1, $1, 'default', '{}', '', 'ready', 0, 0, $2, 0, FALSE, '', $2)`, kind, due); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	d.Close()
	if c := jobs(
		t.Context(),
		s,
	); c.OK || c.Required || !strings.Contains(c.Text, "1 of kind novel since ") || strings.Contains(c.Text, "of kind known") {
		t.Errorf("the doctor says %v %q", c.OK, c.Text)
	}
}
