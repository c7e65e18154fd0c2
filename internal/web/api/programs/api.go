// Package programs owns the operations of sites' programs: processes, commands, scheduled work,
// metrics and logs.
package programs

import (
	"slipway/internal/program/app"
	"slipway/internal/web/api/contract"
)

// Config holds the services that these operations call.
type Config struct {
	Apps *app.Apps
}

// API implements the operations of programs.
type API struct {
	*contract.API
	Config
}

// Register registers the operations of programs.
func Register(core *contract.API, c Config) {
	a := &API{core, c}
	a.programRoutes()
	a.terminalRoute()
}
