package operation

import (
	"testing"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
)

const anna, bert account.OwnerID = "own_anna", "own_bert"

func TestLife(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	o := New(Config{DB: d})
	write := func(fn func(tx *db.Tx) error) error { return d.Write(t.Context(), fn) }
	open := func(owner account.OwnerID, n NewOperation) (op Operation, err error) {
		err = write(func(tx *db.Tx) error { op, err = o.OpenTx(t.Context(), tx, owner, n); return err })
		return op, err
	}
	op, err := open(anna, NewOperation{Kind: "test.work", Site: "site_1", Unique: "work/1"})
	if err != nil || op.Status != Pending || op.Progress != -1 {
		t.Fatalf("%+v, %v", op, err)
	}
	if _, err := open(anna, NewOperation{Kind: "test.work", Unique: "work/1"}); !fault.Is(err, fault.Conflict) {
		t.Errorf("a second one: %v", err)
	}
	other := NewOperation{Kind: "test.other", Site: "site_1", Unique: "other/1", Apart: "work/1"}
	if _, err := open(anna, other); !fault.Is(err, fault.Conflict) {
		t.Errorf("another, which keeps apart from it: %v", err)
	}
	if _, err := o.Get(t.Context(), bert, op.ID); !fault.Is(err, fault.NotFound) {
		t.Errorf("another owner's: %v", err)
	}
	if err := write(func(tx *db.Tx) error { return o.AdvanceTx(t.Context(), tx, op.ID, 0.25, "row 7", "a quarter") }); err != nil {
		t.Fatal(err)
	}
	if got, err := o.Get(
		t.Context(),
		anna,
		op.ID,
	); err != nil || got.Status != Running || got.Progress != 0.25 || got.Step != "row 7" || got.Message != "a quarter" {
		t.Errorf("%+v, %v", got, err)
	}
	if err := write(func(tx *db.Tx) error { return o.EndTx(t.Context(), tx, op.ID, "done", "", map[string]int{"count": 3}) }); err != nil {
		t.Fatal(err)
	}
	// A finished operation doesn't change.
	if err := write(func(tx *db.Tx) error {
		if err := o.AdvanceTx(t.Context(), tx, op.ID, 0.5, "", "late"); err != nil {
			return err
		}
		return o.EndTx(t.Context(), tx, op.ID, "", "it failed after all", nil)
	}); err != nil {
		t.Fatal(err)
	}
	if got, err := o.Get(
		t.Context(),
		anna,
		op.ID,
	); err != nil || got.Status != Success || got.Progress != 1 || string(got.Result) != `{"count":3}` || got.CompletedAt == 0 || got.Error != "" {
		t.Errorf("%+v, %v", got, err)
	}
	second, err := open(anna, NewOperation{Kind: "test.work", Site: "site_1", Unique: "work/1"})
	if err != nil {
		t.Errorf("after the end of the first: %v", err)
	}
	list, total, err := o.List(t.Context(), anna, "site_1", 1, 1)
	if err != nil || total != 2 || len(list) != 1 || list[0].ID != second.ID {
		t.Errorf("List = %+v, %d, %v", list, total, err)
	}
	if _, total, _ := o.List(t.Context(), bert, "site_1", 1, 10); total != 0 {
		t.Errorf("bert sees %d", total)
	}
	o.c.Keep = -time.Hour
	if err := o.purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := o.Get(t.Context(), anna, op.ID); !fault.Is(err, fault.NotFound) {
		t.Errorf("after the purge: %v", err)
	}
	if _, err := o.Get(t.Context(), anna, second.ID); err != nil {
		t.Errorf("an open one was purged: %v", err)
	}
}
