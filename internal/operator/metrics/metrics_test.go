package metrics

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
)

// read returns the metrics by name.
func read(t *testing.T, r db.Reader, dir string) map[string]float64 {
	t.Helper()
	to := prometheus.NewRegistry()
	Register(to, r, dir, nil)
	families, err := to.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		out[f.GetName()] = f.GetMetric()[0].GetGauge().GetValue()
	}
	return out
}

// Metrics have the current numbers, or -1 if a number can't be read.
func TestRegister(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	if err := d.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), `INSERT INTO site_counts (owner_id, type, status, n) VALUES ('own_ada', 'static', 'active', 1)`)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if err := d.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), `INSERT INTO installation_backup (id, every, since, succeeded_at, proven_at, failed_at, damaged)
			VALUES (1, 3600, $1, $2, $3, $4, 'bkp_a,bkp_b')`,
			db.Now().Add(-300*time.Hour), db.Now().Add(-100*time.Hour), db.Now().Add(-200*time.Hour), db.Now())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	got := read(t, d, t.TempDir())
	for name, want := range map[string]float64{"interval_seconds": 3600, "failing": 1, "age_seconds": 360_000, "unverified_seconds": 720_000} {
		if n := got["slipway_installation_backup_"+name]; n < want || n > want+60 {
			t.Errorf("%s is %v, want %v", name, n, want)
		}
	}
	if got["slipway_installation_backups_damaged"] != 2 {
		t.Error("damaged backups are not counted")
	}
	if all, free := got["slipway_disk_files"], got["slipway_disk_free_files"]; all < free || free < 0 || all > 0 && free == 0 {
		t.Errorf("%v of %v files are free", free, all)
	}
	if _, there := got["slipway_mails_failed_total"]; !there {
		t.Error("mails are not counted")
	}
	if got["slipway_sites"] != 1 || got["slipway_jobs_dead"] != 0 || got["slipway_disk_bytes"] < got["slipway_disk_free_bytes"] {
		t.Error(got)
	}
	if _, there := got["go_goroutines"]; !there {
		t.Error("no metrics of the process")
	}
	if _, there := got["slipway_panics_total"]; !there {
		t.Error("panics are not counted")
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	got = read(t, d, filepath.Join(t.TempDir(), "gone"))
	for _, name := range []string{
		"slipway_sites", "slipway_deployments_pending", "slipway_deployments_running", "slipway_jobs_dead", "slipway_jobs_unknown",
		"slipway_disk_bytes", "slipway_disk_free_bytes", "slipway_installation_backup_age_seconds", "slipway_installation_backup_failing",
	} {
		if n, there := got[name]; n != -1 || !there {
			t.Errorf("%s is %v, want -1", name, n)
		}
	}
}
