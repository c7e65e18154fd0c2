// Package deployments owns the operations that deploy: deployments and their logs, uploads, and deploy hooks.
package deployments

import (
	"slipway/internal/deploy/deploy"
	"slipway/internal/deploy/pushes"
	"slipway/internal/deploy/upload"
	"slipway/internal/web/api/contract"
)

// Config holds the services that these operations call.
type Config struct {
	Deployments *deploy.Deployments
	Git         *pushes.Pushes
	Uploads     *upload.Uploads
}

// API implements the operations of deployments.
type API struct {
	*contract.API
	Config
}

// Register registers the operations of deployments.
func Register(core *contract.API, c Config) {
	a := &API{core, c}
	a.deploymentRoutes()
	a.uploadRoutes()
	a.hookRoutes()
}
