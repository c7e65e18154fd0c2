package dashboard

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"slipway/internal/account"
	"slipway/internal/db"
	"slipway/internal/webhook"
)

const deliveriesPerPage = 20

// answersPerPage is how many bytes of endpoints' answers one page carries; what is over
// is cut to its beginning, and the REST interface has all of it.
const answersPerPage = 32 << 10

func (d *Dashboard) webhookRoutes() []route {
	return []route{
		get("/webhooks", user, d.webhooksPage),
		get("/webhooks/new", user, d.newWebhookPage),
		post("/webhooks/new", user, d.createWebhook, d.newWebhookPage),
		get("/webhooks/{webhook}", user, d.webhookPage),
		get("/webhooks/{webhook}/follow", user, d.deliveriesLive),
		post("/webhooks/{webhook}", user, d.changeWebhook, d.webhookPage),
		post("/webhooks/{webhook}/secret", user, d.revealSecret, d.webhookPage),
		post("/webhooks/{webhook}/ping", user, d.pingWebhook, d.webhookPage),
		post("/webhooks/{webhook}/switch", user, d.switchWebhook, d.webhookPage),
		post("/webhooks/{webhook}/delete", user, d.deleteWebhook, d.webhookPage),
	}
}

// eventGroup is what the vocabulary says of one subject.
type eventGroup struct {
	Name   string
	Events []eventChoice
}

// eventChoice is one occurrence with its name, or its two.
type eventChoice struct {
	Name, Other string // Other is empty where there is one name
	About       string
	On, OtherOn bool
	Sample      string
}

var groupNames = map[string]string{"deployment": "Deployments", "domain": "Domains", "ssl": "Certificates", "site": "Sites", "subscription": "Subscriptions", "payment": "Payments"}

// eventGroups is the vocabulary with what is chosen.
func eventGroups(chosen []string) []eventGroup {
	var out []eventGroup
	listed := map[string]bool{}
	for _, e := range webhook.Catalogue() {
		if listed[e.SameAs] { // its twin stands in the same line
			continue
		}
		listed[e.Name] = true
		noun, _, _ := strings.Cut(e.Name, ".")
		if len(out) == 0 || out[len(out)-1].Name != groupNames[noun] {
			out = append(out, eventGroup{Name: groupNames[noun]})
		}
		g := &out[len(out)-1]
		g.Events = append(g.Events, eventChoice{e.Name, e.SameAs, e.Description, slices.Contains(chosen, e.Name), slices.Contains(chosen, e.SameAs), pretty(string(e.Sample))})
	}
	return out
}

// pretty indents JSON; what is none stays as it is.
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

func (d *Dashboard) webhooksPage(ctx context.Context, q *request) (answer, error) {
	list, err := d.Webhooks.List(ctx, q.user.ID)
	return page("webhook_list", "Webhooks", list), err
}

// chosenEvents is what was ticked when the form failed, else def.
func chosenEvents(q *request, def []string) []string {
	if q.problem != nil && q.PostForm.Has("form-events") {
		return q.PostForm["events"]
	}
	return def
}

func (d *Dashboard) newWebhookPage(ctx context.Context, q *request) (answer, error) {
	return page("webhook_new", "New webhook", eventGroups(chosenEvents(q, []string{"deployment.completed", "deployment.failed"}))), nil
}

func (d *Dashboard) createWebhook(ctx context.Context, q *request) (answer, error) {
	var w webhook.Webhook
	err := d.actOn(ctx, q, func(tx *db.Tx) (_ account.Deed, err error) {
		w, err = d.Webhooks.CreateTx(ctx, tx, q.user.ID, webhook.NewWebhook{URL: strings.TrimSpace(q.value("url")), Events: q.PostForm["events"], Secret: q.value("secret")})
		return account.Deed{Action: "webhook.created", Subject: string(w.ID), Detail: w.URL}, err
	})
	return goTo("/webhooks/"+string(w.ID), "The webhook is made"), atWebhook(err)
}

func atWebhook(err error) error {
	return atCode(err, map[string]string{"invalid_url": "url", "invalid_events": "events", "invalid_secret": "secret"})
}

type webhookData struct {
	Hook       webhook.Webhook
	Groups     []eventGroup
	Secret     string // shown on this page alone; empty: not shown
	New        bool   // just made
	Deliveries []deliveryView
	Total      int
	Pages      pages
	Live       string
}

// deliveryView is a delivery as the log shows it.
type deliveryView struct {
	webhook.Delivery
	Request string // the body, indented
}

// Word is where it stands, in the words of the list of statuses.
func (v deliveryView) Word() string {
	switch v.State {
	case "succeeded":
		return "success"
	case "sending":
		return "pending"
	}
	return v.State
}

// Answered is what the last attempt met, in a word.
func (v deliveryView) Answered() string {
	if len(v.Attempts) == 0 {
		return ""
	}
	return attemptWord(v.Attempts[len(v.Attempts)-1])
}

// AttemptWord is what one attempt met.
func (v deliveryView) AttemptWord(a webhook.Attempt) string { return attemptWord(a) }

var attemptErrors = map[string]string{"blocked_address": "The address is not a public one", "timeout": "No answer in time", "dns_error": "The host has no address",
	"connect_error": "No connection", "tls_error": "The certificate was not accepted", "connection_error": "The connection broke", "redirect_not_followed": "It redirects, which is not followed"}

func attemptWord(a webhook.Attempt) string {
	if w, ok := attemptErrors[a.Error]; ok {
		return w
	}
	if a.Error != "" {
		return a.Error
	}
	return "HTTP " + strconv.Itoa(a.Status)
}

