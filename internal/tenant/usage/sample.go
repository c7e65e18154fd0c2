package usage

import (
	"context"
	"fmt"
	"slices"

	"slipway/internal/platform/db"
	"slipway/internal/platform/id"
	"slipway/internal/tenant/limits"
)

// sample records the storage in use as an hour's use, once per hour no matter how often it runs. Hours in which it
// doesn't run aren't counted.
func (u *Usage) sample(ctx context.Context) error {
	if u.c.Limits == nil {
		return nil
	}
	at := floor(u.now(), hour)
	rows, err := u.c.DB.Query(ctx, `SELECT owner_id FROM owner_standing ORDER BY owner_id`)
	owners, err := db.Collect(rows, err, func(s db.Scanner) (o id.Owner, err error) { return o, s.Scan(&o) })
	if err != nil {
		return fmt.Errorf("list owners: %w", err)
	}
	for some := range slices.Chunk(owners, ownersAtOnce) {
		var found []Row
		for _, o := range some {
			for m, name := range map[Meter]limits.Name{Storage: limits.Storage, Backups: limits.Backups} {
				use, err := u.c.Limits.UseOf(ctx, u.c.DB, o, name)
				if err != nil {
					return err
				}
				found = append(found, Row{Owner: o, Meter: m, Hour: at, Source: "sample", Quantity: use.Used})
			}
		}
		if err := u.c.DB.Write(ctx, func(tx *db.Tx) error { return u.MergeTx(ctx, tx, found) }); err != nil {
			return fmt.Errorf("sample storage: %w", err)
		}
	}
	return nil
}
