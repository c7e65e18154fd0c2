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

// phpInside is the path of the plan's PHP inside the sandbox.
const phpInside = "/opt/slipway-php"

// php puts the plan's PHP, with its extensions, before the host's in PATH, and sets Composer's folders. Packages from
// path repositories are copied, because a link would lead out of the stored files.
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

// phpProgram adjusts the artefact of a PHP program: it leaves out Node.js packages, which only built the front end, and
// adds the link of Laravel's storage:link for public uploads.
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

// hiddenPHP returns a function that reports which files of a PHP project aren't served: source code, closed folders,
// and storage.
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
