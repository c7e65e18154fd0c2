// Package sites owns the operations of sites: their settings, variables, domains, databases, backups and transfers, and
// long-running operations on them.
package sites

import (
	"slipway/internal/backup/backup"
	"slipway/internal/deploy/deploy"
	"slipway/internal/deploy/ruletest"
	"slipway/internal/edge/certs"
	"slipway/internal/platform/fair"
	"slipway/internal/program/app"
	"slipway/internal/program/database"
	"slipway/internal/tenant/connection"
	"slipway/internal/tenant/domain"
	"slipway/internal/tenant/operation"
	"slipway/internal/tenant/team"
	"slipway/internal/web/api/contract"
	"slipway/internal/wordpress/wordpress"
)

// Config holds the services that these operations call.
type Config struct {
	Apps         *app.Apps
	Backups      *backup.Backups
	Connections  *connection.Connections
	Databases    *database.Databases
	Deployments  *deploy.Deployments
	Domains      *domain.Domains
	Operations   *operation.Operations
	Rules        *ruletest.Rules
	Teams        *team.Teams
	WordPress    *wordpress.WordPress
	Certificates certs.Addresses // of sites' own host names
}

// API implements the operations of sites.
type API struct {
	*contract.API
	Config
	dumps *fair.Pool // limits downloads of databases
}

// Register registers the operations of sites.
func Register(core *contract.API, c Config) {
	a := &API{core, c, newDumps()}
	a.siteRoutes()
	a.databaseRoutes()
	a.ruleRoutes()
	a.servingRoutes()
	a.domainRoutes()
	a.envRoutes()
	a.operationRoutes()
	a.backupRoutes()
	a.transferRoutes()
}
