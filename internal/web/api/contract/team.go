package contract

import (
	"context"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
)

// ErrMismatch returns the fault for a credential of another owner than the request names.
func ErrMismatch(c account.Caller, name string) error {
	acts := "the personal account of " + c.Email
	if c.Team != "" {
		acts = "the team " + c.Slug
	}
	return fault.New(fault.Forbidden, "team_mismatch", "The API key acts for another account",
		"it acts for "+acts+"; use a key of the team that is meant").Got(name)
}

// LogIn writes to a team's audit log what a person does with a credential of their personal account.
func (a *API) LogIn(ctx context.Context, tx *db.Tx, c account.Caller, owner account.OwnerID, d audit.Event) error {
	by := c.Actor(From(ctx).Addr)
	by.Owner = owner
	return a.Accounts.AuditTx(ctx, tx, by, d)
}
