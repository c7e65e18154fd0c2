package wordpress

import (
	"testing"

	"slipway/internal/backup/backup"
	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/operation"
)

// No work that changes a WordPress may begin while the site is being restored.
func TestWorkKeepsApartFromRestores(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	o := operation.New(operation.Config{DB: d})
	w := New(Config{DB: d, Operations: o})
	var restore operation.Operation
	err := d.Write(t.Context(), func(tx *db.Tx) (err error) {
		restore, err = o.OpenTx(t.Context(), tx, "own_anna", operation.NewOperation{
			Kind:   "backup.restore",
			Site:   "site_1",
			Unique: backup.RestoreKey("site_1"),
		})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	begin := func() error {
		return d.Write(t.Context(), func(tx *db.Tx) error {
			_, err := w.beginTx(t.Context(), tx, "own_anna", "site_1", Work{What: kindUpdate, Update: &Update{Core: true}})
			return err
		})
	}
	if f := fault.As(begin()); f == nil || f.Kind != fault.Conflict || f.Code != "operation_running" {
		t.Errorf("beside a restore: %+v", f)
	}
	if err := d.Write(t.Context(), func(tx *db.Tx) error { return o.EndTx(t.Context(), tx, restore.ID, "", "", nil) }); err != nil {
		t.Fatal(err)
	}
	if err := begin(); err != nil {
		t.Errorf("after it: %v", err)
	}
}
