package framework

import (
	"strings"

	"slipway/internal/platform/lazyregexp"
)

// source matches names that hold code or what is nobody's business: they are never shown.
var phpSource = lazyregexp.New(
	`(?i)(\.(php[0-9]?|phtml|phps|pht|phar|inc|twig|blade|bak|old|orig|save|swp|swo|sql|sqlite|sqlite3|db|log|sh|ya?ml|toml|` +
		`ini|dist|neon|lock)(\.[a-z0-9]{1,8})?|~)$`,
)

// phpPrivate are names at the top of a document root that belong to the project.
var phpPrivate = map[string]bool{
	"composer.json":     true,
	"auth.json":         true,
	"package.json":      true,
	"package-lock.json": true,
	"artisan":           true,
	"makefile":          true,
	"dockerfile":        true,
	"procfile":          true,
	"phpunit.xml":       true,
	"phpunit.xml.dist":  true,
	"readme.md":         true,
	"webpack.mix.js":    true,
	"vite.config.js":    true,
	"vite.config.ts":    true,
}

// ShowsPHP reports whether a file of a document root, by its path there, may be shown to
// visitors: nothing that looks like source, a backup of it, or a database.
func ShowsPHP(name string) bool {
	return !phpSource.MatchString(name) && !phpPrivate[strings.ToLower(name)] && !strings.HasPrefix(name, "node_modules/")
}

// Closes reports whether a path of the document root is closed to visitors, or lies in a folder that is.
func (s *Start) Closes(name string) bool { return Closes(s.Closed, name) }

// Closes reports whether a path is one of those that are closed, or lies below one.
func Closes(closed []string, name string) bool {
	for _, c := range closed {
		if rest, ok := strings.CutPrefix(name, c); ok && (rest == "" || rest[0] == '/') {
			return true
		}
	}
	return false
}
