package build

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"slipway/internal/build/framework"
	"slipway/internal/build/phpversion"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/sandbox"
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
	v, err := phpversion.Choose(ctx, b.Plan.Asks("php"))
	if err != nil {
		return err
	}
	composer := slices.ContainsFunc(b.Plan.Tools, func(t framework.Tool) bool { return t.Name == "composer" })
	switch {
	case v.CLI == "" && composer:
		return fault.New(fault.Unavailable, "php_missing", "PHP's command line program is not installed on this server",
			"the operator can install it (apt-get install php-cli)")
	case composer && !phpversion.HasComposer():
		return fault.New(fault.Unavailable, "composer_missing", "Composer is not installed on this server",
			"the operator can install it (apt-get install composer)")
	}
	dir := filepath.Join(b.dir, "php")
	if err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o755)); err != nil {
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
	b.tools.Env = append(
		b.tools.Env,
		"COMPOSER_HOME="+path.Join(home, ".config/composer"),
		"COMPOSER_CACHE_DIR="+path.Join(home, ".cache/composer"),
		"COMPOSER_MIRROR_PATH_REPOS=1",
		"COMPOSER_NO_INTERACTION=1",
	)
	return nil
}

// phpProgram completes what PHP runs from: packages of Node.js only built the front end,
// Laravel finds its public uploads by the link that its storage:link would make.
func (b *build) phpProgram(a *Artefact) {
	plan := b.Plan
	if plan.Framework == "laravel" {
		if _, err := a.Files.Lstat(path.Join(plan.Root, "public/storage")); errors.Is(err, fs.ErrNotExist) {
			_ = a.Files.Symlink("../storage/app/public", path.Join(plan.Root, "public/storage"))
		}
	}
	if !b.Whole {
		modules := path.Join(plan.Root, "node_modules")
		a.Skip = func(name string) bool { return name == modules }
	}
	a.Hidden = hiddenPHP(a.Start, b.Storage)
}

// hiddenPHP returns which files of a PHP project are not served as they are: what looks like source, what is
// closed, and what lies in storage.
func hiddenPHP(start *framework.Start, storage []string) func(name string) bool {
	var stored []string
	if start != nil {
		for _, dir := range slices.Concat(start.Storage, start.Temporary, storage) {
			if rel, ok := strings.CutPrefix(path.Clean(dir), path.Clean(start.DocumentRoot)+"/"); ok {
				stored = append(stored, rel)
			} else if start.DocumentRoot == "" {
				stored = append(stored, path.Clean(dir))
			}
		}
	}
	stored = append(stored, "storage") // the link
	return func(name string) bool {
		return !framework.ShowsPHP(name) || start != nil && start.Closes(name) ||
			slices.ContainsFunc(stored, func(dir string) bool { return within(name, dir) })
	}
}
