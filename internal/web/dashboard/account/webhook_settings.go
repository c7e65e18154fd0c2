package account

import (
	"context"
	"slices"
	"strconv"
	"time"

	"slipway/internal/tenant/operation"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/site"
	"slipway/internal/tenant/webhook"
	"slipway/internal/tenant/webhook/delivery"
	"slipway/internal/web/dashboard/shell"
)

// siteChoice is a site to which a webhook can be restricted.
type siteChoice struct {
	ID   site.ID
	Name string
	On   bool
}

// mostChoices caps the sites in a form besides the chosen ones.
const mostChoices = 100

// siteChoices lists the user's sites, chosen ones first.
func (d *Pages) siteChoices(ctx context.Context, q *shell.Request, chosen []string) (out []siteChoice, err error) {
	if q.Problem != nil && q.PostForm.Has("form-events") {
		chosen = q.PostForm["sites"]
	}
	chosen = chosen[:min(len(chosen), mostChoices)]
	all, _, err := d.Sites.List(ctx, q.Caller.Owner, site.Filter{Sort: site.ByName, Page: 1, Limit: mostChoices})
	if err != nil {
		return nil, err
	}
	if len(chosen) > 0 {
		ids, names := make([]site.ID, len(chosen)), map[site.ID]string{}
		for i, id := range chosen {
			ids[i] = site.ID(id)
		}
		list, _, err := d.Sites.List(ctx, q.Caller.Owner, site.Filter{Only: ids, Page: 1, Limit: mostChoices})
		if err != nil {
			return nil, err
		}
		for _, s := range list {
			names[s.ID] = shell.SiteLabel(all, s)
		}
		for _, id := range chosen {
			name := names[site.ID(id)]
			if name == "" {
				name = "Deleted site " + shell.Short(40, id)
			}
			out = append(out, siteChoice{site.ID(id), name, true})
		}
	}
	for _, s := range all {
		if !slices.Contains(chosen, string(s.ID)) {
			out = append(out, siteChoice{s.ID, shell.SiteLabel(all, s), false})
		}
	}
	return out, err
}

// ownSites refuses sites that aren't the user's. Sites the webhook already has may have been deleted.
func (d *Pages) ownSites(ctx context.Context, tx *db.Tx, q *shell.Request, ids, had []string) error {
	for _, id := range ids {
		if slices.Contains(had, id) {
			continue
		}
		_, err := d.Sites.GetTx(ctx, tx, q.Caller.Owner, site.ID(id))
		if fault.Is(err, fault.NotFound) {
			return fault.New(fault.Invalid, "invalid_site_ids", "Unknown site", "a webhook is limited to sites of yours")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (d *Pages) rotateSecret(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	id := shell.PathID[webhook.ID](q, "webhook")
	seconds, err := strconv.Atoi(q.Value("overlap"))
	if err != nil {
		seconds = int(webhook.Overlap / time.Second)
	}
	says := "Secret rotated. The old secret no longer signs"
	err = d.ActOn(ctx, q, func(tx *db.Tx) (audit.Event, error) {
		w, err := d.Webhooks.RotateTx(ctx, tx, q.Caller.Owner, id, given(q.Value("secret")), time.Duration(seconds)*time.Second)
		if w.OverlapEnds != 0 {
			says = "Secret rotated. Both secrets sign until the overlap ends"
		}
		return audit.Event{Action: "webhook.secret_rotated", Subject: string(id), Detail: w.URL}, err
	})
	return shell.GoTo("/webhooks/"+string(id)+"#signature", says), atWebhook(err)
}

// pasts lists the periods for listing and redelivering.
var pasts = []struct {
	Name, Label string
	Long        time.Duration
}{
	{"1h", "Last hour", time.Hour},
	{"24h", "Last 24 hours", 24 * time.Hour},
	{"5d", "Last 5 days", 5 * 24 * time.Hour},
	{"30d", "Last 30 days", 30 * 24 * time.Hour},
}

// since parses an element of pasts; it returns 0 for other text.
func since(name string) db.Time {
	for _, p := range pasts {
		if p.Name == name {
			return db.Now().Add(-p.Long)
		}
	}
	return 0
}

func (d *Pages) redeliver(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	id := shell.PathID[webhook.ID](q, "webhook")
	var made delivery.ID
	err := d.ActOn(ctx, q, func(tx *db.Tx) (_ audit.Event, err error) {
		of := shell.PathID[delivery.ID](q, "delivery")
		made, err = d.Webhooks.RedeliverTx(ctx, tx, q.Caller.Owner, id, of)
		return audit.Event{Action: "webhook.redelivered", Subject: string(id), Detail: string(of)}, err
	})
	return shell.GoTo("/webhooks/"+string(id)+"/deliveries/"+string(made), "Redelivery queued"), err
}

// redeliverAll starts the redelivery of failed deliveries and redirects to its progress.
func (d *Pages) redeliverAll(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	id := shell.PathID[webhook.ID](q, "webhook")
	var at operation.ID
	err := d.ActOn(ctx, q, func(tx *db.Tx) (audit.Event, error) {
		f := webhook.Filter{Since: since(q.Value("since"))}
		op, err := d.Webhooks.RedeliverAllTx(ctx, tx, q.Caller.Owner, id, f)
		at = op.ID
		return audit.Event{Action: "webhook.redelivered", Subject: string(id), Detail: "since " + f.Since.String()}, err
	})
	return shell.GoTo(shell.Link("/webhooks/"+string(id), "redelivery", string(at))+"#deliveries", "Redelivery started"), err
}

// enableWebhook enables a webhook and, if requested, redelivers what it missed.
func (d *Pages) enableWebhook(ctx context.Context, q *shell.Request, id webhook.ID) (shell.Answer, error) {
	var at operation.ID
	err := d.ActOn(ctx, q, func(tx *db.Tx) (audit.Event, error) {
		w, op, err := d.Webhooks.EnableTx(ctx, tx, q.Caller.Owner, id, since(q.Value("redeliver")))
		if op != nil {
			at = op.ID
		}
		return audit.Event{Action: "webhook.enabled", Subject: string(id), Detail: w.URL}, err
	})
	return shell.GoTo(shell.Link("/webhooks/"+string(id), "redelivery", string(at)), "Webhook enabled"), err
}
