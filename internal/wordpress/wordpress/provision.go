package wordpress

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"

	"slipway/internal/build/bundle"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/id"
	"slipway/internal/program/database"
	"slipway/internal/tenant/site"
	"slipway/internal/wordpress/core"
)

// Prepare returns what a site's WordPress runs from, and sees that it has its database.
// Twice does no harm.
func (w *WordPress) Prepare(ctx context.Context, s site.Site, say func(format string, args ...any)) (bundle.ID, error) {
	x, err := w.get(ctx, w.c.DB, s.ID)
	if err != nil {
		return "", err
	}
	c, err := w.cores.Current(ctx, say)
	if err != nil {
		return "", err
	}
	say("WordPress %s", c.Version)
	if x.Database == "" {
		err = w.c.DB.Write(ctx, func(tx *db.Tx) error {
			made, err := w.c.Databases.CreateTx(ctx, tx, s.Owner, s.ID, database.NewDatabase{Name: DatabaseName})
			if err != nil {
				return err
			}
			x.Database = made.ID
			_, err = tx.Exec(ctx, `UPDATE wordpress_sites SET database_id = $2 WHERE site_id = $1`, s.ID, made.ID)
			return err
		})
		if err != nil {
			return "", err
		}
	}
	if err := w.c.Databases.Make(ctx, x.Database); err != nil {
		return "", err
	}
	return c.Bundle, nil
}

// DatabaseName is the name of the database of every WordPress.
const DatabaseName = "wordpress"

// Install installs the WordPress of a deployment that runs, where it isn't yet, with the
// first of the themes that works, and else sees that the database is what its core needs.
func (w *WordPress) Install(
	ctx context.Context,
	s site.Site,
	deployment id.Deployment,
	themes []string,
	say func(format string, args ...any),
) error {
	x, err := w.get(ctx, w.c.DB, s.ID)
	if err != nil {
		return err
	}
	if x.Installed == "" {
		say("Installing %q in %s", x.Title, x.Locale)
	}
	if themes == nil {
		themes = []string{}
	}
	var out struct {
		Version, Warning string
		Upgraded         bool
	}
	err = w.task(ctx, s, deployment, "install", map[string]any{
		"title":     x.Title,
		"user":      x.AdminUser,
		"email":     x.AdminEmail,
		"locale":    x.Locale,
		"themes":    themes,
		"installed": x.Installed != "",
	}, &out)
	if err != nil {
		return err
	}
	if out.Upgraded {
		say("The database is that of WordPress %s now", out.Version)
	}
	if out.Version == x.Installed {
		return nil
	}
	if out.Warning != "" {
		say("%s", out.Warning)
	}
	return w.c.DB.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(
			ctx,
			`UPDATE wordpress_sites SET installed = $2, next_cron = $3 WHERE site_id = $1`,
			s.ID,
			out.Version,
			db.Now()+60_000,
		)
		return err
	})
}

// Environment returns the variables of a site's WordPress beside what every program gets,
// the secrets among their values, and which revision of its settings they are of. address is
// where visitors find it.
func (w *WordPress) Environment(
	ctx context.Context,
	id site.ID,
	address string,
) (env map[string]string, secrets []string, revision int64, err error) {
	x, err := w.get(ctx, w.c.DB, id)
	if err != nil {
		return nil, nil, 0, err
	}
	key, err := w.c.Seal.Open(x.sealed, purpose(id))
	if err != nil {
		return nil, nil, 0, fmt.Errorf("open key of WordPress: %w", err)
	}
	if x.Database == "" {
		return nil, nil, 0, errors.New("the WordPress has no database")
	}
	a, err := w.c.Databases.Access(ctx, x.Database)
	if err != nil {
		return nil, nil, 0, err
	}
	env = x.environment(string(key), a, address)
	return env, []string{string(key), a.Password}, x.Revision, nil
}

// ObjectCacheOn is the variable that says that the program is to have an object cache.
const ObjectCacheOn = "SLIPWAY_WP_OBJECT_CACHE"

// EnvironmentOf returns the variables of a WordPress that a backup holds, which runs to be
// looked at: with salts that nothing else has.
func (e Export) EnvironmentOf(a database.Access, address string) map[string]string {
	return row{
		Upload:    e.Upload,
		Memory:    e.Memory,
		Execution: e.Execution,
		Prefix:    cmp.Or(e.Prefix, "wp_"),
		XMLRPC:    e.XMLRPC,
		Debug:     e.Debug,
	}.environment(
		db.Random(40),
		a,
		address,
	)
}

func (x row) environment(key string, a database.Access, address string) map[string]string {
	env := map[string]string{
		"SLIPWAY_WP_DATABASE":          a.Schema,
		"SLIPWAY_WP_DATABASE_USER":     a.User,
		"SLIPWAY_WP_DATABASE_PASSWORD": a.Password,
		"SLIPWAY_WP_DATABASE_SOCKET":   database.Socket,
		"SLIPWAY_WP_KEY":               key,
		"SLIPWAY_WP_URL":               address,
		"SLIPWAY_WP_UPLOAD":            strconv.FormatInt(x.Upload, 10),
		"SLIPWAY_WP_MEMORY":            strconv.FormatInt(x.Memory, 10),
		"SLIPWAY_WP_PREFIX":            x.Prefix,
		"SLIPWAY_WP_SECONDS":           strconv.FormatInt(x.Execution, 10),
	}
	if x.MovedAt > 0 {
		env["SLIPWAY_WP_MOVED"] = strconv.FormatInt(x.MovedAt.Time().Unix(), 10)
	}
	for name, on := range map[string]bool{
		"SLIPWAY_WP_XMLRPC":      x.XMLRPC,
		"SLIPWAY_WP_DEBUG":       x.Debug,
		"SLIPWAY_WP_MAINTENANCE": x.Maintenance,
		ObjectCacheOn:            x.ObjectCache,
	} {
		if on {
			env[name] = "1"
		}
	}
	return env
}

// Alive is a path of every WordPress that PHP answers without a database: what an
// installation that was cut off has left there makes all others fail until the next one.
const Alive = "/wp-includes/version.php"

// Installed reports whether a site's WordPress has been installed.
func (w *WordPress) Installed(ctx context.Context, id site.ID) (bool, error) {
	x, err := w.get(ctx, w.c.DB, id)
	return x.Installed != "", err
}

// Layout says where the parts of a WordPress lie in its bundle.
type Layout struct {
	Root, Front, Tasks string   // the document root, its front controller, and the scripts that are nobody's but ours
	Content            string   // themes, plugins and uploads
	Storage            []string // folders that the site writes to
}

// TheLayout is that of every WordPress.
func TheLayout() Layout {
	return Layout{
		Root: core.PublicDir, Front: "index.php", Tasks: core.TasksDir,
		Content: core.ContentDir, Storage: []string{core.ContentDir},
	}
}

// live returns the owner's site if a WordPress runs there.
func (w *WordPress) live(s site.Site) error {
	switch {
	case s.Type != site.WordPress:
		return &fault.Error{Kind: fault.Conflict, Message: "This site is not a WordPress site", Code: "not_wordpress"}
	case s.Status == site.Stopped:
		return &fault.Error{Kind: fault.Conflict, Message: "This site is stopped", Details: "start it first", Code: "site_stopped"}
	case s.LiveDeployment == "":
		return &fault.Error{
			Kind:    fault.Conflict,
			Message: "WordPress is not installed yet",
			Details: "it is installed by the site's first successful deployment",
			Code:    "not_installed",
		}
	}
	return nil
}
