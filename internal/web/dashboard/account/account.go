package account

import (
	"context"
	"net/http"
	"slices"

	"slipway/internal/platform/db"
	"slipway/internal/platform/text"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/limits"
	"slipway/internal/web/dashboard/shell"
)

// Routes lists the routes of signing in and of a user's own pages.
func (d *Pages) Routes() []shell.Route {
	own := []shell.Route{
		shell.Get("/account", shell.User, d.profilePage),
		shell.Get("/account/security", shell.User, d.securityPage),
		shell.Post("/account/password", shell.User, d.changePassword, d.securityPage),
		shell.Get("/account/second-factor", shell.User, d.factorPage),
		shell.Post("/account/second-factor", shell.User, d.turnFactorOn, d.factorPage),
		shell.Post("/account/second-factor/begin", shell.User, d.beginFactor, d.factorPage),
		shell.Post("/account/second-factor/off", shell.User, d.turnFactorOff, d.securityPage),
		shell.Post("/account/second-factor/codes", shell.User, d.renewCodes, d.securityPage),
		shell.Post("/account/passkeys/begin", shell.User, d.offerPasskey, nil).AtMain("/account/security"),
		shell.Post("/account/passkeys", shell.User, d.addPasskey, d.securityPage).AtMain("/account/security"),
		shell.Post("/account/passkeys/{passkey}/remove", shell.User, d.removePasskey, d.securityPage),
		shell.Get("/account/sessions", shell.User, d.sessionsPage),
		shell.Post("/account/sessions/end", shell.User, d.endOtherSessions, d.sessionsPage),
		shell.Post("/account/sessions/{session}/end", shell.User, d.endOneSession, d.sessionsPage),
		shell.Get("/oauth/authorize", shell.User, d.consentPage).Takes(account.SitesRead).AtMain("/"),
		shell.Post("/oauth/authorize", shell.User, d.decideConsent, d.consentPage).Takes(account.SitesRead).AtMain("/"),
		shell.Get("/device", shell.User, d.devicePage).Takes(account.SitesRead).AtMain("/device"),
		shell.Post("/device", shell.User, d.enterDevice, d.devicePage).Takes(account.SitesRead).AtMain("/device"),
		shell.Get("/confirmations/{confirmation}", shell.User, d.confirmationPage).Takes(account.SitesRead),
		shell.Post("/confirmations/{confirmation}", shell.User, d.confirmCall, d.confirmationPage).Takes(account.SitesRead),
		shell.Get("/account/apps", shell.User, d.grantsPage).Takes(account.AccountRead).Wide(),
		shell.Post("/account/apps/{grant}/revoke", shell.User, d.revokeGrant, d.grantsPage).Takes(account.AccountRead).Wide(),
		shell.Post("/account/apps/decide", shell.User, d.decideApp, d.grantsPage).Takes(account.AppsWrite).Wide(),
		shell.Get("/account/oauth-apps/new", shell.User, d.newAppPage).Takes(account.AppsWrite).Wide(),
		shell.Post("/account/oauth-apps/new", shell.User, d.createApp, d.newAppPage).Takes(account.AppsWrite).Wide(),
		shell.Get("/account/oauth-apps/{client}", shell.User, d.appPage).Takes(account.AppsWrite).Wide(),
		shell.Post("/account/oauth-apps/{client}", shell.User, d.updateApp, d.appPage).Takes(account.AppsWrite).Wide(),
		shell.Post("/account/oauth-apps/{client}/rotate", shell.User, d.rotateAppSecret, d.appPage).Takes(account.AppsWrite).Wide(),
		shell.Post("/account/oauth-apps/{client}/delete", shell.User, d.deleteOAuthApp, d.appPage).Takes(account.AppsWrite).Wide(),
		shell.Get("/account/keys", shell.User, d.keysPage).Takes(account.KeysWrite),
		shell.Get("/account/keys/new", shell.User, d.newKeyPage).Takes(account.KeysWrite),
		shell.Post("/account/keys/new", shell.User, d.createKey, d.newKeyPage).Takes(account.KeysWrite),
		shell.Post("/account/keys/{key}/revoke", shell.User, d.revokeKey, d.keysPage).Takes(account.KeysWrite),
		shell.Get("/account/usage", shell.User, d.usagePage),
		shell.Get("/teams/{team}/usage", shell.User, d.usagePage).Takes(account.AccountRead).Wide(),
		shell.Get("/account/audit", shell.User, d.auditPage),
		shell.Get("/account/audit/download", shell.User, d.auditDownload),
		shell.Get("/teams/{team}/audit", shell.User, d.teamAuditPage).Takes(account.AuditRead).Wide(),
		shell.Get("/teams/{team}/audit/download", shell.User, d.teamAuditDownload).Takes(account.AuditRead).Wide(),
		shell.Get("/operator/audit", shell.Operator, d.allAuditPage),
		shell.Get("/operator/audit/download", shell.Operator, d.allAuditDownload),
	}
	return slices.Concat(d.signRoutes(), d.signUpRoutes(), d.ssoRoutes(), d.invitationRoutes(), d.connectionRoutes(),
		d.notifyRoutes(), d.webhookRoutes(), own)
}

func (d *Pages) profilePage(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	_, sites, err := d.Sites.List(ctx, q.Caller.Owner, shell.OneSite)
	if err != nil {
		return shell.Answer{}, err
	}
	keys, err := d.Accounts.ListKeys(ctx, q.Caller)
	if err != nil {
		return shell.Answer{}, err
	}
	factor, err := d.Accounts.SecondFactor(ctx, q.User.ID)
	if err != nil {
		return shell.Answer{}, err
	}
	used, err := d.Accounts.LimitUse(ctx, q.Caller.Owner)
	if err != nil {
		return shell.Answer{}, err
	}
	return shell.Page("account_profile", "Profile", struct {
		Sites, Keys int
		Factor      account.Factor
		Limits      []limits.Use
		Counting    string
	}{sites, len(keys), factor, used, limits.Counting(used)}), nil
}

type sessionsData struct{ Sessions []account.Session }

func (d *Pages) sessionsPage(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	list, err := d.Accounts.Sessions(ctx, q.User.ID)
	return shell.Page("account_sessions", "Sessions", sessionsData{list}), err
}

func (d *Pages) endOneSession(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	id := shell.PathID[account.SessionID](q, "session")
	if err := d.endSession(ctx, q, id); err != nil {
		return shell.Answer{}, err
	}
	if id == q.Session.ID {
		a := shell.GoTo("/sign-in", "Signed out")
		a.Cookies = []*http.Cookie{d.NoCookie(shell.SessionCookie)}
		return a, nil
	}
	return shell.GoTo("/account/sessions", "Session signed out"), nil
}

func (d *Pages) endOtherSessions(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	var n int64
	err := d.ActOn(ctx, q, func(tx *db.Tx) (audit.Event, error) {
		var err error
		n, err = d.Accounts.EndSessionsTx(ctx, tx, q.User.ID, q.Session.ID)
		return audit.Event{Action: "sessions.ended", Detail: text.Count(int(n), "session")}, err
	})
	return shell.GoTo("/account/sessions", "Signed out of "+text.Count(int(n), "other session")), err
}

// endSession ends one of the user's sessions.
func (d *Pages) endSession(ctx context.Context, q *shell.Request, id account.SessionID) error {
	return d.Act(ctx, q, "session.ended", func(tx *db.Tx) (string, error) {
		return string(id), d.Accounts.EndSessionTx(ctx, tx, q.User.ID, id)
	})
}
