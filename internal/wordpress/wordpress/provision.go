package wordpress

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"

	"slipway/internal/build/bundle"
	"slipway/internal/build/publish"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/id"
	"slipway/internal/platform/text"
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
// first of the repository's themes that works and its plugin, and else sees that the database is what its core needs.
func (w *WordPress) Install(ctx context.Context, s site.Site, deployment id.Deployment, own publish.Extensions, say publish.Log) error {
	x, err := w.get(ctx, w.c.DB, s.ID)
	if err != nil {
		return err
	}
	if x.Installed == "" {
		say("info", "Installing %q in %s", x.Title, x.Locale)
	}
	var out struct {
		Version, Warning string
		Upgraded         bool
		activated
	}
	err = w.task(ctx, s, deployment, "install", map[string]any{
		"title":     x.Title,
		"user":      x.AdminUser,
		"email":     x.AdminEmail,
		"locale":    x.Locale,
		"themes":    append([]string{}, own.Themes...),
		"installed": x.Installed != "",
	}, &out)
	if err != nil {
		return err
	}
	if out.Upgraded {
		say("info", "The database is that of WordPress %s now", out.Version)
	}
	if out.Version == x.Installed {
		return nil
	}
	if out.Warning != "" {
		say("warn", "%s", out.Warning)
	}
	if x.Installed == "" {
		if err := w.tryExtensions(ctx, s, deployment, out.activated, own.Plugin, say); err != nil {
			return err
		}
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

// activated is what an installation says of the repository's themes.
type activated struct {
	Theme    string // the one that is active; empty: none of them
	Fallback string // a theme of the core
	Refused  string // why the first one isn't active
}

// tryExtensions activates the repository's plugin in a WordPress that was just installed, and undoes what breaks its front
// page: no visitor reaches it yet. What isn't active is still there to be activated later.
func (w *WordPress) tryExtensions(
	ctx context.Context, s site.Site, deployment id.Deployment, a activated, plugin string, say publish.Log,
) error {
	change := func(m Manage, safe bool) (out managed, err error) {
		in := map[string]any{"kind": m.Kind, "action": m.Action, "slugs": m.Slugs, "safe": safe}
		return out, w.task(ctx, s, deployment, "extensions", in, &out)
	}
	// undo reports whether the front page is broken, and undoes what broke it.
	undo := func(what string, m Manage) (bool, error) {
		pages, err := w.lookAt(ctx, s, deployment, []string{"/"})
		if err != nil {
			return false, err
		}
		p := pages[0]
		if p.Status > 0 && p.Status < 500 && (p.Whole || p.Status >= 300) {
			return false, nil
		}
		if _, err = change(m, true); err != nil {
			return true, err
		}
		say("warn", "%s is not active, because the front page breaks with it (status %d); its error is in the site's log", what, p.Status)
		return true, nil
	}
	switch {
	case a.Refused != "":
		say("warn", "The repository's theme is not active: %s", text.Clip(a.Refused, 300))
	case a.Theme != "":
		what := "The theme " + text.Clip(a.Theme, 100)
		broken, err := undo(what, Manage{Kind: Theme, Action: Activate, Slugs: []string{a.Fallback}})
		if err != nil {
			return err
		}
		if !broken {
			say("info", "%s is active", what)
		}
	}
	if plugin == "" {
		return nil
	}
	what := "The plugin " + plugin
	out, err := change(Manage{Kind: Plugin, Action: Activate, Slugs: []string{plugin}}, false)
	switch f := fault.As(err); {
	case f != nil && f.Code == "wordpress_failed":
		say("warn", "%s is not active: %s", what, f.Details)
		return nil
	case err != nil:
		return err
	case len(out.Refused) > 0:
		say("warn", "%s is not active: %s", what, text.Clip(out.Refused[0].Error, 300))
		return nil
	}
	broken, err := undo(what, Manage{Kind: Plugin, Action: Deactivate, Slugs: []string{plugin}})
	if err == nil && !broken {
		say("info", "%s is active", what)
	}
	return err
}

// Activate begins to activate what a repository has brought to a WordPress that runs: its theme, or else its plugin. The
// operation checks the site and undoes what breaks it.
func (w *WordPress) Activate(ctx context.Context, s site.Site, own publish.Extensions) error {
	m := Manage{Kind: Plugin, Action: Activate, Slugs: []string{own.Plugin}}
	if len(own.Themes) > 0 {
		m = Manage{Kind: Theme, Action: Activate, Slugs: own.Themes[:1]}
	}
	return w.c.DB.Write(ctx, func(tx *db.Tx) error {
		_, err := w.ManageTx(ctx, tx, s.Owner, s.ID, m)
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

// EnvironmentType is the variable by which WordPress knows what a site is for, unless its owner sets it.
const EnvironmentType = "WP_ENVIRONMENT_TYPE"

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
		Network:   e.Network,
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
	if x.Origin != "" && (x.Host == "" || x.Host == newAddress) { // with a domain of its own it is more than a copy
		env["SLIPWAY_WP_CLONE"], env[EnvironmentType] = "1", "staging"
	}
	if x.Network != "" {
		env[NetworkOf] = x.Network
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
		return fault.New(fault.Conflict, "site_stopped", "This site is stopped", "start it first")
	case s.LiveDeployment == "":
		return fault.New(fault.Conflict, "not_installed", "WordPress is not installed yet",
			"it is installed by the site's first successful deployment")
	}
	return nil
}
