// Package sites owns the pages on which sites are made and watched: the overview, deployments, logs,
// traffic and the terminal. Their list is in package home. What their owners set up for them is in
// package configure, which draws the same header (SiteHead).
package sites

import (
	"slipway/internal/backup/backup"
	"slipway/internal/deploy/deploy"
	"slipway/internal/deploy/screenshot"
	"slipway/internal/deploy/thumbnail"
	"slipway/internal/deploy/upload"
	"slipway/internal/program/database"
	"slipway/internal/tenant/connection"
	"slipway/internal/tenant/domain"
	"slipway/internal/tenant/site"
	"slipway/internal/tenant/traffic"
	"slipway/internal/web/dashboard/shell"
	"slipway/internal/wordpress/wordpress"
)

// Config names the services that these pages show.
type Config struct {
	Sites        *site.Sites
	Deployments  *deploy.Deployments
	Uploads      *upload.Uploads
	Thumbnails   *thumbnail.Thumbnails
	Screenshots  *screenshot.Screenshots // Optional.
	Connections  *connection.Connections
	Domains      *domain.Domains
	Databases    *database.Databases
	Backups      *backup.Backups
	WordPress    *wordpress.WordPress
	Traffic      *traffic.Traffic
	Repositories Repositories // Optional: without it a new site's repository is not inspected.
	Programs     Programs     // Optional: without it the pages show none.
}

// Pages serves the pages of sites.
type Pages struct {
	*shell.Shell
	Config
}

// New returns the pages of sites.
func New(s *shell.Shell, c Config) *Pages {
	return &Pages{s, c}
}
