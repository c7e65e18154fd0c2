// Package services owns the list of the services that the control plane exposes. The REST interface and the pages show the same
// ones: what one of them can do, the other can.
package services

import (
	"log/slog"
	"net/netip"
	"sync/atomic"

	"slipway/internal/backup/backup"
	"slipway/internal/deploy/deploy"
	"slipway/internal/deploy/pushes"
	"slipway/internal/deploy/ruletest"
	"slipway/internal/deploy/screenshot"
	"slipway/internal/deploy/thumbnail"
	"slipway/internal/deploy/upload"
	"slipway/internal/edge/certs"
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

// Services are what the control plane stands on, and what it knows about itself.
type Services struct {
	DB          *db.DB
	Accounts    *account.Accounts
	Teams       *team.Teams
	Members     *member.Members // Optional: without it nobody goes on to a protected address.
	Sites       *site.Sites
	Deployments *deploy.Deployments
	Uploads     *upload.Uploads
	Rules       *ruletest.Rules
	Thumbnails  *thumbnail.Thumbnails
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
	OAuth       *oauth.Server    // Optional: without it there are API keys alone.
	SSO         *sso.SSO         // Optional: without it teams have no sign-in providers, and there are no accounts elsewhere.
	Billing     *billing.Billing // Optional: without it there are no plans and invoices.
	Sellers     *seller.Hosts    // Optional: without billing there are none.
	Stripe      *stripe.Stripe   // Optional: without it no cards are accepted.
	Limits      *limits.Limits   // Optional: without it nobody is shown any.
	Streams     *requestinfo.Streams
	Log         *slog.Logger

	Certificates certs.Addresses // of sites' own addresses

	BaseURL        string         // where pages and the REST interface are reached; https makes the cookies __Host-
	APIURL         string         // where deploy hooks are reached. Optional: empty means BaseURL.
	TrustedProxies []netip.Prefix // whose X-Forwarded-For counts. Optional: none.
	Ready          *atomic.Bool   // false while starting or draining. Optional: always true.
	Version        string         // of the program. Optional.
}
