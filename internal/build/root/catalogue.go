package root

import (
	"fmt"
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

	tools []string // names by which plans call its programs, other than php
	minor int      // of Hugo: 131 of 0.131
	php   string   // the version that the release had first; later ones of the release fit the same constraints
}

// phpExtensions are the extensions that applications and plugins ask for, beside those of php-common.
var phpExtensions = []string{
	"apcu", "bcmath", "curl", "gd", "gmp", "imagick", "intl", "ldap", "mbstring", "mysql", "pgsql", "redis", "soap", "sqlite3", "xml", "zip",
}

// php returns a kind of PHP. Its packages are the release's own version.
func php(minor, number, suite, debian, until string) Kind {
	k := Kind{
		Name: "php" + minor, Title: "PHP " + minor, Suite: suite, Debian: debian, Until: until, php: number,
		Try:      []string{"/usr/sbin/php-fpm" + minor, "-t", "-y", "/dev/null", "-v"},
		Packages: commonly("composer", "php-cli", "php-fpm", "redis-server"),
	}
	for _, name := range phpExtensions {
		k.Packages = append(k.Packages, "php-"+name)
	}
	return k
}

// commonly adds the packages that every root has: what builds and programs call, and the libraries of Node.js.
func commonly(packages ...string) []string {
	return append(packages, "curl", "git", "libatomic1", "libstdc++6", "procps", "unzip")
}

func hugo(minor int, suite, debian, until string) Kind {
	version := fmt.Sprintf("0.%d", minor)
	return Kind{
		Name: "hugo" + version, Title: "Hugo " + version, Suite: suite, Debian: debian, Until: until,
		Packages: commonly("hugo"), Try: []string{"hugo", "version"}, tools: []string{"hugo"}, minor: minor,
	}
}

// Catalogue lists the kinds of roots, the newest of each tool first.
var Catalogue = []Kind{
	php("8.4", "8.4.11", "trixie", "Debian 13", "2030-06-30"),
	php("8.2", "8.2.7", "bookworm", "Debian 12", "2028-06-30"),
	php("7.4", "7.4.21", "bullseye", "Debian 11", "2026-08-31"),
	hugo(131, "trixie", "Debian 13", "2030-06-30"),
	hugo(111, "bookworm", "Debian 12", "2028-06-30"),
	{
		Name: "mdbook", Title: "mdBook", Suite: "trixie", Debian: "Debian 13", Until: "2030-06-30",
		Packages: commonly("mdbook"), Try: []string{"mdbook", "--version"}, tools: []string{"mdbook"},
	},
	{
		Name: "ruby3.3", Title: "Ruby 3.3 with Jekyll", Suite: "trixie", Debian: "Debian 13", Until: "2030-06-30",
		Packages: commonly("bundler", "g++", "jekyll", "libffi-dev", "make", "ruby-dev", "zlib1g-dev"),
		Try:      []string{"jekyll", "--version"}, tools: []string{"bundle", "jekyll"},
	},
	{
		Name: "python3.13", Title: "Python 3.13", Suite: "trixie", Debian: "Debian 13", Until: "2030-06-30",
		Packages: commonly("g++", "python3-dev", "python3-pip", "python3-venv"),
		Try:      []string{"python3", "-m", "venv", "--help"}, tools: []string{"python3"},
	},
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
