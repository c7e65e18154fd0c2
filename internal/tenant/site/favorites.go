package site

import (
	"context"
	"fmt"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
)

// maxFavorites caps a user's favorites.
const maxFavorites = 200

// FavoriteTx adds a site to the user's favorites, or removes it. The caller has checked the user's access.
func (s *Sites) FavoriteTx(ctx context.Context, tx *db.Tx, user account.UserID, id ID, on bool) error {
	if !on {
		_, err := tx.Exec(ctx, `DELETE FROM site_favorites WHERE user_id = $1 AND site_id = $2`, user, id)
		return err
	}
	var n int
	if err := tx.QueryRow(ctx, `SELECT count(*) FROM site_favorites WHERE user_id = $1`, user).Scan(&n); err != nil {
		return fmt.Errorf("count favorites: %w", err)
	}
	if n >= maxFavorites {
		return fault.New(fault.Conflict, "too_many_favorites", "Too many favorites",
			fmt.Sprintf("the limit is %d; remove one first", n))
	}
	if _, err := tx.Exec(ctx, `INSERT INTO site_favorites (user_id, site_id) VALUES ($1, $2) ON CONFLICT DO NOTHING`, user, id); err != nil {
		return fmt.Errorf("add favorite: %w", err)
	}
	return nil
}

// Favorites returns the user's favorites, whoever owns them. It is nil if there are none.
func (s *Sites) Favorites(ctx context.Context, user account.UserID) ([]ID, error) {
	rows, err := s.c.DB.Query(ctx, `SELECT site_id FROM site_favorites WHERE user_id = $1 ORDER BY site_id`, user)
	list, err := db.Collect(rows, err, func(row db.Scanner) (id ID, err error) { return id, row.Scan(&id) })
	if err != nil {
		return nil, fmt.Errorf("list favorites: %w", err)
	}
	return list, nil
}
