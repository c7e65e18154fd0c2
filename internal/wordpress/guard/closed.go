package guard

import (
	"path"
	"strings"

	"slipway/internal/platform/lazyregexp"
)

// Files that belong to nobody who visits: the installer, the configuration, what reveals
// versions or users, and what plugins leave behind.
var (
	closedPaths = map[string]bool{
		"/wp-config.php":               true,
		"/wp-admin/install.php":        true,
		"/wp-admin/setup-config.php":   true,
		"/wp-admin/upgrade.php":        true,
		"/wp-admin/maint/repair.php":   true,
		"/wp-admin/install-helper.php": true,
		"/wp-cron.php":                 true,
		"/wp-mail.php":                 true,
		"/wp-links-opml.php":           true,
		"/wp-trackback.php":            true,
		"/wp-settings.php":             true,
		"/wp-load.php":                 true,
		"/readme.html":                 true,
		"/license.txt":                 true,
		"/wp-signup.php":               true,
		"/wp-activate.php":             true,
		"/wp-admin/load-scripts.php":   false,
	}
	closedTrees = []string{
		"/wp-content/database/", "/wp-content/backup", "/wp-content/updraft", "/wp-content/ai1wm-backups",
		"/wp-content/upgrade/", "/wp-content/debug.log", "/wp-admin/includes/", "/wp-includes/theme-compat/",
		"/wp-sitemap-users",
	}
	closedNames = lazyregexp.New(
		`(?i)\.(log|sql|sql\.gz|bak|old|orig|save|swp|sqlite|sqlite3|db|zip\.part|ini|sh|env|tar|tgz|gz\.sql)$|` +
			`(^|/)(error_log|composer\.(json|lock)|package(-lock)?\.json)$|` +
			// of a theme or plugin that is a repository of its own
			`^/wp-content/(.*/)?(auth\.json|(docker-)?compose[\w.-]*\.ya?ml|dockerfile|makefile|vagrantfile)$`,
	)
)

// contentScripts matches what some server runs as PHP, by the last suffix of a part of the path or by one before others (x.php.png).
var contentScripts = lazyregexp.New(`\.(php[0-9]?|phtml|phps|pht|phar)(\.|~|/|$)`)

// closed reports whether nobody may see a path.
func closed(name string, xmlrpc bool) bool {
	low := script(strings.ToLower(name))
	switch {
	case closedPaths[low]:
		return true
	case low == "/xmlrpc.php":
		return !xmlrpc
	case strings.HasPrefix(low, "/wp-content/") && contentScripts.MatchString(low): // scripts of plugins run through WordPress alone
		return true
	case strings.HasPrefix(low, "/wp-includes/") && strings.HasSuffix(low, ".php"):
		return true
	}
	for _, t := range closedTrees {
		if strings.HasPrefix(low, t) {
			return true
		}
	}
	for part := range strings.SplitSeq(strings.TrimPrefix(low, "/"), "/") {
		if strings.HasPrefix(part, ".") && part != ".well-known" {
			return true
		}
	}
	return closedNames.MatchString(low)
}

// named reports whether a path could be a file's.
func named(name string) bool { return path.Ext(name) != "" && !strings.HasSuffix(name, ".php") }

// script returns the script that a path runs where it names one: what follows it is told to
// it as PATH_INFO.
func script(name string) string {
	p := path.Clean("/" + name)
	if i := strings.Index(p, ".php/"); i >= 0 {
		return p[:i+4]
	}
	return p
}
