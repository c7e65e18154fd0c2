// Package services owns the list of services that the control plane exposes. The REST API and the dashboard share it,
// so that both can do the same.
package services

import (
	"log/slog"
	"sync/atomic"

	"slipway/internal/backup/backup"
	"slipway/internal/build/release"
	"slipway/internal/deploy/deploy"
	"slipway/internal/deploy/pushes"
	"slipway/internal/deploy/ruletest"
	"slipway/internal/deploy/screenshot"
	"slipway/internal/deploy/upload"
	"slipway/internal/edge/certs"
	"slipway/internal/edge/front"
	"slipway/internal/platform/db"
	"slipway/internal/program/app"
	"slipway/internal/program/database"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/billing"
	"slipway/internal/tenant/billing/seller"
	"slipway/internal/tenant/connection"
	"slipway/internal/tenant/domain"
	"slipway/internal/tenant/limits"
	"slipway/internal/tenant/member"
	"slipway/internal/tenant/notify"
	"slipway/internal/tenant/oauth"
	"slipway/internal/tenant/operation"
	"slipway/internal/tenant/site"
	"slipway/internal/tenant/sso"
	"slipway/internal/tenant/stripe"
	"slipway/internal/tenant/team"
	"slipway/internal/tenant/traffic"
	"slipway/internal/tenant/usage"
	"slipway/internal/tenant/webhook"
	"slipway/internal/web/requestinfo"
	"slipway/internal/wordpress/wordpress"
)

// Services holds the services and settings of the control plane.
type Services struct {
	DB          *db.DB
	Accounts    *account.Accounts
	Teams       *team.Teams
	Members     *member.Members // Optional: without it, members can't open protected addresses.
	Sites       *site.Sites
	Deployments *deploy.Deployments
	Uploads     *upload.Uploads
	Rules       *ruletest.Rules
	Releases    *release.Releases
	Screenshots *screenshot.Screenshots // Optional.
	Git         *pushes.Pushes
	Connections *connection.Connections
	Notify      *notify.Notifications
	Domains     *domain.Domains
	Traffic     *traffic.Traffic
	Usage       *usage.Usage
	Apps        *app.Apps
	Databases   *database.Databases
	WordPress   *wordpress.WordPress
	Webhooks    *webhook.Webhooks
	Backups     *backup.Backups
	Operations  *operation.Operations
	OAuth       *oauth.Server    // Optional: without it, only API keys exist.
	SSO         *sso.SSO         // Optional: without it, neither teams' providers nor linked accounts exist.
	Billing     *billing.Billing // Optional: without it, plans and invoices don't exist.
	Sellers     *seller.Hosts    // Optional: nil without billing.
	Stripe      *stripe.Stripe   // Optional: without it, cards aren't accepted.
	Limits      *limits.Limits   // Optional: without it, limits aren't shown.
	Streams     *requestinfo.Streams
	Log         *slog.Logger

	Certificates certs.Addresses // of sites' own host names

	BaseURL        string        // of the dashboard and REST API; with https, cookies have the prefix __Host-
	APIURL         string        // of deploy hooks. Optional: empty means BaseURL.
	TrustedProxies front.Proxies // which name the client. Optional: none.
	Ready          *atomic.Bool  // false while starting or draining. Optional: always true.
	Version        string        // of the program. Optional.
}
