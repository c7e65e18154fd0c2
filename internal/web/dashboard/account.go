package dashboard

import (
	"context"
	"net/http"

	"slipway/internal/platform/db"
	"slipway/internal/platform/text"
	"slipway/internal/tenant/account"
)

// accountRoutes is every route of what a user has for themselves.
func (d *Dashboard) accountRoutes() []route {
	return []route{
		get("/account", user, d.profilePage),
		get("/account/security", user, d.securityPage),
		post("/account/password", user, d.changePassword, d.securityPage),
		get("/account/second-factor", user, d.factorPage),
		post("/account/second-factor", user, d.turnFactorOn, d.factorPage),
		post("/account/second-factor/begin", user, d.beginFactor, d.factorPage),
		post("/account/second-factor/off", user, d.turnFactorOff, d.securityPage),
		post("/account/second-factor/codes", user, d.renewCodes, d.securityPage),
		post("/account/passkeys/begin", user, d.offerPasskey, nil),
		post("/account/passkeys", user, d.addPasskey, d.securityPage),
		post("/account/passkeys/{passkey}/remove", user, d.removePasskey, d.securityPage),
		get("/account/sessions", user, d.sessionsPage),
		post("/account/sessions/end", user, d.endOtherSessions, d.sessionsPage),
		post("/account/sessions/{session}/end", user, d.endOneSession, d.sessionsPage),
		get("/account/keys", user, d.keysPage),
		get("/account/keys/new", user, d.newKeyPage),
		post("/account/keys/new", user, d.createKey, d.newKeyPage),
		post("/account/keys/{key}/revoke", user, d.revokeKey, d.keysPage),
		get("/account/audit", user, d.auditPage),
		get("/account/audit/download", user, d.auditDownload),
	}
}

func (d *Dashboard) profilePage(ctx context.Context, q *request) (answer, error) {
	_, sites, err := d.Sites.List(ctx, q.caller.Owner, oneSite)
	if err != nil {
		return answer{}, err
	}
	keys, err := d.Accounts.ListKeys(ctx, q.caller)
	if err != nil {
		return answer{}, err
	}
	factor, err := d.Accounts.SecondFactor(ctx, q.user.ID)
	if err != nil {
		return answer{}, err
	}
	limits, err := d.Accounts.LimitUse(ctx, q.caller.Owner)
	if err != nil {
		return answer{}, err
	}
	return page("account_profile", "Profile", struct {
		Sites, Keys int
		Factor      account.Factor
		Limits      []account.LimitUse
	}{sites, len(keys), factor, limits}), nil
}

type sessionsData struct{ Sessions []account.Session }

func (d *Dashboard) sessionsPage(ctx context.Context, q *request) (answer, error) {
	list, err := d.Accounts.Sessions(ctx, q.user.ID)
	return page("account_sessions", "Sessions", sessionsData{list}), err
}

func (d *Dashboard) endOneSession(ctx context.Context, q *request) (answer, error) {
	id := account.SessionID(q.PathValue("session"))
	if err := d.endSession(ctx, q, id); err != nil {
		return answer{}, err
	}
	if id == q.session.ID {
		a := goTo("/sign-in", "Signed out")
		a.cookies = []*http.Cookie{d.noCookie(sessionCookie)}
		return a, nil
	}
	return goTo("/account/sessions", "Session signed out"), nil
}

func (d *Dashboard) endOtherSessions(ctx context.Context, q *request) (answer, error) {
	var n int64
	err := d.actOn(ctx, q, func(tx *db.Tx) (account.AuditEvent, error) {
		var err error
		n, err = d.Accounts.EndSessionsTx(ctx, tx, q.user.ID, q.session.ID)
		return account.AuditEvent{Action: "sessions.ended", Detail: text.Count(int(n), "session")}, err
	})
	return goTo("/account/sessions", "Signed out of "+text.Count(int(n), "other session")), err
}

// endSession signs the user out on one device.
func (d *Dashboard) endSession(ctx context.Context, q *request, id account.SessionID) error {
	return d.act(ctx, q, "session.ended", func(tx *db.Tx) (string, error) {
		return string(id), d.Accounts.EndSessionTx(ctx, tx, q.user.ID, id)
	})
}
