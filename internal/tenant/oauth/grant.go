package oauth

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/id"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/webhook/event"
)

// GrantID names a grant: "grt_" and 26 characters.
type GrantID string

// Grant holds the rights that one person allowed one app, on one device.
type Grant struct {
	ID        GrantID
	App       AppID
	AppName   string
	Website   string
	User      account.UserID
	Owner     account.OwnerID // whose things it is about
	Scopes    account.Scopes
	Sites     []id.Site // empty: all
	Expires   db.Time
	CreatedAt db.Time
	UsedAt    db.Time
	UsedAddr  string
	By        string // the address of who consented; empty once they are deleted
	Made      int    // webhooks, deploy hooks and channels that the app created with it
}

const grantColumns = `g.id, g.app_id, a.name, a.website, g.user_id, g.owner_id, g.scopes, g.sites, g.expires_at, g.created_at,
	g.used_at, g.used_addr,
	COALESCE((SELECT u.email FROM people u WHERE u.id = g.user_id), ''), (SELECT count(*) FROM oauth_made m WHERE m.grant_id = g.id)`

func scanGrant(row db.Scanner) (g Grant, err error) {
	var scopes, sites string
	err = row.Scan(&g.ID, &g.App, &g.AppName, &g.Website, &g.User, &g.Owner, &scopes, &sites, &g.Expires, &g.CreatedAt,
		&g.UsedAt, &g.UsedAddr, &g.By, &g.Made)
	if errors.Is(err, sql.ErrNoRows) {
		return g, fault.Missing("grant")
	}
	g.Scopes, g.Sites = splitScopes(scopes), id.Split[id.Site](sites)
	return g, err
}

// Grants lists what apps may do with the caller's owner's things, newest first: a person's all; a grant
// sees itself alone.
func (s *Server) Grants(ctx context.Context, by account.Caller) ([]Grant, error) {
	rows, err := s.c.DB.Query(ctx, `
		SELECT `+grantColumns+` FROM oauth_grants g JOIN oauth_apps a ON a.id = g.app_id
		WHERE g.owner_id = $1 AND ($2 = '' OR g.id = $2) AND g.expires_at > $3 ORDER BY g.created_at DESC, g.id DESC`,
		by.Owner, by.Grant, db.Now())
	list, err := db.Collect(rows, err, scanGrant)
	if err != nil {
		return nil, fmt.Errorf("list grants: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range list {
		if u, ok := s.used[list[i].ID]; ok && u.at >= list[i].UsedAt {
			list[i].UsedAt, list[i].UsedAddr = u.at, u.addr.String()
		}
	}
	return list, nil
}

// RevokeGrantTx ends a grant of the caller's owner and returns it as it was, or is a NotFound fault.
func (s *Server) RevokeGrantTx(ctx context.Context, tx *db.Tx, by account.Caller, id GrantID) (Grant, error) {
	g, err := scanGrant(tx.QueryRow(ctx, `
		SELECT `+grantColumns+` FROM oauth_grants g JOIN oauth_apps a ON a.id = g.app_id
		WHERE g.owner_id = $1 AND g.id = $2`, by.Owner, id))
	if err != nil {
		return g, err
	}
	return g, s.endGrantsTx(ctx, tx, `id = $1`, id)
}

// endGrantsTx deletes grants with all that they gave out, and what their apps created.
func (s *Server) endGrantsTx(ctx context.Context, tx *db.Tx, where string, args ...any) error {
	if err := s.tellTx(ctx, tx, event.AppRevoked, where, args...); err != nil {
		return err
	}
	if err := s.removeMadeTx(ctx, tx, where, args...); err != nil {
		return err
	}
	for _, q := range []string{
		`DELETE FROM oauth_tokens WHERE grant_id IN (SELECT id FROM oauth_grants WHERE ` + where + `)`,
		`DELETE FROM oauth_grants WHERE ` + where,
	} {
		if _, err := tx.Exec(ctx, q, args...); err != nil {
			return fmt.Errorf("end grants: %w", err)
		}
	}
	return nil
}

// endAccessTx is endGrantsTx, and ends the codes and devices of the condition, from which grants would begin. They go first: one that
// is being redeemed is waited for, and its grant is found.
func (s *Server) endAccessTx(ctx context.Context, tx *db.Tx, where string, args ...any) error {
	for _, table := range []string{"oauth_codes", "oauth_devices"} {
		if _, err := tx.Exec(ctx, `DELETE FROM `+table+` WHERE `+strings.ReplaceAll(where, "oauth_grants", table), args...); err != nil {
			return fmt.Errorf("end codes: %w", err)
		}
	}
	return s.endGrantsTx(ctx, tx, where, args...)
}

// EndMemberTx ends what a member granted for an owner; user empty: what anybody did.
func (s *Server) EndMemberTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, user account.UserID) error {
	return s.endAccessTx(ctx, tx, `owner_id = $1 AND ($2 = '' OR user_id = $2)`, owner, user)
}

