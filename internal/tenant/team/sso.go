package team

import (
	"context"
	"fmt"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
)

const (
	maxEmergency = 2                // owners of a team who may come without its provider
	provenWithin = 15 * time.Minute // an owner's sign-in with the provider, before it can be required
)

// mayRequireSSO is nil where an owner has just shown that members can come by the team's provider.
func (s *Teams) mayRequireSSO(ctx context.Context, tx *db.Tx, by account.Caller) error {
	var proven bool
	err := tx.QueryRow(ctx, `
		SELECT EXISTS (SELECT 1 FROM team_identities WHERE owner_id = $1 AND user_id = $2 AND used_at > $3)
			AND EXISTS (SELECT 1 FROM team_providers WHERE owner_id = $1)`, by.Owner, by.User, db.Now().Add(-provenWithin)).Scan(&proven)
	if err != nil {
		return fmt.Errorf("find sign-in with provider: %w", err)
	}
	if !proven {
		return fault.New(fault.Conflict, "sso_not_proven", "You haven't signed in with the team's provider",
			"add a sign-in provider, sign in with it, and require single sign-on within 15 minutes: that shows that it works")
	}
	return nil
}

// SetEmergencyTx makes an owner one who may come without the team's provider, for the day on which it is down, or takes
// that away. It takes a second factor, and each use is logged and mailed to the owners.
func (s *Teams) SetEmergencyTx(ctx context.Context, tx *db.Tx, by account.Caller, user account.UserID, on bool) (Member, error) {
	m, err := s.lockMember(ctx, tx, by, user)
	if err != nil {
		return m, err
	}
	if by.Role != account.RoleOwner {
		return m, fault.New(fault.Forbidden, "role_required", "Only owners can change emergency owners", "ask an owner of the team")
	}
	if on && (m.Role != account.RoleOwner || !m.TwoFactor) {
		return m, fault.New(fault.Conflict, "emergency_owner_unfit", "This member can't be an emergency owner",
			"it takes an owner who has two-factor authentication")
	}
	var others int
	err = tx.QueryRow(ctx, `SELECT count(*) FROM team_members WHERE owner_id = $1 AND user_id <> $2 AND role = 'owner' AND break_glass`,
		by.Owner, user).Scan(&others)
	if err != nil {
		return m, fmt.Errorf("count emergency owners: %w", err)
	}
	if on && others >= maxEmergency {
		return m, fault.New(fault.Conflict, "too_many_emergency_owners", "Too many emergency owners",
			fmt.Sprintf("a team has at most %d: remove one first", maxEmergency))
	}
	if _, err := tx.Exec(ctx, `
		UPDATE team_members SET break_glass = $3 WHERE owner_id = $1 AND user_id = $2`, by.Owner, user, on); err != nil {
		return m, fmt.Errorf("change emergency owner: %w", err)
	}
	m.Emergency = on
	return m, nil
}

// FreeTx ends that a team, by its id or slug, requires single sign-on: for the operator, where nobody gets in any more.
func (s *Teams) FreeTx(ctx context.Context, tx *db.Tx, name string) (Team, error) {
	t, err := s.Named(ctx, tx, name)
	if err != nil {
		return t, err
	}
	if !t.RequireSSO {
		return t, &fault.Error{Kind: fault.Conflict, Message: "The team " + t.Slug + " doesn't require single sign-on", Code: "sso_not_required"}
	}
	if _, err := tx.Exec(ctx, `UPDATE teams SET require_sso = FALSE WHERE owner_id = $1`, t.Owner); err != nil {
		return t, fmt.Errorf("make single sign-on optional: %w", err)
	}
	return t, s.c.Accounts.TellOwnerTx(ctx, tx, t.Owner, "Single sign-on is optional in the team "+t.Name,
		"The operator of this installation made single sign-on optional in the team "+t.Name+". Members can sign in without its provider.", "/")
}
