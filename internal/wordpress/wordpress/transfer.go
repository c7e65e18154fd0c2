package wordpress

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
)

// MoveSiteTx gives a WordPress to another owner. It gets a new key, so that sessions and login links of the time before end, and
// refuses the application passwords of that time. Its program starts anew with both.
func (w *WordPress) MoveSiteTx(ctx context.Context, tx *db.Tx, id site.ID, from, to account.OwnerID) (int64, error) {
	n, err := tx.Exec(ctx, `
		UPDATE wordpress_sites SET owner_id = $2, secret = $3, moved_at = $4, revision = revision + 1 WHERE site_id = $1 AND owner_id <> $2`,
		id, to, w.newSecret(id), db.Now())
	if err != nil {
		return 0, fmt.Errorf("move WordPress of site: %w", err)
	}
	tx.Notify("live")
	return n, nil
}

// BreaksTx says what of the sender's access to a WordPress ends, and names the administrators, whose passwords still work.
func (w *WordPress) BreaksTx(ctx context.Context, tx *db.Tx, id site.ID) ([]string, error) {
	if x, err := w.c.Sites.ByID(ctx, tx, id); err != nil || x.Type != site.WordPress {
		return nil, err
	}
	var stored string
	var at db.Time
	if err := tx.QueryRow(ctx, `SELECT facts, facts_at FROM wordpress_sites WHERE site_id = $1`, id).Scan(&stored, &at); err != nil {
		return nil, fmt.Errorf("read facts of WordPress: %w", err)
	}
	admins := "its administrators keep their passwords"
	var f facts
	if json.Unmarshal([]byte(stored), &f) == nil && len(f.Admins) > 0 {
		admins += fmt.Sprintf(" (on %s these were %s)", at.Time().UTC().Format("2 January 2006"), strings.Join(f.Admins, ", "))
	}
	return []string{
		"WordPress: sessions, login links and application passwords end",
		"WordPress: " + admins + ": after the transfer, demote or delete those who should no longer have access",
	}, nil
}
