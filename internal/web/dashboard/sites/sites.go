// Package sites owns the pages on which sites are created and watched: the overview, deployments, logs, traffic and the
// terminal. Package home has their list, and package configure, which shares the header (SiteHead), their setup.
package sites

import (
	"slipway/internal/backup/backup"
	"slipway/internal/build/release"
	"slipway/internal/deploy/deploy"
	"slipway/internal/deploy/screenshot"
	"slipway/internal/deploy/upload"
	"slipway/internal/platform/fair"
	"slipway/internal/program/database"
	"slipway/internal/tenant/connection"
	"slipway/internal/tenant/domain"
	"slipway/internal/tenant/site"
	"slipway/internal/tenant/traffic"
	"slipway/internal/web/dashboard/shell"
	"slipway/internal/wordpress/wordpress"
)

// Config holds the services used by these pages.
type Config struct {
	Sites        *site.Sites
	Deployments  *deploy.Deployments
	Uploads      *upload.Uploads
	Releases     *release.Releases
	Screenshots  *screenshot.Screenshots // Optional.
	Connections  *connection.Connections
	Domains      *domain.Domains
	Databases    *database.Databases
	Backups      *backup.Backups
	WordPress    *wordpress.WordPress
	Traffic      *traffic.Traffic
	Repositories Repositories // Optional: without it, new sites' repositories aren't inspected.
	Programs     Programs     // Optional: without it, pages show no programs.
}

// Pages serves the pages of sites.
type Pages struct {
	*shell.Shell
	Config
	icons *fair.Pool // for releases that are read for their icons
}

func New(s *shell.Shell, c Config) *Pages {
	// share: total 4 releases are read for their icons at once; owner 2; edge 1,000 wait, 200 of one owner, others get initials
	return &Pages{s, c, fair.New(fair.Config{Places: 4, Owner: 2, Waiting: 1000, OwnerWaiting: 200})}
}
