package build

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"slipway/internal/build/framework"
	"slipway/internal/build/htaccess"
	"slipway/internal/build/rules"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/sandbox"
)

// phpInside is the path of the plan's PHP inside the sandbox.
const phpInside = "/opt/slipway-php"

// calls reports whether the plan's commands call a tool.
func (b *build) calls(tool string) bool {
	return slices.ContainsFunc(b.Plan.Tools, func(t framework.Tool) bool { return t.Name == tool })
}

// chooseRoot takes the root with the plan's tools if the host lacks them, and installs it if necessary.
func (b *build) chooseRoot(ctx context.Context) (err error) {
	if b.root != nil {
		return nil
	}
	say := func(format string, args ...any) { b.printf("info", format, args...) }
	if b.calls("php") {
		b.phpVersion, b.root, err = b.c.Roots.PHP(ctx, b.Plan.Asks("php"), b.Plan.Extensions(), say)
		return err
	}
	for _, t := range b.Plan.Tools {
		if b.root, err = b.c.Roots.Tool(ctx, t.Name, t.Version, say); b.root != nil || err != nil {
			if err == nil {
				say("%s%s", b.root.Title, b.root.From())
			}
			return err
		}
	}
	return nil
}

// php puts the plan's PHP, with its extensions, before the host's in PATH, and sets Composer's folders. Packages from
// path repositories are copied, because a link would lead out of the stored files.
func (b *build) php() error {
	if !b.calls("php") {
		return nil
	}
	v, composer := b.phpVersion, b.calls("composer")
	switch {
	case v.CLI == "" && composer:
		return fault.New(fault.Unavailable, "php_missing", "PHP's command line program is not installed on this server",
			"the operator can install it (apt-get install php-cli)")
	case composer && !v.HasComposer():
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
}

// apache translates the .htaccess files of the document root, of which the installation of packages may have written some,
// and says which files are left to PHP. It does nothing for other programs.
func (b *build) apache(a *Artefact) error {
	if a.Runtime != framework.PHP {
		return nil
	}
	if a.Start != nil && len(b.Plan.Install)+len(b.Plan.Build) > 0 {
		root := path.Join(b.Plan.Root, a.Start.DocumentRoot)
		files, err := apacheFiles(a.Files, root)
		if err != nil {
			return err
		}
		rules, problems, refused := framework.Apache(files, nil)
		if refused != nil {
			return fault.New(fault.Invalid, "invalid_htaccess", refused.Error(), refused.Remedy)
		}
		if !reflect.DeepEqual(rules, a.Start.Rules) {
			start := *a.Start
			start.Rules, a.Start = rules, &start
			for _, problem := range problems {
				b.printf("warn", "%s", problem)
			}
		}
	}
	a.Hidden = hiddenPHP(a.Start, b.Storage, b.Plan.Root)
	return placed(a, b.Plan.Root)
}

// placed checks that a project has the folder and the script from which it is served.
func placed(a *Artefact, folder string) error {
	if a.Start == nil {
		return nil
	}
	root := path.Join(folder, a.Start.DocumentRoot)
	if info, err := a.Files.Stat(path.Clean(root)); err != nil || !info.IsDir() {
		return fault.New(fault.Invalid, "document_root_missing", "The document root is not in the project",
			"set run.documentRoot, or document_root under [run] in slipway.toml, to a folder of the project").Got(a.Start.DocumentRoot)
	}
	if front := a.Start.FrontController; front != "" {
		if info, err := a.Files.Stat(path.Join(root, front)); err != nil || !info.Mode().IsRegular() {
			return fault.New(fault.Invalid, "front_controller_missing", "The front controller is not in the document root",
				"set run.frontController, or front_controller under [run] in slipway.toml, to a .php file there").Got(front)
		}
	}
	return nil
}

// apacheFiles lists the .htaccess files of a folder, outermost first.
func apacheFiles(top *os.Root, root string) (files []framework.ApacheFile, err error) {
	err = fs.WalkDir(top.FS(), path.Clean(root), func(name string, e fs.DirEntry, err error) error {
		switch {
		case err != nil && name == path.Clean(root):
			return fs.SkipAll
		case err != nil:
			return err
		case e.IsDir() && (e.Name() == "node_modules" || e.Name() == ".git"):
			return fs.SkipDir
		case e.Name() == ".htaccess" && e.Type().IsRegular():
			file := framework.ApacheFile{Name: name}
			if path.Dir(name) != path.Clean(root) {
				file.Dir = strings.TrimPrefix(path.Dir(name), strings.TrimPrefix(path.Clean(root)+"/", "./"))
			}
			if len(files) < framework.MaxApacheFiles {
				file.Text = readApache(top, name)
			}
			files = append(files, file)
		}
		return nil
	})
	return files, err
}

// readApache returns a .htaccess; one that can't be read may close its folder.
func readApache(top *os.Root, name string) string {
	const closed = "Require all denied"
	f, err := top.Open(name)
	if err != nil {
		return closed
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, htaccess.Max+1))
	if err != nil {
		return closed
	}
	return string(text)
}

// hiddenPHP returns a function that reports which files of a PHP project aren't served: source code, closed folders,
// files that rules of Apache may be about, and storage.
func hiddenPHP(start *framework.Start, storage []string, folder string) func(name string) bool {
	var stored []string
	var apache *htaccess.Map
	root := ""
	if start != nil {
		apache, _ = htaccess.Compile(start.Rules) // with an error it closes everything
		root = path.Join("/app", folder, start.DocumentRoot)
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
		if rules.IsFile(name) { // it is read, and not served
			return false
		}
		return !framework.ShowsPHP(name) || start != nil && start.Closes(name) || apache.Touches(name, root) ||
			slices.ContainsFunc(stored, func(dir string) bool { return within(name, dir) })
	}
}
