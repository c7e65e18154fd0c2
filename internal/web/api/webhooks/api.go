// Package webhooks owns the operations of what the service sends: webhooks, their deliveries and
// listeners, and notification channels.
package webhooks

import (
	"slipway/internal/tenant/notify"
	"slipway/internal/tenant/webhook"
	"slipway/internal/web/api/contract"
)

// Config names the services that these operations call.
type Config struct {
	Notify   *notify.Notifications
	Webhooks *webhook.Webhooks
}

// API answers the operations of webhooks and notifications.
type API struct {
	*contract.API
	Config
}

// Register lists the operations of webhooks and notifications.
func Register(core *contract.API, c Config) {
	a := &API{core, c}
	a.notifyRoutes()
	a.webhookRoutes()
}
