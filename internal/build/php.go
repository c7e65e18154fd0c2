package build

import (
	"context"
	"os"
	"path"
	"path/filepath"
	"slices"

	"slipway/internal/fault"
	"slipway/internal/framework"
	"slipway/internal/php"
	"slipway/internal/sandbox"
)

// phpInside is where a build finds the PHP that its plan asks for, by the name php.
const phpInside = "/opt/slipway-php"

// php puts the PHP that the plan asks for before the host's own in PATH, with its
// extensions, and tells Composer where it may write. What a path repository names is
// copied: a link would lead out of what is stored.
func (b *build) php(ctx context.Context) error {
	if !slices.ContainsFunc(b.Plan.Tools, func(t framework.Tool) bool { return t.Name == "php" }) {
		return nil
	}
	v, err := php.Choose(ctx, b.Plan.Asks("php"))
	if err != nil {
		return err
	}
	composer := slices.ContainsFunc(b.Plan.Tools, func(t framework.Tool) bool { return t.Name == "composer" })
	switch {
	case v.CLI == "" && composer:
		return &fault.Error{Kind: fault.Unavailable, Message: "PHP's command line program is not installed on this server", Details: "the operator can install it (apt-get install php-cli)", Code: "php_missing"}
	case composer && !hasComposer():
		return &fault.Error{Kind: fault.Unavailable, Message: "Composer is not installed on this server", Details: "the operator can install it (apt-get install composer)", Code: "composer_missing"}
	}
	dir := filepath.Join(b.dir, "php")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	if v.CLI != "" {
		if err := os.Symlink(v.CLI, filepath.Join(dir, "php")); err != nil {
			return err
		}
		b.tools.Path = append(b.tools.Path, phpInside)
		b.tools.Binds = append(b.tools.Binds, sandbox.Bind{Source: dir, Target: phpInside})
	}
	b.tools.Binds = append(b.tools.Binds, v.Binds()...)
	home := path.Join(sandbox.Root, homeDir)
	b.tools.Env = append(b.tools.Env, "COMPOSER_HOME="+path.Join(home, ".config/composer"), "COMPOSER_CACHE_DIR="+path.Join(home, ".cache/composer"),
		"COMPOSER_MIRROR_PATH_REPOS=1", "COMPOSER_NO_INTERACTION=1")
	return nil
}

func hasComposer() bool {
	for _, name := range []string{"/usr/bin/composer", "/usr/local/bin/composer"} {
		if st, err := os.Stat(name); err == nil && st.Mode().IsRegular() {
			return true
		}
	}
	return false
}
