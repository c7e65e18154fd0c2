package dashboard

import (
	"context"

	"slipway/internal/account"
	"slipway/internal/db"
)

// accountRoutes is every route of what a user has for themselves.
func (d *Dashboard) accountRoutes() []route {
	return []route{
		get("/account", user, d.profilePage),
	}
}

func (d *Dashboard) profilePage(ctx context.Context, q *request) (answer, error) {
	return page("account_profile", "Profile", nil), nil
}

// endSession signs the user out on one device.
func (d *Dashboard) endSession(ctx context.Context, q *request, id account.SessionID) error {
	return d.act(ctx, q, "session.ended", func(tx *db.Tx) (string, error) {
		return string(id), d.Accounts.EndSessionTx(ctx, tx, q.user.ID, id)
	})
}
