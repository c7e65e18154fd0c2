package configure

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/site"
	"slipway/internal/tenant/team"
	"slipway/internal/web/dashboard/shell"
	"slipway/internal/web/dashboard/sites"
)

func (d *Pages) transferRoutes() []shell.Route {
	admin := func(rt shell.Route) shell.Route { return rt.Takes(account.SitesWrite).Least(account.RoleAdmin) }
	return []shell.Route{
		admin(shell.Get("/sites/{id}/transfer", shell.User, d.transferPage)),
		admin(shell.Post("/sites/{id}/transfer", shell.User, d.transfer, d.transferPage)),
		admin(shell.Post("/sites/{id}/transfer/cancel", shell.User, d.cancelTransfer, d.transferPage)),
		shell.Get("/transfers", shell.User, d.acceptPage).Takes(account.SitesWrite).Wide(),
		shell.Post("/transfers", shell.User, d.acceptTransfer, d.acceptPage).Takes(account.SitesWrite).Wide(),
	}
}

type transferData struct {
	sites.SiteHead
	To      string         // the receiver as typed; empty: not chosen yet
	Plan    *team.Plan     // the transfer's effects
	Direct  bool           // immediately, without a code
	Teams   []team.Ref     // the caller's, except for the current owner
	Own     string         // the caller's address if the site isn't in their personal account
	Offer   *team.Transfer // open offer
	Offered string         // its receiver
	Code    string         // code of a new offer, shown once
	Mails   bool
}

// Moving returns how many of a kind of thing move with the site.
func (d transferData) Moving(m team.Moved) string {
	if m.Count == 1 && !strings.Contains(m.What, " and ") {
		return "1 " + strings.TrimSuffix(m.What, "s")
	}
	return fmt.Sprintf("%d %s", m.Count, m.What)
}

// Example returns the receiver in the example call: one of the caller's teams, if any.
func (d transferData) Example() any {
	switch {
	case d.To != "":
		return d.To
	case len(d.Teams) > 0:
		return d.Teams[0].Slug
	case d.Own != "":
		return d.Own
	}
	return shell.Variable("RECEIVER")
}

// transferPage asks for the receiver, and then shows the transfer's effects.
func (d *Pages) transferPage(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	data, err := d.transferData(ctx, q)
	if err != nil {
		return shell.Answer{}, err
	}
	data.To = strings.TrimSpace(q.Query("to"))
	if q.PostForm != nil {
		data.To = strings.TrimSpace(q.Value("to"))
	}
	data.To = shell.Short(300, data.To)
	if data.To != "" {
		to, err := d.receiver(ctx, q, data.Site.ID, data.To, false)
		switch {
		case err == nil:
			data.Plan, data.Direct = &to.Plan, to.Caller != nil
		case fault.As(err) == nil:
			return shell.Answer{}, err
		case q.Problem == nil:
			q.Problem, _ = shell.Describe(atReceiver(err), q.ID)
		}
		if busy(err) && data.Progress() == "busy" {
			q.Problem.Link, q.Problem.Label = data.LatestPath(), "View deployment"
		}
	}
	return shell.Page("site_transfer", "Transfer "+data.Site.Name, data), nil
}

func (d *Pages) transferData(ctx context.Context, q *shell.Request) (data transferData, err error) {
	if data.SiteHead, err = d.Head(ctx, q, "settings"); err != nil {
		return data, err
	}
	data.Sub = "Transfer site"
	if data.Teams, err = d.otherTeams(ctx, q); err != nil {
		return data, err
	}
	data.Teams = slices.DeleteFunc(data.Teams, func(t team.Ref) bool { return t.Slug == q.Caller.Slug })
	if q.Caller.Team != "" && q.Session.Only == "" {
		data.Own = q.User.Email
	}
	data.Mails = d.Accounts.Mails()
	t, open, err := d.Teams.Offered(ctx, q.Caller.Owner, data.Site.ID)
	if open {
		data.Offer, data.Offered = &t, t.Email
		if t.Email == "" {
			data.Offered, err = d.Teams.OwnerName(ctx, t.To)
		}
	}
	return data, err
}

// receiver looks up the receiver and checks the transfer.
func (d *Pages) receiver(ctx context.Context, q *shell.Request, id site.ID, to string, keepHooks bool) (team.Receiver, error) {
	r, err := d.Teams.Receiver(ctx, q.Caller, to)
	if err == nil {
		r.Plan, err = d.Teams.Preview(ctx, id, q.Caller.Owner, r.Owner, keepHooks && r.Caller != nil)
	}
	return r, err
}

// atReceiver assigns an error to the receiver field, unless the site itself can't be moved now.
func atReceiver(err error) error {
	if busy(err) {
		return err
	}
	return shell.At("to", err)
}

