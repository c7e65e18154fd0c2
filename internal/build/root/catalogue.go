package root

import (
	"slices"
	"strings"
)

// Kind is a root that can be made here. Only the catalogue has kinds: nothing in one comes from a repository or a site.
type Kind struct {
	Name     string // php8.4
	Title    string // PHP 8.4
	Suite    string // of Debian
	Debian   string // Debian 13
	Until    string // when its security updates end, as 2006-01-02
	Packages []string
	Try      []string // a command that must succeed before the root is used

	php string // the version that the release had first; later ones of the release fit the same constraints
}

// phpExtensions are the extensions that applications and plugins ask for, beside those of php-common.
var phpExtensions = []string{
	"apcu", "bcmath", "curl", "gd", "gmp", "imagick", "intl", "ldap", "mbstring", "mysql", "pgsql", "redis", "soap", "sqlite3", "xml", "zip",
}

// php returns a kind of PHP. Its packages are the release's own version.
func php(minor, number, suite, debian, until string) Kind {
	k := Kind{
		Name: "php" + minor, Title: "PHP " + minor, Suite: suite, Debian: debian, Until: until, php: number,
		Try: []string{"/usr/sbin/php-fpm" + minor, "-t", "-y", "/dev/null", "-v"},
		Packages: []string{
			"composer", "curl", "git", "libatomic1", "libstdc++6", "php-cli", "php-fpm", "procps", "redis-server", "unzip",
		},
	}
	for _, name := range phpExtensions {
		k.Packages = append(k.Packages, "php-"+name)
	}
	return k
}

// Catalogue lists the kinds of roots, the newest of each tool first.
var Catalogue = []Kind{
	php("8.4", "8.4.11", "trixie", "Debian 13", "2030-06-30"),
	php("8.2", "8.2.7", "bookworm", "Debian 12", "2028-06-30"),
	php("7.4", "7.4.21", "bullseye", "Debian 11", "2026-08-31"),
}

// Named returns the kind of a name, and its place in the catalogue.
func Named(name string) (Kind, bool) {
	i := slices.IndexFunc(Catalogue, func(k Kind) bool { return k.Name == name })
	if i < 0 {
		return Kind{}, false
	}
	return Catalogue[i], true
}

// Names lists the names of kinds, as a sentence has them.
func Names() string {
	var list []string
	for _, k := range Catalogue {
		list = append(list, k.Name)
	}
	return strings.Join(list, ", ")
}
