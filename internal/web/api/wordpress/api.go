// Package wordpress owns the operations of WordPress sites: users, extensions, content, updates,
// imports and pushes.
package wordpress

import (
	"slipway/internal/tenant/operation"
	"slipway/internal/web/api/contract"
	"slipway/internal/wordpress/wordpress"
)

// Config holds the services that these operations call.
type Config struct {
	Operations *operation.Operations
	WordPress  *wordpress.WordPress
}

// API implements the operations of WordPress sites.
type API struct {
	*contract.API
	Config
}

// Register registers the operations of WordPress sites.
func Register(core *contract.API, c Config) {
	a := &API{core, c}
	a.wordpressRoutes()
}
