// Package wordpress owns WordPress sites: the core that all of them share, their
// installation, work on them, and their events. What requests to them meet is package guard's.
//
// A site's WordPress is a program like any other: its bundle is a read-only core with a
// configuration of ours, its wp-content is storage, its database is one of package
// database. What is done to it from outside (the installation, a login, its events) is a
// script of ours beside the core, which only this package can ask its PHP to run.
//
// The package starts no process: it asks the source of programs for them, before whom it stands
// for visitors, and hands the deployments service what to run.
package wordpress

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/mail"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"slipway/internal/backup/backup"
	"slipway/internal/backup/snapshot"
	"slipway/internal/build/bundle"
	"slipway/internal/deploy/deploy"
	"slipway/internal/deploy/screenshot"
	"slipway/internal/edge/endpoint"
	"slipway/internal/platform/blob"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fair"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/lazyregexp"
	"slipway/internal/platform/seal"
	"slipway/internal/program/database"
	"slipway/internal/program/placement"
	"slipway/internal/program/volume"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/domain"
	"slipway/internal/tenant/operation"
	"slipway/internal/tenant/site"
	"slipway/internal/wordpress/core"
	"slipway/internal/wordpress/guard"
	"slipway/internal/wordpress/pagecache"
)

// Config holds what WordPress needs.
type Config struct {
	DB        *db.DB
	Sites     *site.Sites
	Databases *database.Databases
	Bundles   *bundle.Bundles
	Seal      *seal.Sealer
	Out       *http.Client // fetches the core

	Dir string // ours: where a core is put together
	// of the core, see core.CheckSource. Optional: empty means the current release, or Debian's package where it can't be fetched.
	Source string

	Operations  *operation.Operations
	Backups     *backup.Backups
	Deployments *deploy.Deployments
	Screenshots *screenshot.Screenshots // Optional: without it updates have no pictures.

	// Programs has the programs behind the page cache. A request of ours wakes one that sleeps.
	Programs Programs
	// Host has the files of sites and what runs beside their PHP. Optional: nil where no programs run.
	Host    Host
	Domains *domain.Domains

	Places *placement.Places // Optional: nil is an installation of one node.
	Apart  bool              // other nodes run programs, by their roles
	Volume *volume.Volume    // of sites' storage. Optional: nil is this node's own.
	Log    *slog.Logger      // Optional.
}

// Programs has the programs of sites; package app's Apps are one.
type Programs interface {
	endpoint.Source
	// Note writes a line into a site's log.
	Note(site site.ID, text string)
	// Renew ends a site's programs: they start with the next request.
	Renew(site site.ID)
	// Quiet makes requests to a site wait until release is called, after those under way have ended, for which it waits so long.
	Quiet(site site.ID, drain time.Duration) (release func())
	// FatalErrors returns fatal errors of PHP in a site's log since then.
	FatalErrors(ctx context.Context, site site.ID, since db.Time) []string
}

// Host has what lies and runs beside a site's program; package runtime's Processes are one.
type Host interface {
	snapshot.Storage
	// StorageDir returns the directory of this host in which a site's storage lies; empty where it has none, or it is elsewhere.
	StorageDir(site site.ID) (dir string, ok bool)
	// ClearRedis makes what the object cache of a site's programs holds unfindable, and reports whether one of them has any.
	ClearRedis(site site.ID) bool
	// StorageSize returns how many bytes a site stores, wherever that is.
	StorageSize(ctx context.Context, site site.ID) (int64, error)
	// NoRedis says in words why programs can't have a Redis here; empty: they can.
	NoRedis() string
}

// WordPress owns what makes sites WordPress. It is safe for concurrent use.
type WordPress struct {
	*guard.Guards // what requests to sites meet
	c             Config
	cores         *core.Cores
	cache         *pagecache.Cache
	crons         *crons
	comparing     *fair.Pool
}

