package oauth

import (
	"context"
	"fmt"
	"strings"

	"slipway/internal/platform/db"
	"slipway/internal/platform/id"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/webhook/event"
)

// tellTx tells of the grants of a condition: the account that each is about, and the account that registered its app, so that
// the app learns that it was authorized, or that its tokens are over.
func (s *Server) tellTx(ctx context.Context, tx *db.Tx, of func(event.Grant) event.Event, where string, args ...any) error {
	if s.c.Hooks == nil {
		return nil
	}
	type told struct {
		event.Grant
		owner, registrar account.OwnerID
	}
	rows, err := tx.Query(ctx, `
		SELECT id, app_id, (SELECT a.name FROM oauth_apps a WHERE a.id = app_id), (SELECT a.owner_id FROM oauth_apps a WHERE a.id = app_id),
		  user_id, owner_id, scopes, sites FROM oauth_grants WHERE `+where, args...)
	list, err := db.Collect(rows, err, func(r db.Scanner) (g told, err error) {
		var scopes, sites string
		err = r.Scan(&g.ID, &g.App, &g.Name, &g.registrar, &g.User, &g.owner, &scopes, &sites)
		g.Scopes, g.Sites = strings.Fields(scopes), id.Split[id.Site](sites)
		return g, err
	})
	if err != nil {
		return fmt.Errorf("find grants to tell of: %w", err)
	}
	for _, g := range list {
		if err := s.c.Hooks.EmitTx(ctx, tx, g.owner, of(g.Grant)); err != nil {
			return err
		}
		if g.registrar == "" || g.registrar == g.owner {
			continue
		}
		if err := s.c.Hooks.EmitTx(ctx, tx, g.registrar, of(g.Grant)); err != nil {
			return err
		}
	}
	return nil
}
