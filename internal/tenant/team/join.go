package team

import (
	"context"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/limits"
	"slipway/internal/tenant/webhook/event"
)

// JoinTx is sso.Members': it makes a user whose address the team's provider has proven a member, as an open invitation for
// that address says, else with the role if there is one. It reports whether they are a member then.
func (s *Teams) JoinTx(
	ctx context.Context, tx *db.Tx, owner account.OwnerID, user account.UserID, email string, role account.Role,
) (bool, error) {
	email, err := Address(email)
	if err != nil {
		return false, err
	}
	if err := account.LockOwnerTx(ctx, tx, owner); err != nil {
		return false, err
	}
	t, err := s.Get(ctx, tx, owner)
	if fault.Is(err, fault.NotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	i, err := scanInvitation(tx.QueryRow(ctx, `SELECT `+invitationColumns+` WHERE i.owner_id = $1 AND i.email = $2 AND i.expires_at > $3`,
		owner, email, db.Now()))
	if err == nil {
		if _, _, err = s.acceptTx(ctx, tx, i, "", user); err == nil {
			return true, nil
		}
	}
	if fault.As(err) == nil {
		return false, err
	}
	if role == account.RoleGuest { // there is no invitation that is still good
		return false, nil
	}
	if err := s.c.Limits.RequireTx(ctx, tx, owner, limits.Members, 1); err != nil {
		return false, err
	}
	if err := insertMember(ctx, tx, owner, user, role, ""); err != nil {
		return false, err
	}
	m, err := s.MemberTx(ctx, tx, owner, user)
	if err != nil {
		return false, err
	}
	return true, s.c.Hooks.EmitTx(ctx, tx, owner, event.MemberAdded(s.told(m, string(t.ID))))
}
