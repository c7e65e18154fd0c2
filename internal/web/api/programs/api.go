// Package programs owns the operations of sites' programs: processes, commands, scheduled work,
// metrics and logs.
package programs

import (
	"slipway/internal/program/app"
	"slipway/internal/web/api/contract"
	"slipway/internal/web/requestinfo"
)

// Config names the services that these operations call.
type Config struct {
	Apps *app.Apps
}

// API answers the operations of programs.
type API struct {
	*contract.API
	Config
	terminals *requestinfo.Streams // that are open
}

// Register lists the operations of programs.
func Register(core *contract.API, c Config) {
	a := &API{core, c, newTerminals()}
	a.programRoutes()
	a.terminalRoute()
}
