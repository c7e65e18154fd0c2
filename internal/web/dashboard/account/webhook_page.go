package account

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/webhook"
	"slipway/internal/web/dashboard/shell"
)

const deliveriesPerPage = 20

func (d *Pages) webhookRoutes() []shell.Route {
	return []shell.Route{
		shell.Get("/webhooks", shell.User, d.webhooksPage).Takes(account.WebhooksRead).Wide(),
		shell.Get("/webhooks/new", shell.User, d.newWebhookPage).Takes(account.WebhooksWrite).Wide(),
		shell.Post("/webhooks/new", shell.User, d.createWebhook, d.newWebhookPage).Takes(account.WebhooksWrite).Wide(),
		shell.Get("/webhooks/{webhook}", shell.User, d.webhookPage).Takes(account.WebhooksRead).Wide(),
		shell.Get("/webhooks/{webhook}/follow", shell.User, d.deliveriesLive).Takes(account.WebhooksRead).Wide(),
		shell.Get("/webhooks/{webhook}/deliveries/{delivery}", shell.User, d.deliveryPage).Takes(account.WebhooksRead).Wide(),
		shell.Get("/webhooks/{webhook}/deliveries/{delivery}/follow", shell.User, d.deliveryLive).Takes(account.WebhooksRead).Wide(),
		shell.Post("/webhooks/{webhook}", shell.User, d.changeWebhook, d.webhookPage).Takes(account.WebhooksWrite).Wide(),
		shell.Post("/webhooks/{webhook}/secret", shell.User, d.revealSecret, d.webhookPage).Takes(account.WebhooksWrite).Wide(),
		shell.Post("/webhooks/{webhook}/rotate", shell.User, d.rotateSecret, d.webhookPage).Takes(account.WebhooksWrite).Wide(),
		shell.Post("/webhooks/{webhook}/redeliver", shell.User, d.redeliverAll, d.webhookPage).Takes(account.WebhooksWrite).Wide(),
		shell.Post("/webhooks/{webhook}/deliveries/{delivery}/redeliver", shell.User, d.redeliver, d.deliveryPage).
			Takes(account.WebhooksWrite).Wide(),
		shell.Post("/webhooks/{webhook}/ping", shell.User, d.pingWebhook, d.webhookPage).Takes(account.WebhooksWrite).Wide(),
		shell.Post("/webhooks/{webhook}/switch", shell.User, d.switchWebhook, d.webhookPage).Takes(account.WebhooksWrite).Wide(),
		shell.Post("/webhooks/{webhook}/delete", shell.User, d.deleteWebhook, d.webhookPage).Takes(account.WebhooksWrite).Wide(),
	}
}

// eventGroup holds the events of a noun.
type eventGroup struct {
	Name   string
	Events []eventChoice
}

// eventChoice is an event with its one or two names.
type eventChoice struct {
	Name, Other string // Other is empty if there is one name
	About       string
	On, OtherOn bool
	Sample      string
}

var groupNames = map[string]string{
	"deployment":   "Deployments",
	"domain":       "Domains",
	"ssl":          "Certificates",
	"site":         "Sites",
	"backup":       "Backups",
	"member":       "Members",
	"app":          "Apps",
	"subscription": "Subscriptions",
	"payment":      "Payments",
	"usage":        "Usage",
	"invoice":      "Invoices",
}

// eventGroups returns all events with those chosen. It omits events of subscriptions and payments if billing is off,
// unless the webhook has them.
func eventGroups(w *webhook.Webhooks, chosen []string) []eventGroup {
	var out []eventGroup
	listed := map[string]bool{}
	for _, e := range w.Catalogue() {
		if listed[e.SameAs] { // listed with its other name
			continue
		}
		listed[e.Name] = true
		noun, _, _ := strings.Cut(e.Name, ".")
		if !w.Billing() && (noun == "subscription" || noun == "payment") && !slices.Contains(chosen, e.Name) {
			continue
		}
		if len(out) == 0 || out[len(out)-1].Name != groupNames[noun] {
			out = append(out, eventGroup{Name: groupNames[noun]})
		}
		g := &out[len(out)-1]
		g.Events = append(g.Events, eventChoice{
			e.Name,
			e.SameAs,
			e.Description,
			slices.Contains(chosen, e.Name),
			slices.Contains(chosen, e.SameAs),
			pretty(string(e.Sample)),
		})
	}
	return out
}

// pretty indents JSON and returns other text unchanged.
func pretty(text string) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if !json.Valid([]byte(text)) || enc.Encode(json.RawMessage(text)) != nil {
		return text
	}
	return strings.TrimSpace(b.String())
}