// New returns WordPress. It starts nothing: Run does.
func New(c Config) *WordPress {
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	port := ""
	if c.Sites != nil {
		if _, n, ok := strings.Cut(strings.TrimPrefix(c.Sites.Address("site"), "https://"), ":"); ok {
			port = ":" + n
		}
	}
	cores := core.New(core.Config{DB: c.DB, Bundles: c.Bundles, Out: c.Out, Dir: c.Dir, Source: c.Source, Log: c.Log})
	w := &WordPress{c: c, cores: cores, cache: pagecache.New(port), crons: newCrons(), comparing: newComparing()}
	w.Guards = guard.New(guard.Config{Programs: c.Programs, Cache: w.cache, Sites: guarded{w}, Log: c.Log})
	return w
}

// Settings hold what an owner chooses of a new WordPress. All are optional.
type Settings struct {
	Title      string // empty: the site's name
	AdminEmail string // empty: the owner's
	AdminUser  string // empty: made of the address
	Locale     string // such as de_DE; empty: English
	Version    string // empty: the one that there is
}

// row holds what is stored of a site.
type row struct {
	Site        site.ID
	Owner       account.OwnerID
	Title       string
	AdminEmail  string
	AdminUser   string
	Locale      string
	Database    database.ID
	Installed   string
	XMLRPC      bool
	Debug       bool
	Maintenance bool
	Revision    int64   // rises with each change that the program has to know
	Memory      int64   // MiB of one request
	Upload      int64   // MiB
	Execution   int64   // seconds
	Prefix      string  // of its tables
	Auto        string  // what is updated without being asked for
	ObjectCache bool    // whether a Redis runs beside its PHP
	Content     string  // the primary domain that its content names
	Origin      site.ID // that it was cloned from; empty: none
	Host        string  // the primary domain that its program knows
	PageCache   string  // what bypasses it: see readPageCache
	Network     string  // Subfolder or Subdomain; empty: it is none
	MovedAt     db.Time // when it was last transferred to another owner; 0: never

	sealed string
}

const columns = `site_id, owner_id, secret, title, admin_email, admin_user, locale, database_id, installed, xmlrpc, debug, maintenance, memory_mib, upload_mib, execution_seconds, table_prefix, auto_update, object_cache, revision, content_host, origin, host, moved_at, page_cache, network`

func scan(s db.Scanner) (x row, err error) {
	return x, s.Scan(
		&x.Site,
		&x.Owner,
		&x.sealed,
		&x.Title,
		&x.AdminEmail,
		&x.AdminUser,
		&x.Locale,
		&x.Database,
		&x.Installed,
		&x.XMLRPC,
		&x.Debug,
		&x.Maintenance,
		&x.Memory,
		&x.Upload,
		&x.Execution,
		&x.Prefix,
		&x.Auto,
		&x.ObjectCache,
		&x.Revision,
		&x.Content,
		&x.Origin,
		&x.Host,
		&x.MovedAt,
		&x.PageCache,
		&x.Network,
	)
}

func (w *WordPress) get(ctx context.Context, r db.Reader, id site.ID) (row, error) {
	x, err := scan(r.QueryRow(ctx, `SELECT `+columns+` FROM wordpress_sites WHERE site_id = $1`, id))
	if errors.Is(err, sql.ErrNoRows) {
		return x, &fault.Error{Kind: fault.Conflict, Message: "This site is not a WordPress site", Code: "not_wordpress"}
	}
	if err != nil {
		return x, fmt.Errorf("read WordPress settings: %w", err)
	}
	return x, nil
}

