// Package webhooks owns the operations of outgoing messages: webhooks, their deliveries and listeners, and notification
// channels.
package webhooks

import (
	"slipway/internal/tenant/notify"
	"slipway/internal/tenant/webhook"
	"slipway/internal/web/api/contract"
)

// Config holds the services that these operations call.
type Config struct {
	Notify   *notify.Notifications
	Webhooks *webhook.Webhooks
}

// API implements the operations of webhooks and notifications.
type API struct {
	*contract.API
	Config
}

// Register registers the operations of webhooks and notifications.
func Register(core *contract.API, c Config) {
	a := &API{core, c}
	a.notifyRoutes()
	a.webhookRoutes()
}
