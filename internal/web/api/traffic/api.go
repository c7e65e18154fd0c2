// Package traffic owns the operations that read what was counted: visits of sites, access logs, and
// what an account uses.
package traffic

import (
	"slipway/internal/tenant/traffic"
	"slipway/internal/tenant/usage"
	"slipway/internal/web/api/contract"
)

// Config names the services that these operations call.
type Config struct {
	Traffic *traffic.Traffic
	Usage   *usage.Usage
}

// API answers the operations of what was counted.
type API struct {
	*contract.API
	Config
}

// Register lists the operations of what was counted.
func Register(core *contract.API, c Config) {
	a := &API{core, c}
	a.trafficRoutes()
	a.usageRoutes()
}
