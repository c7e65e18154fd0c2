// Package traffic owns the operations that read statistics: visits of sites, access logs, and an account's usage.
package traffic

import (
	"slipway/internal/tenant/traffic"
	"slipway/internal/tenant/usage"
	"slipway/internal/web/api/contract"
)

// Config holds the services that these operations call.
type Config struct {
	Traffic *traffic.Traffic
	Usage   *usage.Usage
}

// API implements the operations of statistics.
type API struct {
	*contract.API
	Config
}

// Register registers the operations of statistics.
func Register(core *contract.API, c Config) {
	a := &API{core, c}
	a.trafficRoutes()
	a.usageRoutes()
}
