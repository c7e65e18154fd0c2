package dashboard

import (
	"context"
	"slices"
	"strings"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/notify"
	"slipway/internal/tenant/site"
)

func (d *Dashboard) notifyRoutes() []route {
	return []route{
		get("/account/notifications", user, d.channelsPage),
		post("/account/notifications", user, d.createChannel, d.channelsPage),
		post("/account/notifications/{channel}/ask", user, d.askChannel, d.channelsPage),
		post("/account/notifications/{channel}/test", user, d.testChannel, d.channelsPage),
		post("/account/notifications/{channel}/switch", user, d.switchChannel, d.channelsPage),
		post("/account/notifications/{channel}/delete", user, d.deleteChannel, d.channelsPage),
	}
}

// eventWords are the events of notifications in people's words.
var eventWords = map[string]string{
	notify.DeploymentFailed: "Deployment failed", notify.DeploymentRecovered: "Deployment recovered",
	notify.DomainFailed: "Domain needs attention", notify.CertificateFailed: "Certificate needs attention",
}

type channelsData struct {
	List   []notify.Channel
	Names  map[string]string // of sites, by id
	Sites  []site.Site
	Events []string
	Mails  bool
}

// EventName is an event in people's words.
func (channelsData) EventName(e string) string { return eventWords[e] }

func (d *Dashboard) channelsPage(ctx context.Context, q *request) (answer, error) {
	list, err := d.Notify.List(ctx, d.DB, q.caller.Owner)
	if err != nil {
		return answer{}, err
	}
	sites, _, err := d.Sites.List(ctx, q.caller.Owner, site.Filter{Page: 1, Limit: maxChoices})
	data := channelsData{list, map[string]string{}, sites, notify.Events, d.Accounts.Mails()}
	for _, s := range sites {
		data.Names[string(s.ID)] = s.Name
	}
	return page("account_notifications", "Notifications", data), err
}

func (d *Dashboard) createChannel(ctx context.Context, q *request) (answer, error) {
	n := notify.NewChannel{Kind: notify.Kind(q.value("kind")), Name: q.value("name"), URL: q.value("url")}
	for _, e := range notify.Events {
		if slices.Contains(q.PostForm["event"], e) {
			n.Events = append(n.Events, e)
		}
	}
	if len(n.Events) == 0 {
		return answer{}, at("event", &fault.Error{Kind: fault.Invalid, Message: "Choose at least one event"})
	}
	field := "url"
	if n.Kind == notify.Mail {
		n.URL, n.By, field = strings.TrimSpace(q.value("address")), q.caller.Email, "address"
	}
	for _, id := range q.PostForm["site"] {
		if id == "" {
			continue // all sites
		}
		if _, err := d.Sites.Get(ctx, q.caller.Owner, site.ID(id)); err != nil {
			return answer{}, err
		}
		n.Sites = append(n.Sites, id)
	}
	err := d.actOn(ctx, q, func(tx *db.Tx) (account.AuditEvent, error) {
		c, err := d.Notify.CreateTx(ctx, tx, q.caller.Owner, n)
		return account.AuditEvent{Action: "notification_channel.created", Subject: string(c.ID), Detail: c.Name}, err
	})
	if f := fault.As(err); f != nil &&
		(f.Code == "invalid_notification" || f.Code == "invalid_email" || f.Code == "recipient_unsubscribed") {
		err = at(field, err)
	}
	if n.Kind == notify.Mail && n.URL != "" {
		return goTo("/account/notifications", "Confirmation email sent to "+n.URL), err
	}
	return goTo("/account/notifications", "Channel created"), err
}

// changeChannel does something to one of the asker's channels.
func (d *Dashboard) changeChannel(
	ctx context.Context,
	q *request,
	action, says string,
	fn func(tx *db.Tx, id notify.ID) (notify.Channel, error),
) (answer, error) {
	id := notify.ID(q.PathValue("channel"))
	err := d.actOn(ctx, q, func(tx *db.Tx) (account.AuditEvent, error) {
		c, err := fn(tx, id)
		return account.AuditEvent{Action: action, Subject: string(id), Detail: c.Name}, err
	})
	return goTo("/account/notifications", says), err
}

func (d *Dashboard) askChannel(ctx context.Context, q *request) (answer, error) {
	return d.changeChannel(
		ctx,
		q,
		"notification_channel.asked",
		"Confirmation email sent",
		func(tx *db.Tx, id notify.ID) (notify.Channel, error) {
			return d.Notify.AskAgainTx(ctx, tx, q.caller.Owner, id, q.caller.Email)
		},
	)
}

func (d *Dashboard) testChannel(ctx context.Context, q *request) (answer, error) {
	return d.changeChannel(
		ctx,
		q,
		"notification_channel.tested",
		"Test notification sent",
		func(tx *db.Tx, id notify.ID) (notify.Channel, error) {
			return d.Notify.TestTx(ctx, tx, q.caller.Owner, id)
		},
	)
}

func (d *Dashboard) switchChannel(ctx context.Context, q *request) (answer, error) {
	on := q.value("to") == "on"
	says := "Channel disabled"
	if on {
		says = "Channel enabled"
	}
	return d.changeChannel(ctx, q, "notification_channel.updated", says, func(tx *db.Tx, id notify.ID) (notify.Channel, error) {
		return d.Notify.UpdateTx(ctx, tx, q.caller.Owner, id, notify.Patch{Active: &on})
	})
}

func (d *Dashboard) deleteChannel(ctx context.Context, q *request) (answer, error) {
	return d.changeChannel(
		ctx,
		q,
		"notification_channel.deleted",
		"Channel deleted",
		func(tx *db.Tx, id notify.ID) (notify.Channel, error) {
			return notify.Channel{}, d.Notify.DeleteTx(ctx, tx, q.caller.Owner, id)
		},
	)
}
