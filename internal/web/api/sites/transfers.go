package sites

import (
	"context"
	"net/http"
	"strings"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/site"
	"slipway/internal/tenant/team"
	"slipway/internal/web/api/contract"
)

type transferBody struct {
	ID        *string     `json:"id" doc:"Id of a pending transfer. Null for a dry run, or if the site was transferred immediately." example:"trf_25o5kzh3mc7yw4tn6pqd2xlfae"`
	SiteID    site.ID     `json:"siteId"`
	Completed bool        `json:"completed" doc:"Whether the site was transferred."`
	Code      *string     `json:"code" doc:"Code to accept the transfer, valid once. Returned only here. Null if it was emailed to the receiver."`
	ExpiresAt *string     `json:"expiresAt" format:"date-time"`
	Moves     []movedBody `json:"moves" doc:"What moves with the site."`
	Stays     []string    `json:"stays" doc:"What stays with the sender."`
	Breaks    []string    `json:"breaks" doc:"What stops working, and what to do about it."`
}

type movedBody struct {
	What  string   `json:"what"`
	Count int64    `json:"count"`
	Names []string `json:"names" doc:"The names of the domains and databases. Empty for everything else."`
}

func (a *API) transferRoutes() {
	offer := contract.Route{
		Path: "/sites/{id}/transfer", ID: "transferSite", Tag: "Teams", Scope: account.SitesWrite, Role: account.RoleAdmin, Noun: "transfer",
		Private: true, Limited: true, Summary: "Transfer a site", Status: 201,
		Doc: "To a team (id or slug) or to a user (email address). With `dryRun` nothing changes, and the response describes the effects. " +
			"Apps, service keys, and keys that don't have all scopes of their user or are restricted to sites " +
			"get 403 `wider_key`, except for a dry run. " +
			"If the key has the scope `*` and its user is the receiver, or an owner or admin of the receiving team, the site moves immediately. " +
			"Otherwise the receiver accepts with the code within 24 hours. The people of the site's account get an email. " +
			"402 `site_paused` while the site is paused.",
	}
	contract.PostPrepared(a.API, offer, a.planTransfer, a.transferSite)
	accept := contract.Route{
		Path: "/transfers/accept", ID: "acceptTransfer", Tag: "Teams", Scope: account.SitesWrite, Wide: true, Limited: true, Noun: "transfer",
		Finds:   true,
		Summary: "Accept a transfer",
		Doc: "The site moves to the account that the key acts for. Domains stay active. Deploy hooks and the Git hook get new " +
			"URLs, unless `keepHooks` is true. " +
			"402 names the limits that the receiver would exceed; 409 `site_busy` while the site is being deployed, `transfer_changed` " +
			"if domains, databases, the name or the subdomain have changed since the offer.",
	}
	contract.Post(a.API, accept, a.acceptTransfer)
	contract.Change(a.API, http.MethodDelete, contract.Route{
		Path: "/transfers/{id}", ID: "cancelTransfer", Tag: "Teams", Scope: account.SitesWrite, Role: account.RoleAdmin, Wide: true,
		Summary: "Cancel a transfer", Noun: "transfer",
	}, a.cancelTransfer)
}

type transferSiteIn struct {
	contract.ByID[site.ID]
	Body struct {
		To        string `json:"to" doc:"The id or slug of a team, or an email address."`
		DryRun    bool   `json:"dryRun,omitempty" doc:"Describe the effects without changing anything."`
		KeepHooks bool   `json:"keepHooks,omitempty" doc:"Keep the URLs of deploy hooks and the Git hook, if the site moves immediately."`
	}
}

func (a *API) planTransfer(ctx context.Context, c account.Caller, in *transferSiteIn) (team.Receiver, error) {
	if _, err := a.Site(ctx, c, in.ID); err != nil {
		return team.Receiver{}, err
	}
	to, err := a.Teams.Receiver(ctx, c, in.Body.To)
	if err != nil {
		return to, err
	}
	to.Plan, err = a.Teams.Preview(ctx, in.ID, c.Owner, to.Owner, in.Body.KeepHooks && to.Caller != nil)
	return to, err
}

