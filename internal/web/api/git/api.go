// Package git owns the operations that connect sites to Git providers: Git settings and hooks, pull requests, GitHub
// Apps and connected accounts.
package git

import (
	"slipway/internal/deploy/pushes"
	"slipway/internal/platform/db"
	"slipway/internal/tenant/connection"
	"slipway/internal/web/api/contract"
)

// Config holds the services that these operations call.
type Config struct {
	Connections *connection.Connections
	Git         *pushes.Pushes
}

// API implements the operations of Git.
type API struct {
	*contract.API
	Config
	pushes *db.Batch // writes concurrent pushes together
}

// Register registers the operations of Git.
func Register(core *contract.API, c Config) {
	a := &API{core, c, core.DB.NewBatch()}
	a.gitRoutes()
	a.connectionRoutes()
}
