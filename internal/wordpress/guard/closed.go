package guard

import (
	"path"
	"strings"

	"slipway/internal/build/htaccess"
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
		"/wp-content/wflogs/", "/wp-content/w3tc-config/", "/wp-content/wpvividbackups/", "/wp-content/snapshots/", "/wp-sitemap-users",
	}
	closedNames = lazyregexp.New(
		`(?i)\.(log|sql|sql\.gz|bak|old|orig|save|swp|sqlite|sqlite3|db|zip\.part|ini|sh|env|tar|tgz|gz\.sql)$|` +
			`(^|/)(error_log|composer\.(json|lock)|package(-lock)?\.json)$|` +
			// of a theme or plugin that is a repository of its own
			`^/wp-content/(.*/)?(auth\.json|(docker-)?compose[\w.-]*\.ya?ml|dockerfile|makefile|vagrantfile)$`,
	)
)

// known are folders of uploads that plugins close where they find Apache, by what they write there: orders, forms, invoices, courses and
// logs. It holds for one of theirs where it is missing.
var known = map[string]*htaccess.Rules{
	"edd": htaccess.Parse("Deny from all\n<FilesMatch '\\.(jpg|jpeg|png|gif|mp3|ogg|webp)$'>\nAllow from all\n</FilesMatch>"), // previews

	"backup-guard": htaccess.Closed(), "backupbuddy_backups": htaccess.Closed(), "dlm_uploads": htaccess.Closed(),
	"download-manager-files": htaccess.Closed(), "ithemes-security": htaccess.Closed(), "learndash": htaccess.Closed(),
	"mainwp": htaccess.Closed(), "pb_backupbuddy": htaccess.Closed(), "sucuri": htaccess.Closed(), "wc-logs": htaccess.Closed(),
	"woocommerce_uploads": htaccess.Closed(), "wp-migrate-db": htaccess.Closed(), "wpcf7_uploads": htaccess.Closed(),
	"wpo_wcpdf": htaccess.Closed(),
}

// Folders are those of wp-content that are closed without a .htaccess.
type Folders struct{}

// Rules returns what a folder closes; nil: nothing. The names of some end with what visitors can't guess.
func (Folders) Rules(folder string) *htaccess.Rules {
	name := strings.ToLower(path.Base(folder))
	if rest, ok := strings.CutPrefix(folder, "wp-content/uploads/"); !ok || strings.Contains(rest, "/") &&
		!strings.HasPrefix(rest, "sites/") { // of a network
		return nil
	}
	if r := known[name]; r != nil {
		return r
	}
	if strings.HasPrefix(name, "backwpup-") || strings.HasPrefix(name, "wpo_wcpdf_") {
		return htaccess.Closed()
	}
	return nil
}

// contentScripts matches what some server runs as PHP, by the last suffix of a part of the path or by one before others (x.php.png).
var contentScripts = lazyregexp.New(`\.(php[0-9]?|phtml|phps|pht|phar)(\.|~|/|$)`)

// inner returns a path without the folder of a network's blog: /shop/wp-login.php is wp-login.php. WordPress's rules are run again for
// what they lead to, so that several folders go.
func (s Served) inner(name string) string {
	for range maxFolders {
		rest, ok := s.below(name)
		if !ok {
			break
		}
		name = rest
	}
	return name
}

// maxFolders caps the folders that a path of a network is looked at without. Deeper paths are closed.
const maxFolders = 16

// below returns a path without its first folder, if that may be a blog's.
func (s Served) below(name string) (rest string, ok bool) {
	if !s.Folders {
		return "", false
	}
	blog, rest, ok := strings.Cut(strings.TrimPrefix(path.Clean("/"+name), "/"), "/")
	return "/" + rest, ok && blogForm.MatchString(blog)
}

// blogForm is a folder as WordPress's rules for networks know it.
var blogForm = lazyregexp.New(`^[_0-9a-zA-Z-]+$`)

// closes reports whether nobody may see a path of the site. In a network, people sign up and confirm invitations.
func (s Served) closes(name string) bool {
	if s.Network {
		switch script(s.inner(name)) {
		case "/wp-signup.php", "/wp-activate.php":
			return false
		}
	}
	for range maxFolders + 1 {
		if closed(name, s.XMLRPC) {
			return true
		}
		rest, ok := s.below(name)
		if !ok {
			return false
		}
		name = rest
	}
	return true
}

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
