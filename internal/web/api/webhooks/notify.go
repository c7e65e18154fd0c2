package webhooks

import (
	"context"
	"net/http"

	"slipway/internal/platform/id"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/notify"
	"slipway/internal/tenant/oauth"
	"slipway/internal/web/api/contract"
)

type channelBody struct {
	ID         notify.ID `json:"id" example:"nch_25o5kzh3mc7yw4tn6pqd2xlfae"`
	Kind       string    `json:"kind" enum:"slack,discord,teams,email"`
	Name       string    `json:"name"`
	Host       *string   `json:"host" doc:"Host of the target URL. The URL is a secret and never shown. Null for email."`
	Email      *string   `json:"email" doc:"Recipient of an email channel. Null: the account's address, or another kind of channel."`
	Confirmed  bool      `json:"confirmed" doc:"Whether the recipient of an email channel has confirmed it. Until then no notifications are sent."`
	SiteIDs    []string  `json:"siteIds" nullable:"true" doc:"Ids of the sites it covers. Null: all sites."`
	SiteID     *string   `json:"siteId" doc:"The site, if it covers exactly one. Otherwise null." deprecated:"true"`
	Events     []string  `json:"events" enum:"deployment.failed,deployment.recovered,domain.failed,certificate.failed,application.crashed,application.out_of_memory,cron.failed,backup.failed,usage.threshold"`
	Active     bool      `json:"active"`
	Error      *string   `json:"error" doc:"Last error from the service, or null."`
	LastSentAt *string   `json:"lastSentAt" format:"date-time"`
	CreatedAt  string    `json:"createdAt" format:"date-time"`
	UpdatedAt  string    `json:"updatedAt" format:"date-time"`
}

func (a *API) notifyRoutes() {
	r := func(path, id, summary, doc string, s account.Scope) contract.Route {
		return contract.Route{
			Path:    path,
			ID:      id,
			Tag:     "Notifications",
			Summary: summary,
			Doc:     doc,
			Scope:   s,
			Noun:    "notification channel",
			Wide:    true,
		}
	}
	contract.Get(a.API,
		r("/notifications", "listChannels", "List notification channels",
			"Channels that get notifications about failed and recovered deployments, and about domains and certificates that need attention.",
			account.WebhooksRead),
		a.listChannels)
	create := r("/notifications", "createChannel", "Create a notification channel",
		"For Slack (and compatible services), Discord and Microsoft Teams: the URL of an incoming webhook. For email: the account's "+
			"address, or another one that its owner confirms with a link within 7 days.",
		account.WebhooksWrite)
	create.Status, create.Finds = http.StatusCreated, true
	contract.Post(a.API, create, a.createChannel)
	contract.Change(a.API, http.MethodPatch,
		r("/notifications/{id}", "updateChannel", "Change a notification channel", "", account.WebhooksWrite),
		a.updateChannel)
	contract.Change(a.API, http.MethodDelete,
		r("/notifications/{id}", "deleteChannel", "Delete a notification channel", "", account.WebhooksWrite),
		a.deleteChannel)
	contract.Post(a.API,
		r("/notifications/{id}/confirmation", "sendConfirmation", "Send the confirmation email again",
			"At most 3 per day for one address.", account.WebhooksWrite),
		a.askChannel)
	contract.Post(a.API,
		r("/notifications/{id}/test", "testChannel", "Send a test notification",
			"If it fails, the channel's `error` says why.", account.WebhooksWrite),
		a.testChannel)
}

// kindWord returns the API's name of a kind.
func kindWord(k notify.Kind) string {
	if k == notify.Mail {
		return "email"
	}
	return string(k)
}

// kindOf returns the kind with a name of the API.
func kindOf(word string) notify.Kind {
	if word == "email" {
		return notify.Mail
	}
	return notify.Kind(word)
}

func showChannel(c notify.Channel) channelBody {
	var only *string
	var sites []string
	if len(c.Sites) > 0 {
		sites = c.Sites
	}
	if len(c.Sites) == 1 {
		only = &c.Sites[0]
	}
	return channelBody{
		c.ID,
		kindWord(c.Kind),
		c.Name,
		contract.Some(c.Host),
		contract.Some(c.Address),
		!c.Unconfirmed(),
		sites,
		only,
		c.Events,
		c.Active,
		contract.Some(c.Error),
		contract.When(c.SentAt),
		c.CreatedAt.String(),
		c.UpdatedAt.String(),
	}
}

func (a *API) listChannels(ctx context.Context, c account.Caller, in *contract.PartIn) (contract.Data[channelBody], error) {
	list, err := a.Notify.List(ctx, a.DB, c.Owner)
	return contract.Part(*in, contract.Each(list, showChannel), err)
}

type createChannelIn struct {
	Body struct {
		Kind    string   `json:"kind" enum:"slack,discord,teams,email"`
		Name    string   `json:"name,omitempty" doc:"1 to 100 characters."`
		Target  string   `json:"target,omitempty" doc:"URL of the service's incoming webhook, stored encrypted and never shown. For email: an address. Default: the account's." example:"https://hooks.slack.com/services/T0/B0/xyz"`
		SiteIDs []string `json:"siteIds,omitempty" doc:"Ids of 1 to 100 sites. Default: all sites."`
		SiteID  string   `json:"siteId,omitempty" doc:"Id of one site: short for siteIds with one id." deprecated:"true"`
		Events  []string `json:"events,omitempty" enum:"deployment.failed,deployment.recovered,domain.failed,certificate.failed,application.crashed,application.out_of_memory,cron.failed,backup.failed,usage.threshold" doc:"Default: all events."`
	}
}

