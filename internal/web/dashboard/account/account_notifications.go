package account

import (
	"context"
	"slices"
	"strings"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/notify"
	"slipway/internal/tenant/site"
	"slipway/internal/web/dashboard/shell"
)

func (d *Pages) notifyRoutes() []shell.Route {
	return []shell.Route{
		shell.Get("/account/notifications", shell.User, d.channelsPage).Takes(account.WebhooksRead).Wide(),
		shell.Post("/account/notifications", shell.User, d.createChannel, d.channelsPage).Takes(account.WebhooksWrite).Wide(),
		shell.Post("/account/notifications/{channel}/ask", shell.User, d.askChannel, d.channelsPage).Takes(account.WebhooksWrite).Wide(),
		shell.Post("/account/notifications/{channel}/test", shell.User, d.testChannel, d.channelsPage).Takes(account.WebhooksWrite).Wide(),
		shell.Post("/account/notifications/{channel}/switch", shell.User, d.switchChannel, d.channelsPage).Takes(account.WebhooksWrite).Wide(),
		shell.Post("/account/notifications/{channel}/delete", shell.User, d.deleteChannel, d.channelsPage).Takes(account.WebhooksWrite).Wide(),
	}
}

// eventWords holds the labels of notification events.
var eventWords = map[string]string{
	notify.DeploymentFailed: "Deployment failed", notify.DeploymentRecovered: "Deployment recovered",
	notify.DomainFailed: "Domain needs attention", notify.CertificateFailed: "Certificate needs attention",
	notify.AppCrashed: "Application crashed", notify.OutOfMemory: "Application out of memory",
	notify.CronFailed: "Scheduled command failed", notify.BackupFailed: "Backup failed",
	notify.UsageThreshold: "Usage near or at a limit",
}

type channelsData struct {
	List   []notify.Channel
	Names  map[string]string // of sites, by ID
	Sites  []site.Site
	Events []string
	Mails  bool
}

// EventName returns an event's label.
func (channelsData) EventName(e string) string { return eventWords[e] }

func (d *Pages) channelsPage(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	list, err := d.Notify.List(ctx, d.DB, q.Caller.Owner)
	if err != nil {
		return shell.Answer{}, err
	}
	sites, _, err := d.Sites.List(ctx, q.Caller.Owner, site.Filter{Page: 1, Limit: shell.MaxChoices})
	data := channelsData{list, map[string]string{}, sites, notify.Events, d.Accounts.Mails()}
	for _, s := range sites {
		data.Names[string(s.ID)] = shell.SiteLabel(sites, s)
	}
	return shell.Page("account_notifications", "Notifications", data), err
}

func (d *Pages) createChannel(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	n := notify.NewChannel{Kind: notify.Kind(q.Value("kind")), Name: q.Value("name"), URL: q.Value("url")}
	for _, e := range notify.Events {
		if slices.Contains(q.PostForm["event"], e) {
			n.Events = append(n.Events, e)
		}
	}
	if len(n.Events) == 0 {
		return shell.Answer{}, shell.At("event", &fault.Error{Kind: fault.Invalid, Message: "Choose at least one event"})
	}
	field := "url"
	if n.Kind == notify.Mail {
		n.URL, n.By, field = strings.TrimSpace(q.Value("address")), q.Caller.Email, "address"
	}
	for _, id := range q.PostForm["site"] {
		if id == "" {
			continue // all sites
		}
		if _, err := d.Sites.Get(ctx, q.Caller.Owner, site.ID(id)); err != nil {
			return shell.Answer{}, err
		}
		n.Sites = append(n.Sites, id)
	}
	err := d.ActOn(ctx, q, func(tx *db.Tx) (audit.Event, error) {
		c, err := d.Notify.CreateTx(ctx, tx, q.Caller.Owner, n)
		return audit.Event{Action: "notification_channel.created", Subject: string(c.ID), Detail: c.Name}, err
	})
	if f := fault.As(err); f != nil &&
		(f.Code == "invalid_notification" || f.Code == "invalid_email" || f.Code == "recipient_unsubscribed") {
		err = shell.At(field, err)
	}
	if n.Kind == notify.Mail && n.URL != "" {
		return shell.GoTo("/account/notifications", "Confirmation email sent to "+n.URL), err
	}
	return shell.GoTo("/account/notifications", "Channel created"), err
}

// changeChannel performs an action on one of the caller's channels.
func (d *Pages) changeChannel(
	ctx context.Context,
	q *shell.Request, action, says string,
	fn func(tx *db.Tx, id notify.ID) (notify.Channel, error),
) (shell.Answer, error) {
	id := shell.PathID[notify.ID](q, "channel")
	err := d.ActOn(ctx, q, func(tx *db.Tx) (audit.Event, error) {
		c, err := fn(tx, id)
		return audit.Event{Action: action, Subject: string(id), Detail: c.Name}, err
	})
	return shell.GoTo("/account/notifications", says), err
}

func (d *Pages) askChannel(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	return d.changeChannel(
		ctx,
		q,
		"notification_channel.asked",
		"Confirmation email sent",
		func(tx *db.Tx, id notify.ID) (notify.Channel, error) {
			return d.Notify.AskAgainTx(ctx, tx, q.Caller.Owner, id, q.Caller.Email)
		},
	)
}

func (d *Pages) testChannel(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	return d.changeChannel(
		ctx,
		q,
		"notification_channel.tested",
		"Test notification sent",
		func(tx *db.Tx, id notify.ID) (notify.Channel, error) {
			return d.Notify.TestTx(ctx, tx, q.Caller.Owner, id)
		},
	)
}

func (d *Pages) switchChannel(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	on := q.Value("to") == "on"
	says := "Channel disabled"
	if on {
		says = "Channel enabled"
	}
	return d.changeChannel(ctx, q, "notification_channel.updated", says, func(tx *db.Tx, id notify.ID) (notify.Channel, error) {
		return d.Notify.UpdateTx(ctx, tx, q.Caller.Owner, id, notify.Patch{Active: &on})
	})
}

func (d *Pages) deleteChannel(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	return d.changeChannel(
		ctx,
		q,
		"notification_channel.deleted",
		"Channel deleted",
		func(tx *db.Tx, id notify.ID) (notify.Channel, error) {
			return notify.Channel{}, d.Notify.DeleteTx(ctx, tx, q.Caller.Owner, id)
		},
	)
}
