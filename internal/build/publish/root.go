package publish

import (
	"context"
	"path"
	"slices"
	"strings"

	"slipway/internal/build/framework"
	"slipway/internal/build/release"
	"slipway/internal/build/rules"
	"slipway/internal/platform/lazyregexp"
)

// RootFiles adds what the repository of a WordPress site has for the root of the site: rules, and files that others look for there. They
// lie at the top of the repository, or beside its wp-content.
func RootFiles(ctx context.Context, w *release.Writer, tree Tree, plan framework.Plan, say Log) error {
	var added []string
	for _, folder := range []string{path.Join(plan.Root, path.Dir(plan.Output)), plan.Root} {
		if folder == "." {
			folder = ""
		}
		c, err := Open(ctx, tree, framework.Plan{Root: folder}, func(string, string, ...any) {}) // the rest isn't published
		if err != nil {
			return err
		}
		all := c.files
		c.files = nil
		for _, f := range all {
			name, ok := inside(folder, f.Path)
			if ok && !slices.Contains(added, name) && (rules.IsFile(name) || ForRoot(name) && expected(name)) {
				c.files, added = append(c.files, f), append(added, name)
			}
		}
		if err := c.Fill(ctx, w); err != nil {
			return err
		}
	}
	if n := len(added); n > 0 {
		say("info", "At the root of the site: %s", strings.Join(added[:min(n, 20)], ", "))
	}
	return nil
}

// ForRoot reports whether a WordPress site may have a file of this name at its root, or in .well-known: the kinds of files by which
// others verify the site or learn of it. WordPress keeps the names that it has itself.
func ForRoot(name string) bool {
	in, known := strings.CutPrefix(name, ".well-known/")
	switch {
	case len(name) > 200 || strings.Trim(in, rootCharacters) != "" || strings.Contains("/"+in, "/.") || strings.HasSuffix(in, "/"):
		return false
	case !known && (strings.Contains(in, "/") || strings.HasPrefix(in, "wp-") || wordPressNames[in]),
		strings.HasPrefix(in, "acme-challenge/"):
		return false
	}
	return rootKinds[strings.ToLower(path.Ext(in))] || path.Ext(in) == "" && (known || in == "apple-app-site-association")
}

const rootCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./"

var (
	wordPressNames = map[string]bool{"index.html": true, "readme.html": true, "license.txt": true}
	rootKinds      = map[string]bool{
		".txt": true, ".xml": true, ".html": true, ".json": true, ".webmanifest": true, ".ico": true, ".png": true, ".svg": true, ".pem": true,
	}
)

// expectedNames are those by which others ask for files at the root: advertising, crawlers, browsers, and services that verify a domain
// by a name with a long number, or with one of theirs in it.
var expectedNames = lazyregexp.New(`(?i)^(app-)?ads\.txt$|^(robots|security|humans|llms|llms-full|trust|carbon|keybase)\.txt$|^sellers\.json$|` +
	`^(favicon\.(ico|svg|png)|apple-touch-icon[\w-]*\.png|android-chrome-[\w-]+\.png|favicon-[\w-]+\.png|mstile-[\w-]+\.png|safari-pinned-tab\.svg)$|` +
	`^(site|manifest)\.webmanifest$|^manifest\.json$|^(browserconfig|crossdomain|bingsiteauth|livesearchsiteauth)\.xml$|` +
	`^apple-app-site-association(\.json)?$|^assetlinks\.json$|` +
	`^(google|yandex_|pinterest-|naver|baidu_|tiktok|facebook|norton|mywot|wot-|loaderio-|detectify|ahrefs_|ms|globalsign|comodo|sectigo)[\w-]*\.(txt|html|xml)$|` +
	`^[\w-]*verif[\w-]*\.(txt|html|xml)$|^[\w-]*[0-9a-f]{16,}[\w-]*\.(txt|html|xml)$`)

// expected reports whether a file of a repository is meant for the root: one is full of files that aren't.
func expected(name string) bool {
	return strings.HasPrefix(name, ".well-known/") || expectedNames.MatchString(name)
}