func (d *Pages) webhooksPage(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	list, err := d.Webhooks.List(ctx, q.Caller.Owner)
	return shell.Page("webhook_list", "Webhooks", list), err
}

// chosenEvents returns the events selected in a failed form, otherwise def.
func chosenEvents(q *shell.Request, def []string) []string {
	if q.Problem != nil && q.PostForm.Has("form-events") {
		return q.PostForm["events"]
	}
	return def
}

type newWebhook struct {
	Groups []eventGroup
	Sites  []siteChoice
}

func (d *Pages) newWebhookPage(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	sites, err := d.siteChoices(ctx, q, nil)
	return shell.Page("webhook_new", "Create webhook", newWebhook{
		eventGroups(d.Webhooks, chosenEvents(q, []string{"deployment.completed", "deployment.failed"})),
		sites,
	}), err
}

// webhookMade is the message after creating a webhook, by which the next page recognizes that.
const webhookMade = "Webhook created"

func (d *Pages) createWebhook(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	var w webhook.Webhook
	err := d.ActOn(ctx, q, func(tx *db.Tx) (_ audit.Event, err error) {
		if err := d.ownSites(ctx, tx, q, q.PostForm["sites"], nil); err != nil {
			return audit.Event{}, err
		}
		w, err = d.Webhooks.CreateTx(ctx, tx, q.Caller.Owner, webhook.NewWebhook{
			URL:    strings.TrimSpace(q.Value("url")),
			Events: q.PostForm["events"],
			Secret: given(q.Value("secret")),
			Sites:  q.PostForm["sites"],
		})
		return audit.Event{Action: "webhook.created", Subject: string(w.ID), Detail: w.URL}, err
	})
	return shell.GoTo("/webhooks/"+string(w.ID), webhookMade), atWebhook(err)
}

