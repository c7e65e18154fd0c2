package server

import (
	"context"
	"fmt"

	"slipway/internal/account"
	"slipway/internal/db"
	"slipway/internal/site"
	"slipway/internal/webhook"
)

// forgetWebhooks takes a deleted site out of webhooks that are restricted to sites.
func (h *node) forgetWebhooks(ctx context.Context, id site.ID) error {
	return h.db.Write(ctx, func(tx *db.Tx) error { return h.webhooks.ForgetSiteTx(ctx, tx, string(id)) })
}

// tellOfWebhook mails the owner of a webhook that fails, or that was disabled for it.
func (h *node) tellOfWebhook(ctx context.Context, tx *db.Tx, owner account.OwnerID, n webhook.Notice) error {
	subject := "A webhook is failing"
	text := fmt.Sprintf(`All deliveries to the webhook %s have failed since %s.

The webhook is disabled after 5 days of failures. Failed deliveries and the answers to them:`, n.Webhook.URL, n.Webhook.FailingSince)
	if n.Disabled {
		subject = "A webhook was disabled"
		why := "all deliveries to it have failed for 5 days"
		if n.Webhook.Reason == "gone" {
			why = "its endpoint answered 410 Gone"
		}
		text = fmt.Sprintf(`The webhook %s was disabled: %s.

Enable it once the endpoint works again. Events since then can be redelivered:`, n.Webhook.URL, why)
	}
	return h.accounts.TellOwnerTx(ctx, tx, owner, subject, text, "/webhooks/"+string(n.Webhook.ID))
}