var (
	localeForm = lazyregexp.New(`^[a-z]{2,3}(_[A-Z]{2})?(_[a-z0-9]{2,12})?$`)
	userForm   = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9._@-]{2,59}$`)
	notOfUser  = lazyregexp.New(`[^a-z0-9._-]+`)
)

// Defaults of the settings that an owner may change later.
const (
	defaultMemory    = 256
	defaultUpload    = 64
	defaultExecution = 60
	maxUpload        = 1024
)

// CreateTx notes the settings of a site that was made in the same transaction. email is the
// owner's.
func (w *WordPress) CreateTx(ctx context.Context, tx *db.Tx, s site.Site, n Settings, email string) error {
	invalid := func(what, details, received string) error {
		return fault.New(fault.Invalid, "invalid_wordpress", "Invalid WordPress "+what, details).Got(received)
	}
	n.Title = cmp.Or(strings.TrimSpace(n.Title), s.Name)
	if utf8.RuneCountInString(n.Title) > 200 || strings.ContainsFunc(n.Title, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return invalid("title", "title has at most 200 characters, none of them a control character", "")
	}
	n.AdminEmail = cmp.Or(n.AdminEmail, email)
	if a, err := mail.ParseAddress(n.AdminEmail); err != nil || a.Address != n.AdminEmail || len(n.AdminEmail) > 100 {
		return invalid("adminEmail", "adminEmail must be an email address of at most 100 characters", n.AdminEmail)
	}
	if n.AdminUser == "" {
		name, _, _ := strings.Cut(strings.ToLower(n.AdminEmail), "@")
		n.AdminUser = strings.Trim(notOfUser.ReplaceAllString(name, "-"), ".-_")
		if !userForm.MatchString(n.AdminUser) || n.AdminUser == "admin" {
			n.AdminUser = "owner-" + strings.ToLower(db.Random(3))
		}
	}
	if !userForm.MatchString(n.AdminUser) {
		return invalid("adminUser", "adminUser has 3 to 60 letters, digits, dots, @, - and _", n.AdminUser)
	}
	n.Locale = cmp.Or(n.Locale, "en_US")
	if !localeForm.MatchString(n.Locale) {
		return invalid("locale", "locale is a language of WordPress such as de_DE", n.Locale)
	}
	if n.Version != "" {
		if err := core.Offers(ctx, tx, n.Version); err != nil {
			return err
		}
	}
	_, err := tx.Exec(ctx, `
		INSERT INTO wordpress_sites (site_id, owner_id, secret, title, admin_email, admin_user, locale, database_id, installed, xmlrpc, debug,
		maintenance, memory_mib, upload_mib, execution_seconds, next_cron, created_at, host, content_host)
		VALUES ($1, $2, $3, $4, $5, $6, $7, '', '', FALSE, FALSE, FALSE, $8, $9, $10, 0, $11, '', '')`,
		s.ID, s.Owner, w.newSecret(s.ID), n.Title, n.AdminEmail, n.AdminUser, n.Locale, defaultMemory, defaultUpload, defaultExecution, db.Now())
	if err != nil {
		return fmt.Errorf("note WordPress settings: %w", err)
	}
	if w.c.Backups == nil {
		return nil
	}
	daily := "daily"
	_, err = w.c.Backups.ScheduleTx(ctx, tx, s.Owner, s.ID, backup.SchedulePatch{Every: &daily})
	if f := fault.As(err); f != nil && f.Code == backup.Unavailable {
		return nil
	}
	return err
}

// newSecret returns a new key of a site's WordPress, sealed: its salts are made of it.
func (w *WordPress) newSecret(id site.ID) string {
	return w.c.Seal.Seal([]byte(db.Random(40)), purpose(id))
}

func purpose(id site.ID) string { return "site/" + string(id) + "/wordpress" }

// ForgetSiteTx removes what is stored of a deleted site.
func (w *WordPress) ForgetSiteTx(ctx context.Context, tx *db.Tx, id site.ID) error {
	if _, err := tx.Exec(ctx, `DELETE FROM wordpress_sites WHERE site_id = $1`, id); err != nil {
		return fmt.Errorf("forget WordPress settings: %w", err)
	}
	tx.AfterCommit(func() { w.cache.Forget(id) })
	return nil
}

// NoObjectCache says in words why sites can't have an object cache here; empty: they can.
func (w *WordPress) NoObjectCache() string {
	switch {
	case w.c.Host != nil:
		return w.c.Host.NoRedis()
	case w.c.Apart:
		return "" // the node that runs a site's PHP knows
	}
	return "programs can't run on this server"
}

// Settings that an owner changes. Nil fields stay as they are.
type Patch struct {
	Maintenance, Debug, XMLRPC *bool
	ObjectCache                *bool // refused where there is no Redis
	Memory, Upload, Execution  *int64
	AutoUpdate                 *string // AutoOff or AutoMinor
	PageCache                  PageCachePatch
	Network                    *string // Subfolder or Subdomain: begins an operation that makes the site a network
}

// PageCachePatch changes what bypasses the page cache: the lists of [guard.PageCache].
type PageCachePatch struct{ Cookies, Paths, Query *[]string }

// UpdateTx changes settings of the owner's site, and reports whether one is another now. Where
// its program has to know, and runs, it is started anew within seconds (see package app).
func (w *WordPress) UpdateTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, id site.ID, p Patch) (changed bool, err error) {
	if _, err := w.c.Sites.LockTx(ctx, tx, owner, id); err != nil {
		return false, err
	}
	x, err := w.get(ctx, tx, id)
	if err != nil {
		return false, err
	}
	was := x
	set := func(to *bool, from *bool) {
		if from != nil {
			*to = *from
		}
	}
	set(&x.Maintenance, p.Maintenance)
	set(&x.Debug, p.Debug)
	set(&x.XMLRPC, p.XMLRPC)
	if why := w.NoObjectCache(); p.ObjectCache != nil && *p.ObjectCache && !x.ObjectCache && why != "" {
		return false, fault.New(fault.Unavailable, "no_object_cache", "Object caches are not available on this server", why)
	}
	set(&x.ObjectCache, p.ObjectCache)
	for _, n := range []struct {
		name     string
		to, from *int64
		min, max int64
	}{
		{"memoryMiB", &x.Memory, p.Memory, 64, 2048},
		{"uploadMiB", &x.Upload, p.Upload, 1, maxUpload},
		{"maxExecutionSeconds", &x.Execution, p.Execution, 5, 600},
	} {
		if n.from == nil {
			continue
		}
		if *n.from < n.min || *n.from > n.max {
			return false, fault.New(fault.Invalid, "invalid_wordpress", "Invalid "+n.name,
				fmt.Sprintf("%s must be from %d to %d", n.name, n.min, n.max)).Got(*n.from)
		}
		*n.to = *n.from
	}
	if p.AutoUpdate != nil {
		if *p.AutoUpdate != AutoOff && *p.AutoUpdate != AutoMinor {
			return false, fault.New(fault.Invalid, "invalid_wordpress", "Invalid autoUpdate",
				"autoUpdate must be off or minor").Got(*p.AutoUpdate)
		}
		x.Auto = *p.AutoUpdate
	}
	pages := readPageCache(x.PageCache)
	for to, from := range map[*[]string]*[]string{
		&pages.Cookies: p.PageCache.Cookies, &pages.Paths: p.PageCache.Paths, &pages.Query: p.PageCache.Query,
	} {
		if from != nil {
			*to = slices.Clone(*from)
		}
	}
	if x.PageCache, err = writePageCache(pages); err != nil {
		return false, err
	}
	if p.Network != nil && *p.Network != was.Network {
		if changed, err = true, w.networkTx(ctx, tx, owner, was, *p.Network); err != nil {
			return false, err
		}
	}
	if x == was {
		return changed, nil
	}
	if was.Auto, was.PageCache = x.Auto, x.PageCache; x != was { // else its program never knows
		x.Revision++
		tx.Notify("live")
	}
	_, err = tx.Exec(
		ctx,
		`UPDATE wordpress_sites SET maintenance = $2, debug = $3, xmlrpc = $4, memory_mib = $5, upload_mib = $6, execution_seconds = $7,
		auto_update = $8, object_cache = $9, revision = $10, page_cache = $11 WHERE site_id = $1`,
		id, x.Maintenance, x.Debug, x.XMLRPC, x.Memory, x.Upload, x.Execution, x.Auto, x.ObjectCache, x.Revision, x.PageCache,
	)
	if err != nil {
		return false, fmt.Errorf("change WordPress settings: %w", err)
	}
	return true, w.settingsChangedTx(ctx, tx, id)
}

// settingsChangedTx makes every node read what a site serves again, and its pages stale.
func (w *WordPress) settingsChangedTx(ctx context.Context, tx *db.Tx, id site.ID) error {
	tx.AfterCommit(w.Forget)
	return w.purgeTx(ctx, tx, id, []string{"*"})
}

// Roots marks the files of every core, so that they are not collected.
func (w *WordPress) Roots(ctx context.Context, mark func(blob.Digest)) error {
	return w.cores.Roots(ctx, mark)
}