// given returns nil for an empty field.
func given(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func atWebhook(err error) error {
	return shell.AtCode(err, map[string]string{
		"invalid_url":      "url",
		"url_taken":        "url",
		"invalid_events":   "events",
		"invalid_secret":   "secret",
		"invalid_site_ids": "sites",
	})
}

type webhookData struct {
	Hook       webhook.Webhook
	Groups     []eventGroup
	Secret     string // shown only on this page; may be empty
	New        bool   // just created
	Sites      []siteChoice
	Plot       shell.Plot
	Stretches  []shell.Stretch
	Filter     deliveryFilter
	Redelivery *redelivery
	Deliveries []deliveryLine
	Total      int
	Pages      shell.Pages
	Live       string
}

// freshly is how long after a webhook's creation its page shows the generated secret.
const freshly = 2 * time.Minute

func (d *Pages) webhookData(ctx context.Context, q *shell.Request) (webhookData, error) {
	w, err := d.Webhooks.Get(ctx, q.Caller.Owner, shell.PathID[webhook.ID](q, "webhook"))
	if err != nil {
		return webhookData{}, err
	}
	n := shell.PageNumber(q)
	base, f := "/webhooks/"+string(w.ID), readDeliveryFilter(q, w)
	data := webhookData{Hook: w, Groups: eventGroups(d.Webhooks, chosenEvents(q, w.Events)), Filter: f, Live: f.link(base+"/follow", n)}
	if data.Sites, err = d.siteChoices(ctx, q, w.SiteIDs); err != nil {
		return data, err
	}
	now := time.Now().UTC()
	span := f.Span
	if !slices.ContainsFunc(attemptStretches, func(s shell.Stretch) bool { return s.Name == span }) {
		span = "7d"
	}
	all, on := shell.Chosen(attemptStretches, span, func(name string) string { return shell.Link(base, "span", name) })
	hours, err := d.Webhooks.Hours(ctx, q.Caller.Owner, w.ID, db.Time(firstStep(on, now).UnixMilli()))
	if err != nil {
		return data, err
	}
	data.Stretches, data.Plot = all, attemptsPlot(hours, on, now)
	op, err := d.Webhooks.Redelivery(ctx, q.Caller.Owner, w.ID, f.Redelivery)
	if err != nil {
		return data, err
	}
	if op != nil {
		data.Redelivery = &redelivery{
			Status:  string(op.Status),
			Percent: max(0, int(100*op.Progress)),
			Message: op.Message,
			Error:   op.Error,
		}
	}
	list, total, err := d.Webhooks.Search(ctx, q.Caller.Owner, w.ID, webhook.Filter{
		State:  f.State,
		Events: f.events(),
		Since:  since(f.Since),
	}, n, deliveriesPerPage)
	if err != nil {
		return data, err
	}
	for _, x := range list {
		data.Deliveries = append(data.Deliveries, deliveryLine{deliveryView{x}, base})
	}
	data.Total = total
	data.Pages = shell.Turn(n, total, deliveriesPerPage, func(p int) string { return f.link(base, p) })
	return data, nil
}

func (d *Pages) webhookPage(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	data, err := d.webhookData(ctx, q)
	if err != nil {
		return shell.Answer{}, err
	}
	data.New = q.Flash == webhookMade && time.Since(data.Hook.CreatedAt.Time()) < freshly
	if data.New && data.Hook.Generated {
		if data.Secret, err = d.Webhooks.Reveal(ctx, q.Caller.Owner, data.Hook.ID); err != nil {
			return shell.Answer{}, err
		}
	}
	return shell.Page("webhook_one", data.Hook.URL, data), nil
}

// revealSecret responds with the page that shows the generated secret.
func (d *Pages) revealSecret(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	data, err := d.webhookData(ctx, q)
	if err != nil {
		return shell.Answer{}, err
	}
	if data.Secret, err = d.Webhooks.Reveal(ctx, q.Caller.Owner, data.Hook.ID); err != nil {
		return shell.Answer{}, err
	}
	err = d.ActOn(ctx, q, func(tx *db.Tx) (audit.Event, error) {
		return audit.Event{Action: "webhook.secret_shown", Subject: string(data.Hook.ID), Detail: data.Hook.URL}, nil
	})
	return shell.Page("webhook_one", data.Hook.URL, data), err
}

func (d *Pages) changeWebhook(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	id, url := shell.PathID[webhook.ID](q, "webhook"), strings.TrimSpace(q.Value("url"))
	events := q.PostForm["events"]
	if events == nil {
		events = []string{} // no event is an error, whereas nil means unchanged
	}
	sites := append([]string{}, q.PostForm["sites"]...)
	err := d.ActOn(ctx, q, func(tx *db.Tx) (audit.Event, error) {
		was, err := d.Webhooks.GetTx(ctx, tx, q.Caller.Owner, id)
		if err == nil {
			err = d.ownSites(ctx, tx, q, sites, was.SiteIDs)
		}
		if err != nil {
			return audit.Event{}, err
		}
		w, err := d.Webhooks.UpdateTx(ctx, tx, q.Caller.Owner, id, webhook.Change{URL: &url, Events: events, Sites: sites})
		return audit.Event{Action: "webhook.updated", Subject: string(id), Detail: w.URL}, err
	})
	if err != nil {
		return shell.Answer{}, atWebhook(err)
	}
	return shell.GoTo("/webhooks/"+string(id), "Webhook saved"), nil
}

// updateWebhook changes a webhook and writes the audit log.
func (d *Pages) updateWebhook(ctx context.Context, q *shell.Request, id webhook.ID, c webhook.Change) error {
	return d.ActOn(ctx, q, func(tx *db.Tx) (audit.Event, error) {
		w, err := d.Webhooks.UpdateTx(ctx, tx, q.Caller.Owner, id, c)
		return audit.Event{Action: "webhook.updated", Subject: string(id), Detail: w.URL}, err
	})
}

func (d *Pages) switchWebhook(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	id, on := shell.PathID[webhook.ID](q, "webhook"), q.Value("to") == "on"
	if on {
		return d.enableWebhook(ctx, q, id)
	}
	return shell.GoTo("/webhooks/"+string(id),
		"Webhook disabled. Queued deliveries are not sent"), d.updateWebhook(ctx, q, id, webhook.Change{Active: &on})
}

func (d *Pages) pingWebhook(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	id := shell.PathID[webhook.ID](q, "webhook")
	err := d.Act(ctx, q, "webhook.pinged", func(tx *db.Tx) (string, error) {
		_, err := d.Webhooks.PingTx(ctx, tx, q.Caller.Owner, id)
		return string(id), err
	})
	return shell.GoTo("/webhooks/"+string(id)+"#deliveries", "Test event queued"), err
}

func (d *Pages) deleteWebhook(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	id := shell.PathID[webhook.ID](q, "webhook")
	err := d.ActOn(ctx, q, func(tx *db.Tx) (audit.Event, error) {
		w, err := d.Webhooks.DeleteTx(ctx, tx, q.Caller.Owner, id)
		return audit.Event{Action: "webhook.deleted", Subject: string(id), Detail: w.URL}, err
	})
	return shell.GoTo("/webhooks", "Webhook deleted"), err
}