// EndProviderTx ends what people granted in sessions of a team's sign-in provider; user empty: what anybody did.
func (s *Server) EndProviderTx(ctx context.Context, tx *db.Tx, provider string, user account.UserID) error {
	return s.endAccessTx(ctx, tx, `provider_id = $1 AND ($2 = '' OR user_id = $2)`, provider, user)
}

// ForgetSiteTx takes a site that is no longer an owner's out of the grants for it and others. Those that were for it alone end: no
// sites would mean all. So do codes that name it, which are exchanged within minutes. It returns how many grants there were.
func (s *Server) ForgetSiteTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, site id.Site) (int, error) {
	const named = `owner_id = $1 AND ' ' || sites || ' ' LIKE '% ' || $2 || ' %'`
	for _, table := range []string{"oauth_codes", "oauth_devices"} {
		if _, err := tx.Exec(ctx, `DELETE FROM `+table+` WHERE `+named, owner, site); err != nil {
			return 0, fmt.Errorf("end codes of site: %w", err)
		}
	}
	var n int
	if err := tx.QueryRow(ctx, `SELECT count(*) FROM oauth_grants WHERE `+named, owner, site).Scan(&n); err != nil {
		return 0, fmt.Errorf("find grants of site: %w", err)
	}
	if err := s.endGrantsTx(ctx, tx, `owner_id = $1 AND sites = $2`, owner, site); err != nil {
		return 0, err
	}
	_, err := tx.Exec(ctx, `
		UPDATE oauth_grants SET sites = trim(replace(' ' || sites || ' ', ' ' || $2 || ' ', ' ')) WHERE `+named, owner, site)
	if err != nil {
		return 0, fmt.Errorf("forget site of grants: %w", err)
	}
	return n, nil
}

// CloseOwnerTx ends everything that an owner who goes has of apps: what they may do, and those that the owner registered.
func (s *Server) CloseOwnerTx(ctx context.Context, tx *db.Tx, owner account.OwnerID) error {
	own := `app_id IN (SELECT id FROM oauth_apps WHERE owner_id = $1)`
	if err := s.endAccessTx(ctx, tx, `(owner_id = $1 OR `+own+`)`, owner); err != nil {
		return err
	}
	for _, q := range []string{
		`DELETE FROM oauth_approvals WHERE owner_id = $1 OR ` + own,
		`DELETE FROM oauth_apps WHERE owner_id = $1`,
	} {
		if _, err := tx.Exec(ctx, q, owner); err != nil {
			return fmt.Errorf("close apps of an owner: %w", err)
		}
	}
	return nil
}

// ForgetUserTx ends what a user who is deleted granted, for any owner.
func (s *Server) ForgetUserTx(ctx context.Context, tx *db.Tx, user account.UserID) error {
	return s.endAccessTx(ctx, tx, `user_id = $1`, user)
}

// note remembers a use until the next flush. Only grants that exist get here, so the map is bounded by their number.
func (s *Server) note(id GrantID, addr netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used[id] = use{db.Now(), addr.Unmap().WithZone("")}
}

// writeUses writes what was noted; what can't be written is kept for the next time.
func (s *Server) writeUses(ctx context.Context) error {
	s.mu.Lock()
	batch := s.used
	s.used = map[GrantID]use{}
	s.mu.Unlock()
	if len(batch) == 0 {
		return nil
	}
	err := s.c.DB.Write(ctx, func(tx *db.Tx) error {
		for _, id := range slices.Sorted(maps.Keys(batch)) { // one order on every node: no deadlocks
			_, err := tx.Exec(ctx, `UPDATE oauth_grants SET used_at = $2, used_addr = $3 WHERE id = $1 AND used_at <= $2`,
				id, batch[id].at, batch[id].addr.String())
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		for id, u := range batch {
			if _, again := s.used[id]; !again {
				s.used[id] = u
			}
		}
		return fmt.Errorf("write uses of grants: %w", err)
	}
	return nil
}
