package server

import (
	"context"
	"fmt"
	"path/filepath"

	"slipway/internal/account"
	"slipway/internal/app"
	"slipway/internal/database"
	"slipway/internal/deploy"
	"slipway/internal/sandbox"
)

// databaseUID is the private database server's own, below those that sites get.
const databaseUID = 199_997

// databases makes the service of databases. why says why programs don't run on this node,
// and empties where they do.
func (h *node) openDatabases(limits *account.Limits, why string) error {
	dir, err := filepath.Abs(h.s.path("mariadb"))
	if err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	c := database.Config{DB: h.db, Sites: h.sites, Limits: limits, Seal: h.seal, Dir: dir, UID: databaseUID, External: h.s.MariaDB, Why: why,
		Memory: int64(h.s.MariaDBMemory) << 20, Size: int64(h.s.DatabaseSize) << 20, Log: h.s.Log, Say: h.apps.Note}
	if why == "" {
		builds, err := filepath.Abs(h.s.path("builds"))
		if err != nil {
			return fmt.Errorf("data directory: %w", err)
		}
		// The same place as that of builds and programs: what an earlier process left behind is gone.
		if c.Runner, err = sandbox.New(sandbox.Config{Dir: filepath.Join(builds, "sandbox"), Log: h.s.Log}); err != nil {
			return err
		}
	}
	h.databases, err = database.New(c)
	return err
}

// whyNot says why no programs run on this node; empty: they do.
func whyNot(c app.Config) string {
	if c.Engine == nil {
		return c.Why
	}
	return ""
}

// databaseSocket opens the way from a site's programs to its databases.
func (h *node) databaseSocket(site string) (string, error) { return h.databases.Socket(site) }

// addDatabases adds the variables of the site's databases, and the way to them. The
// owner's own variables of the same name win.
func (h *node) addDatabases(ctx context.Context, w *app.Wanted, p *deploy.Program) error {
	env, secrets, err := h.databases.Env(ctx, w.Site)
	if err != nil || len(env) == 0 {
		return err
	}
	w.Spec.Database = true
	for k, v := range env {
		if _, set := p.Env[k]; !set {
			p.Env[k] = v
		}
	}
	p.Secrets = append(p.Secrets, secrets...)
	return nil
}

// databaseServer reports whether sites can have databases.
func databaseServer(ctx context.Context, s Store) check {
	c := check{name: "databases"}
	c.text = database.Missing()
	if c.text == "" {
		c.ok, c.text = true, database.Version(ctx)+": sites can have databases"
	}
	return c
}
