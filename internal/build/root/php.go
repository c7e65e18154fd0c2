package root

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"slipway/internal/build/phpversion"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/lazyregexp"
)

// PHP returns a PHP that a constraint of composer.json allows: the host's, else that of a root that is there, else of one that
// it makes, the newest first. If the host's lacks one of the extensions, and roots have it, a root goes first. The caller must
// call Release of the lease, which is nil for the host's. Roots may be nil: then there is only the host's.
func (r *Roots) PHP(
	ctx context.Context, constraint string, extensions []string, say func(format string, args ...any),
) (phpversion.Version, *Lease, error) {
	v, hostErr := phpversion.Choose(ctx, constraint)
	if r == nil || hostErr == nil && !slices.ContainsFunc(v.Lacks(extensions), hasExtension) {
		return v, nil, hostErr
	}
	k, err := r.choose(constraint)
	if hostErr == nil && (err != nil || r.Why() != "" && !r.has(k.Name)) {
		return v, nil, nil // as it is: Composer says what it lacks
	}
	if why := r.Why(); why != "" && (err != nil || !r.has(k.Name)) {
		f := fault.As(hostErr)
		if f == nil || err != nil {
			return phpversion.Version{}, nil, hostErr
		}
		return phpversion.Version{}, nil, fault.New(f.Kind, f.Code, f.Message, cmp.Or(f.Details, "it can't be installed")+"; "+why)
	}
	if err != nil {
		return phpversion.Version{}, nil, err
	}
	l, err := r.Use(ctx, k, say)
	if err != nil {
		return phpversion.Version{}, nil, err
	}
	return l.php(), l, nil
}

// hasExtension reports whether PHP's roots have an extension beside those of php-common.
func hasExtension(name string) bool {
	of := map[string]string{
		"dom": "xml", "simplexml": "xml", "xmlreader": "xml", "xmlwriter": "xml", "xsl": "xml",
		"mysqli": "mysql", "pdo_mysql": "mysql", "mysqlnd": "mysql", "pdo_pgsql": "pgsql", "pdo_sqlite": "sqlite3",
	}
	return slices.Contains(phpExtensions, cmp.Or(of[name], name))
}

// choose returns the kind of PHP for a constraint, one that is there before one that isn't.
func (r *Roots) choose(constraint string) (Kind, error) {
	var there, others []phpversion.Version
	kinds := map[string]Kind{}
	for _, k := range Catalogue {
		if k.php == "" {
			continue
		}
		kinds[k.php] = k
		if v := (phpversion.Version{Number: k.php}); r.has(k.Name) {
			there = append(there, v)
		} else {
			others = append(others, v)
		}
	}
	v, err := phpversion.Among(append(there, others...), constraint)
	if f := fault.As(err); f != nil && f.Code == "php_version" && f.Kind == fault.Invalid && f.Details != "" {
		var list []string
		for _, k := range Catalogue {
			if k.php != "" {
				list = append(list, strings.TrimPrefix(k.Title, "PHP "))
			}
		}
		return Kind{}, fault.New(fault.Invalid, "php_version", fmt.Sprintf("PHP %s is not available on this server", constraint),
			"available: "+strings.Join(list, ", ")+"; change the requirement in composer.json")
	}
	return kinds[v.Number], err
}

var upstream = lazyregexp.New(`^(?:\d+:)?(\d+\.\d+\.\d+)`)

// php returns the PHP of a root.
func (l *Lease) php() phpversion.Version {
	minor := strings.TrimPrefix(l.Name, "php")
	v := phpversion.Version{
		System: l.tree, Number: l.Kind.php, FPM: "/usr/sbin/php-fpm" + minor, CLI: "/usr/bin/php" + minor, Config: "/etc/php/" + minor,
	}
	if m := upstream.FindStringSubmatch(l.Versions["php"+minor+"-cli"]); m != nil {
		v.Number = m[1]
	}
	return v
}