// freshly is how long after its making a webhook's page shows the generated secret by itself.
const freshly = 2 * time.Minute

func (d *Dashboard) webhookData(ctx context.Context, q *request) (webhookData, error) {
	w, err := d.Webhooks.Get(ctx, q.user.ID, webhook.ID(q.PathValue("webhook")))
	if err != nil {
		return webhookData{}, err
	}
	n := pageNumber(q)
	base := "/webhooks/" + string(w.ID)
	data := webhookData{Hook: w, Groups: eventGroups(chosenEvents(q, w.Events)), Live: base + "/follow?page=" + strconv.Itoa(n)}
	list, total, err := d.Webhooks.Deliveries(ctx, q.user.ID, w.ID, n, deliveriesPerPage)
	if err != nil {
		return data, err
	}
	left := answersPerPage
	for _, x := range list {
		for i := len(x.Attempts) - 1; i >= 0; i-- { // the newest say the most
			a := &x.Attempts[i].Answer
			if len(*a) > left {
				*a = short(100, *a) + "…"
			}
			left = max(0, left-len(*a))
		}
		data.Deliveries = append(data.Deliveries, deliveryView{x, short(8000, pretty(x.Body))})
	}
	data.Total = total
	data.Pages = turn(n, total, deliveriesPerPage, func(p int) string { return base + "?page=" + strconv.Itoa(p) })
	return data, nil
}

func (d *Dashboard) webhookPage(ctx context.Context, q *request) (answer, error) {
	data, err := d.webhookData(ctx, q)
	if err != nil {
		return answer{}, err
	}
	if data.New = q.flash != "" && time.Since(data.Hook.CreatedAt.Time()) < freshly; data.New && data.Hook.Generated {
		if data.Secret, err = d.Webhooks.Reveal(ctx, q.user.ID, data.Hook.ID); err != nil {
			return answer{}, err
		}
	}
	return page("webhook_one", data.Hook.URL, data), nil
}

func (d *Dashboard) deliveriesLive(ctx context.Context, q *request) (answer, error) {
	if _, err := d.Webhooks.Get(ctx, q.user.ID, webhook.ID(q.PathValue("webhook"))); err != nil {
		return answer{}, err
	}
	return answer{live: live{poll: 2 * time.Second, render: func(ctx context.Context) ([]byte, bool, error) {
		data, err := d.webhookData(ctx, q)
		if err != nil {
			return nil, false, err
		}
		html, err := d.part(ctx, q, "webhook_one", "deliveries", data)
		return html, false, err
	}}}, nil
}

// revealSecret shows the generated secret on the page that it answers with.
func (d *Dashboard) revealSecret(ctx context.Context, q *request) (answer, error) {
	data, err := d.webhookData(ctx, q)
	if err != nil {
		return answer{}, err
	}
	if data.Secret, err = d.Webhooks.Reveal(ctx, q.user.ID, data.Hook.ID); err != nil {
		return answer{}, err
	}
	err = d.actOn(ctx, q, func(tx *db.Tx) (account.Deed, error) {
		return account.Deed{Action: "webhook.secret_shown", Subject: string(data.Hook.ID), Detail: data.Hook.URL}, nil
	})
	return page("webhook_one", data.Hook.URL, data), err
}

func (d *Dashboard) changeWebhook(ctx context.Context, q *request) (answer, error) {
	id, url := webhook.ID(q.PathValue("webhook")), strings.TrimSpace(q.value("url"))
	events := q.PostForm["events"]
	if events == nil {
		events = []string{} // none is an error, not "as they are"
	}
	if err := d.updateWebhook(ctx, q, id, webhook.Change{URL: &url, Events: events}); err != nil {
		return answer{}, atWebhook(err)
	}
	return goTo("/webhooks/"+string(id), "The webhook is changed"), nil
}

// updateWebhook changes a webhook and says so in the audit log.
func (d *Dashboard) updateWebhook(ctx context.Context, q *request, id webhook.ID, c webhook.Change) error {
	return d.actOn(ctx, q, func(tx *db.Tx) (account.Deed, error) {
		w, err := d.Webhooks.UpdateTx(ctx, tx, q.user.ID, id, c)
		return account.Deed{Action: "webhook.updated", Subject: string(id), Detail: w.URL}, err
	})
}

func (d *Dashboard) switchWebhook(ctx context.Context, q *request) (answer, error) {
	id, on := webhook.ID(q.PathValue("webhook")), q.value("to") == "on"
	says := "The webhook is turned off; what was queued for it is not sent"
	if on {
		says = "The webhook is turned on"
	}
	return goTo("/webhooks/"+string(id), says), d.updateWebhook(ctx, q, id, webhook.Change{Active: &on})
}

func (d *Dashboard) pingWebhook(ctx context.Context, q *request) (answer, error) {
	id := webhook.ID(q.PathValue("webhook"))
	err := d.act(ctx, q, "webhook.pinged", func(tx *db.Tx) (string, error) {
		_, err := d.Webhooks.PingTx(ctx, tx, q.user.ID, id)
		return string(id), err
	})
	return goTo("/webhooks/"+string(id)+"#deliveries", "A test event is on its way"), err
}

func (d *Dashboard) deleteWebhook(ctx context.Context, q *request) (answer, error) {
	id := webhook.ID(q.PathValue("webhook"))
	err := d.actOn(ctx, q, func(tx *db.Tx) (account.Deed, error) {
		w, err := d.Webhooks.DeleteTx(ctx, tx, q.user.ID, id)
		return account.Deed{Action: "webhook.deleted", Subject: string(id), Detail: w.URL}, err
	})
	return goTo("/webhooks", "The webhook is deleted"), err
}
