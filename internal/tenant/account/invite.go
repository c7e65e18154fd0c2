package account

import (
	"context"
	"fmt"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
)

// LinkLife is how long invitations and links for a new password work.
const LinkLife = 7 * 24 * time.Hour

// InviteTx makes a user that cannot sign in yet and the token of the link by which
// whoever holds that address chooses a password. A taken address is a Conflict fault.
func (a *Accounts) InviteTx(ctx context.Context, tx *db.Tx, email string, admin bool) (User, string, error) {
	email, err := CleanEmail(email)
	if err != nil {
		return User{}, "", err
	}
	u, err := insertUser(ctx, tx, email, "", admin)
	if err != nil {
		return User{}, "", err
	}
	token, err := a.NewSetupLinkTx(ctx, tx, u.ID, LinkLife)
	return u, token, err
}

// UninviteTx takes an invitation back: the user goes, with its links. One who has set a
// password, for whom keys were made, or who has sites, stays and is a Conflict fault.
func (a *Accounts) UninviteTx(ctx context.Context, tx *db.Tx, id UserID) error {
	u, err := scanUser(tx.QueryRow(ctx, `SELECT `+userColumns+` FROM users WHERE id = $1`, id))
	if err != nil {
		return err
	}
	var used bool
	err = tx.QueryRow(ctx, `
		SELECT EXISTS (SELECT 1 FROM api_keys WHERE user_id = $1)`, id).Scan(&used)
	if err != nil {
		return fmt.Errorf("revoke invitation: %w", err)
	}
	if used || !u.Invited {
		return fault.New(fault.Conflict, "invitation_used", "The invite has already been accepted",
			"the user has a way to sign in, or API keys")
	}
	return removeUser(ctx, tx, u)
}
