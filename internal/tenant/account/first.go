package account

import (
	"context"
	"fmt"
	"time"

	"slipway/internal/platform/db"
)

// firstPurpose is the purpose with which the token of the first user's link is sealed.
const firstPurpose = "first setup link"

// FirstLink returns the token of a setup link that makes the first admin, and until when it works: for at most ttl, and at least a third
// of it. All nodes of an installation get the same one, also after a restart, so that it doesn't matter whose log is read.
func (a *Accounts) FirstLink(ctx context.Context, ttl time.Duration) (token string, until db.Time, err error) {
	err = a.db.Write(ctx, func(tx *db.Tx) error {
		made, now := []byte(db.Random(32)), db.Now()
		fresh := a.seal.Seal(made, firstPurpose)
		// Of several nodes that start at once, the first one's token is taken.
		var sealed string
		if err := tx.QueryRow(ctx, `
			INSERT INTO first_links AS f (id, sealed, expires_at) VALUES (1, $1, $2)
			ON CONFLICT (id) DO UPDATE SET sealed = CASE WHEN f.expires_at > $3 THEN f.sealed ELSE excluded.sealed END,
				expires_at = CASE WHEN f.expires_at > $3 THEN f.expires_at ELSE excluded.expires_at END
			RETURNING sealed, expires_at`, fresh, now.Add(ttl), now.Add(ttl/3)).Scan(&sealed, &until); err != nil {
			return fmt.Errorf("make first setup link: %w", err)
		}
		text, err := a.seal.Open(sealed, firstPurpose)
		if err != nil { // sealed with a key that is lost
			text = made
			_, err = tx.Exec(ctx, `UPDATE first_links SET sealed = $1`, fresh)
		}
		token = string(text)
		if err == nil {
			_, err = tx.Exec(ctx, `INSERT INTO setup_links (hash, user_id, expires_at) VALUES ($1, NULL, $2) ON CONFLICT (hash) DO NOTHING`,
				digest(token), until)
		}
		return err
	})
	return token, until, err
}
