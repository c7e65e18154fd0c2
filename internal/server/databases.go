package server

import (
	"slipway/internal/operator/installation"
	"slipway/internal/platform/sandbox"
	"slipway/internal/program/database"
)

// databases makes the service of databases. why says why programs don't run on this node,
// and empties where they do.
func (h *node) openDatabases(why string) error {
	c := database.Config{
		DB:       h.DB,
		Sites:    h.Sites,
		Limits:   h.Limits,
		Seal:     h.seal,
		Dir:      h.s.Path("mariadb"),
		UID:      installation.DatabaseUID,
		FirstUID: installation.FirstDatabaseUID,
		UIDs:     installation.DatabaseUIDs,
		External: h.s.MariaDB,
		Why:      why,
		Memory:   int64(h.s.MariaDBMemory) << 20,
		Size:     int64(h.s.DatabaseSize) << 20,
		Log:      h.s.Log,
		Logs:     h.Apps,
		Places:   h.places,
	}
	var err error
	if why == "" {
		// The same place as that of builds and programs: what an earlier process left behind is gone.
		if c.Runner, err = sandbox.New(sandbox.Config{Dir: h.s.Path("builds", "sandbox"), Log: h.s.Log}); err != nil {
			return err
		}
	}
	h.Databases, err = database.New(c)
	return err
}
