package usage

import (
	"context"
	"fmt"
	"strings"

	"slipway/internal/platform/db"
	"slipway/internal/platform/id"
	"slipway/internal/tenant/limits"
	"slipway/internal/tenant/notify"
	"slipway/internal/tenant/webhook"
	"slipway/internal/tenant/webhook/event"
)

// Notices notifies owners of their use of a limit by notification channels and webhooks.
type Notices struct {
	Notify *notify.Notifications
	Hooks  *webhook.Webhooks
}

// TellUsageTx implements [Teller].
func (u Notices) TellUsageTx(ctx context.Context, tx *db.Tx, owner id.Owner, w Warning) error {
	if err := u.Hooks.EmitTx(ctx, tx, owner, event.UsageThreshold(event.Usage{
		Limit: string(w.Name), Start: w.Window.From, End: w.Window.To, Percent: w.Percent, Used: w.Used, Allow: w.Limit,
	})); err != nil {
		return err
	}
	used := limits.Use{Name: w.Name, Limit: w.Limit, Used: w.Used}
	until, next, over := "until the next month (UTC)", "with the next month (UTC)", "this month's limit"
	if !w.Window.Calendar() {
		at := w.Window.Ends()
		until, next, over = "until "+strings.TrimPrefix(at, "on "), at, "this period's limit"
	}
	m := notify.Message{
		Event: notify.UsageThreshold,
		Title: fmt.Sprintf("%s: %d%% of %s used", w.Name.Title(), w.Percent, over),
		Text:  fmt.Sprintf("%s of %s. The limit starts over %s.", used.Amount(), used.Most(), next),
		Path:  "/account/usage",
	}
	if w.Percent >= 100 {
		m.Title = w.Name.Title() + ": " + over + " is reached"
		switch w.Name {
		case limits.Bandwidth:
			what := "paused"
			if w.Throttle > 0 {
				what = "slowed down to " + limits.Speed(w.Throttle)
			}
			m.Text = "All sites of the account are " + what + " " + until + ", or until the limit is raised. " + m.Text
		case limits.BuildMinutes:
			m.Text = "Builds are refused " + until + ", or until the limit is raised; live sites are not affected. " + m.Text
		}
	}
	return u.Notify.TellTx(ctx, tx, owner, "", m)
}