func (a *API) createChannel(
	ctx context.Context,
	tx *db.Tx,
	c account.Caller,
	in *createChannelIn,
) (_ channelBody, did audit.Event, _ error) {
	b := in.Body
	sites := b.SiteIDs
	if b.SiteID != "" {
		if sites != nil {
			return channelBody{}, did, fault.New(fault.Invalid, "invalid_notification", "Send either siteIds or siteId",
				"siteId is the same as siteIds with one site")
		}
		sites = []string{b.SiteID}
	}
	if err := a.sitesOf(ctx, c, sites); err != nil {
		return channelBody{}, did, err
	}
	made, err := a.Notify.CreateTx(ctx, tx, c.Owner, notify.NewChannel{
		Kind:   kindOf(b.Kind),
		Name:   b.Name,
		URL:    b.Target,
		By:     c.Email,
		Sites:  sites,
		Events: b.Events,
	})
	if err == nil {
		err = a.OAuth.MadeTx(ctx, tx, c, oauth.Channel, string(made.ID))
	}
	did = audit.Event{Action: "notification_channel.created", Subject: string(made.ID), Detail: made.Name}
	return showChannel(made), did, err
}

// sitesOf refuses sites that aren't the caller's.
func (a *API) sitesOf(ctx context.Context, c account.Caller, sites []string) error {
	for _, named := range sites[:min(len(sites), 100)] { // more are refused because of their number
		if _, err := a.Site(ctx, c, id.Site(named)); err != nil {
			return err
		}
	}
	return nil
}

type updateChannelIn struct {
	contract.ByID[notify.ID]
	Body struct {
		Name    *string  `json:"name,omitempty"`
		Target  *string  `json:"target,omitempty" doc:"Another URL. For email: another address, which must be confirmed again, or empty for the account's."`
		SiteIDs []string `json:"siteIds,omitempty" nullable:"true" doc:"Ids of 1 to 100 sites. Null: all sites."`
		Events  []string `json:"events,omitempty" enum:"deployment.failed,deployment.recovered,domain.failed,certificate.failed,application.crashed,application.out_of_memory,cron.failed,backup.failed,usage.threshold"`
		Active  *bool    `json:"active,omitempty"`
	}
}

func (a *API) updateChannel(
	ctx context.Context,
	tx *db.Tx,
	c account.Caller,
	in *updateChannelIn,
) (_ channelBody, did audit.Event, _ error) {
	now, err := a.Notify.Get(ctx, tx, c.Owner, in.ID)
	if err == nil {
		err = a.OAuth.Changes(ctx, tx, c, oauth.Channel, string(in.ID))
	}
	if err == nil {
		err = contract.CheckPatch(ctx, "notification channel", []string{
			"name", "target", "siteIds", "events", "active",
		}, showChannel(now), map[string]string{"siteId": "send siteIds", "kind": "delete the channel and create another one"})
	}
	if err == nil {
		err = a.sitesOf(ctx, c, in.Body.SiteIDs)
	}
	if err != nil {
		return channelBody{}, did, err
	}
	p := notify.Patch{Name: in.Body.Name, URL: in.Body.Target, By: c.Email, Events: in.Body.Events, Active: in.Body.Active}
	if contract.Sends(ctx, "siteIds") {
		p.Sites = &in.Body.SiteIDs
	}
	made, err := a.Notify.UpdateTx(ctx, tx, c.Owner, now.ID, p)
	did = audit.Event{Action: "notification_channel.updated", Subject: string(in.ID), Detail: made.Name}
	return showChannel(made), did, err
}

func (a *API) deleteChannel(
	ctx context.Context, tx *db.Tx, c account.Caller, in *contract.ByID[notify.ID],
) (_ contract.Message, did audit.Event, _ error) {
	did = audit.Event{Action: "notification_channel.deleted", Subject: string(in.ID)}
	err := a.Notify.DeleteTx(ctx, tx, c.Owner, in.ID)
	if err == nil {
		err = a.OAuth.Changes(ctx, tx, c, oauth.Channel, string(in.ID))
	}
	return contract.Message{Message: "Notification channel deleted"}, did, err
}

func (a *API) testChannel(
	ctx context.Context, tx *db.Tx, c account.Caller, in *contract.ByID[notify.ID],
) (_ contract.Message, did audit.Event, _ error) {
	made, err := a.Notify.TestTx(ctx, tx, c.Owner, in.ID)
	did = audit.Event{Action: "notification_channel.tested", Subject: string(in.ID), Detail: made.Name}
	return contract.Message{Message: "Test notification queued"}, did, err
}

func (a *API) askChannel(
	ctx context.Context, tx *db.Tx, c account.Caller, in *contract.ByID[notify.ID],
) (_ contract.Message, did audit.Event, _ error) {
	made, err := a.Notify.AskAgainTx(ctx, tx, c.Owner, in.ID, c.Email)
	did = audit.Event{Action: "notification_channel.asked", Subject: string(in.ID), Detail: made.Name}
	return contract.Message{Message: "Confirmation email queued"}, did, err
}