// busy reports whether the error is a running task of the site.
func busy(err error) bool {
	f := fault.As(err)
	return f != nil && f.Code == "site_busy"
}

// transfer moves or offers a site after its name was typed.
func (d *Pages) transfer(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	if err := d.ConfirmedHere(ctx, q, "nothing was transferred"); err != nil {
		return shell.Answer{}, shell.At("confirm", err)
	}
	id, keep := shell.PathID[site.ID](q, "id"), q.Checked("keep_hooks")
	to, err := d.receiver(ctx, q, id, q.Value("to"), keep)
	if err != nil {
		return shell.Answer{}, atReceiver(err)
	}
	if to.Caller != nil {
		err := d.DB.Write(ctx, func(tx *db.Tx) error {
			if err := account.HoldTx(ctx, tx, q.Actor()); err != nil {
				return err
			}
			by := to.Caller.Actor(q.Addr)
			by.Session = q.Session.ID
			_, err := d.Teams.HandOverTx(ctx, tx, id, q.Actor(), by, team.NameOf(*to.Caller), keep)
			return err
		})
		return shell.GoTo("/sites/"+string(id), "Transferred to "+team.NameOf(*to.Caller)), err
	}
	var code string
	err = d.ActOn(ctx, q, func(tx *db.Tx) (_ audit.Event, err error) {
		_, code, err = d.Teams.OfferTx(ctx, tx, q.Caller, to.Plan, to.Owner, to.Email)
		return audit.Event{
			Action: "site.transfer_offered", Subject: string(id), Detail: to.Plan.Site.Name + " to " + shell.Short(100, q.Value("to")),
		}, err
	})
	if err != nil {
		return shell.Answer{}, err
	}
	if to.Email != "" && d.Accounts.Mails() {
		return shell.GoTo("/sites/"+string(id)+"/transfer", "Offer sent to "+to.Email), nil
	}
	data, err := d.transferData(ctx, q)
	data.Code = code
	return shell.Page("site_transfer", "Transfer "+data.Site.Name, data), err
}

func (d *Pages) cancelTransfer(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	id := shell.PathID[site.ID](q, "id")
	err := d.Act(ctx, q, "site.transfer_canceled", func(tx *db.Tx) (string, error) {
		t, err := d.Teams.CancelTransferTx(ctx, tx, q.Caller, q.Value("transfer"))
		if err == nil && t.Site != id {
			err = fault.Missing("transfer")
		}
		return string(id), err
	})
	return shell.GoTo("/sites/"+string(id)+"/transfer", "Transfer canceled"), err
}

type acceptData struct {
	Name  string     // of the receiving account
	Slug  string     // of the receiving team; empty: the personal account
	Teams []team.Ref // other teams that could receive it
}

// acceptPage asks for a transfer's code, for the page's account.
func (d *Pages) acceptPage(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	list, err := d.otherTeams(ctx, q)
	data := acceptData{Name: "your personal account", Slug: q.Caller.Slug}
	for _, t := range list {
		if t.Slug == q.Caller.Slug {
			data.Name = t.Name
		} else {
			data.Teams = append(data.Teams, t)
		}
	}
	return shell.Page("transfer", "Accept a transfer", data), err
}

func (d *Pages) acceptTransfer(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	if err := d.Throttle(ctx, shell.Guesses{Key: "transfer:" + string(q.User.ID), Limit: shell.PerNetwork}); err != nil {
		return shell.Answer{}, err
	}
	var id site.ID
	err := d.ActOn(ctx, q, func(tx *db.Tx) (audit.Event, error) {
		p, t, err := d.Teams.AcceptTransferTx(ctx, tx, q.Caller, strings.TrimSpace(q.Value("transfer_code")), q.Checked("keep_hooks"))
		if err != nil {
			return audit.Event{}, shell.At("transfer_code", err)
		}
		id = p.Site.ID
		// The sender's log gets an entry without an actor, since the person who accepted isn't one of the sender's.
		err = d.Accounts.AuditTx(ctx, tx, audit.Actor{Owner: t.From, Via: "transfer " + t.ID}, audit.Event{
			Action: "site.transferred", Subject: string(id), Detail: p.Site.Name + " to " + team.NameOf(q.Caller),
		})
		return audit.Event{Action: "site.received", Subject: string(id), Detail: p.Site.Name}, err
	})
	return shell.GoTo("/sites/"+string(id), "The site is yours now"), err
}

// otherTeams returns the user's teams, or none in a session restricted to one.
func (d *Pages) otherTeams(ctx context.Context, q *shell.Request) ([]team.Ref, error) {
	if q.Session.Only != "" {
		return nil, nil
	}
	return d.Teams.Refs(ctx, q.User.ID)
}
