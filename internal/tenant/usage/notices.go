package usage

import (
	"context"
	"fmt"

	"slipway/internal/platform/db"
	"slipway/internal/platform/id"
	"slipway/internal/tenant/limits"
	"slipway/internal/tenant/notify"
	"slipway/internal/tenant/webhook"
	"slipway/internal/tenant/webhook/event"
)

// Notices tell owners through their notification channels and webhooks how much of a month's limit they have used.
type Notices struct {
	Notify *notify.Notifications
	Hooks  *webhook.Webhooks
}

// TellUsageTx is Teller's.
func (u Notices) TellUsageTx(ctx context.Context, tx *db.Tx, owner id.Owner, w Warning) error {
	if err := u.Hooks.EmitTx(ctx, tx, owner, event.UsageThreshold(event.Usage{
		Limit: string(w.Name), Month: fmt.Sprintf("%d-%02d", w.Month/100, w.Month%100), Percent: w.Percent, Used: w.Used, Allow: w.Limit,
	})); err != nil {
		return err
	}
	used := limits.Use{Name: w.Name, Limit: w.Limit, Used: w.Used}
	m := notify.Message{
		Event: notify.UsageThreshold,
		Title: fmt.Sprintf("%s: %d%% of this month's limit used", w.Name.Title(), w.Percent),
		Text:  fmt.Sprintf("%s of %s. The limit starts over with the next month (UTC).", used.Amount(), used.Most()),
		Path:  "/account/usage",
	}
	if w.Percent >= 100 {
		m.Title = w.Name.Title() + ": this month's limit is reached"
		switch w.Name {
		case limits.Bandwidth:
			what := "paused"
			if w.Throttle > 0 {
				what = "slowed down to " + limits.Speed(w.Throttle)
			}
			m.Text = "All sites of the account are " + what + " until the next month (UTC), or until the operator raises the limit. " + m.Text
		case limits.BuildMinutes:
			m.Text = "Builds are refused until the next month (UTC), or until the operator raises the limit; live sites are not affected. " + m.Text
		}
	}
	return u.Notify.TellTx(ctx, tx, owner, "", m)
}