func (a *API) transferSite(
	ctx context.Context, tx *db.Tx, c account.Caller, in *transferSiteIn, to team.Receiver,
) (_ transferBody, did audit.Event, _ error) {
	if err := a.Allowed(ctx, tx, c, in.ID); err != nil {
		return transferBody{}, did, err
	}
	switch {
	case in.Body.DryRun:
		return showPlan(to.Plan), audit.Unchanged, nil
	case to.Caller != nil:
		from := c.Actor(contract.From(ctx).Addr)
		receiver := from
		if c.Owner != to.Owner {
			receiver = to.Caller.Actor(contract.From(ctx).Addr)
			receiver.Via = c.Via
		}
		p, err := a.Teams.HandOverTx(ctx, tx, in.ID, from, receiver, team.NameOf(*to.Caller), in.Body.KeepHooks)
		out := showPlan(p)
		out.Completed = true
		return out, audit.Logged, err
	}
	t, code, err := a.Teams.OfferTx(ctx, tx, c, to.Plan, to.Owner, to.Email)
	out := showPlan(to.Plan)
	out.ID, out.ExpiresAt = contract.Some(t.ID), contract.When(t.ExpiresAt)
	if to.Email == "" || !a.Accounts.Mails() {
		out.Code = contract.Some(code)
	}
	did = audit.Event{Action: "site.transfer_offered", Subject: string(in.ID), Detail: to.Plan.Site.Name + " to " + in.Body.To}
	return out, did, err
}

type acceptTransferIn struct {
	Body struct {
		Code      string `json:"code"`
		TeamID    string `json:"teamId,omitempty" doc:"The id or slug of the team that the key must act for."`
		KeepHooks bool   `json:"keepHooks,omitempty" doc:"Keep the URLs of deploy hooks and the Git hook, which the sender knows."`
	}
}

func (a *API) acceptTransfer(
	ctx context.Context, tx *db.Tx, c account.Caller, in *acceptTransferIn,
) (_ siteBody, did audit.Event, _ error) {
	if id := in.Body.TeamID; id != "" && (c.Team == "" || id != c.Team && id != c.Slug) {
		return siteBody{}, did, contract.ErrMismatch(c, id)
	}
	p, t, err := a.Teams.AcceptTransferTx(ctx, tx, c, strings.TrimSpace(in.Body.Code), in.Body.KeepHooks)
	if err != nil {
		return siteBody{}, did, err
	}
	// The sender's log gets an entry without an actor, because the person who accepted isn't one of the sender's.
	if err := a.Accounts.AuditTx(ctx, tx, audit.Actor{Owner: t.From, Via: "transfer " + t.ID}, audit.Event{
		Action: "site.transferred", Subject: string(p.Site.ID), Detail: p.Site.Name + " to " + team.NameOf(c),
	}); err != nil {
		return siteBody{}, did, err
	}
	s, err := a.Sites.GetTx(ctx, tx, c.Owner, p.Site.ID)
	if err != nil {
		return siteBody{}, did, err
	}
	out, err := a.showSite(ctx, tx, s)
	return out, audit.Event{Action: "site.received", Subject: string(s.ID), Detail: s.Name}, err
}

func (a *API) cancelTransfer(
	ctx context.Context, tx *db.Tx, c account.Caller, in *contract.ByID[site.ID],
) (_ contract.Message, did audit.Event, _ error) {
	t, err := a.Teams.CancelTransferTx(ctx, tx, c, string(in.ID))
	return contract.Message{Message: "Transfer canceled"}, audit.Event{Action: "site.transfer_canceled", Subject: string(t.Site)}, err
}

func showPlan(p team.Plan) transferBody {
	return transferBody{
		SiteID: p.Site.ID, Stays: append([]string{}, p.Stays...), Breaks: append([]string{}, p.Breaks...),
		Moves: contract.Each(p.Moves, func(m team.Moved) movedBody { return movedBody{m.What, m.Count, append([]string{}, m.Names...)} }),
	}
}
