package webhook

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"slipway/internal/platform/id"

	"slipway/internal/platform/db"
)

// ForgetSiteTx removes a deleted site from the webhooks restricted to several sites. A webhook restricted to this site
// alone keeps it and gets no more events, since without a restriction it would get those of every site.
func (w *Webhooks) ForgetSiteTx(ctx context.Context, tx *db.Tx, site id.Site) error {
	if !siteID(string(site)) {
		return nil
	}
	rows, err := tx.Query(ctx,
		`SELECT id, site_ids FROM webhooks WHERE site_ids <> '' AND deleted_at = 0 AND site_ids LIKE $1`,
		"%"+string(site)+"%")
	type row struct {
		id    ID
		sites []string
	}
	list, err := db.Collect(rows, err, func(r db.Scanner) (x row, err error) {
		var sites string
		err = r.Scan(&x.id, &sites)
		x.sites = strings.Fields(sites)
		return x, err
	})
	if err != nil {
		return fmt.Errorf("find webhooks of site: %w", err)
	}
	for _, x := range list {
		left := slices.DeleteFunc(slices.Clone(x.sites), func(s string) bool { return id.Site(s) == site })
		if len(left) == 0 || len(left) == len(x.sites) {
			continue
		}
		if _, err := tx.Exec(ctx, `UPDATE webhooks SET site_ids = $2 WHERE id = $1`, x.id, strings.Join(left, " ")); err != nil {
			return fmt.Errorf("forget site of webhook: %w", err)
		}
	}
	return nil
}
